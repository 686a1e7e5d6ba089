"""How a Celery worker ends: its turns get time to end in, and are then left to other workers (DESIGN 5.2).

Celery tells of it in the main process alone, some of it from within a signal handler, where no lock may be taken. So
each process that runs jobs watches the end of a pipe, which the children of a prefork pool have from the main process.
"""

import asyncio
import logging
import os
from typing import Any

from celery.bootsteps import StartStopStep
from celery.signals import worker_init, worker_process_init, worker_ready, worker_shutting_down

from a2a_django import doorbell
from a2a_django.agents import leases
from a2a_django.settings import a2a_settings

log = logging.getLogger(__name__)

_pipe: tuple[int, int] | None = None  # made before the children are
_begun = False


def begun() -> bool:
    """Whether this process is about to end: it starts no more turns."""
    return _begun


@worker_init.connect
def _prepare(sender: Any, **_: Any) -> None:
    global _pipe
    if a2a_settings.EXECUTION == "celery":
        _pipe = _pipe or os.pipe()
        sender.app.steps["worker"].add(_Last)


@worker_shutting_down.connect
def _tell(**_: Any) -> None:
    """After SIGTERM or the first SIGINT, at once: a solo pool comes to no other step while a turn runs."""
    if _pipe:
        os.write(_pipe[1], b".")  # stays in there, for all to see


class _Last(StartStopStep):
    """Tells of an end of which no signal told: by `celery control shutdown`, or by a SIGQUIT where threads run jobs."""

    def close(self, worker: Any) -> None:
        """The first that a worker does when it ends."""
        _tell()


@worker_process_init.connect
def _process_is_up(**_: Any) -> None:
    """Starts the keeper, which renews leases and recovers, and has it see the shutdown."""
    if a2a_settings.EXECUTION == "celery":
        loop = doorbell.keeper().loop
        if _pipe:
            loop.call_soon_threadsafe(loop.add_reader, _pipe[0], _begin, loop, _pipe[0])


@worker_ready.connect
def _worker_is_up(sender: Any, **_: Any) -> None:
    """As `_process_is_up`, for pools that have no processes of their own."""
    if not sender.pool.uses_semaphore:  # prefork does, and forks best without threads
        _process_is_up()


def _begin(loop: asyncio.AbstractEventLoop, pipe: int) -> None:
    global _begun
    _begun = True
    loop.remove_reader(pipe)
    log.info("This worker ends, its turns have %g s to end in.", a2a_settings.SHUTDOWN_SECONDS)
    loop.call_later(a2a_settings.SHUTDOWN_SECONDS, leases.interrupt)

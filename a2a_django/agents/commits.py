"""Group commit: what the turns of a process have to append while a commit is under way is the next one (DESIGN 4)."""

import asyncio
import os
import threading
from collections.abc import Sequence
from concurrent.futures import Future

from a2a_django import database, event_log
from a2a_django.batches import End, Writer
from a2a_django.entries import Entry
from a2a_django.event_log import Append

_lock = threading.Lock()
_waiting: list[Append] = []
_next: "Future[None] | None" = None


async def append(writer: Writer, said: Sequence[Entry], end: End | None) -> None:
    """`event_log.append`, in one transaction with what other turns append at the same time."""
    item = Append(writer, said, end)
    await asyncio.shield(asyncio.wrap_future(_join(item)))  # who gives up must not take the others' commit along
    if item.error is not None:
        raise item.error
    if end is not None and writer.unfolded is None:
        await database.log.run(event_log.fold, writer.task_id)


def _join(item: Append) -> "Future[None]":
    """The commit that takes `item` along."""
    global _next
    with _lock:
        _waiting.append(item)
        if _next is None:
            _next = database.commits.submit(_commit)
        return _next


def _commit() -> None:
    global _next
    with _lock:
        taken, _next = _waiting[:], None
        _waiting.clear()
    event_log.append_together(taken)


def _forget() -> None:
    """After a fork the parent commits what it has."""
    global _lock, _next
    _lock, _next = threading.Lock(), None
    _waiting.clear()


os.register_at_fork(after_in_child=_forget)

"""How much of one party may be going on at a time: tasks that run, streams that are open (A2A 13.4).

The party is the tenant, or outside of tenants the owner; anonymous callers are one together.
"""

import os
import threading
from collections import Counter
from functools import partial
from typing import Any

from django.db.models import OuterRef, Subquery

from a2a_django.doorbell import Ear
from a2a_django.models import Caller, Task, Turn
from a2a_django.models.turn import TurnState
from a2a_django.protocol import errors
from a2a_django.settings import a2a_settings
from a2a_django.statements import Select

Party = tuple[str, object]


def check_running(caller: Caller, task_id: str) -> None:
    """TooManyRequestsError where other tasks of the party than this one run, or wait to run, as many as may.

    Sends that are taken in at the same moment don't see each other: with n REQUEST_THREADS in all processes together,
    n - 1 more may run. To be exact they would have to wait for each other.
    """
    limit = _limit(caller, "running_tasks", "RUNNING_TASKS")
    if limit is None:
        return
    others = _OF_TENANT.rows(caller.tenant.pk, task_id) if caller.tenant else _OF_OWNER.rows(caller.owner, task_id)
    if len(others) >= limit:
        raise _too_many(f"As many tasks as may run at a time do so already: {limit}")


def _others(task_id: Any, **party: Any) -> Any:
    """Their ids.

    The turns of the whole site that run or wait are few, and each of their tasks is found by its key. A join, or an
    Exists, might as well begin with all tasks that there are.
    """
    theirs = Task.objects.live().filter(pk=OuterRef("task"), **party).order_by()
    active = Turn.objects.filter(state__in=(TurnState.QUEUED, TurnState.RUNNING)).exclude(task=task_id)
    found = active.annotate(theirs=Subquery(theirs.values("pk"))).filter(theirs__isnull=False)
    return found.order_by().values_list("task").distinct()


_OF_TENANT = Select(Turn, lambda tenant, task_id: _others(task_id, tenant=tenant))
_OF_OWNER = Select(Turn, lambda owner, task_id: _others(task_id, tenant=None, owner=owner))


def open_stream(caller: Caller, ear: Ear) -> None:
    """Counts a stream, which is open until its `ear` is closed; TooManyRequestsError where as many as may are.

    They are those of this process: what a process that died had open needs no clearing up.
    """
    limit = _limit(caller, "open_streams", "OPEN_STREAMS")
    if limit is None:
        return
    party: Party = ("tenant", caller.tenant.pk) if caller.tenant else ("owner", caller.owner)
    with _lock:
        if _open[party] >= limit:
            raise _too_many(f"As many streams as may be open at a time are open already: {limit}")
        _open[party] += 1
    ear.at_end(partial(_close, party))


_lock = threading.RLock()  # an ear that nobody keeps may end wherever its garbage is collected
_open: Counter[Party] = Counter()


def _close(party: Party) -> None:
    with _lock:
        _open[party] -= 1
        if _open[party] <= 0:
            del _open[party]


def _forget() -> None:
    """After a fork the streams are the parent's."""
    global _lock
    _lock = threading.RLock()
    _open.clear()


os.register_at_fork(after_in_child=_forget)


def _limit(caller: Caller, own: str, setting: str) -> int | None:
    """The tenant's own limit, else the site's."""
    limit: int | None = getattr(caller.tenant, own) if caller.tenant else None
    return getattr(a2a_settings, setting) if limit is None else limit


def _too_many(message: str) -> errors.TooManyRequestsError:
    return errors.TooManyRequestsError(message, wait=errors.RETRY_SECONDS)

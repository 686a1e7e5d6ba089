"""The leases that this process holds: renewed by the keeper, whatever the executors do (DESIGN 5.4)."""

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import cache
from typing import Any
from uuid import uuid4

from django.db.models import DateTimeField, ExpressionWrapper, F
from django.db.models.functions import Now
from django.utils import timezone

from a2a_django import database, doorbell, statements
from a2a_django.models import Task
from a2a_django.models.task import Cancel
from a2a_django.settings import a2a_settings


def token() -> str:
    """A new lease token."""
    return str(uuid4())


def timed_out(started_at: datetime | None, timeout: float | None) -> bool:
    """Whether a turn that started then has had its time."""
    return started_at is not None and timeout is not None and started_at + timedelta(seconds=timeout) < timezone.now()


def expiry() -> Any:
    """When a lease that is taken or renewed now expires, by the database's clock."""
    return _expiry(a2a_settings.LEASE_SECONDS)


@cache
def _expiry(seconds: float) -> Any:
    lasting = timedelta(seconds=seconds)
    return statements.raw(ExpressionWrapper(Now() + lasting, output_field=DateTimeField()), Task)


class Held:
    """A lease that a runner holds; `news` wakes it when its task is being cancelled or the lease is lost."""

    def __init__(self, task_id: str, lease: str, timeout: float | None = None) -> None:
        self.task_id, self.lease = task_id, lease
        self._deadline = float("inf") if timeout is None else time.monotonic() + timeout
        self.lost = self.cancel_requested = False
        self.renewed = 0
        self._noted = 0
        self._ear: doorbell.Ear

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Within it the lease is renewed, and `news` hears of cancels; in the runner's loop."""
        self._ear = doorbell.Ear()
        self._ear.listen(doorbell.CANCEL + self.task_id)
        with _holding(self):
            yield

    async def news(self) -> None:
        """Returns after a renewal, or when a canceller has rung and the task's row was looked at."""
        left = self._deadline - time.monotonic()
        await self._ear.wait(left if 0 < left < float("inf") else None)
        if self._noted == self.renewed:
            with contextlib.suppress(*database.AWAY):  # then the next renewal tells
                self._see(await database.log.run(_standing, self.task_id))
        self._noted = self.renewed

    @property
    def timed_out(self) -> bool:
        """Whether the turn has had its time."""
        return time.monotonic() >= self._deadline

    @property
    def given_up(self) -> bool:
        """Whether the runner should have ended the turn long ago, but doesn't come to it: its loop is blocked."""
        return time.monotonic() >= self._deadline + a2a_settings.CANCEL_TIMEOUT

    def was_renewed(self, standing: tuple[str, str] | None) -> None:
        """Takes note of what a renewal found; from the keeper's thread."""
        self._see(standing)
        self.renewed += 1
        self._ear.ring()

    def _see(self, standing: tuple[str, str] | None) -> None:
        """Takes note of the (lease, cancel) in the task's row, None where the lease isn't ours."""
        self.lost = standing is None or standing[0] != self.lease
        self.cancel_requested = standing is not None and standing[1] == Cancel.REQUESTED


def _standing(task_id: str) -> tuple[str, str] | None:
    return Task.objects.filter(pk=task_id).values_list("lease", "cancel").first()


_lock = threading.Lock()
_held: dict[str, Held] = {}


@contextlib.contextmanager
def _holding(held: Held) -> Iterator[None]:
    with _lock:
        _held[held.lease] = held
    try:
        yield
    finally:
        with _lock:
            _held.pop(held.lease, None)


async def _renew() -> None:
    with _lock:
        held = {lease: one for lease, one in _held.items() if not one.given_up}
    if not held:
        return
    found = await database.commits.run(_renew_rows, held)
    for lease, one in held.items():
        one.was_renewed(found.get(lease))


def _renew_rows(held: dict[str, Held]) -> dict[str, tuple[str, str]]:
    """(lease, cancel) by lease of those that still are ours, all renewed in one UPDATE."""
    ours = Task.objects.filter(pk__in=[one.task_id for one in held.values()], lease__in=list(held))
    ours.update(lease_expires=expiry(), lease=F("lease"))
    return {lease: (lease, cancel) for lease, cancel in ours.values_list("lease", "cancel")}


doorbell.duty("The renewal of leases", "LEASE_SECONDS", _renew, 1 / 3)


def _forget() -> None:
    """After a fork the parent holds the leases."""
    global _lock
    _lock = threading.Lock()
    _held.clear()


os.register_at_fork(after_in_child=_forget)

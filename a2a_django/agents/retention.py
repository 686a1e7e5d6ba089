"""Deletes what has been kept for long enough: events of settled tasks, then the tasks (A2A 13.4).

Live tasks are deleted by `erase` alone; `give_up` ends them. Any number of processes may do so at once. Each
transaction is short and begins with a write; the work is what there is to delete, once through the tasks by time.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple

from celery import shared_task
from django.db import IntegrityError, transaction
from django.db.models import Case, DateTimeField, Exists, F, OuterRef, Q, QuerySet, When
from django.db.models.functions import Now

from a2a_django import database, doorbell, entries, event_log
from a2a_django.event_log import FencedError
from a2a_django.models import Event, Task, Tenant, Turn
from a2a_django.models.turn import ENDED
from a2a_django.protocol.states import TERMINAL, TaskState
from a2a_django.settings import a2a_settings

AT_ONCE = 100  # tasks of one portion, and events of each that go in one transaction
CENTURY = 36_525 * 86_400.0  # seconds; asked to count back much further, databases fail

NEUTRAL = "Nothing was heard of this task for a long time, so it was ended."


class Purged(NamedTuple):
    """How much a portion has deleted."""

    tasks: int
    events: int


class _Old(NamedTuple):
    """A task that is old enough."""

    status_timestamp: Any
    pk: str
    last_sequence: int
    visible: bool


def purge() -> Iterator[Purged]:
    """Deletes what the retentions say, portion by portion: whole tasks, then events of those that stay.

    A call that was answered by a Message has left a hidden task, which goes whole with that event.
    """
    for portion in _portions(_due("TASK_RETENTION", "task_retention")):
        yield _delete(portion)
    for portion in _portions(_logged(_due("EVENT_RETENTION", "event_retention"))):
        yield _delete_logs([old for old in portion if old.visible])
        yield _delete([old for old in portion if not old.visible])


def due() -> Purged:
    """What `purge` would delete now."""
    whole, logs = _due("TASK_RETENTION", "task_retention"), _due("EVENT_RETENTION", "event_retention")
    tasks = Task.objects.filter(Q(pk__in=whole) | Q(pk__in=_logged(logs).filter(visible=False)))
    return Purged(tasks.count(), Event.objects.filter(Q(task__in=whole) | Q(task__in=logs)).count())


def erase(tasks: "QuerySet[Task]") -> Iterator[Purged]:
    """Deletes `tasks` in whatever state; what still runs for them is fenced off, who waits hears that they are gone."""
    for portion in _portions(tasks):
        yield _delete(portion, live=True)


def abandoned(seconds: float) -> "QuerySet[Task]":
    """The live tasks that have waited for their client for so long."""
    return _quiet(Task.objects.live().filter(visible=True), _ago(seconds))


def give_up(seconds: float) -> int:
    """Ends those tasks, FAILED; how many. Their subscribers hear of it (CASES 82)."""
    return sum(_end(old.pk) for portion in _portions(abandoned(seconds)) for old in portion)


# --- which


def _due(setting: str, override: str) -> "QuerySet[Task]":
    """Settled tasks that have been kept for as long as their tenant, or else the site, wants them kept.

    However many tenants have a wish, the tasks are gone through once, up to the shortest time of all.
    """
    own: dict[float, list[Any]] = defaultdict(list)
    for seconds, tenant in Tenant.objects.exclude(**{override: None}).values_list(override, "pk"):
        own[seconds].append(tenant)
    site = getattr(a2a_settings, setting)
    kept = [*own] if site is None else [*own, site]
    if not kept:
        return Task.objects.none()
    of_tenants = (When(tenant__in=tenants, then=_ago(seconds)) for seconds, tenants in own.items())
    since = Case(*of_tenants, default=None if site is None else _ago(site), output_field=DateTimeField())
    return _quiet(Task.objects.filter(state__in=TERMINAL, status_timestamp__lt=_ago(min(kept))), since)


def _quiet(tasks: "QuerySet[Task]", since: Any) -> "QuerySet[Task]":
    """Those of which nothing was heard `since`.

    An executor may give a status any time, so what the server has noted counts, too.
    """
    turns = Turn.objects.filter(task=OuterRef("pk")).exclude(state__in=ENDED, ended_at__lt=OuterRef("since"))
    return tasks.alias(since=since).filter(
        ~Exists(turns), lease="", status_timestamp__lt=F("since"), created_at__lt=F("since")
    )


def _ago(seconds: float) -> Any:
    """So long ago, and long enough to join no repeated message any more."""
    return Now() - timedelta(seconds=min(max(seconds, a2a_settings.IDEMPOTENCY_SECONDS), CENTURY))


def _portions(tasks: "QuerySet[Task]") -> Iterator[list[_Old]]:
    """The tasks, oldest first, each once."""
    ordered = tasks.order_by("status_timestamp", "pk")
    rest = ordered
    while found := [_Old(*row) for row in rest.values_list(*_Old._fields)[:AT_ONCE]]:
        yield found
        last = found[-1]
        rest = ordered.filter(status_timestamp__gte=last.status_timestamp)
        rest = rest.exclude(status_timestamp=last.status_timestamp, pk__lte=last.pk)


def _logged(tasks: "QuerySet[Task]") -> "QuerySet[Task]":
    return tasks.filter(Exists(Event.objects.filter(task=OuterRef("pk"))))


# --- how


def _delete(portion: Sequence[_Old], *, live: bool = False) -> Purged:
    ids = [old.pk for old in portion]
    tasks = Task.objects.filter(pk__in=ids)
    if live:  # one by one: appends and renewals hold the rows of many, in an order of their own
        for pk in ids:
            _close(tasks.filter(pk=pk))
    else:
        _close(tasks)
    transaction.on_commit(partial(doorbell.ring, *(doorbell.CANCEL + pk for pk in ids)))
    events = _delete_events(portion)
    try:
        deleted = tasks.delete()[1]
    except IntegrityError:  # what was being added to one of them at that moment is there by now
        deleted = tasks.delete()[1]
    transaction.on_commit(partial(doorbell.ring, *ids))
    return Purged(deleted.get(Task._meta.label, 0), events)


def _close(tasks: "QuerySet[Task]") -> None:
    """Waits for appends that are under way; from then on no append, no claim and no reader finds these tasks."""
    tasks.update(visible=False, state=TaskState.CANCELED, lease="", lease_expires=None)


def _delete_logs(portion: Sequence[_Old]) -> Purged:
    """The events of tasks that stay; the artifacts that they make are rows by then."""
    behind = Task.objects.filter(pk__in=[old.pk for old in portion], folded_sequence__lt=F("last_sequence"))
    for pk in behind.values_list("pk", flat=True):
        event_log.fold(pk)
    return Purged(0, _delete_events(portion))


def _delete_events(portion: Sequence[_Old]) -> int:
    """From the first on, so that a reader who comes back sees that the next event is not there any more."""
    deleted = 0
    for after in range(0, max((old.last_sequence for old in portion), default=0), AT_ONCE):
        longer = [old.pk for old in portion if old.last_sequence > after]
        deleted += Event.objects.filter(task__in=longer, sequence__gt=after, sequence__lte=after + AT_ONCE).delete()[0]
    return deleted


def _end(task_id: str) -> bool:
    task = Task.objects.get(pk=task_id)
    said = entries.failed(task.pk, task.context_id, f"{task.pk}-given-up", NEUTRAL)
    try:
        event_log.append(event_log.writer(task), [said], release=True)
    except FencedError:  # its client has come back
        return False
    return True


# --- when


async def _purge() -> None:
    portions = purge()
    while await database.log.run(next, portions, None):  # the thread is others' in between
        pass


doorbell.duty("The purge", "PURGE_SECONDS", _purge)


@shared_task(name="a2a_django.purge", ignore_result=True)
def run_purge() -> None:
    """The Celery job, for sites that want a clock of their own: `purge`."""
    for _ in purge():
        pass

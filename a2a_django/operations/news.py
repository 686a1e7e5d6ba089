"""What comes after n in the logs of tasks, read in one query for all streams that ask at the same time (DESIGN 4)."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cache, reduce
from operator import or_
from typing import Any

from django.db.models import Q, Subquery, Value
from django.db.models.functions import Coalesce

from a2a_django import database, statements
from a2a_django.agents import claims
from a2a_django.database import Gathered
from a2a_django.models import Event, Task, Turn
from a2a_django.models.turn import ENDED
from a2a_django.protocol import errors
from a2a_django.protocol.states import TERMINAL
from a2a_django.statements import Select

CHUNK = 500
"""Events that one look takes at the most."""

NEVER = 2**31 - 1  # beyond all sequences

TOGETHER = 16  # looks of one query: three parameters each, see statements.FEW

Item = tuple[int, str]  # sequence, StreamResponse JSON


@dataclass
class _Look:
    """What a stream asks, and what there is: `over` says that nothing follows."""

    task_id: str
    after: int
    turn_id: int | None
    ends: Collection[str] = TERMINAL
    limit: int = CHUNK
    found: list[Item] = field(default_factory=list)
    over: bool = False
    error: Exception | None = None

    def take(self, rows: Sequence[tuple[int, str, str]], until: int | None) -> None:
        """Takes the (sequence, body, state) that were found, up to one that ends the stream.

        `until` is the last event of the turn, if that has ended: what follows is another's.
        """
        own = [row for row in rows if until is None or row[0] <= until]
        if own and own[0][0] != self.after + 1:
            self.error = purged(self.task_id)
        end = next((place for place, (_, _, state) in enumerate(own) if state in self.ends), None)
        self.over = end is not None or (
            bool(own) and until is not None and (len(own) < self.limit or own[-1][0] == until)
        )
        self.found = [(sequence, body) for sequence, body, _ in (own if end is None else own[: end + 1])]


async def look(
    task_id: str, after: int, turn_id: int | None, ends: Collection[str], limit: int
) -> tuple[list[Item], bool]:
    """Up to `limit` events after `after`, and whether the stream is over with them: at one of `ends`, or with its turn.

    Raises what the turn's caller gets instead of events.
    """
    asked = _Look(task_id, after, turn_id, ends, limit)
    await _looks.run(asked)
    if asked.error is not None:
        raise asked.error
    return asked.found, asked.over


def _look_together(asked: Sequence[_Look]) -> None:
    for start in range(0, len(asked), TOGETHER):
        some = asked[start : start + TOGETHER]
        if len(some) > 1:
            _look_at_many(some)
        else:
            _look_at_one(some[0])


_looks = Gathered(database.log, _look_together)


# --- one


def _look_at_one(asked: _Look) -> None:
    """Whether the turn has ended is read no later than its events: a stream can't close before its last event."""
    try:
        _read(asked)
        if not asked.found and (last := _end(asked)) is not None:
            _read(asked)  # what came between the two; more than a chunk of it is not the end yet
            asked.over = asked.over or not asked.found
            if not asked.found and asked.after < last:
                raise purged(asked.task_id)
    except Exception as error:  # its own, not that of the others
        asked.error = error


def _read(asked: _Look) -> None:
    rows = _EVENTS.rows(asked.task_id, asked.after, asked.after + asked.limit, asked.turn_id or 0)
    asked.take([row[:3] for row in rows], until=rows[-1][3] if rows else None)


def _end(asked: _Look) -> int | None:
    """The last event of the turn, or else of the task, if that has ended."""
    if asked.turn_id is None:
        task = claims.TASKS.get(asked.task_id)
        if not task.visible:  # it is being deleted, which is no end that its reader may believe in
            raise Task.DoesNotExist
        return task.last_sequence if task.terminal else None
    state, last, answer, visible, newest = _TURN.row(asked.turn_id)
    if answer and not visible:
        raise errors.restore(answer)
    if state not in ENDED:
        return None
    return int(newest if last is None else last)


def purged(task_id: str) -> errors.A2AError:
    """The error for a stream whose next event is not kept any more."""
    return errors.UnsupportedOperationError("The task's events are not kept any more; use GetTask", {"taskId": task_id})


def _ended_turns() -> Any:
    """Turns that have ended, each `until` its last event; one that was never run has none of its own."""
    return Turn.objects.filter(state__in=ENDED).annotate(until=Coalesce("end_sequence", Value(NEVER)))


_TURN = Select(
    Turn,
    lambda turn_id: (
        Turn.objects.filter(pk=turn_id)
        .order_by()
        .values_list("state", "end_sequence", "answer", "task__visible", "task__last_sequence")
    ),
)
_EVENTS = Select(
    Event,
    lambda task_id, after, last, turn_id: (
        Event.objects.after(task_id, after)
        .filter(sequence__lte=last)
        .annotate(until=Subquery(_ended_turns().filter(pk=turn_id).values("until")))
        .values_list("sequence", "body", "state", "until")
    ),
)


# --- many


def _look_at_many(asked: Sequence[_Look]) -> None:
    """Fills in what two queries find for all. Turns are read first: a stream can't close before its last event."""
    padded = statements.padded(asked)
    size = len(padded)
    until = dict(_ended(size).rows(*(one.turn_id or 0 for one in padded)))
    ranges = ((one.task_id, one.after, one.after + one.limit) for one in padded)
    rows = sorted(_events(size).rows(*(part for part_of_log in ranges for part in part_of_log)))
    for one in asked:
        own = [row[1:] for row in rows if row[0] == one.task_id and one.after < row[1] <= one.after + one.limit]
        one.take(own, until.get(one.turn_id))
        if not one.found and (one.turn_id is None or one.turn_id in until):
            _look_at_one(one)


@cache
def _ended(size: int) -> Select[Turn]:
    """Those of the turns that have ended: (id, last event)."""
    return Select(
        Turn, lambda *turns: _ended_turns().filter(pk__in=turns).order_by().values_list("pk", "until"), arity=size
    )


@cache
def _events(size: int) -> Select[Event]:
    """Parts of logs, in no order: (task id, sequence, body, state).

    Bounded by sequences, since a LIMIT would have PostgreSQL walk the whole index in the order of its keys.
    """

    def build(*arguments: Any) -> Any:
        parts = zip(*[iter(arguments)] * 3, strict=True)
        each = (Q(task_id=task, sequence__gt=after, sequence__lte=until) for task, after, until in parts)
        events = Event.objects.filter(reduce(or_, each)).order_by()
        return events.values_list("task_id", "sequence", "body", "state")

    return Select(Event, build, arity=3 * size)

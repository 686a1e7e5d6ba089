"""The log of a task: `append()` is its only writer, `fold()` makes Artifact rows of it (DESIGN 4)."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial, reduce
from operator import or_
from typing import Any

from django.db import transaction
from django.db.models import F, Q
from django.db.models.functions import Now

from a2a_django import batches, database, doorbell, snapshots, statements
from a2a_django.batches import Batch, End, Writer
from a2a_django.entries import Entry
from a2a_django.models import Artifact, Event, Task, Turn
from a2a_django.models.turn import TurnState
from a2a_django.protocol import codec
from a2a_django.statements import Update

STEPS = 8  # tasks of one UPDATE: three parameters each, see statements.FEW


class FencedError(Exception):
    """The writer has lost the task: its lease was taken, or another wrote a terminal state."""


def writer(task: Task) -> Writer:
    """A writer that takes up `task` as its row says."""
    return Writer(task.pk, task.context_id, task.lease).stand_at(task)


def append(writer: Writer, said: Sequence[Entry], *, end: End | None = None, release: bool = False) -> None:
    """Appends `said` in one transaction and moves `writer` on.

    `end` ends a turn in the same transaction; `end` and `release` give the lease up. FencedError when the task
    isn't the writer's any more; nothing was written then.
    """
    _append(writer, said, end, release=release)
    if (end or release) and writer.unfolded is None:
        fold(writer.task_id)


def _append(writer: Writer, said: Sequence[Entry], end: End | None, *, release: bool = False) -> None:
    while True:
        batch = batches.plan(writer, said, end, release=release)
        if not writer.unsure and (not batch.writes or _commit([batch])[0]):
            break
        task = Task.objects.filter(pk=writer.task_id).first()
        if task is not None and _stand_in_log(batch.events):
            break  # the commit succeeded, only its answer was lost
        if task is None or task.lease != writer.lease or (task.terminal and said):
            raise FencedError
        writer.stand_at(task)
    batches.move(batch)


@dataclass
class Append:
    """One of several appends that are committed together, each of a task of its own; `error` says how it went."""

    writer: Writer
    said: Sequence[Entry]
    end: End | None = None
    error: Exception | None = None


def append_together(appends: Sequence[Append]) -> None:
    """Commits all `appends` in one transaction; one that is refused, or all if it fails, have one of their own.

    Whoever ends a turn with it calls `fold` afterwards where `writer.unfolded` is None.
    """
    done, away = _commit_group(appends) if len(appends) > 1 else set(), None
    for item in appends:
        if id(item) not in done:
            item.error = away or _error_of(partial(_append, item.writer, item.said, item.end))
            away = item.error if isinstance(item.error, database.AWAY) else None  # to hear that takes its time


def _commit_group(appends: Sequence[Append]) -> set[int]:
    """The ids of those that one transaction has written; none if it failed: whose fault that was shows alone."""
    sure = [item for item in appends if not item.writer.unsure]
    try:
        planned = [batches.plan(item.writer, item.said, item.end) for item in sure]
        written = _commit(planned)
    except Exception:
        return set()
    for batch, done in zip(planned, written, strict=True):
        if done:
            batches.move(batch)
    return {id(item) for item, done in zip(sure, written, strict=True) if done}


def _error_of(call: "partial[None]") -> Exception | None:
    try:
        call()
    except Exception as error:
        return error
    return None


def _commit(planned: Sequence[Batch]) -> list[bool]:
    """Writes each batch whose task still is its writer's: a conditional UPDATE first, for SQLite too (DESIGN 4)."""
    with transaction.atomic():
        written = _advance_all(planned)
        mine = [batch for batch, done in zip(planned, written, strict=True) if done]
        statements.insert([event for batch in mine for event in batch.events])
        statements.insert([message for batch in mine for message in batch.messages])
        statements.insert([row for batch in mine if batch.release for row in batches.artifact_rows(batch) or ()])
        for batch in mine:
            if batch.activated:
                _ACTIVATE.run(batch.activated.turn_id, codec.dumps(batch.activated.uris))
            if batch.end:
                _end_turns(batch.end, batch)
        transaction.on_commit(partial(doorbell.ring, *(batch.writer.task_id for batch in mine)))
    return written


def _advance_all(planned: Sequence[Batch]) -> list[bool]:
    """Moves the tasks' rows on; those that are one chunk of a stream further, and nothing else, in one UPDATE."""
    steps = [batch for batch in planned if len(batch.events) == 1 and not batch.changes and not batch.release]
    if len(steps) < 2:
        return [_advance(batch) for batch in planned]
    for start in range(0, len(steps), STEPS):
        if not _step([batch.writer for batch in steps[start : start + STEPS]]):
            raise FencedError  # which of them shows when each is on its own
    return [batch in steps or _advance(batch) for batch in planned]


def _step(writers: Sequence[Writer]) -> bool:
    """Moves the rows of all these tasks on by one event."""
    padded = statements.padded(writers)
    row_of = ((writer.task_id, writer.lease, writer.sequence) for writer in padded)
    return _step_together(len(padded)).run(*(value for row in row_of for value in row)) == len(writers)


@cache
def _step_together(size: int) -> Update[Task]:
    """The UPDATE of tasks that get one event each."""

    def build(*arguments: Any) -> Any:
        rows = zip(*[iter(arguments)] * 3, strict=True)
        each = (Q(pk=task_id, lease=lease, last_sequence=sequence) for task_id, lease, sequence in rows)
        return Task.objects.live().filter(reduce(or_, each)), {"last_sequence": F("last_sequence") + 1}

    return Update(Task, build, arity=3 * size)


def _advance(batch: Batch) -> bool:
    """Moves the task's row on, if it is the writer's."""
    writer = batch.writer
    changes = {**batch.changes, "last_sequence": batch.sequence}
    if batch.release and batch.unfolded() is not None:
        changes["folded_sequence"] = batch.sequence
    update = _update_of_mine(tuple(changes), live=bool(batch.events), release=batch.release)
    return bool(update.run(writer.task_id, writer.lease, writer.sequence, writer.crowded, *changes.values()))


@cache
def _update_of_mine(columns: tuple[str, ...], *, live: bool, release: bool) -> Update[Task]:
    """The UPDATE of these columns of a task, if it still is the writer's; `release` gives the lease up."""

    def build(task_id: Any, lease: Any, sequence: Any, crowded: Any, *values: Any) -> Any:
        tasks = Task.objects.live() if live else Task.objects.all()
        changes: dict[str, Any] = dict(zip(columns, values, strict=True))
        if release:
            tasks = tasks.filter(crowded=crowded)  # a turn that came meanwhile must not be overlooked
            changes |= {"lease": "", "lease_expires": None, "cancel": ""}
        if "folded_sequence" in columns:
            tasks = tasks.filter(folded_sequence=0)  # a fold meanwhile has made rows already
        return tasks.filter(pk=task_id, lease=lease, last_sequence=sequence), changes

    return Update(Task, build, arity=4 + len(columns))


_ACTIVATE = Update(Turn, lambda turn_id, uris: (Turn.objects.filter(pk=turn_id), {"activated": uris}))


def _end_turns(end: End, batch: Batch) -> None:
    """Ends the turn and those that are part of it."""
    state, writer = TurnState.FAILED if end.failed else TurnState.DONE, batch.writer
    answer = codec.dumps(end.answer) if end.answer else None
    for turn_id in (end.turn_id, *end.absorbed):
        _END_TURN.run(turn_id, state.value, batch.sequence, end.error, answer)
    if writer.crowded:  # what was taken but has not reached the executor gets a turn of its own
        Turn.objects.filter(task=writer.task_id, state=TurnState.RUNNING).update(state=TurnState.QUEUED)


_END_TURN = Update(
    Turn,
    lambda turn_id, state, sequence, error, answer: (
        Turn.objects.filter(pk=turn_id),
        {"state": state, "end_sequence": sequence, "ended_at": Now(), "error": error, "answer": answer},
    ),
)


def _stand_in_log(events: Sequence[Event]) -> bool:
    """Whether these events were written; the last tells: a batch is written whole, and may begin with a new time."""
    if not events:
        return False
    written = Event.objects.filter(task_id=events[-1].task_id, sequence=events[-1].sequence)
    return list(written.values_list("body", flat=True)) == [events[-1].body]


# --- folding


def fold(task_id: str) -> None:
    """Brings the Artifact rows of a task up to its log; a no-op where they are. Whoever ends a turn does it then."""
    with transaction.atomic():
        # A write comes first, for SQLite; it takes the row's lock, so that one folder works at a time.
        behind = Task.objects.filter(pk=task_id, folded_sequence__lt=F("last_sequence"))
        if not behind.update(folded_sequence=F("folded_sequence")):
            return
        task = Task.objects.get(pk=task_id)
        _write_artifacts(task_id, snapshots.rows(task_id, snapshots.fold(task)))
        Task.objects.filter(pk=task_id).update(folded_sequence=task.last_sequence)


def _write_artifacts(task_id: str, artifacts: list[Artifact]) -> None:
    known = dict(Artifact.objects.filter(task_id=task_id).values_list("artifact_id", "pk"))
    for artifact in artifacts:
        artifact.pk = known.get(artifact.artifact_id)
    Artifact.objects.bulk_update([item for item in artifacts if item.pk], ["body", "through"])
    Artifact.objects.bulk_create([item for item in artifacts if not item.pk])

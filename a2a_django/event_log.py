"""The log of a task: `append()` is its only writer, `fold()` makes Artifact rows of it (DESIGN 4)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache, partial
from typing import Any

from django.db import transaction
from django.db.models import DateTimeField, ExpressionWrapper, F
from django.db.models.functions import Now
from django.utils import timezone

from a2a_django import batches, chunks, database, doorbell, snapshots, statements
from a2a_django.batches import Again, Batch, End, Writer
from a2a_django.entries import Entry
from a2a_django.models import Artifact, Event, Task, Turn
from a2a_django.models.turn import TurnState
from a2a_django.protocol import codec
from a2a_django.signals import task_state_changed
from a2a_django.statements import Insert, Update


class FencedError(Exception):
    """The writer has lost the task: its lease was taken, or another wrote a terminal state."""


def writer(task: Task, turn_id: int = 0) -> Writer:
    """A writer that takes up `task` as its row says."""
    return Writer(task.pk, task.context_id, task.lease, turn_id).stand_at(task)


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
        if not writer.unsure and (not batch.writes or _commit([batch])):
            break
        task = Task.objects.filter(pk=writer.task_id).first()
        if task is not None and _stands_in_log(batch):
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
    """Commits all `appends` together; one that is refused, or all if that fails, are committed alone.

    Whoever ends a turn with it calls `fold` afterwards where `writer.unfolded` is None.
    """
    done, away = _commit_group(appends) if len(appends) > 1 else set(), None
    for item in appends:
        if id(item) not in done:
            item.error = away or _error_of(partial(_append, item.writer, item.said, item.end))
            away = item.error if isinstance(item.error, database.AWAY) else None  # to hear that takes its time


def _commit_group(appends: Sequence[Append]) -> set[int]:
    """The ids of those that were written together; none if that failed: whose fault it was shows alone."""
    planned: dict[Batch, Append] = {}
    try:
        for item in appends:
            if not item.writer.unsure:
                planned[batches.plan(item.writer, item.said, item.end)] = item
        written = _commit(list(planned))
    except Exception:
        return set()
    for batch in written:
        batches.move(batch)
    return {id(planned[batch]) for batch in written}


def _error_of(call: "partial[None]") -> Exception | None:
    try:
        call()
    except Exception as error:
        return error
    return None


def _commit(planned: Sequence[Batch]) -> set[Batch]:
    """Writes each batch whose task still is its writer's; which those were."""
    plain = [batch for batch in planned if chunks.only(batch)]
    written = chunks.write(plain) | _write([batch for batch in planned if batch not in plain])
    transaction.on_commit(partial(doorbell.bring, {batch.writer.task_id: batch.letter() for batch in written}))
    if task_state_changed.has_listeners(Task):
        changes = [(batch.writer.task_id, *change) for batch in written for change in batch.state_changes()]
        transaction.on_commit(partial(database.signals.submit, partial(_tell, changes)))
    return written


def _tell(changes: Sequence[tuple[str, int, str, str]]) -> None:
    """Sends the site's receivers what they asked for; Django logs what they raise."""
    for task_id, sequence, before, after in changes:
        task_state_changed.send_robust(Task, task_id=task_id, before=before, after=after, sequence=sequence)


def _write(planned: Sequence[Batch]) -> set[Batch]:
    """Writes any batches in one transaction: a conditional UPDATE first, for SQLite too (DESIGN 4)."""
    if not planned:
        return set()
    with transaction.atomic():
        mine = [batch for batch in planned if _advance(batch)]
        _EVENTS.run([row for batch in mine for row in _event_rows(batch)])
        statements.insert([message for batch in mine for message in batch.messages])
        statements.insert([row for batch in mine if batch.release for row in batches.artifact_rows(batch) or ()])
        for batch in mine:
            if batch.activated:
                _ACTIVATE.run(batch.activated.turn_id, codec.dumps(batch.activated.uris))
            if batch.end:
                _end_turns(batch.end, batch)
    return set(mine)


def _advance(batch: Batch) -> bool:
    """Moves the task's row on, if it is the writer's."""
    writer = batch.writer
    changes = {**batch.changes, "last_sequence": batch.sequence}
    if batch.release and batch.unfolded() is not None:
        changes["folded_sequence"] = batch.sequence
    update = _update_of_mine(tuple(changes), live=bool(batch.entries), release=batch.release)
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
    """Ends the turn and those that are part of it, or has them queued once more."""
    if end.again:
        return _queue_again(batch.writer.task_id, end.again, end.error)
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


def _queue_again(task_id: str, again: Again, error: str) -> None:
    """All turns that run are this one and what is part of it."""
    due = ExpressionWrapper(Now() + timedelta(seconds=again.after), output_field=DateTimeField())
    changes = {"state": TurnState.QUEUED, "due_at": due, "handed_at": due, "error": error}
    if not again.counts:
        changes["attempt"] = F("attempt") - 1
    Turn.objects.filter(task=task_id, state=TurnState.RUNNING).update(**changes)


_EVENTS = Insert(Event, "task_id", "sequence", "kind", "state", "body", "created_at")


def _event_rows(batch: Batch) -> list[tuple[Any, ...]]:
    task_id, now = batch.writer.task_id, timezone.now()
    return [(task_id, sequence, said.kind.value, said.state, said.text, now) for sequence, said in batch.entries]


def _stands_in_log(batch: Batch) -> bool:
    """Whether its events were written; the last tells: a batch is written whole, and may begin with a new time."""
    if not batch.entries:
        return False
    sequence, last = batch.entries[-1]
    return Event.objects.filter(task_id=batch.writer.task_id, sequence=sequence, body=last.text).exists()


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

"""The log of a task: `append()` is its only writer, `fold()` makes Artifact rows of it (DESIGN 4)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from django.db import transaction
from django.db.models import F
from django.db.models.functions import Now

from a2a_django import doorbell, entries, snapshots, statements
from a2a_django.entries import Entry
from a2a_django.models import Artifact, Event, Message, Task, Turn
from a2a_django.models.event import Kind
from a2a_django.models.turn import TurnState
from a2a_django.protocol import codec
from a2a_django.protocol.states import TERMINAL, TaskState
from a2a_django.statements import Update

FOLD_AT_ONCE = 200
"""Up to so many artifact events, the append that ends a new task's first turn writes its Artifact rows too."""


class FencedError(Exception):
    """The writer has lost the task: its lease was taken, or another wrote a terminal state."""


@dataclass
class Writer:
    """Where a writer of a task's log stands; `append` moves it on.

    `unfolded` holds the artifact events of a new task; None once there are too many, or if the task is older.
    """

    task_id: str
    context_id: str
    lease: str
    sequence: int = 0
    visible: bool = False
    terminal: bool = False
    crowded: bool = False  # other turns may wait for the end of this one
    opening: str = ""  # the client's first message, for a Task that the server makes
    metadata: dict[str, Any] = field(default_factory=dict)
    message_ids: set[str] = field(default_factory=set)
    unfolded: list[tuple[int, Entry]] | None = None

    def stand_at(self, task: Task) -> "Writer":
        """This writer, brought to what the row says."""
        self.lease, self.sequence = task.lease, task.last_sequence
        self.visible, self.terminal, self.crowded = task.visible, task.terminal, task.crowded
        self.metadata = codec.loads(task.metadata)
        messages = dict(Message.objects.filter(task=task).order_by("-pk").values_list("message_id", "body"))
        self.message_ids = set(messages)
        self.opening = list(messages.values())[-1] if messages else ""
        self.unfolded = None
        return self


def writer(task: Task) -> Writer:
    """A writer that takes up `task` as its row says."""
    return Writer(task.pk, task.context_id, task.lease).stand_at(task)


@dataclass(frozen=True)
class End:
    """How a turn ends; `error` is for staff.

    `answer` is an error for the caller of a turn that has not spoken of its task: that stays hidden then, and the
    entries that come with it are for a task that a waiting call has made visible meanwhile.
    """

    turn_id: int
    failed: bool = False
    error: str = ""
    answer: dict[str, Any] | None = None


@dataclass
class _Batch:
    """What one append writes, and where that leaves the writer."""

    writer: Writer
    visible: bool
    metadata: dict[str, Any]
    changes: dict[str, Any] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    entries: list[tuple[int, Entry]] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)

    @property
    def sequence(self) -> int:
        return self.writer.sequence + len(self.events)

    def unfolded(self) -> list[tuple[int, Entry]] | None:
        """The new task's artifact events with this batch's, if they are few."""
        before = self.writer.unfolded
        if before is None or len(before) + len(self.entries) > FOLD_AT_ONCE:
            return None
        return before + [item for item in self.entries if item[1].kind in (Kind.TASK, Kind.ARTIFACT)]


def append(writer: Writer, said: Sequence[Entry], *, end: End | None = None, release: bool = False) -> None:
    """Appends `said` in one transaction and moves `writer` on.

    `end` ends a turn in the same transaction; `end` and `release` give the lease up. FencedError when the task
    isn't the writer's any more; nothing was written then.
    """
    while True:
        batch = _plan(writer, said, end)
        release = release or end is not None
        if not (batch.events or batch.messages or release) or _commit(batch, end, release):
            break
        task = Task.objects.filter(pk=writer.task_id).first()
        if task is not None and _stand_in_log(batch.events):
            break  # the commit succeeded, only its answer was lost
        if task is None or task.lease != writer.lease or (task.terminal and said):
            raise FencedError
        writer.stand_at(task)
    _move(writer, batch)


def _commit(batch: _Batch, end: End | None, release: bool) -> bool:
    """Writes `batch` if the task still is the writer's: a conditional UPDATE first, for SQLite too (DESIGN 4)."""
    writer, rows = batch.writer, _artifact_rows(batch) if release else None
    changes = {**batch.changes, "last_sequence": batch.sequence}
    if rows is not None:
        changes["folded_sequence"] = batch.sequence
    update = _update_of_mine(tuple(changes), live=bool(batch.events), release=release)
    where = (writer.task_id, writer.lease, writer.sequence, writer.crowded)
    with transaction.atomic():
        if not update.run(*where, *changes.values()):
            return False
        statements.insert(batch.events)
        statements.insert(batch.messages)
        statements.insert(rows or ())
        if end:
            _end_turn(end)
        transaction.on_commit(lambda: doorbell.ring(writer.task_id))
    if release and rows is None:
        fold(writer.task_id)
    return True


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


def _move(writer: Writer, batch: _Batch) -> None:
    writer.unfolded = batch.unfolded()
    writer.sequence, writer.visible, writer.metadata = batch.sequence, batch.visible, batch.metadata
    writer.terminal = batch.changes.get("state", "") in TERMINAL or writer.terminal
    writer.message_ids.update(message.message_id for message in batch.messages)


def _end_turn(end: End) -> None:
    state = TurnState.FAILED if end.failed else TurnState.DONE
    _END_TURN.run(end.turn_id, state.value, end.error, codec.dumps(end.answer) if end.answer else None)


_END_TURN = Update(
    Turn,
    lambda turn_id, state, error, answer: (
        Turn.objects.filter(pk=turn_id),
        {"state": state, "ended_at": Now(), "error": error, "answer": answer},
    ),
)


def _artifact_rows(batch: _Batch) -> list[Artifact] | None:
    """All artifacts of a new and small task; None where `fold` has to make them from the log."""
    unfolded = batch.unfolded()
    if unfolded is None:
        return None
    folded: snapshots.Artifacts = {}
    for sequence, entry in unfolded:
        snapshots.merge(folded, sequence, entry.kind, entry.data)
    return snapshots.rows(batch.writer.task_id, folded)


def _stand_in_log(events: Sequence[Event]) -> bool:
    """Whether these events were written; the last tells: a batch is written whole, and may begin with a new time."""
    if not events:
        return False
    written = Event.objects.filter(task_id=events[-1].task_id, sequence=events[-1].sequence)
    return list(written.values_list("body", flat=True)) == [events[-1].body]


# --- what entries do to the rows


def _plan(writer: Writer, said: Iterable[Entry], end: End | None) -> _Batch:
    batch = _Batch(writer, writer.visible, writer.metadata)
    if end and end.answer and not writer.visible:
        batch.changes["state"] = TaskState.FAILED
        return batch
    for entry in said:
        _say(batch, entry)
    return batch


def _say(batch: _Batch, entry: Entry) -> None:
    writer = batch.writer
    if entry.kind == Kind.MESSAGE:
        _answer(batch, entry)
    elif entry.kind == Kind.TASK and batch.visible:
        _add_messages(batch, entry.data.get("history", ()))
    else:
        if not batch.visible and entry.kind != Kind.TASK:
            _show(batch, entries.submitted(writer.task_id, writer.context_id, writer.opening))
        _show(batch, entry)


def _answer(batch: _Batch, entry: Entry) -> None:
    """A Message settles a hidden task; one that a waiting call has made visible is completed by it."""
    writer = batch.writer
    if batch.visible:
        _show(batch, entries.status(writer.task_id, writer.context_id, TaskState.COMPLETED, entry.data))
    else:
        batch.changes["state"] = TaskState.COMPLETED
        _event(batch, entry)


def _show(batch: _Batch, entry: Entry) -> None:
    sequence = _event(batch, entry)
    batch.visible = batch.changes["visible"] = True
    if entry.kind == Kind.TASK:
        _add_messages(batch, entry.data.get("history", ()))
    if entry.status is not None:
        _set_status(batch, entry.status, sequence)
    if entry.kind != Kind.ARTIFACT and entry.data.get("metadata"):
        batch.metadata = {**batch.metadata, **entry.data["metadata"]}
        batch.changes["metadata"] = codec.dumps(batch.metadata)


def _event(batch: _Batch, entry: Entry) -> int:
    sequence, task_id = batch.sequence + 1, batch.writer.task_id
    batch.events.append(Event(task_id=task_id, sequence=sequence, kind=entry.kind, state=entry.state, body=entry.text))
    batch.entries.append((sequence, entry))
    return sequence


def _set_status(batch: _Batch, status: dict[str, Any], sequence: int) -> None:
    batch.changes |= {
        "state": status["state"],
        "status": codec.dumps(status),
        "status_timestamp": codec.moment(status["timestamp"]),
        "status_sequence": sequence,
    }
    if "message" in status:
        batch.messages.append(message_row(batch.writer.task_id, status["message"], sequence))


def _add_messages(batch: _Batch, messages: Iterable[dict[str, Any]]) -> None:
    """Those whose id the task lacks."""
    known = batch.writer.message_ids | {message.message_id for message in batch.messages}
    for message in messages:
        if message["messageId"] not in known:
            known.add(message["messageId"])
            batch.messages.append(message_row(batch.writer.task_id, message))


def message_row(task_id: str, message: dict[str, Any], sequence: int = 0) -> Message:
    """An unsaved Message row for ProtoJSON data; `sequence` is the status event that brings it."""
    return Message(
        task_id=task_id,
        message_id=message["messageId"],
        role=message["role"],
        body=codec.dumps(message),
        event_sequence=sequence,
    )


# --- folding


def fold(task_id: str) -> None:
    """Brings the Artifact rows of a task up to its log; a no-op where they are."""
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

"""What entries do to a task's rows: a batch, planned from where its writer stands (DESIGN 4)."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from a2a_django import entries, snapshots
from a2a_django.doorbell import Letter
from a2a_django.entries import Entry
from a2a_django.models import Artifact, Message, Task
from a2a_django.models.event import Kind
from a2a_django.protocol import codec
from a2a_django.protocol.states import TERMINAL, TaskState

FOLD_AT_ONCE = 200
"""Up to so many artifact events, the append that ends a new task's first turn writes its Artifact rows too."""

GOING_ON = {"", TaskState.SUBMITTED.value, TaskState.WORKING.value}
"""States of events after which all is as before for who waits."""


class Activated(NamedTuple):
    """The extensions that take part in a turn by now."""

    turn_id: int
    uris: list[str]


@dataclass
class Writer:
    """Where a writer of a task's log stands; `append` moves it on.

    `unfolded` holds the artifact events of a new task; None once there are too many, or if the task is older.
    """

    task_id: str
    context_id: str
    lease: str
    turn_id: int = 0
    sequence: int = 0
    visible: bool = False
    state: str = ""  # as clients see it
    terminal: bool = False
    crowded: bool = False  # other turns may wait for the end of this one
    unsure: bool = False  # the answer to a commit was lost: what it wrote may be there
    opening: str = ""  # the client's first message, for a Task that the server makes
    metadata: dict[str, Any] = field(default_factory=dict)
    message_ids: set[str] = field(default_factory=set)
    unfolded: list[tuple[int, Entry]] | None = None
    activated: Activated | None = None  # goes with the next append

    def stand_at(self, task: Task) -> "Writer":
        """This writer, brought to what the row says."""
        self.lease, self.sequence = task.lease, task.last_sequence
        self.visible, self.terminal, self.crowded = task.visible, task.terminal, task.crowded
        self.state = task.state if task.visible else ""
        self.unsure = False
        self.metadata = codec.loads(task.metadata)
        messages = dict(Message.objects.filter(task=task).order_by("-pk").values_list("message_id", "body"))
        self.message_ids = set(messages)
        self.opening = list(messages.values())[-1] if messages else ""
        self.unfolded = None
        return self


class Again(NamedTuple):
    """How a turn is run again: after so many seconds, and whether this attempt counts."""

    after: float
    counts: bool = True


@dataclass(frozen=True)
class End:
    """How a turn ends; `error` is for staff.

    `answer` is an error for the caller of a turn that has not spoken of its task: that stays hidden then, and the
    entries that come with it are for a task that a waiting call has made visible meanwhile. `absorbed` are later turns
    of the task, which it has made part of itself and which end with it. With `again` it ends unfinished: it and they
    are queued once more.
    """

    turn_id: int
    failed: bool = False
    error: str = ""
    answer: dict[str, Any] | None = None
    absorbed: tuple[int, ...] = ()
    again: Again | None = None


@dataclass(eq=False)
class Batch:
    """What one append writes, and where that leaves the writer."""

    writer: Writer
    visible: bool
    metadata: dict[str, Any]
    end: End | None = None
    release: bool = False
    activated: Activated | None = None
    changes: dict[str, Any] = field(default_factory=dict)
    entries: list[tuple[int, Entry]] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)

    @property
    def sequence(self) -> int:
        return self.writer.sequence + len(self.entries)

    @property
    def writes(self) -> bool:
        """Whether there is anything to write."""
        return bool(self.entries or self.messages or self.release)

    @property
    def bare(self) -> bool:
        """Whether it has events that change nothing but the number of the last, as chunks do."""
        return bool(self.entries) and not (self.changes or self.messages or self.release or self.activated)

    def state_changes(self) -> list[tuple[int, str, str]]:
        """The (sequence, state before, state after) of events that change it."""
        state, found = self.writer.state, []
        for sequence, entry in self.entries:
            if entry.state and entry.state != state:
                found.append((sequence, state, entry.state))
                state = entry.state
        return found

    def letter(self) -> Letter | None:
        """What a ring may bring of it: events that end no stream and are no answer that a caller waits for."""
        states = {self.changes.get("state", ""), *(entry.state for _, entry in self.entries)}
        if self.release or self.activated or not states <= GOING_ON:
            return None
        letter = Letter(self.writer.turn_id, [(sequence, entry.text) for sequence, entry in self.entries])
        return letter if letter.fits else None

    def unfolded(self) -> list[tuple[int, Entry]] | None:
        """The new task's artifact events with this batch's, if they are few."""
        before = self.writer.unfolded
        if before is None or len(before) + len(self.entries) > FOLD_AT_ONCE:
            return None
        return before + [item for item in self.entries if item[1].kind in (Kind.TASK, Kind.ARTIFACT)]


def plan(writer: Writer, said: Iterable[Entry], end: End | None = None, *, release: bool = False) -> Batch:
    """What appending `said` writes; `end` ends a turn with it, and gives the lease up as `release` does."""
    release = release or end is not None
    batch = Batch(writer, writer.visible, writer.metadata, end, release, activated=writer.activated)
    if end and end.answer and not writer.visible:
        batch.changes["state"] = TaskState.FAILED
        return batch
    for entry in said:
        _say(batch, entry)
    return batch


def _say(batch: Batch, entry: Entry) -> None:
    writer = batch.writer
    if entry.kind == Kind.MESSAGE:
        _answer(batch, entry)
    elif entry.kind == Kind.TASK and batch.visible:
        _add_messages(batch, entry.data.get("history", ()))
    else:
        if not batch.visible and entry.kind != Kind.TASK:
            _show(batch, entries.submitted(writer.task_id, writer.context_id, writer.opening))
        _show(batch, entry)


def _answer(batch: Batch, entry: Entry) -> None:
    """A Message settles a hidden task; one that a waiting call has made visible is completed by it."""
    writer = batch.writer
    if batch.visible:
        _show(batch, entries.status(writer.task_id, writer.context_id, TaskState.COMPLETED, entry.data))
    else:
        batch.changes["state"] = TaskState.COMPLETED
        _event(batch, entry)


def _show(batch: Batch, entry: Entry) -> None:
    sequence = _event(batch, entry)
    if not batch.visible:
        batch.visible = batch.changes["visible"] = True
    if entry.kind == Kind.TASK:
        _add_messages(batch, entry.data.get("history", ()))
    if entry.status is not None:
        _set_status(batch, entry.status, sequence)
    if entry.kind != Kind.ARTIFACT and entry.data.get("metadata"):
        batch.metadata = {**batch.metadata, **entry.data["metadata"]}
        batch.changes["metadata"] = codec.dumps(batch.metadata)


def _event(batch: Batch, entry: Entry) -> int:
    sequence = batch.sequence + 1
    batch.entries.append((sequence, entry))
    return sequence


def _set_status(batch: Batch, status: dict[str, Any], sequence: int) -> None:
    batch.changes |= {
        "state": status["state"],
        "status": codec.dumps(status),
        "status_timestamp": codec.moment(status["timestamp"]),
        "status_sequence": sequence,
    }
    if "message" in status:
        batch.messages.append(message_row(batch.writer.task_id, status["message"], sequence))


def _add_messages(batch: Batch, messages: Iterable[dict[str, Any]]) -> None:
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


def artifact_rows(batch: Batch) -> list[Artifact] | None:
    """All artifacts of a new and small task; None where `fold` has to make them from the log."""
    unfolded = batch.unfolded()
    if unfolded is None:
        return None
    folded: snapshots.Artifacts = {}
    for sequence, entry in unfolded:
        snapshots.merge(folded, sequence, entry.kind, entry.data)
    return snapshots.rows(batch.writer.task_id, folded)


def move(batch: Batch) -> None:
    """Has the writer stand behind `batch`, which is written."""
    writer = batch.writer
    writer.unfolded, writer.unsure, writer.activated = batch.unfolded(), False, None
    writer.sequence, writer.visible, writer.metadata = batch.sequence, batch.visible, batch.metadata
    writer.terminal = batch.changes.get("state", "") in TERMINAL or writer.terminal
    writer.state = batch.changes.get("state", writer.state)
    writer.message_ids.update(message.message_id for message in batch.messages)

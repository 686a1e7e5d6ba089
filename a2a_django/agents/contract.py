"""What an executor may say, and in which order (DESIGN 5.5)."""

from itertools import islice
from typing import Any

from a2a.types import Message, Task, TaskArtifactUpdateEvent, TaskStatus, TaskStatusUpdateEvent
from django.utils import timezone

from a2a_django import entries
from a2a_django.entries import Entry
from a2a_django.models.event import Kind
from a2a_django.protocol import codec, errors, schema
from a2a_django.protocol.states import TERMINAL

Said = Task | Message | TaskStatusUpdateEvent | TaskArtifactUpdateEvent

MILLISECOND = 1_000_000  # in nanoseconds
SHOWN = 10  # faults of one event that its author is told of


class Contract:
    """Turns what an executor says into log entries; a breach is an InvalidAgentResponseError that says why."""

    def __init__(self, task_id: str, context_id: str, *, follow_up: bool, artifact_ids: set[str]) -> None:
        self._task_id, self._context_id = task_id, context_id
        # Task once the task was spoken of, Message after a Message
        self._kind: type[Task] | type[Message] | None = Task if follow_up else None
        self._artifact_ids = artifact_ids
        self.terminal = False

    @property
    def answered(self) -> bool:
        """Whether the one Message was said."""
        return self._kind is Message

    def entry(self, said: Said) -> Entry:
        """`said`, completed with what the turn knows, as the entry that is appended."""
        self._check_order(said)
        if isinstance(said, Message):
            self._kind = Message
            return self._complete(Kind.MESSAGE, self._message(said, task=False))
        self._kind = Task
        if isinstance(said, TaskArtifactUpdateEvent):
            return self._artifact(said)
        entry = self._task(said) if isinstance(said, Task) else self._status(said)
        self.terminal = entry.data["status"]["state"] in TERMINAL
        return entry

    def _check_order(self, said: Said) -> None:
        if not isinstance(said, Said):
            raise breach(f"{type(said).__name__} is no Task, Message, status or artifact event")
        if self.terminal:
            raise breach(f"{type(said).__name__} after a terminal state")
        if self._kind is Message:
            raise breach(f"{type(said).__name__} after a Message, which must be the only event")
        if self._kind is Task and isinstance(said, Message):
            raise breach("a Message for a task; send a status event that carries it")

    def _task(self, said: Task) -> Entry:
        copy = Task()
        copy.CopyFrom(said)
        copy.id = self._own(copy.id, self._task_id, "task id")
        copy.context_id = self._own(copy.context_id, self._context_id, "context id")
        self._fill_status(copy.status)
        for message in copy.history:
            message.CopyFrom(self._message(message))
        self._artifact_ids.update(artifact.artifact_id for artifact in copy.artifacts)
        return self._complete(Kind.TASK, copy)

    def _status(self, said: TaskStatusUpdateEvent) -> Entry:
        copy = TaskStatusUpdateEvent()
        copy.CopyFrom(said)
        self._fill_ids(copy)
        self._fill_status(copy.status)
        return self._complete(Kind.STATUS, copy)

    def _artifact(self, said: TaskArtifactUpdateEvent) -> Entry:
        copy = TaskArtifactUpdateEvent()
        copy.CopyFrom(said)
        self._fill_ids(copy)
        if copy.append and copy.artifact.artifact_id not in self._artifact_ids:
            raise breach(f"append to artifact “{copy.artifact.artifact_id}”, which was not begun")
        entry = self._complete(Kind.ARTIFACT, copy)
        self._artifact_ids.add(copy.artifact.artifact_id)
        return entry

    def _fill_ids(self, event: TaskStatusUpdateEvent | TaskArtifactUpdateEvent) -> None:
        event.task_id = self._own(event.task_id, self._task_id, "task id")
        event.context_id = self._own(event.context_id, self._context_id, "context id")

    def _fill_status(self, status: TaskStatus) -> None:
        if not status.HasField("timestamp"):
            status.timestamp.FromDatetime(timezone.now())
        status.timestamp.nanos -= status.timestamp.nanos % MILLISECOND
        if status.HasField("message"):
            status.message.CopyFrom(self._message(status.message))

    def _message(self, said: Message, *, task: bool = True) -> Message:
        copy = Message()
        copy.CopyFrom(said)
        copy.context_id = self._own(copy.context_id, self._context_id, "context id")
        if task:
            copy.task_id = self._own(copy.task_id, self._task_id, "task id")
        return copy

    def _own(self, given: str, own: str, what: str) -> str:
        if given and given != own:
            raise breach(f"the {what} is “{given}”, but this turn's is “{own}”")
        return own

    def _complete(self, kind: Kind, message: Any) -> Entry:
        try:
            data = codec.to_data(message)
            if violations := list(islice(schema.violations(data, message.DESCRIPTOR, client=False), SHOWN)):
                raise ValueError("; ".join(f"{field} {what}" for field, what in violations))
            if "status" in data:  # protobuf leaves zeros out
                data["status"]["timestamp"] = codec.timestamp(codec.moment(data["status"]["timestamp"]))
            return entries.entry(kind, data)
        except ValueError as error:
            raise breach(str(error)) from error


def breach(what: str) -> errors.InvalidAgentResponseError:
    """The error for an executor that broke the contract; `what` is for its author, not for clients."""
    error = errors.InvalidAgentResponseError()
    error.add_note(f"The executor enqueued something it must not: {what}.")
    return error

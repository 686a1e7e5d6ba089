"""Entries of a task's log before they are written: what is said, as data and as the text that is sent."""

from dataclasses import dataclass
from typing import Any

from django.utils import timezone

from a2a_django.models.event import Kind
from a2a_django.protocol import codec
from a2a_django.protocol.states import TaskState

INTERRUPTED = "The agent was interrupted and could not complete the task."


@dataclass(frozen=True)
class Entry:
    """One event to append: its kind, its ProtoJSON data, complete with ids and times, and its text."""

    kind: Kind
    data: dict[str, Any]
    text: str

    @property
    def status(self) -> dict[str, Any] | None:
        """The TaskStatus it sets, if any."""
        status: dict[str, Any] | None = self.data["status"] if self.kind in (Kind.TASK, Kind.STATUS) else None
        return status

    @property
    def state(self) -> str:
        """The task state it sets, or an empty string."""
        return str(self.status["state"]) if self.status else ""


def entry(kind: Kind, data: dict[str, Any]) -> Entry:
    """An Entry for `data`; ValueError for what JSON can't hold."""
    return Entry(kind, data, f'{{"{kind.value}":{codec.dumps(data)}}}')


def status(task_id: str, context_id: str, state: TaskState, message: dict[str, Any] | None = None) -> Entry:
    """A status update of now, with `message` if there is one."""
    said = {"state": state.value, "timestamp": codec.timestamp(timezone.now())}
    content = {**said, "message": message} if message else said
    return entry(Kind.STATUS, {"taskId": task_id, "contextId": context_id, "status": content})


def failed(task_id: str, context_id: str, message_id: str, text: str, metadata: dict[str, Any] | None = None) -> Entry:
    """The status update that ends a task FAILED, and tells the client `text` in a message with `metadata`."""
    message: dict[str, Any] = {
        "messageId": message_id,
        "contextId": context_id,
        "taskId": task_id,
        "role": "ROLE_AGENT",
        "parts": [{"text": text}],
    }
    if metadata:
        message["metadata"] = metadata
    return status(task_id, context_id, TaskState.FAILED, message)


def interrupted(task_id: str, context_id: str, turn: int | str) -> Entry:
    """The status update that ends a task FAILED because the process that ran `turn` is gone."""
    return failed(task_id, context_id, f"{turn}-interrupted", INTERRUPTED)


def submitted(task_id: str, context_id: str, opening: str) -> Entry:
    """The Task, SUBMITTED, for an executor that begins with a status or an artifact, or that hasn't begun.

    `opening` is the client's message as JSON text.
    """
    said = {"state": TaskState.SUBMITTED.value, "timestamp": codec.timestamp(timezone.now())}
    data = {"id": task_id, "contextId": context_id, "status": said, "history": [codec.loads(opening)]}
    return entry(Kind.TASK, data)

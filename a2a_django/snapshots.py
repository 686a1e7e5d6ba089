"""Tasks as they stand: their rows plus the tail of the log that is not folded yet (DESIGN 4)."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import Any

from django.db.models import Q

from a2a_django.models import Artifact, Event, Message, Task
from a2a_django.models.event import Kind
from a2a_django.protocol import codec
from a2a_django.statements import Select

USER = "ROLE_USER"


@dataclass
class Folded:
    """One artifact on its way through the log: its ProtoJSON data and the newest event in it."""

    data: dict[str, Any]
    through: int


Artifacts = dict[str, Folded]  # by artifact id, in the order of their first appearance


def merge(found: Artifacts, sequence: int, kind: str, data: dict[str, Any]) -> None:
    """Folds one event into `found` (A2A 4.2.2); one that is in there already changes nothing."""
    if kind == Kind.TASK:
        for artifact in data.get("artifacts", ()):
            found.setdefault(artifact["artifactId"], Folded(_copy(artifact), sequence))
        return
    chunk = data["artifact"]
    artifact_id = chunk["artifactId"]
    known = found.get(artifact_id)
    if known is None or not data.get("append"):
        if known is None or known.through < sequence:
            found[artifact_id] = Folded(_copy(chunk), sequence)
    elif known.through < sequence:
        known.data["parts"].extend(chunk["parts"])
        if "metadata" in chunk:
            known.data["metadata"] = {**known.data.get("metadata", {}), **chunk["metadata"]}
        known.through = sequence


def _copy(artifact: dict[str, Any]) -> dict[str, Any]:
    return {**artifact, "parts": list(artifact["parts"])}


def rows(task_id: str, found: Artifacts) -> list[Artifact]:
    """Unsaved Artifact rows for `found`."""
    return [
        Artifact(task_id=task_id, artifact_id=key, body=codec.dumps(item.data), through=item.through)
        for key, item in found.items()
    ]


def fold(task: Task) -> Artifacts:
    """The artifacts of `task` that the unfolded tail of its log touches, as they are at its `last_sequence`."""
    tail = list(_tail([task]))
    touched = {key for _, _, kind, data in tail for key in _artifact_ids(kind, data)}
    known = Artifact.objects.filter(task=task, artifact_id__in=touched)
    found: Artifacts = {row.artifact_id: Folded(codec.loads(row.body), row.through) for row in known}
    for _, sequence, kind, data in tail:
        merge(found, sequence, kind, data)
    return found


def _artifact_ids(kind: str, data: dict[str, Any]) -> list[str]:
    artifacts = data.get("artifacts", ()) if kind == Kind.TASK else (data["artifact"],)
    return [artifact["artifactId"] for artifact in artifacts]


def _tail(tasks: Sequence[Task]) -> Iterable[tuple[str, int, str, dict[str, Any]]]:
    """(task id, sequence, kind, data) of the artifact events beyond what the rows of `tasks` hold."""
    ends = {task.pk: task.last_sequence for task in tasks if task.folded_sequence < task.last_sequence}
    if not ends:
        return
    # From where the rows at hand say, not where a fold may have come to since.
    wanted = (Q(task=task, sequence__gt=task.folded_sequence) for task in tasks if task.pk in ends)
    events = Event.objects.filter(reduce(or_, wanted), kind__in=(Kind.TASK, Kind.ARTIFACT))
    columns = events.order_by("task_id", "sequence").values_list("task_id", "sequence", "kind", "body")
    for task_id, sequence, kind, body in columns:
        if sequence <= ends[task_id]:
            yield task_id, sequence, kind, codec.loads(body)[kind]


@dataclass
class Snapshot:
    """A task at `task.last_sequence`: texts of its artifacts and history, ready to be sent."""

    task: Task
    artifact_texts: list[str] = field(default_factory=list)
    history_texts: list[str] = field(default_factory=list)
    answered: bool = False  # the status' message has moved to the history, for the client has said something since

    @property
    def status(self) -> str:
        """The TaskStatus as ProtoJSON text."""
        if not self.answered:
            return self.task.status
        return codec.dumps({key: value for key, value in codec.loads(self.task.status).items() if key != "message"})

    @property
    def artifacts(self) -> list[dict[str, Any]]:
        """The artifacts as ProtoJSON data."""
        return [codec.loads(text) for text in self.artifact_texts]

    @property
    def history(self) -> list[dict[str, Any]]:
        """The history as ProtoJSON data."""
        return [codec.loads(text) for text in self.history_texts]

    def text(self, history_length: int | None = None, *, artifacts: bool | None = None) -> str:
        """The Task as ProtoJSON text with at most `history_length` messages (A2A 3.2.4).

        `artifacts`: None names them if there are any, True always, False never (A2A 3.1.4).
        """
        task = self.task
        parts = [f'"id":{codec.dumps(task.pk)},"contextId":{codec.dumps(task.context_id)},"status":{self.status}']
        if artifacts or (artifacts is None and self.artifact_texts):
            parts.append(f'"artifacts":[{",".join(self.artifact_texts)}]')
        history = self.history_texts
        if history_length is not None:
            history = history[-history_length:] if history_length else []
        if history:
            parts.append(f'"history":[{",".join(history)}]')
        if task.metadata != "{}":
            parts.append(f'"metadata":{task.metadata}')
        return f"{{{','.join(parts)}}}"


def snapshot(task: Task, *, before: int | None = None) -> Snapshot:
    """`task` as its row says; `before` leaves out what the client said with that message (a key) and after it."""
    return snapshots([task], before=before)[0]


def snapshots(
    tasks: Sequence[Task], *, artifacts: bool = True, history: bool = True, before: int | None = None
) -> list[Snapshot]:
    """The `tasks` as their rows say, with artifacts and history that belong to them, in three queries at the most."""
    found = {task.pk: Snapshot(task) for task in tasks}
    if artifacts and found:
        _add_artifacts(found)  # first: it may read a task's row again
    # A message in a status may have become history, so the status can't be told without it.
    telling = found if history else {key: item for key, item in found.items() if '"message":' in item.task.status}
    if telling:
        _add_history(telling, before)
    return list(found.values())


def _add_history(found: dict[str, Snapshot], before: int | None) -> None:
    """Fills in what was said, in order.

    The message of the newest status becomes history when the next status comes, or the client's next message. What
    is newer than the row isn't said yet.
    """
    asked: dict[str, str] = {}
    for task_id, body, sequence, role, key in _messages(list(found)):
        item = found[task_id]
        clients = sequence == 0 and role == USER
        if clients and before is not None and key >= before:
            continue
        if clients and task_id in asked:
            item.history_texts.append(asked.pop(task_id))
            item.answered = True
        if sequence and sequence == item.task.status_sequence:
            asked[task_id] = body
        elif sequence <= item.task.last_sequence:
            item.history_texts.append(body)


def _messages(ids: Sequence[str]) -> Iterable[tuple[Any, ...]]:
    """(task id, body, event sequence, role, key) in order."""
    if len(ids) == 1:
        return _MESSAGES.rows(ids[0])
    return Message.objects.filter(task__in=ids).order_by("pk").values_list(*_COLUMNS)


_COLUMNS = ("task_id", "body", "event_sequence", "role", "pk")
_MESSAGES = Select(
    Message, lambda task_id: Message.objects.filter(task_id=task_id).order_by("pk").values_list(*_COLUMNS)
)


def _add_artifacts(found: dict[str, Snapshot]) -> None:
    for task_id, texts in _artifact_texts([item.task for item in found.values()]).items():
        found[task_id].artifact_texts = texts


def _artifact_texts(tasks: Sequence[Task]) -> dict[str, list[str]]:
    """Texts by task id. A row newer than its task row means that a fold ran in between: that task is read again."""
    by_task: dict[str, list[Artifact]] = defaultdict(list)
    for row in _artifacts(tasks):
        by_task[row.task_id].append(row)
    again = [task for task in tasks if any(row.through > task.folded_sequence for row in by_task[task.pk])]
    tails: dict[str, Artifacts] = {}
    for task_id, sequence, kind, data in _tail([task for task in tasks if task not in again]):
        if task_id not in tails:
            tails[task_id] = {row.artifact_id: Folded(codec.loads(row.body), row.through) for row in by_task[task_id]}
        merge(tails[task_id], sequence, kind, data)
    texts = {task.pk: [row.body for row in by_task[task.pk]] for task in tasks}
    texts |= {key: [codec.dumps(item.data) for item in found.values()] for key, found in tails.items()}
    if again:
        for task in again:
            task.refresh_from_db()
        texts |= _artifact_texts(again)
    return texts


def _artifacts(tasks: Sequence[Task]) -> Iterable[Artifact]:
    """The rows, in order."""
    if len(tasks) == 1:
        return _ARTIFACTS.objects(tasks[0].pk)
    return Artifact.objects.filter(task__in=tasks).order_by("pk")


_ARTIFACTS = Select(Artifact, lambda task_id: Artifact.objects.filter(task_id=task_id).order_by("pk"))

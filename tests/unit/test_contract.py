"""What an executor may say and in which order; what it leaves out is filled in (DESIGN 5.5)."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from a2a.types import (
    Artifact,
    Message,
    Part,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)

from a2a_django.agents.contract import Contract
from a2a_django.models.event import Kind
from a2a_django.protocol import errors

WORKING, COMPLETED = TaskState.TASK_STATE_WORKING, TaskState.TASK_STATE_COMPLETED
TERMINAL = [
    COMPLETED,
    TaskState.TASK_STATE_FAILED,
    TaskState.TASK_STATE_CANCELED,
    TaskState.TASK_STATE_REJECTED,
]


def contract(*said, follow_up=False, artifact_ids=()):
    """The contract of a turn that has `said` this already."""
    made = Contract("t", "c", follow_up=follow_up, artifact_ids=set(artifact_ids))
    for event in said:
        made.entry(event)
    return made


def message(**fields):
    return Message(**{"message_id": "m", "role": Role.ROLE_AGENT, "parts": [Part(text="hi")]} | fields)


def status(state=WORKING, *, ids=None, **fields):
    return TaskStatusUpdateEvent(status=TaskStatus(state=state, **fields), **ids or {})


def artifact(artifact_id="a", *parts, append=False, ids=None):
    body = Artifact(artifact_id=artifact_id, parts=parts or [Part(text="x")])
    return TaskArtifactUpdateEvent(artifact=body, append=append, **ids or {})


def task(state=WORKING, **fields):
    return Task(status=TaskStatus(state=state), **fields)


SAYABLE = {"task": task, "status": status, "artifact": artifact, "message": message}


def breach(made, said):
    """Why `said` is a breach: told to its author, not to clients."""
    with pytest.raises(errors.InvalidAgentResponseError) as caught:
        made.entry(said)
    assert caught.value.message == "Invalid agent response"
    assert caught.value.data is None
    return caught.value.__notes__[0]


# --- order


@pytest.mark.parametrize("first", TERMINAL)
@pytest.mark.parametrize("then", SAYABLE)
def test_nothing_comes_after_a_terminal_state(first, then):
    made = contract(status(first))
    assert made.terminal
    assert "after a terminal state" in breach(made, SAYABLE[then]())


def test_nothing_comes_after_a_terminal_task():
    assert "after a terminal state" in breach(contract(task(COMPLETED)), status())


@pytest.mark.parametrize("then", SAYABLE)
def test_nothing_comes_after_a_message(then):
    made = contract(message())
    assert made.answered
    assert "after a Message" in breach(made, SAYABLE[then]())


@pytest.mark.parametrize("first", ["task", "status", "artifact"])
def test_no_message_comes_in_task_mode(first):
    assert "a Message for a task" in breach(contract(SAYABLE[first]()), message())


def test_a_follow_up_is_in_task_mode():
    made = contract(follow_up=True)
    assert "a Message for a task" in breach(made, message())
    assert not made.answered


@pytest.mark.parametrize("first", ["task", "status", "artifact"])
def test_a_turn_may_begin_with_anything(first):
    made = contract(SAYABLE[first]())
    assert not made.terminal
    assert not made.answered
    assert made.entry(status(COMPLETED)).kind == Kind.STATUS
    assert made.terminal


@pytest.mark.parametrize("state", [
    TaskState.TASK_STATE_SUBMITTED,
    WORKING,
    TaskState.TASK_STATE_INPUT_REQUIRED,
    TaskState.TASK_STATE_AUTH_REQUIRED,
])  # fmt: skip
def test_other_states_end_nothing(state):
    made = contract(status(state))
    assert not made.terminal
    made.entry(artifact())


@pytest.mark.parametrize("said", [None, "hi", {"text": "hi"}, Part(text="hi"), TaskStatus(state=WORKING)])
def test_something_else_is_a_breach(said):
    assert type(said).__name__ in breach(contract(), said)


# --- ids


@pytest.mark.parametrize("ids", [{"task_id": "other"}, {"context_id": "other"}])
@pytest.mark.parametrize("say", [
    lambda ids: status(ids=ids),
    lambda ids: artifact(ids=ids),
    lambda ids: task(**{"id" if name == "task_id" else name: value for name, value in ids.items()}),
    lambda ids: status(message=message(**ids)),
    lambda ids: task(history=[message(**ids)]),
    lambda ids: Task(status=TaskStatus(state=WORKING, message=message(**ids))),
], ids=["status", "artifact", "task", "status message", "history", "task's status message"])  # fmt: skip
def test_ids_of_another_task_are_a_breach(ids, say):
    assert "“other”" in breach(contract(), say(ids))


def test_a_message_is_of_this_context():
    assert "“other”" in breach(contract(), message(context_id="other"))


def test_ids_are_filled_in():
    made = contract()
    said = task(history=[message()])
    said.status.message.CopyFrom(message(message_id="n"))
    data = made.entry(said).data
    assert (data["id"], data["contextId"]) == ("t", "c")
    assert [(item["taskId"], item["contextId"]) for item in (*data["history"], data["status"]["message"])] == [
        ("t", "c"),
        ("t", "c"),
    ]
    for event in (status(message=message()), artifact()):
        data = made.entry(event).data
        assert (data["taskId"], data["contextId"]) == ("t", "c")


def test_the_one_message_belongs_to_no_task():
    data = contract().entry(message()).data
    assert data["contextId"] == "c"
    assert "taskId" not in data


# --- times


def test_a_status_without_a_time_is_of_now():
    for said in (status(), task()):
        stamped = datetime.fromisoformat(contract().entry(said).data["status"]["timestamp"])
        assert abs(datetime.now(UTC) - stamped) < timedelta(seconds=20)
        assert stamped.microsecond % 1000 == 0


def test_an_executor_s_own_time_is_kept_to_the_millisecond():
    said = status()
    said.status.timestamp.FromJsonString("2020-01-31T12:00:00.123456789Z")
    assert contract().entry(said).data["status"]["timestamp"] == "2020-01-31T12:00:00.123Z"


def test_an_impossible_time_is_a_breach():
    said = status()
    said.status.timestamp.seconds = 10**15
    breach(contract(), said)


# --- artifacts


def test_an_append_needs_a_beginning():
    assert "“b”" in breach(contract(artifact("a")), artifact("b", append=True))


@pytest.mark.parametrize("made", [
    contract(artifact("a")),
    contract(task(artifacts=[Artifact(artifact_id="a", parts=[Part(text="x")])])),
    contract(follow_up=True, artifact_ids={"a"}),
], ids=["artifact", "task", "an earlier turn"])  # fmt: skip
def test_an_append_to_what_was_begun(made):
    assert made.entry(artifact("a", append=True)).data["append"] is True


def test_an_artifact_may_be_sent_anew():
    contract(artifact("a")).entry(artifact("a"))


def test_an_artifact_that_was_refused_was_not_begun():
    made = contract()
    breach(made, artifact("a", Part()))
    breach(made, artifact("a", append=True))


# --- completeness


@pytest.mark.parametrize(("said", "field"), [
    (Message(), "messageId"),
    (message(message_id=""), "messageId"),
    (message(role=Role.ROLE_UNSPECIFIED), "role"),
    (message(parts=[]), "parts"),
    (message(parts=[Part()]), "parts[0]"),
    (message(message_id="m" * 257), "messageId"),
    (message(message_id="m\0"), "messageId"),
    (status(message=Message(message_id="m")), "status.message.role"),
    (TaskStatusUpdateEvent(), "status.state"),
    (Task(), "status.state"),
    (task(artifacts=[Artifact(artifact_id="a")]), "artifacts[0].parts"),
    (task(history=[Message(message_id="m", role=Role.ROLE_USER)]), "history[0].parts"),
    (TaskArtifactUpdateEvent(), "artifact"),
    (TaskArtifactUpdateEvent(artifact=Artifact(artifact_id="a")), "artifact.parts"),
    (artifact(""), "artifact.artifactId"),
    (artifact("a" * 257), "artifact.artifactId"),
    (artifact("a\0"), "artifact.artifactId"),
    (artifact("a", Part()), "artifact.parts[0]"),
])  # fmt: skip
def test_what_cannot_be_filled_in_is_a_breach(said, field):
    assert f"{field} " in breach(contract(), said)


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_what_json_cannot_hold_is_a_breach(number):
    """CASES 16"""
    part = Part()
    part.data.struct_value.fields["n"].number_value = number
    breach(contract(), artifact("a", part))
    said = status()
    said.metadata["n"] = number
    breach(contract(), said)


def test_any_text_and_bytes_are_fine():
    """CASES 18, 23"""
    text = "a\0b\u2028\x85\U0001f600"
    entry = contract().entry(artifact("a", Part(text=text), Part(raw=b"\xff\xfe"), Part(text="")))
    assert [*entry.data["artifact"]["parts"]] == [{"text": text}, {"raw": "//4="}, {"text": ""}]
    assert entry.text.splitlines() == [entry.text]
    assert "\0" not in entry.text


# --- what becomes of it


@pytest.mark.parametrize(("name", "kind"), [
    ("task", Kind.TASK),
    ("status", Kind.STATUS),
    ("artifact", Kind.ARTIFACT),
    ("message", Kind.MESSAGE),
])  # fmt: skip
def test_an_entry_is_a_stream_response(name, kind):
    entry = contract().entry(SAYABLE[name]())
    assert entry.kind == kind
    assert json.loads(entry.text) == {kind.value: entry.data}
    assert entry.status == (entry.data.get("status") if name in ("task", "status") else None)


@pytest.mark.parametrize("name", SAYABLE)
def test_an_executor_s_object_is_its_own(name):
    """Executors go on changing what they have enqueued, and must not find it changed."""
    said = SAYABLE[name]()
    before = type(said)()
    before.CopyFrom(said)
    entry = contract().entry(said)
    assert said == before
    text = entry.text
    said.Clear()
    assert json.loads(text) == {entry.kind.value: entry.data}

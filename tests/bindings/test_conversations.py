"""What belongs to which conversation: contexts, references, histories over several turns; over every binding."""

import pytest

from a2a_django.models import Message, Task, Turn
from tests.clients import Error, message, state, words


def refused(call):
    """The error's reason and fields; nothing is stored."""
    before = [model.objects.count() for model in (Task, Message, Turn)]
    with pytest.raises(Error) as error:
        call()
    assert [model.objects.count() for model in (Task, Message, Turn)] == before
    return error.value.reason, error.value.fields


# --- contexts (A2A 3.4.1, 3.4.3)


@pytest.mark.v0_3
@pytest.mark.parametrize("fields", [{}, {"contextId": ""}, {"contextId": None}])
def test_the_context_of_a_follow_up_is_its_tasks(client, fields):
    asked = client.task(message("task input:what?", contextId="c"))
    done = client.task(message("completed", taskId=asked["id"], **fields))

    assert [said["contextId"] for said in (done, *done["history"])] == ["c"] * 4
    assert [said["taskId"] for said in done["history"]] == [asked["id"]] * 3


@pytest.mark.v0_3
def test_a_context_that_is_not_the_tasks_is_refused(client):
    asked = client.task(message("task input:what?", contextId="c"))
    other = client.task(message("task completed", contextId="d"))

    for context in ("C", other["contextId"], "nobody's"):
        said = message("completed", taskId=asked["id"], contextId=context)
        for call in (client.send, client.stream):
            assert refused(lambda call=call, said=said: call(said)) == ("INVALID_PARAMS", ["message.contextId"])
    assert client.get(asked["id"]) == asked


def test_a_context_has_several_tasks(client):
    tasks = [client.task(message("task completed", contextId="c"))["id"] for _ in range(2)]
    assert sorted(task["id"] for task in client.list(contextId="c")["tasks"]) == sorted(tasks)


@pytest.mark.v0_3
def test_a_messages_context_is_the_callers_or_a_new_one(client):
    assert client.send(message("message:hi", contextId="c"))["message"]["contextId"] == "c"
    first, second = (client.send("message:hi")["message"]["contextId"] for _ in range(2))
    assert first
    assert first != second


# --- references (CASES 38)


def related(client, *references):
    """The ids of the tasks that an executor is told of."""
    task = client.task(message("task dump completed", referenceTaskIds=list(references)))
    return [found["id"] for found in task["artifacts"][0]["parts"][0]["data"]["related"]]


def test_referred_tasks_come_whole_in_the_order_of_the_references(client):
    tasks = [client.task(f"task artifact:a:{count} completed") for count in range(3)]
    first, second, third = (task["id"] for task in tasks)

    assert related(client, second, "nobody's", third, first, second) == [second, third, first]
    task = client.task(message("task dump completed", referenceTaskIds=[first]))
    assert task["artifacts"][0]["parts"][0]["data"]["related"] == [tasks[0]]


def test_tasks_of_another_user_tenant_or_agent_are_not_told(client, make_user, make_tenant, make_agent, gate):
    """CASES 38: nor one that nobody has seen yet."""
    make_user("alice"), make_user("bob"), make_tenant("acme")
    make_agent(slug="other", executor="tests.executors.Script")
    alice = client.as_("alice")
    mine = alice.task()["id"]
    others = [client.as_("bob"), alice.within("acme"), alice.copy(agent="other"), client]
    strangers = [other.task()["id"] for other in others]
    hidden = alice.sending("wait:a task completed")
    gate("a").reached()
    (unseen,) = Task.objects.filter(visible=False).values_list("pk", flat=True)

    assert related(alice, *strangers, mine, unseen) == [mine]
    for other, own in zip(others, strangers, strict=True):
        assert related(other, mine, own) == [own]
    gate("a").open()
    hidden()


def test_a_follow_up_refers_too(client):
    other = client.task()["id"]
    asked = client.task("task input:what?")
    done = client.task(message("dump completed", taskId=asked["id"], referenceTaskIds=[other]))
    assert [task["id"] for task in done["artifacts"][0]["parts"][0]["data"]["related"]] == [other]


# --- histories (CASES 42, 44)

SAID = ["task input:1?", "1?", "working:a input:2?", "a", "2?", "completed:end"]


@pytest.fixture
def parked(client):
    """A task with three turns to come: its history will be SAID."""
    task = client.task(SAID[0])
    client.follow(task, SAID[2])
    return task


@pytest.mark.parametrize("length", [None, 0, 1, 2, 5, 6, 99])
def test_the_history_is_as_long_as_wanted_everywhere(client, parked, length):
    """CASES 44: Send, the stream's first Task, Get and List."""
    asked = {} if length is None else {"historyLength": length}
    expected = SAID if length is None else SAID[-length:] if length else []
    first, *_ = client.stream(message(SAID[-1], taskId=parked["id"]), **asked).all()

    other = client.task(SAID[0])
    client.follow(other, SAID[2])
    sent = client.follow(other, SAID[-1], **asked)
    found = [first["task"], sent, client.get(parked["id"], **asked), *client.list(**asked)["tasks"]]
    assert [words(task) for task in found] == [expected] * 5
    assert all(("history" in task) == bool(expected) for task in found)


def test_two_follow_ups_at_once_run_one_after_the_other(client, gate, said):
    """CASES 42: each has a turn of its own, the second is told what the first has left."""
    asked = client.task("task artifact:a:0 input:?")
    first = client.stream(message("append:a:1 working wait:a input:more?", taskId=asked["id"]))
    gate("a").reached()
    said(asked["id"], 5)
    second = client.stream(message("append:a:2 completed", taskId=asked["id"]))
    assert [state(next(stream).data["task"]) for stream in (first, second)] == ["INPUT_REQUIRED", "WORKING"]
    assert list(Turn.objects.order_by("pk").values_list("state", flat=True)) == ["done", "running", "queued"]

    gate("a").open()
    assert len(first.all()) >= 3
    assert len(second.all()) == 3
    done = client.get(asked["id"])
    assert "".join(part["text"] for part in done["artifacts"][0]["parts"]) == "012"
    assert len({said["messageId"] for said in done["history"]}) == len(done["history"]) == 5


# --- BLOCKING_TIMEOUT (CASES 47)


@pytest.mark.v0_3
def test_a_follow_up_that_takes_too_long_gets_the_task_as_it_is(client, gate, a2a, eventually):
    asked = client.task("task input:what?")
    a2a(BLOCKING_TIMEOUT=0.05)
    late = client.follow(asked, "working wait:a completed")
    waiting = client.follow(asked, "never")
    assert {state(late), state(waiting)} <= {"INPUT_REQUIRED", "WORKING"}
    assert words(waiting)[-1] == "never"

    gate("a").open()
    assert eventually(lambda: state(client.get(asked["id"])) == "COMPLETED")


@pytest.mark.v0_3
def test_the_limit_is_none_for_what_is_in_time(client, a2a):
    a2a(BLOCKING_TIMEOUT=20)
    assert state(client.task()) == "COMPLETED"
    assert "message" in client.send("message:hi")

"""Executors that ask to be run again: `raise Retry(after=…, reason=…)`, as clients see it."""

import pytest
from django.db.models.functions import Now

from a2a_django.agents import dispatch, registry
from a2a_django.models import Agent, Task, Turn
from tests.clients import Error, artifact, kinds, message, state, words
from tests.executors import SECRET, Script


@pytest.fixture
def turns():
    """turns(): state and attempts of each turn, in order."""
    return lambda: list(Turn.objects.order_by("pk").values_list("state", "attempt"))


@pytest.fixture
def paused(client, eventually):
    """paused(script): a task whose turn waits for an hour to be run again, and the send that waits for it."""

    def make(script="task working:first retry:1:3600:busy completed"):
        pending = client.sending(script)
        eventually(lambda: Turn.objects.filter(state="queued", attempt=1).exists())
        return Task.objects.latest("created_at"), pending

    return make


@pytest.mark.v0_3
def test_a_waiting_send_goes_on_over_the_pause(client, turns):
    task = client.task("task artifact:a:b retry:2:0.01:busy completed")
    assert (state(task), artifact(task)) == ("COMPLETED", "b")
    assert turns() == [("done", 3)]
    assert Turn.objects.get().error == ""


def test_a_stream_goes_on_over_the_pause(client, turns):
    """What was said stays said, and the next attempt goes on from there."""
    events = client.stream("task new:artifact:a:1 retry:1:0.01:busy append:a:2 completed").all()
    assert kinds(events) == ["task", "artifactUpdate", "artifactUpdate", "COMPLETED"]
    assert artifact(client.get(events[0]["task"]["id"])) == "12"
    assert turns() == [("done", 2)]


def test_in_the_pause_the_task_stands_as_it_was_left(client, paused):
    task, pending = paused()
    assert not pending.done
    found = client.get(task.pk)
    assert state(found) == "WORKING"
    assert found["status"]["message"]["parts"] == [{"text": "first"}]
    assert SECRET in Turn.objects.get().error  # staff see what it was about
    client.cancel(task.pk)
    assert state(pending()["task"]) == "CANCELED"


@pytest.mark.v0_3
def test_a_task_that_is_canceled_in_the_pause(client, paused, turns):
    task, pending = paused()
    assert state(client.cancel(task.pk)) == "CANCELED"
    assert state(pending()["task"]) == "CANCELED"
    assert turns() == [("failed", 1)]


def test_messages_that_come_in_the_pause_wait(client, paused, eventually):
    task, pending = paused("task working retry:1:3600:busy input:what?")
    follow_up = client.sending(message("completed", taskId=task.pk))
    eventually(lambda: Turn.objects.count() == 2)
    Turn.objects.update(due_at=Now())
    dispatch.hand(Turn.objects.earliest("pk").pk)
    assert state(pending()["task"]) in ("INPUT_REQUIRED", "COMPLETED")
    done = follow_up()["task"]
    assert state(done) == "COMPLETED"
    assert words(done).count("completed") == 1


@pytest.mark.v0_3
def test_when_all_attempts_are_spent_the_task_fails(client, a2a, turns):
    a2a(MAX_ATTEMPTS=2)
    task = client.task("task artifact:a:b retry:9:0.01:busy")
    assert (state(task), artifact(task)) == ("FAILED", "b")
    said = task["status"]["message"]
    assert said["parts"] == [{"text": "busy"}]
    assert said["metadata"] == {"retryable": True, "reason": "busy"}
    assert turns() == [("failed", 2)]


def test_the_stream_of_a_turn_whose_attempts_are_spent(client, a2a):
    a2a(MAX_ATTEMPTS=1)
    last = client.stream("task retry:9:0.01:").all()[-1]["statusUpdate"]["status"]
    assert last["message"]["metadata"] == {"retryable": True, "reason": ""}
    assert SECRET not in str(last)


def test_attempts_are_spent_before_anything_was_said(client, a2a, turns):
    """The error that is the answer says the same."""
    a2a(MAX_ATTEMPTS=2)
    with pytest.raises(Error) as error:
        client.send("retry:9:0.01:busy")
    assert (error.value.reason, error.value.message) == ("UNAVAILABLE", "busy")
    assert error.value.metadata == {"retryable": "true", "reason": "busy"}
    assert turns() == [("failed", 2)]


def test_a_message_after_a_pause(client):
    """It counts when its executor has returned."""
    for script in ("retry:1:0.01:busy message:hello", "message:hello retry:1:0.01:busy"):
        assert client.send(script)["message"]["parts"] == [{"text": "hello"}]


def test_who_does_not_wait_gets_the_task(client, a2a):
    a2a(IMMEDIATE_WAIT=0.01)
    task = client.task("retry:1:3600:busy completed", returnImmediately=True)
    assert state(task) == "SUBMITTED"
    assert state(client.cancel(task["id"])) == "CANCELED"


def test_a_task_that_has_ended_is_not_run_again(client, turns):
    assert state(client.task("task completed retry:1:0.01:busy")) == "COMPLETED"
    assert turns() == [("failed", 1)]


def test_a_turn_that_was_read_from_the_inbox_comes_again(client, turns):
    """Its sender waits with the other."""
    asked = client.task("task new:auth:please inbox:1 retry:1:0.01:busy completed")
    assert state(asked) == "AUTH_REQUIRED"
    done = client.follow(asked, "artifact:a:granted")
    assert (state(done), artifact(done)) == ("COMPLETED", "granted")
    assert turns() == [("done", 2), ("done", 2)]


def test_a_blocking_executor_is_run_again(make_client, monkeypatch):
    monkeypatch.setitem(registry._registered, "blocking", registry.Registration(Script, blocking=True))
    client = make_client()
    Agent.objects.update(executor="blocking")
    assert state(client.task("task retry:1:0.01:busy completed")) == "COMPLETED"


def test_from_cancel_it_is_an_accident(make_client, gate):
    client = make_client("CancelRetries")
    task = client.task("task working wait:a", returnImmediately=True)
    gate("a").reached()
    assert state(client.cancel(task["id"])) == "CANCELED"

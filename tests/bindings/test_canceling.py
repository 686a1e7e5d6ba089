"""CancelTask over every binding (DESIGN 5.6)."""

import pytest
from django.db import OperationalError

from a2a_django import doorbell
from a2a_django.agents import leases
from a2a_django.models import Event, Turn
from tests.clients import Error, artifact, kinds, message, state
from tests.executors import SECRET

WORKS = "task working wait:here completed"


@pytest.fixture
def running(make_client, gate):
    """running(executor="Script"): a client and a task that its executor works at."""

    def make(executor="Script", script=WORKS):
        client = make_client(executor)
        task = client.task(script, returnImmediately=True)
        gate("here").reached()
        return client, task

    return make


def refused(call, reason):
    with pytest.raises(Error) as error:
        call()
    assert error.value.reason == reason
    assert SECRET.encode() not in error.value.response.body


@pytest.mark.v0_3
@pytest.mark.parametrize("executor", ["Script", "EmptyCancel", "CancelRaises"])
def test_cancel_of_a_running_task(running, executor, eventually):
    """Whatever `cancel()` says, the task ends CANCELED, and nothing follows."""
    client, task = running(executor)
    stream = client.subscribe(task["id"])
    canceled = client.cancel(task["id"])

    assert state(canceled) == "CANCELED"
    assert client.get(task["id"]) == canceled
    assert kinds(stream.all())[-1] == "CANCELED"
    eventually(lambda: Turn.objects.get().state == "done")  # by its executor
    assert Event.objects.filter(task=task["id"], state="TASK_STATE_CANCELED").count() == 1


@pytest.mark.v0_3
def test_a_cancel_that_hangs_is_ended_without_the_executor(running, a2a):
    client, task = running("CancelHangs")
    a2a(CANCEL_TIMEOUT=0.05)

    assert state(client.cancel(task["id"])) == "CANCELED"


@pytest.mark.v0_3
def test_a_runner_that_does_not_hear_is_not_waited_for(client, gate, said, a2a):
    """Its loop is blocked, or its process has died just now: the caller's own process ends the task, and the turn."""
    a2a(CANCEL_TIMEOUT=0.05)
    task = client.task("task working wait:first block:here completed", returnImmediately=True)
    said(task["id"], 2)
    gate("first").open()
    gate("here").reached()

    assert state(client.cancel(task["id"])) == "CANCELED"
    assert Turn.objects.get().state == "failed"
    gate("here").open()
    assert state(client.task()) == "COMPLETED"
    assert state(client.get(task["id"])) == "CANCELED"


@pytest.mark.v0_3
def test_an_executor_that_clings_on_is_not_heard(running, a2a, gate):
    client, task = running("ClingOn")
    a2a(CANCEL_TIMEOUT=0.05)

    assert state(client.cancel(task["id"])) == "CANCELED"
    gate("cling").open()
    assert "artifacts" not in client.get(task["id"])


@pytest.mark.v0_3
def test_a_refused_cancel_lets_the_turn_run_on(running, gate, eventually):
    client, task = running("RefuseCancel")
    stream = client.subscribe(task["id"])
    next(stream)

    for _ in range(2):
        refused(lambda: client.cancel(task["id"]), "TASK_NOT_CANCELABLE")
    gate("here").open()
    assert kinds(stream.all()) == ["COMPLETED"]
    refused(lambda: client.cancel(task["id"]), "TASK_NOT_CANCELABLE")


@pytest.mark.v0_3
def test_an_executor_that_is_done_just_then_wins(running):
    client, task = running("CompleteOnCancel")

    refused(lambda: client.cancel(task["id"]), "TASK_NOT_CANCELABLE")
    assert state(client.get(task["id"])) == "COMPLETED"


def test_a_cancel_is_heard_although_a_look_for_one_failed(running, a2a, monkeypatch, eventually):
    """The database was away just when the runner was rung: the next renewal of its lease tells it."""
    a2a(LEASE_SECONDS=0.3)
    client, task = running("CompleteOnCancel")
    looks = []

    def broken(task_id):
        looks.append(task_id)
        raise OperationalError("the connection broke")

    with monkeypatch.context() as patch:
        patch.setattr(leases, "_standing", broken)
        doorbell.ring(doorbell.CANCEL + task["id"])
        eventually(lambda: looks)
    refused(lambda: client.cancel(task["id"]), "TASK_NOT_CANCELABLE")
    assert state(client.get(task["id"])) == "COMPLETED"


def test_a_waiting_send_is_answered_by_the_canceled_task(client, gate, eventually):
    pending = client.sending(WORKS)
    gate("here").reached()
    (task,) = eventually(lambda: client.list()["tasks"])
    client.cancel(task["id"])

    assert state(pending()["task"]) == "CANCELED"


@pytest.mark.v0_3
@pytest.mark.parametrize("executor", ["Script", "RefuseCancel"])
def test_cancel_of_a_queued_task_needs_no_worker(make_client, executor, a2a, no_broker, eventually):
    """Who waits for it is answered, too."""
    client = make_client(executor)
    parked = client.task("task input:what?")
    a2a(EXECUTION="celery")
    waiting = client.sending(message("completed", taskId=parked["id"]))
    eventually(lambda: Turn.objects.filter(state="queued").exists())

    assert state(client.cancel(parked["id"])) == "CANCELED"
    assert state(waiting()["task"]) == "CANCELED"
    assert [turn.state for turn in Turn.objects.order_by("pk")] == ["done", "failed"]


@pytest.mark.v0_3
@pytest.mark.parametrize("executor", ["Script", "RefuseCancel"])
def test_cancel_of_a_parked_task_needs_no_executor(make_client, executor):
    client = make_client(executor)
    task = client.task("task artifact:a:b input:what?")
    canceled = client.cancel(task["id"])

    assert (state(canceled), artifact(canceled)) == ("CANCELED", "b")
    refused(lambda: client.send(message("completed", taskId=task["id"])), "UNSUPPORTED_OPERATION")


@pytest.mark.v0_3
@pytest.mark.parametrize("script", ["task completed", "task failed", "task rejected"])
def test_cancel_of_an_ended_task_is_refused(client, script):
    task = client.task(script)
    refused(lambda: client.cancel(task["id"]), "TASK_NOT_CANCELABLE")
    assert client.get(task["id"]) == task


@pytest.mark.v0_3
def test_cancel_of_a_canceled_task_is_refused(client):
    task = client.task("task input:what?")
    client.cancel(task["id"])
    refused(lambda: client.cancel(task["id"]), "TASK_NOT_CANCELABLE")


@pytest.mark.v0_3
def test_cancel_of_an_unknown_task(client):
    refused(lambda: client.cancel("nobody's"), "TASK_NOT_FOUND")


@pytest.mark.v0_3
def test_a_turn_that_waited_for_its_turn_ends_with_the_task(running, eventually):
    client, task = running()
    follow_up = client.sending(message("completed", taskId=task["id"]))
    eventually(lambda: Turn.objects.count() == 2)
    client.cancel(task["id"])

    assert state(follow_up()["task"]) == "CANCELED"
    assert eventually(lambda: set(Turn.objects.values_list("state", flat=True)) == {"done", "failed"})

"""What happens when two things happen at once: one order, one terminal state, nothing twice."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from a2a.types import CancelTaskRequest
from django.db import connection

from a2a_django import entries, event_log
from a2a_django.agents import claims, dispatch
from a2a_django.doorbell import Ear
from a2a_django.models import Agent, Artifact, Event, Task, Turn
from a2a_django.models.task import Cancel
from a2a_django.operations import cancel_task, canceling
from a2a_django.protocol.states import TERMINAL, TaskState
from tests.clients import Error, artifact, kinds, message, state, words

pytestmark = pytest.mark.parametrize("binding", ["rest"], indirect=True)


def together(*calls):
    """Does all at once, each in a thread; what they returned, or the exceptions they raised."""
    barrier = threading.Barrier(len(calls))

    def run(call):
        barrier.wait(20)
        try:
            return call()
        except Exception as error:
            return error
        finally:
            connection.close()

    with ThreadPoolExecutor(len(calls)) as pool:
        return [future.result(60) for future in [pool.submit(run, call) for call in calls]]


def one_terminal_event(task_id):
    """The one terminal state of a task, by its log and by its row."""
    (found,) = Event.objects.filter(task=task_id, state__in=TERMINAL).values_list("state", flat=True)
    task = Task.objects.get(pk=task_id)
    assert task.state == found
    sequences = list(Event.objects.filter(task=task_id).order_by("sequence").values_list("sequence", flat=True))
    assert sequences == list(range(1, task.last_sequence + 1))
    return found.removeprefix("TASK_STATE_")


# --- CASES 51: cancel against the end


def test_a_cancel_and_the_end_at_once(client, gate):
    """Whoever is first wins, the answer agrees with the row, and the loser is told."""
    outcomes = set()
    for count in range(50):
        task = client.task(f"task wait:{count} completed", returnImmediately=True)
        gate(str(count)).reached()
        stream = client.subscribe(task["id"])
        canceled, _ = together(lambda task=task: client.cancel(task["id"]), gate(str(count)).open)

        ended = one_terminal_event(task["id"])
        outcomes.add(ended)
        assert kinds(stream.all())[-1] == ended
        if ended == "CANCELED":
            assert state(canceled) == "CANCELED"
        else:
            assert isinstance(canceled, Error)
            assert canceled.reason == "TASK_NOT_CANCELABLE"
        assert state(client.get(task["id"])) == ended
    assert outcomes <= {"CANCELED", "COMPLETED"}


def test_two_writers_of_one_task(client, make_task):
    """The log takes one of two terminal states, whoever holds the row first."""
    for _ in range(15):
        task = make_task(state="TASK_STATE_WORKING")

        def end(how, task=task):
            writer = event_log.writer(task)
            entry = entries.status(writer.task_id, writer.context_id, how)
            event_log.append(writer, [entry], release=True)

        results = together(lambda end=end: end(TaskState.COMPLETED), lambda end=end: end(TaskState.CANCELED))
        assert [type(result) for result in results].count(event_log.FencedError) == 1
        one_terminal_event(task.pk)


def test_two_cancels_at_once(client, gate):
    task = client.task("task wait:a", returnImmediately=True)
    gate("a").reached()
    results = together(*[lambda: client.cancel(task["id"])] * 3)

    assert one_terminal_event(task["id"]) == "CANCELED"
    for result in results:
        assert result.reason == "TASK_NOT_CANCELABLE" if isinstance(result, Error) else state(result) == "CANCELED"


def test_a_turn_that_has_begun_since_is_asked_too(client, make_task, make_caller):
    """The one that was asked had just ended, and its end has wiped the request out."""
    task = make_task(Agent.objects.get(), state="TASK_STATE_WORKING", lease="first")
    cancel_task(make_caller(task.agent), CancelTaskRequest(id=task.pk), Ear())
    Task.objects.update(lease="second", cancel=Cancel.NONE)
    assert canceling._look(task.pk, late=False) is None
    assert Task.objects.get().cancel == Cancel.REQUESTED


def test_a_cancel_and_a_follow_up_at_once(client):
    """CASES 42, 51: a parked task is either canceled or goes on, and the other is told."""
    for _ in range(10):
        task = client.task("task input:what?")
        canceled, answered = together(
            lambda task=task: client.cancel(task["id"]), lambda task=task: client.follow(task, "completed")
        )
        ended = one_terminal_event(task["id"])
        if ended == "CANCELED":
            assert state(canceled) == "CANCELED"
            assert answered.reason == "UNSUPPORTED_OPERATION" if isinstance(answered, Error) else state(answered)
        else:
            assert (canceled.reason, state(answered)) == ("TASK_NOT_CANCELABLE", "COMPLETED")


# --- CASES 42: follow-ups at once


def test_follow_ups_at_once_run_one_after_the_other(client, gate, eventually):
    task = client.task("task input:what?")
    first = client.sending(message("working wait:first artifact:a:1 input:more?", taskId=task["id"]))
    gate("first").reached()
    second = client.sending(message("append:a:2 completed", taskId=task["id"]))
    eventually(lambda: Turn.objects.filter(task=task["id"]).count() == 3)
    assert [turn.state for turn in Turn.objects.order_by("pk")] == ["done", "running", "queued"]

    gate("first").open()
    assert state(first()["task"]) in ("INPUT_REQUIRED", "COMPLETED")
    done = second()["task"]
    assert (state(done), artifact(done)) == ("COMPLETED", "12")
    assert sorted(words(done)) == sorted(
        ["task input:what?", "what?", "working wait:first artifact:a:1 input:more?", "more?", "append:a:2 completed"]
    )
    assert len({said["messageId"] for said in done["history"]}) == 5


def test_a_message_while_the_executor_runs_waits_for_its_turn(client, gate, eventually):
    first = client.task("task working wait:a artifact:a:1 input:what?", returnImmediately=True)
    gate("a").reached()
    stream = client.stream(message("append:a:2 completed", taskId=first["id"]))
    assert "task" in next(stream).data

    gate("a").open()
    assert kinds(stream.all())[-3:] == ["INPUT_REQUIRED", "artifactUpdate", "COMPLETED"]
    assert artifact(client.get(first["id"])) == "12"


def test_many_follow_ups_at_once(client):
    task = client.task("task artifact:a:. input:what?")
    answers = together(
        *[lambda count=count: client.follow(task, f"append:a:{count} input:more?") for count in range(5)]
    )

    assert {state(answer) for answer in answers} == {"INPUT_REQUIRED"}
    done = client.get(task["id"])
    assert sorted(artifact(done)) == sorted(".01234")
    assert len(done["history"]) == len({said["messageId"] for said in done["history"]})
    assert Turn.objects.filter(state="done").count() == 6


# --- CASES 53: the same job twice


def queued_turn(client, a2a, script="task artifact:a:b completed"):
    """A turn that was handed to a broker which isn't there."""
    a2a(EXECUTION="celery", IMMEDIATE_WAIT=0.01)
    client.task(script, returnImmediately=True)
    a2a(EXECUTION="inprocess")
    return Turn.objects.get(state="queued")


def test_a_broker_that_is_away_loses_nothing(client, a2a, no_broker, eventually):
    turn = queued_turn(client, a2a)
    assert state(client.get(turn.task_id)) == "SUBMITTED"

    dispatch.run_turn(turn.pk)
    assert state(client.get(turn.task_id)) == "COMPLETED"


def test_a_message_for_a_task_that_was_shown_before_its_turn_began(client, a2a, no_broker):
    """Whoever did not want to wait got a Task of the server's; that doesn't forbid the executor its Message."""
    turn = queued_turn(client, a2a, "message:hello")
    assert state(client.get(turn.task_id)) == "SUBMITTED"

    dispatch.run_turn(turn.pk)
    task = client.get(turn.task_id)
    assert (state(task), task["status"]["message"]["parts"]) == ("COMPLETED", [{"text": "hello"}])


def test_a_job_that_comes_twice_runs_once(client, a2a, no_broker):
    turn = queued_turn(client, a2a)
    together(*[lambda: dispatch.run_turn(turn.pk)] * 3)
    dispatch.run_turn(turn.pk)

    assert one_terminal_event(turn.task_id) == "COMPLETED"
    assert Event.objects.filter(kind="artifactUpdate").count() == Artifact.objects.count() == 1
    assert Turn.objects.get().attempt == 1


def test_a_worker_tells_the_executor_what_this_process_would(client, a2a, no_broker, eventually):
    """CASES 42, 84: message, metadata, accepted output modes, history and related tasks."""
    other, told = client.task("task completed"), []
    for execution in ("inprocess", "celery"):
        a2a(EXECUTION="inprocess")
        task = client.task(message("task input:what?", messageId="q", contextId="c"))
        a2a(EXECUTION=execution, IMMEDIATE_WAIT=0.01)
        said = message("dump completed", messageId="a", taskId=task["id"], referenceTaskIds=[other["id"]])
        client.task(said, {"a": [None]}, acceptedOutputModes=["text/html"], returnImmediately=True)
        dispatch.run_turn(Turn.objects.latest("pk").pk)
        eventually(lambda task=task: state(client.get(task["id"])) == "COMPLETED")
        found = json.dumps(client.get(task["id"])["artifacts"], sort_keys=True)
        told.append(found.replace(task["id"], "id").replace(task["status"]["timestamp"], "then"))

    assert told[0] == told[1]
    data = json.loads(told[0])[0]["parts"][0]["data"]
    assert data["configuration"]["acceptedOutputModes"] == ["text/html"]
    assert words(data["task"]) == ["task input:what?"]
    assert data["task"]["status"]["message"]["parts"] == [{"text": "what?"}]
    assert [task["id"] for task in data["related"]] == [other["id"]]


def test_a_job_for_an_ended_task_is_a_no_op(client, a2a, no_broker):
    turn = queued_turn(client, a2a)
    client.cancel(turn.task_id)
    before = list(Event.objects.values_list("pk", "body"))
    dispatch.run_turn(turn.pk)

    assert list(Event.objects.values_list("pk", "body")) == before
    assert claims.claim(turn.pk) is None


def test_a_job_for_nothing_is_a_no_op(client):
    dispatch.run_turn(987654)
    assert not Event.objects.exists()


# --- a lease that was lost


def test_a_runner_that_lost_its_lease_writes_nothing_more(client, gate, eventually):
    task = client.task("task working wait:a completed", returnImmediately=True)
    gate("a").reached()
    Task.objects.update(lease="somebody-else")
    gate("a").open()
    eventually(lambda: not Turn.objects.filter(state="queued").exists())
    client.list()

    assert not Event.objects.filter(task=task["id"], state__in=TERMINAL).exists()
    assert Task.objects.get().lease == "somebody-else"
    Task.objects.update(cancel=Cancel.NONE)

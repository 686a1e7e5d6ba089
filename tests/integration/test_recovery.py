"""What dead processes held is brought back (DESIGN 5.4; CASES 53, 54, 55)."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from uuid import uuid4

import pytest
from django.core.management import call_command
from django.db import OperationalError, connection
from django.db.models.functions import Now

from a2a_django import entries
from a2a_django.agents import claims, dispatch, recovery
from a2a_django.models import Agent, Event, Task, Turn
from a2a_django.models.task import Cancel
from a2a_django.models.turn import TurnState
from a2a_django.operations import canceling
from tests.clients import Error, artifact, kinds, message, state, words

pytestmark = pytest.mark.parametrize("binding", ["rest"], indirect=True)

LONG_AGO = timedelta(hours=1)


@pytest.fixture
def abandoned(client, monkeypatch):
    """abandoned(text, **task): a task whose turn was claimed by a process that died, and the send that waits for it."""

    def make(text="task completed", *, attempt=1, **changes):
        with monkeypatch.context() as patch:
            patch.setattr(dispatch, "start", lambda claim: None)
            pending = client.sending(text)
            _until(lambda: Turn.objects.filter(state=TurnState.RUNNING).exists())
        task = Task.objects.latest("created_at")
        Turn.objects.filter(task=task).update(worker="dead:1", attempt=attempt)
        Task.objects.filter(pk=task.pk).update(lease_expires=Now() - LONG_AGO, **changes)
        return task, pending

    return make


def _until(condition):
    for _ in range(2000):
        if condition():
            return
        threading.Event().wait(0.005)
    raise AssertionError("it never came")


def restartable(**changes):
    Agent.objects.update(restartable=True, **changes)


def test_a_restartable_turn_is_run_again(abandoned):
    """CASES 54"""
    restartable()
    _task, pending = abandoned("task artifact:a:b completed")
    assert recovery.recover() == 1
    answer = pending()["task"]
    assert (state(answer), artifact(answer)) == ("COMPLETED", "b")
    turn = Turn.objects.get()
    assert (turn.state, turn.attempt) == (TurnState.DONE, 2)
    assert recovery.recover() == 0


def test_another_turn_fails_with_its_task(client, abandoned):
    """CASES 54: with a neutral message, for who waits and who comes later."""
    task, pending = abandoned()
    assert recovery.recover() == 1
    answer = pending()["task"]
    assert state(answer) == "FAILED"
    assert answer["status"]["message"]["parts"] == [{"text": entries.INTERRUPTED}]
    assert client.get(task.pk) == answer
    turn = Turn.objects.get()
    assert turn.state == TurnState.FAILED
    assert "died" in turn.error


def test_attempts_are_bounded(a2a, client, abandoned):
    restartable()
    _, pending = abandoned(attempt=3)
    assert recovery.recover() == 1
    assert state(pending()["task"]) == "FAILED"


def test_a_turn_that_had_its_time_is_not_tried_again(abandoned):
    restartable(turn_timeout=60)
    _task, pending = abandoned()
    Turn.objects.update(started_at=Now() - LONG_AGO)
    recovery.recover()
    assert state(pending()["task"]) == "FAILED"


def test_a_cancel_that_nobody_heard(abandoned):
    _task, pending = abandoned(cancel=Cancel.REQUESTED)
    recovery.recover()
    assert state(pending()["task"]) == "CANCELED"


def test_a_held_lease_is_left_alone(client, gate):
    """CASES 55"""
    task = client.task("task working wait:a completed", returnImmediately=True)
    gate("a").reached()
    assert recovery.recover() == 0
    assert not recovery.recover_task(task["id"])
    gate("a").open()
    _until(lambda: state(client.get(task["id"])) == "COMPLETED")


def test_a_late_worker_is_fenced_off(client, gate, eventually):
    """CASES 55: its process was only slow; what it says after the takeover is refused."""
    task = client.task("task working wait:a artifact:a:late completed", returnImmediately=True)
    gate("a").reached()
    Task.objects.filter(pk=task["id"]).update(lease_expires=Now() - LONG_AGO)
    assert recovery.recover_task(task["id"])
    failed = client.get(task["id"])
    assert state(failed) == "FAILED"
    gate("a").open()
    after = client.task("task completed")
    assert state(after) == "COMPLETED"
    assert client.get(task["id"]) == failed
    assert kinds(client.subscribe(task["id"], last=0).all())[-1] == "FAILED"


def test_two_recoveries_at_once_do_no_harm(abandoned):
    restartable()
    task, pending = abandoned("task artifact:a:b completed")
    barrier = threading.Barrier(4)

    def recover(_):
        barrier.wait(20)
        try:
            return recovery.recover()
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(recover, range(4))) == 1
    assert state(pending()["task"]) == "COMPLETED"
    assert Turn.objects.get().attempt == 2
    sequences = list(Event.objects.filter(task=task).order_by("sequence").values_list("sequence", flat=True))
    assert sequences == list(range(1, len(sequences) + 1))


def test_messages_that_wait_behind_a_dead_turn(client, abandoned, gate):
    """They follow a turn that is run again; with a task that fails they fail."""
    restartable()
    task, pending = abandoned("task wait:a input:what?", visible=True)
    follow_up = client.sending(message("completed", taskId=task.pk))
    gate("a").reached()
    _until(lambda: Turn.objects.filter(state=TurnState.QUEUED).exists())
    gate("a").open()
    assert state(pending()["task"]) in ("INPUT_REQUIRED", "COMPLETED")
    assert state(follow_up()["task"]) == "COMPLETED"
    assert words(client.get(task.pk)).count("completed") == 1


def test_a_read_recovers(client, abandoned):
    task, pending = abandoned(visible=True)
    assert state(client.get(task.pk)) == "FAILED"
    assert state(pending()["task"]) == "FAILED"


def test_a_list_recovers(client, abandoned):
    client.task("task completed")
    _, pending = abandoned(visible=True)
    assert [state(found) for found in client.list()["tasks"]] == ["FAILED", "COMPLETED"]
    assert state(pending()["task"]) == "FAILED"


def test_a_subscriber_recovers(client, abandoned, gate):
    restartable()
    task, pending = abandoned("task wait:a completed", visible=True)
    stream = client.subscribe(task.pk)
    gate("a").open()
    assert kinds(stream.all())[-1] == "COMPLETED"
    assert state(pending()["task"]) == "COMPLETED"


def test_a_cancel_that_nobody_heeds_ends_the_turn(client, abandoned, a2a, monkeypatch):
    """Its process is frozen, say, and has still got the lease: nobody else would ever end the turn."""
    a2a(CANCEL_TIMEOUT=0.01)
    monkeypatch.setattr(canceling, "GRACE", 0.01)
    task, pending = abandoned(visible=True)
    Task.objects.update(lease_expires=Now() + LONG_AGO)
    follow_up = client.sending(message("completed", taskId=task.pk))
    _until(lambda: Turn.objects.filter(state=TurnState.QUEUED).exists())
    assert state(client.cancel(task.pk)) == "CANCELED"
    assert state(pending()["task"]) == state(follow_up()["task"]) == "CANCELED"
    assert set(Turn.objects.values_list("state", flat=True)) == {TurnState.FAILED}


def test_a_cancel_recovers(client, abandoned):
    restartable()
    task, pending = abandoned("task wait:never", visible=True)
    assert state(client.cancel(task.pk)) == "CANCELED"
    assert state(pending()["task"]) == "CANCELED"


def test_a_follow_up_recovers(client, abandoned):
    """Its task has failed with the process that held it, and takes no more messages."""
    task, pending = abandoned(visible=True)
    with pytest.raises(Error) as error:
        client.send(message("completed", taskId=task.pk))
    assert error.value.reason == "UNSUPPORTED_OPERATION"
    assert state(pending()["task"]) == "FAILED"


# --- lost jobs


def lost_turn(task):
    """A turn that was handed on long ago and never started."""
    times = {"due_at": Now() - LONG_AGO, "handed_at": Now() - LONG_AGO}
    return Turn.objects.create(task=task, message=task.messages.get(), request="{}", **times)


def test_a_lost_job_is_handed_on_again(client, make_task):
    """CASES 54: the broker was down, or lost it."""
    task = make_task(Agent.objects.get(), text="task completed", visible=False)
    turn = lost_turn(task)
    assert recovery.recover() == 1
    _until(lambda: Turn.objects.get(pk=turn.pk).state == TurnState.DONE)


def test_a_job_that_is_lost_again_is_handed_on_again(client, make_task, a2a, monkeypatch):
    """On every database, also with a time that the database itself has written."""
    a2a(REDISPATCH_SECONDS=0)
    task = make_task(Agent.objects.get(), text="task completed", visible=False)
    lost_turn(task)
    handed = []
    monkeypatch.setattr(dispatch, "hand", handed.append)
    assert recovery.recover() == 1
    Turn.objects.update(due_at=Now())  # so that no patience is left
    _until(recovery.recover)
    assert len(handed) == 2


def test_patience_doubles(client, make_task):
    task = make_task(Agent.objects.get(), text="task completed", visible=False)
    turn = lost_turn(task)
    for due, handed, lost in [
        *[(100, 61, True), (100, 40, False), (1000, 400, False), (1000, 501, True)],
        *[(9000, 959, False), (9000, 961, True)],  # and has a bound
    ]:
        times = {"due_at": Now() - timedelta(seconds=due), "handed_at": Now() - timedelta(seconds=handed)}
        Turn.objects.filter(pk=turn.pk).update(**times)
        assert bool(recovery._lost()) is lost, (due, handed)


def test_a_turn_behind_another_is_not_lost(client, make_task):
    task = make_task(Agent.objects.get(), visible=False)
    for _ in range(2):
        lost_turn(task)
    assert len(recovery._lost()) == 1


def test_a_second_copy_of_a_job_is_a_no_op(client, make_task):
    """CASES 53: while the first runs, after it was done and after it failed."""
    task = make_task(Agent.objects.get(), text="task completed", visible=False)
    turn = Turn.objects.create(task=task, message=task.messages.get(), request="{}")
    first = claims.claim(turn.pk)
    assert first is not None
    assert claims.claim(turn.pk) is None
    for ended in (TurnState.DONE, TurnState.FAILED):
        Turn.objects.update(state=ended)
        Task.objects.update(lease="")
        assert claims.claim(turn.pk) is None


# --- the turn's own time


def test_a_turn_has_only_so_much_time(client):
    Agent.objects.update(turn_timeout=0.2)
    task = client.task("task working artifact:a:b wait:never")
    assert (state(task), artifact(task)) == ("FAILED", "b")
    assert "turn_timeout" in Turn.objects.get().error


def test_a_turn_that_blocks_the_loop_loses_its_lease(a2a, client, gate):
    """Its runner can't end it, so its lease isn't renewed any more."""
    a2a(LEASE_SECONDS=0.3, CANCEL_TIMEOUT=0.1)
    Agent.objects.update(turn_timeout=0.2)
    pending = client.sending("task working block:a completed")
    gate("a").reached()
    _until(recovery.recover)
    assert state(pending()["task"]) == "FAILED"
    gate("a").open()


# --- the command


def test_the_command(abandoned, capsys):
    _, pending = abandoned(cancel=Cancel.REQUESTED)
    call_command("a2a_recover")
    assert capsys.readouterr().out == "1 recovered\n"
    assert state(pending()["task"]) == "CANCELED"


def test_the_command_goes_on_when_the_database_is_back(abandoned, capsys, monkeypatch):
    """It is the one that must not die where no other process looks."""
    _, pending = abandoned(cancel=Cancel.REQUESTED)
    outcomes = [OperationalError("the connection broke"), recovery.recover, KeyboardInterrupt()]

    def recover():
        outcome = outcomes.pop(0)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome()

    monkeypatch.setattr(recovery, "recover", recover)
    with pytest.raises(KeyboardInterrupt):
        call_command("a2a_recover", every=0)
    shown = capsys.readouterr()
    assert (shown.out, "OperationalError" in shown.err) == ("1 recovered\n", True)
    assert state(pending()["task"]) == "CANCELED"


@pytest.mark.parametrize("held", ["", str(uuid4())])
def test_nothing_to_do(client, make_task, held):
    expires = Now() + LONG_AGO if held else None
    make_task(Agent.objects.get(), lease=held, lease_expires=expires)
    assert recovery.recover() == 0

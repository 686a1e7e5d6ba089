"""The database is away while a turn runs: what was said is written later, whole and once, or not at all."""

import threading

import pytest
from django.db import DataError, InterfaceError, InternalError, OperationalError

from a2a_django import event_log
from a2a_django.agents import leases, recovery
from a2a_django.models import Agent, Event, Turn
from a2a_django.models.turn import TurnState
from tests.clients import artifact, state

pytestmark = pytest.mark.parametrize("binding", ["rest"], indirect=True)


@pytest.fixture
def break_commits(monkeypatch):
    """break_commits(error, when): commits to the log raise `error` while `when(batches)` says so."""

    def make(error, when):
        commit = event_log._commit

        def broken(planned):
            if when(planned):
                raise error
            return commit(planned)

        monkeypatch.setattr(event_log, "_commit", broken)

    return make


@pytest.mark.parametrize("error", [OperationalError, InterfaceError, InternalError])
def test_what_could_not_be_written_is_written_later(client, break_commits, error):
    """InternalError is what psycopg makes of a session that the server has ended for being idle in a transaction."""
    times = iter(range(3))
    break_commits(error("the connection broke"), lambda _: next(times, None) is not None)
    task = client.task("task artifact:a:1 append:a:2 completed")
    assert (state(task), artifact(task)) == ("COMPLETED", "12")
    assert Turn.objects.get().state == TurnState.DONE


def test_a_turn_that_cannot_write_for_as_long_as_its_lease_is_left_to_recovery(
    client, break_commits, a2a, gate, eventually
):
    """It writes nothing more, not even that it has failed, and the next attempt begins anew."""
    a2a(LEASE_SECONDS=0.3)
    Agent.objects.update(restartable=True)
    task = client.task("task wait:here artifact:a:1 append:a:2 completed", returnImmediately=True)
    gate("here").reached()
    away = threading.Event()
    away.set()
    break_commits(OperationalError("the connection broke"), lambda planned: away.is_set() and not fails(planned))
    gate("here").open()
    eventually(lambda: not leases._held)
    away.clear()
    eventually(lambda: recovery.recover() or Turn.objects.get().attempt > 1)
    eventually(lambda: Turn.objects.get().ended)
    task = client.get(task["id"])
    assert (state(task), artifact(task)) == ("COMPLETED", "12")


def fails(planned):
    """Whether one of the batches ends its task FAILED."""
    return any(event.state == "TASK_STATE_FAILED" for batch in planned for event in batch.events)


def test_nothing_stands_behind_a_hole(client, break_commits, gate, eventually):
    """What the database refuses is missing; so is what was said after it."""
    script = "task artifact:a:1 wait:here append:a:2 wait:there append:a:3 wait:end"
    task = client.task(script, returnImmediately=True)
    gate("here").reached()

    times = iter(range(1))

    def says_more(planned):
        """The first time, when the executor has said what comes after."""
        gate("there").open()
        gate("end").reached()
        return next(times, None) is not None

    break_commits(DataError("it does not like 2"), says_more)
    gate("here").open()
    eventually(lambda: Turn.objects.get().ended)
    task = client.get(task["id"])
    assert (state(task), artifact(task)) == ("FAILED", "1")


def test_a_turn_that_ends_its_task_just_when_its_time_is_over(client, gate):
    """CASES 51: one terminal state."""
    Agent.objects.update(turn_timeout=0.05)
    pending = client.sending("task working block:a completed")
    gate("a").reached()
    threading.Event().wait(0.1)
    gate("a").open()
    assert state(pending()["task"]) == "COMPLETED"
    assert Event.objects.exclude(state__in=["", "TASK_STATE_SUBMITTED", "TASK_STATE_WORKING"]).count() == 1

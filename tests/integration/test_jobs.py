"""The Celery job of a turn: what it is whatever the site's settings say, and what it never does (DESIGN 5.2)."""

import pytest
from django.db import connection

from a2a_django.agents import dispatch, loop, shutdown
from a2a_django.models import Event, Task, Turn
from a2a_django.models.turn import TurnState
from tests.clients import state
from tests.executors import SECRET

HOSTILE = {
    "task_acks_late": True,
    "task_reject_on_worker_lost": True,
    "task_time_limit": 1,
    "task_soft_time_limit": 1,
    "task_ignore_result": False,
}
rest = pytest.mark.parametrize("binding", ["rest"], indirect=True)


def test_what_the_site_says_of_its_jobs_is_not_said_of_ours(celery_app):
    """CASES 53: acknowledged when it starts, since recovery brings back what is lost; bounded by turn_timeout alone."""
    job = celery_app(**HOSTILE).tasks["a2a_django.run_turn"]
    assert (job.acks_late, job.ignore_result) == (False, True)
    assert job.time_limit == job.soft_time_limit == dispatch.NEVER


@pytest.fixture
def queued(client, a2a, celery_app):
    """queued(script): a turn whose job is in the broker."""

    def make(script):
        celery_app()
        a2a(EXECUTION="celery", IMMEDIATE_WAIT=0.01)
        client.task(script, returnImmediately=True)
        return Turn.objects.latest("pk")

    return make


@rest
@pytest.mark.parametrize(("last", "how"), [("completed", TurnState.DONE), ("raise", TurnState.FAILED)])
def test_a_second_copy_changes_nothing(client, queued, gate, last, how):
    """CASES 53: while the first one runs, and after it has ended, well or not."""
    turn = queued(f"task artifact:a:b wait:a {last}")
    other = loop.submit(dispatch._claim_and_perform(turn.pk))
    gate("a").reached()
    dispatch.run_turn(turn.pk)
    assert Turn.objects.get().state == TurnState.RUNNING
    gate("a").open()
    other.result(20)

    before = list(Event.objects.values_list("sequence", "body"))
    dispatch.run_turn(turn.pk)
    assert list(Event.objects.values_list("sequence", "body")) == before
    turn.refresh_from_db()
    assert (turn.state, turn.attempt) == (how, 1)
    assert Task.objects.get().lease == ""


@rest
def test_a_failure_tells_nobody_its_text(client, queued, caplog):
    """CASES 49: neither the client nor the worker's log, which staff of other teams read; the turn has it."""
    turn = queued("task working raise")
    dispatch.run_turn(turn.pk)
    task = client.get(turn.task_id)
    assert state(task) == "FAILED"
    assert SECRET not in f"{task}{caplog.text}"
    assert "RuntimeError" in caplog.text
    assert SECRET in Turn.objects.get().error


@rest
@pytest.mark.vendor("sqlite")
def test_a_job_whose_database_fails_leaves_its_turn(client, queued, caplog):
    """CASES 49, 54: and Celery, which logs the text of what jobs raise, hears of nothing."""
    turn = queued("task completed")
    execute(f"CREATE TRIGGER refuse BEFORE UPDATE ON a2a_django_task BEGIN SELECT RAISE(ABORT, '{SECRET}'); END")
    try:
        dispatch.run_turn(turn.pk)
    finally:
        execute("DROP TRIGGER refuse")
    assert "IntegrityError" in caplog.text
    assert SECRET not in caplog.text
    dispatch.run_turn(turn.pk)
    assert state(client.get(turn.task_id)) == "COMPLETED"


def execute(statement):
    with connection.cursor() as cursor:
        cursor.execute(statement)


@rest
def test_a_worker_that_ends_starts_nothing(client, queued, celery_app, monkeypatch):
    """CASES 54: its job goes back to the broker, and no attempt is spent."""
    turn = queued("task completed")
    monkeypatch.setattr(shutdown, "_begun", True)
    with celery_app().connection_for_read() as broker, broker.SimpleQueue("celery") as jobs:
        jobs.clear()
        dispatch.run_turn(turn.pk)
        assert jobs.get_nowait().payload[0] == [turn.pk]
    assert (Turn.objects.get().state, Turn.objects.get().attempt) == (TurnState.QUEUED, 0)

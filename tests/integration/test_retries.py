"""When a turn is run again whose executor has asked for it (`Retry`), and what becomes of its jobs."""

from datetime import timedelta

import pytest
from django.db.models import F
from django.db.models.functions import Now
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from a2a_django.agents import claims, dispatch, recovery
from a2a_django.models import Agent, Task, Turn
from tests.clients import state

pytestmark = pytest.mark.parametrize("binding", ["rest"], indirect=True)

SECONDS = timedelta(seconds=1)


@pytest.fixture
def paused(client, eventually):
    """paused(seconds): a turn that waits so long to be run again, and the send that waits for it."""

    def make(seconds, times=1):
        pending = client.sending(f"task retry:{times}:{seconds}:busy completed")
        eventually(lambda: Turn.objects.filter(state="queued", attempt=1).exists())
        return Turn.objects.get(), pending

    return make


def pause(turn):
    """How long it still is until the turn is due, and the same of its job."""
    left = Turn.objects.annotate(due=F("due_at") - Now(), job=F("handed_at") - Now()).get(pk=turn.pk)
    return left.due, left.job


def pass_by(turn, time):
    """As if so much time had passed."""
    Turn.objects.filter(pk=turn.pk).update(due_at=F("due_at") - time, handed_at=F("handed_at") - time)


def test_each_pause_is_twice_as_long(paused, eventually):
    """And the turn says when it is due."""
    turn, pending = paused(600, times=2)
    assert Task.objects.get().lease == ""
    assert all(590 * SECONDS < left <= 600 * SECONDS for left in pause(turn))
    pass_by(turn, 600 * SECONDS)
    dispatch.hand(turn.pk)
    eventually(lambda: Turn.objects.filter(state="queued", attempt=2).exists())
    assert all(1190 * SECONDS < left <= 1200 * SECONDS for left in pause(turn))
    pass_by(turn, 1200 * SECONDS)
    dispatch.hand(turn.pk)
    assert state(pending()["task"]) == "COMPLETED"


def test_a_second_copy_of_the_job_does_not_end_the_pause(paused):
    """CASES 53; one that comes a little early does: the clocks of workers differ."""
    turn, pending = paused(600)
    dispatch.run_turn(turn.pk)
    assert Turn.objects.get().attempt == 1
    pass_by(turn, 600 * SECONDS - claims.EARLY / 2)
    dispatch.run_turn(turn.pk)
    assert state(pending()["task"]) == "COMPLETED"


def test_a_turn_in_its_pause_is_not_lost(paused, a2a):
    a2a(REDISPATCH_SECONDS=60)
    turn, pending = paused(600)
    Turn.objects.update(created_at=Now() - timedelta(days=1))
    pass_by(turn, 650 * SECONDS)
    assert recovery.recover() == 0
    pass_by(turn, 20 * SECONDS)  # since it was due, not since it was sent
    assert recovery.recover() == 1
    assert state(pending()["task"]) == "COMPLETED"


def test_what_recovery_has_tried_counts(client, a2a, gate, eventually):
    """There are so many attempts in all, whoever asks for the next one."""
    a2a(MAX_ATTEMPTS=2)
    Agent.objects.update(restartable=True)
    pending = client.sending("task new:wait:a retry:9:0:busy")
    gate("a").reached()
    eventually(Task.objects.filter(visible=True).exists)
    Task.objects.update(lease_expires=Now() - SECONDS)
    recovery.recover()
    assert pending()["task"]["status"]["message"]["metadata"] == {"retryable": True, "reason": "busy"}


# --- Celery


@pytest.fixture
def jobs(celery_app):
    """jobs(): the jobs that were sent since the last call, as (turn, when it is to be run)."""
    with celery_app().connection_for_read() as connection, connection.SimpleQueue("celery") as queue:
        queue.clear()

        def get():
            found = [queue.get_nowait() for _ in range(queue.qsize())]
            return [(job.payload[0][0], job.headers["eta"]) for job in found]

        yield get


def test_a_job_for_the_time_when_it_is_due(client, a2a, jobs):
    a2a(EXECUTION="celery", IMMEDIATE_WAIT=0.01)
    client.task("task retry:2:60:busy completed", returnImmediately=True)
    turn = Turn.objects.get()
    assert jobs() == [(turn.pk, None)]
    dispatch.run_turn(turn.pk)
    [(turn_id, due)] = jobs()
    assert turn_id == turn.pk
    assert 50 * SECONDS < parse_datetime(due) - timezone.now() <= 60 * SECONDS


def test_a_job_that_would_be_held_too_long_is_left_to_recovery(client, a2a, jobs):
    a2a(EXECUTION="celery", IMMEDIATE_WAIT=0.01)
    client.task("task retry:1:3600:busy completed", returnImmediately=True)
    turn = Turn.objects.get()
    assert jobs() == [(turn.pk, None)]
    dispatch.run_turn(turn.pk)
    assert jobs() == []
    pass_by(turn, 3700 * SECONDS)
    assert recovery.recover() == 1
    assert jobs() == [(turn.pk, None)]

"""A process whose clock is wrong harms nobody: the database's decides (DESIGN 5; CASES 55)."""

from datetime import timedelta

import pytest
from django.db.models import F
from django.db.models.functions import Now
from django.utils import timezone

from a2a_django.agents import claims, recovery
from a2a_django.models import Agent, Task, Turn
from tests.clients import message, state

pytestmark = pytest.mark.parametrize("binding", ["rest"], indirect=True)

HOUR = timedelta(hours=1)


@pytest.fixture(params=[-HOUR, HOUR], ids=["behind", "ahead"])
def wrong_clock(request, monkeypatch):
    """This process's clock is an hour behind or ahead."""
    right = timezone.now
    monkeypatch.setattr(timezone, "now", lambda: right() + request.param)


def test_what_runs_is_left_alone(wrong_clock, client, gate):
    task = client.task("task working wait:a completed", returnImmediately=True)
    gate("a").reached()
    assert recovery.recover() == 0
    assert not recovery.recover_task(task["id"])
    assert state(client.get(task["id"])) == "WORKING"
    subscribed = client.subscribe(task["id"])
    gate("a").open()
    assert state(subscribed.all()[-1]["statusUpdate"]) == "COMPLETED"
    assert Turn.objects.get().attempt == 1


def test_what_a_dead_process_held_is_found(wrong_clock, client, gate):
    """By whoever asks for the task, and by the look of any process."""
    for find in (client.get, lambda _: recovery.recover()):
        name = find.__name__
        task = client.task(f"task working wait:{name}", returnImmediately=True)
        gate(name).reached()
        Task.objects.filter(pk=task["id"]).update(lease_expires=Now() - timedelta(seconds=1))
        find(task["id"])
        assert state(client.get(task["id"])) == "FAILED"


def test_an_attempt_has_the_time_that_it_has(wrong_clock, client, gate, said, eventually):
    """Whatever the clock says of the machine that started it, and of the one that looks."""
    Agent.objects.update(restartable=True, turn_timeout=600)
    task = client.task("task new:wait:a completed", returnImmediately=True)
    gate("a").reached()
    said(task["id"], 1)
    Task.objects.update(lease_expires=Now() - timedelta(seconds=1))
    assert recovery.recover() == 1
    eventually(lambda: state(client.get(task["id"])) == "COMPLETED")
    turn = Turn.objects.annotate(age=Now() - F("started_at"), took=F("ended_at") - F("started_at")).get()
    assert timedelta(0) <= turn.took <= turn.age < timedelta(minutes=10)


def test_a_turn_runs_at_once_and_is_missed_in_time(wrong_clock, client, a2a, no_broker, eventually):
    a2a(EXECUTION="celery", IMMEDIATE_WAIT=0.01, REDISPATCH_SECONDS=600)
    client.task("task completed", returnImmediately=True)
    assert not recovery._lost()
    a2a(EXECUTION="celery", REDISPATCH_SECONDS=0.01)
    eventually(recovery._lost)
    assert claims.claim(Turn.objects.get().pk) is not None


def test_a_message_id_is_known_for_as_long_as_it_is_said(wrong_clock, client, a2a, make_user, eventually):
    make_user()
    client = client.as_("ann")
    said = message("task completed", messageId="once")
    first = client.task(said)
    assert client.task(said)["id"] == first["id"]
    a2a(IDEMPOTENCY_SECONDS=0.001)
    eventually(lambda: client.task(said)["id"] != first["id"])

"""task_state_changed: each change once, in order, when it is committed, and nobody waits for receivers."""

import threading

import pytest
from django.db import connection

from a2a_django import event_log
from a2a_django.models import Task
from a2a_django.signals import task_state_changed
from tests.clients import state

pytestmark = pytest.mark.parametrize("binding", ["rest"], indirect=True)

SUBMITTED, WORKING, INPUT, COMPLETED, CANCELED, FAILED = (
    f"TASK_STATE_{name}" for name in ("SUBMITTED", "WORKING", "INPUT_REQUIRED", "COMPLETED", "CANCELED", "FAILED")
)


@pytest.fixture
def heard():
    """heard(): (before, after) of all changes, as a receiver of a site's hears of them."""
    found = []

    def receiver(sender, signal, **facts):
        assert sender is Task
        assert not connection.in_atomic_block
        assert Task.objects.get(pk=facts["task_id"]).last_sequence >= facts["sequence"]  # it is committed
        found.append(facts)

    task_state_changed.connect(receiver)
    yield lambda: [(facts["before"], facts["after"]) for facts in found]
    task_state_changed.disconnect(receiver)


def test_every_change_is_told_once_and_in_order(client, heard, eventually):
    asked = client.task("task working working:x artifact:a:b input:what?")
    first = [("", SUBMITTED), (SUBMITTED, WORKING), (WORKING, INPUT)]
    eventually(lambda: heard() == first)
    client.follow(asked, "working chunks:300 completed")
    eventually(lambda: heard() == [*first, (INPUT, WORKING), (WORKING, COMPLETED)])


def test_tasks_that_are_ended_from_outside(client, heard, eventually, make_task):
    task = client.task("task input:what?")
    client.cancel(task["id"])
    eventually(lambda: heard()[-1] == (INPUT, CANCELED))
    client.task("task working raise")
    eventually(lambda: heard()[-1] == (WORKING, FAILED))


def test_a_message_is_no_task(client, heard, eventually):
    client.send("message:hello")
    client.task("task completed")
    eventually(lambda: heard() == [("", SUBMITTED), (SUBMITTED, COMPLETED)])


def test_receivers_that_fail_or_hang_harm_nobody(client, eventually):
    going, seen = threading.Event(), []

    def hangs(**facts):
        going.wait(20)
        raise RuntimeError

    def sees(**facts):
        seen.append(facts["after"])

    for receiver in (hangs, sees):
        task_state_changed.connect(receiver)
    try:
        assert state(client.task("task working completed")) == "COMPLETED"
        assert seen == []
        going.set()
        eventually(lambda: seen == [SUBMITTED, WORKING, COMPLETED])
    finally:
        going.set()
        for receiver in (hangs, sees):
            task_state_changed.disconnect(receiver)


def test_without_receivers_nothing_is_done(client, monkeypatch):
    monkeypatch.setattr(event_log, "_tell", None)
    assert state(client.task("task working completed")) == "COMPLETED"

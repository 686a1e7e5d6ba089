"""Turns whose process ends: what becomes of them when their time is over (DESIGN 5.2; CASES 54)."""

import pytest
from django.db.models.functions import Now

from a2a_django import entries
from a2a_django.agents import leases, recovery, registry
from a2a_django.models import Agent, Task, Turn
from tests.clients import artifact, state
from tests.executors import Script

pytestmark = pytest.mark.parametrize("binding", ["rest"], indirect=True)


@pytest.fixture
def interrupted(gate, said, eventually):
    """interrupted(client, script): a send whose turn was interrupted at the gate `a`, after so many events."""

    def make(client, script, events=2):
        pending = client.sending(script)
        gate("a").reached()
        said(Task.objects.get().pk, events)
        interrupt()
        return pending

    return make


def interrupt():
    """What `leases.interrupt` does to the turns that run."""
    for held in list(leases._held.values()):
        held.interrupt()


def turn():
    """State and attempts of the one turn."""
    return Turn.objects.values_list("state", "attempt").get()


def test_a_restartable_turn_is_queued_again_at_once(client, interrupted, gate, eventually):
    """With all that was said, and no attempt spent; who waits goes on waiting."""
    Agent.objects.update(restartable=True)
    pending = interrupted(client, "task new:artifact:a:1 wait:a append:a:2 completed")
    gate("a").open()
    task = pending()["task"]
    assert (state(task), artifact(task)) == ("COMPLETED", "12")
    eventually(lambda: turn() == ("done", 1))


@pytest.mark.parametrize(("script", "events"), [("task working wait:a", 2), ("wait:a message:hello", 0)])
def test_another_turn_fails_with_its_task(client, interrupted, script, events):
    task = interrupted(client, script, events)()["task"]
    assert state(task) == "FAILED"
    assert task["status"]["message"]["parts"] == [{"text": entries.INTERRUPTED}]
    assert turn() == ("failed", 1)
    assert "stopped" in Turn.objects.get().error


@pytest.mark.parametrize("restartable", [False, True])
def test_an_executor_may_have_a_last_word(make_client, interrupted, restartable):
    task = interrupted(make_client("Goodbye", restartable=restartable), "task working wait:a")()["task"]
    assert (state(task), task["status"]["message"]["parts"]) == ("COMPLETED", [{"text": "goodbye"}])


def test_a_cancel_that_was_under_way(make_client, gate, said):
    client = make_client("CancelHangs", restartable=True)
    pending = client.sending("task working wait:a")
    gate("a").reached()
    task = Task.objects.get()
    said(task.pk, 2)
    canceling = client.canceling(task.pk)
    gate("cancel").reached()
    interrupt()
    assert state(canceling()) == state(pending()["task"]) == "CANCELED"


@pytest.mark.parametrize("blocking", [False, True])
def test_one_that_may_go_on_is_run_again_when_its_lease_has_expired(
    make_client, interrupted, a2a, gate, eventually, monkeypatch, blocking
):
    """No executor runs twice at a time."""
    client = make_client("ClingOn", restartable=True)
    a2a(CANCEL_TIMEOUT=0.05)
    if blocking:
        monkeypatch.setitem(registry._registered, "blocking", registry.Registration(Script, blocking=True))
        Agent.objects.update(executor="blocking")
    pending = interrupted(client, f"task {'block' if blocking else 'wait'}:a completed", 1)
    eventually(lambda: not leases._held)
    assert turn() == ("running", 1)
    assert Task.objects.get().lease
    gate("cling").open(), gate("a").open()
    Task.objects.update(lease_expires=Now())
    eventually(recovery.recover)
    assert state(pending()["task"]) == "COMPLETED"
    eventually(lambda: turn() == ("done", 2))


def test_a_turn_that_comes_later_is_interrupted_too(client, gate, monkeypatch):
    monkeypatch.setattr(leases, "_interrupted", False)
    leases.interrupt()
    assert state(client.task("task wait:a")) == "FAILED"

"""Quotas when many come at once, and how the tasks that run are counted."""

import gc

import pytest

from a2a_django import database
from a2a_django.doorbell import Ear
from a2a_django.models import Task, Turn
from a2a_django.models.turn import TurnState
from a2a_django.operations import quotas
from a2a_django.protocol import errors
from a2a_django.protocol.states import TaskState
from tests.clients import Error, kinds
from tests.integration.test_races import together


@pytest.fixture
def acme(client, make_tenant):
    """acme(**limits): the client within a new tenant."""

    def make(**limits):
        make_tenant(**limits)
        return client.within("acme")

    return make


def outcomes(results):
    """What was let in; everything else was refused by a quota."""
    refused = [result for result in results if isinstance(result, Error)]
    assert {error.reason for error in refused} <= {"TOO_MANY_REQUESTS"}
    return [result for result in results if not isinstance(result, Error)]


@pytest.mark.parametrize("binding", ["rest"], indirect=True)
def test_sends_at_once(acme, gate):
    """There may be more than the quota by one less than threads take them in, and never fewer."""
    client = acme(running_tasks=3)
    sends = [lambda: client.task("task working wait:a completed", returnImmediately=True)] * 24
    accepted = outcomes(together(*sends))

    assert 3 <= len(accepted) <= 3 + database.requests.executor._max_workers - 1
    assert Task.objects.count() == len(accepted)
    assert outcomes(together(*sends)) == []
    gate("a").open()


@pytest.mark.parametrize("binding", ["rest"], indirect=True)
def test_streams_at_once(acme, gate, eventually):
    """In one process the quota is exact."""
    client = acme(open_streams=3)
    task = client.task("task working wait:a completed", returnImmediately=True)
    streams = outcomes(together(*[lambda: client.subscribe(task["id"])] * 24))

    assert len(streams) == 3
    gate("a").open()
    assert all(kinds(stream.all())[-1] == "COMPLETED" for stream in streams)
    eventually(lambda: not quotas._open)


# --- how they are counted


@pytest.fixture
def counted(make_task, make_agent, make_caller, make_tenant, settings):
    """counted(n): whether just so many tasks of a caller count as running."""
    caller = make_caller(make_agent(), owner="ann")

    def check(number, caller=caller, task_id=""):
        for limit in filter(None, (number, number + 1)):
            settings.A2A = {"RUNNING_TASKS": limit}
            if limit > number:
                quotas.check_running(caller, task_id)
            else:
                with pytest.raises(errors.TooManyRequestsError):
                    quotas.check_running(caller, task_id)
        return True

    return check


def add_turns(task, *states):
    message = task.messages.get()
    Turn.objects.bulk_create(Turn(task=task, message=message, state=state, request="{}") for state in states)


@pytest.mark.django_db
def test_what_counts_as_running(counted, make_task, make_tenant, make_agent, make_caller):
    done, failed, running, queued = TurnState.DONE, TurnState.FAILED, TurnState.RUNNING, TurnState.QUEUED
    tasks = [make_task(owner="ann") for _ in range(4)]
    assert counted(0)
    add_turns(tasks[0], done, running, queued, queued)  # it counts once
    add_turns(tasks[1], queued)
    add_turns(tasks[2], done, failed)
    add_turns(make_task(owner="ann", state=TaskState.CANCELED), running)  # whose executor hasn't noticed yet
    add_turns(make_task(owner="bob"), running)
    add_turns(make_task(make_agent(slug="other"), owner="ann", visible=False), running)
    acme = make_tenant()
    add_turns(make_task(owner="ann", tenant=acme), running)
    add_turns(make_task(owner="bob", tenant=acme), running)

    assert counted(3)
    assert counted(2, task_id=tasks[0].pk)
    assert counted(2, make_caller(tasks[0].agent, owner="carl", tenant=acme))
    assert counted(0, make_caller(tasks[0].agent, owner="carl"))


# --- streams that nobody closes


def test_an_ear_that_is_forgotten_has_ended_too():
    ended, ear = [], Ear()
    ear.at_end(lambda: ended.append("forgotten"))
    del ear
    gc.collect()
    assert ended == ["forgotten"]

    closed = Ear()
    closed.at_end(lambda: ended.append("closed"))
    closed.close(), closed.close()
    del closed
    gc.collect()
    assert ended == ["forgotten", "closed"]

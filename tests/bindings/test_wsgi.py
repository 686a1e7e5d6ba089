"""A site served by WSGI: everything but streams (DESIGN 2)."""

import pytest

from a2a_django.models import Task
from tests.clients import CLIENTS, Error, WsgiSite, message, state

pytestmark = pytest.mark.http


@pytest.fixture
def wsgi(client, server):
    """The client, of a site that gunicorn serves."""

    return CLIENTS[client.binding](WsgiSite(server))


def test_sends_wait_for_their_task(wsgi):
    task = wsgi.task("task working artifact:a:b completed")
    assert state(task) == "COMPLETED"
    assert wsgi.get(task["id"]) == task
    assert "message" in wsgi.send("message:hello")


def test_the_other_operations(wsgi):
    task = wsgi.task("task input:what?")
    made = wsgi.create_push(task["id"], url="https://hooks.example.com/")

    assert wsgi.list_push(task["id"])["configs"] == [made]
    assert wsgi.list()["totalSize"] == 1
    assert state(wsgi.cancel(task["id"])) == "CANCELED"


def test_return_immediately(wsgi, gate, eventually):
    task = wsgi.task("task wait:a completed", returnImmediately=True)
    gate("a").open()
    assert eventually(lambda: state(wsgi.get(task["id"])) == "COMPLETED")


def test_cancel_of_a_running_task(wsgi, gate):
    task = wsgi.task("task working wait:a completed", returnImmediately=True)
    gate("a").reached()
    assert state(wsgi.cancel(task["id"])) == "CANCELED"


def test_streams_are_refused_before_anything_is_stored(wsgi):
    task = wsgi.task("task input:what?")
    for call in (wsgi.stream, lambda: wsgi.subscribe(task["id"])):
        with pytest.raises(Error, match="WSGI") as error:
            call()
        assert error.value.reason == "UNSUPPORTED_OPERATION"
    assert Task.objects.count() == 1


@pytest.mark.parametrize("executor", ["BoomFirst", "Silent"])
def test_errors_of_executors(wsgi, make_client, executor):
    make_client(executor, slug="bad")
    with pytest.raises(Error) as error:
        wsgi.copy(agent="bad").send("x")
    assert error.value.reason in ("INTERNAL_ERROR", "INVALID_AGENT_RESPONSE")


def test_bodies_over_the_limit(wsgi, a2a):
    a2a(MAX_BODY_BYTES=1000)
    with pytest.raises(Error) as error:
        wsgi.send(message("x" * 1000))
    assert error.value.status == 413
    assert state(wsgi.task()) == "COMPLETED"

"""What callers are told when the server stops, is overloaded or has no database: come again (A2A 3.3.2)."""

import asyncio
import signal
import threading

import pytest
import uvicorn

from a2a_django import database, doorbell
from a2a_django.models import Task
from tests.clients import Error, Response, kinds, state
from tests.executors import SECRET

PATIENCE = 20


@pytest.fixture
def server_stops():
    """server_stops(): uvicorn is asked to stop, as far as an application in it can see."""
    uvicorns = uvicorn.Server(uvicorn.Config(app=None))
    before = signal.signal(signal.SIGTERM, uvicorns.handle_exit)
    yield lambda: signal.raise_signal(signal.SIGTERM)
    signal.signal(signal.SIGTERM, before)


def check_told(client, call):
    """`call` is answered in the words of its binding, and says when to come again."""
    with pytest.raises(Error) as raised:
        call()
    error = raised.value
    assert (error.reason, error.status) == ("UNAVAILABLE", 503)
    assert error.response.headers["retry-after"] == "5"
    (retry,) = [detail for detail in error.details if detail["@type"].endswith("google.rpc.RetryInfo")]
    assert retry["retryDelay"] == "5s"
    if client.binding == "jsonrpc":
        assert error.code == -32603
    assert SECRET.encode() not in error.response.body


# --- a server that stops


@pytest.mark.v0_3
def test_calls_that_wait_are_told_to_come_again(client, gate, eventually, server_stops):
    """What they have asked for goes on."""
    sending = client.sending("task working wait:a completed")
    gate("a").reached()
    server_stops()
    check_told(client, sending)
    gate("a").open()
    eventually(lambda: Task.objects.get().terminal)


@pytest.mark.v0_3
def test_a_cancel_that_waits_is_told_to_come_again(make_client, gate, eventually, server_stops):
    client = make_client("CancelHangs")
    task = client.task("task working wait:a", returnImmediately=True)
    gate("a").reached()
    canceling = client.canceling(task["id"])
    eventually(lambda: Task.objects.filter(cancel="requested"))
    server_stops()
    check_told(client, canceling)
    gate("cancel").open()
    eventually(lambda: Task.objects.get().state == "TASK_STATE_CANCELED")


@pytest.mark.v0_3
def test_streams_end_between_two_events(client, gate, server_stops):
    stream = client.stream("task working wait:a completed")
    assert kinds([next(stream).data, next(stream).data]) == ["task", "WORKING"]
    server_stops()
    assert stream.all() == []


@pytest.mark.v0_3
def test_a_stream_that_has_not_begun_is_told_to_come_again(client, gate, eventually, server_stops):
    told = []
    asking = threading.Thread(target=lambda: told.append(_error(lambda: client.stream("wait:a task completed"))))
    asking.start()
    gate("a").reached()
    server_stops()
    asking.join(PATIENCE)
    assert told[0].reason == "UNAVAILABLE"


def _error(call):
    with pytest.raises(Error) as raised:
        call()
    return raised.value


@pytest.mark.v0_3
@pytest.mark.parametrize("name", ["send", "stream", "subscribe"])
def test_nothing_new_is_begun(client, server_stops, name):
    """What only reads is answered as ever, and a parked task can be canceled."""
    task = client.task("task input:what?")
    server_stops()
    check_told(client, (lambda: client.subscribe(task["id"])) if name == "subscribe" else getattr(client, name))
    assert Task.objects.count() == 1
    assert state(client.get(task["id"])) == "INPUT_REQUIRED"
    assert state(client.cancel(task["id"])) == "CANCELED"


# --- a server that cancels what runs, as Daphne does without a word before


@pytest.mark.v0_3
@pytest.mark.http
def test_a_call_that_is_canceled_is_told_to_come_again(client, gate, eventually, server):
    exchange = client.sending("task working wait:a completed").exchange
    eventually(lambda: [task for task in asyncio.all_tasks(server.loop) if "_respond" in repr(task)])
    exchange.finished.cancel()
    status, headers = exchange.start()
    check_told(client, lambda: client.result(Response(status, headers, exchange.message()["body"])))


@pytest.mark.v0_3
@pytest.mark.http
def test_a_stream_that_is_canceled_ends_between_two_events(client, gate):
    stream = client.stream("task working wait:a completed")
    next(stream), next(stream)
    stream.exchange.finished.cancel()
    last = stream.exchange.message()
    assert (last["body"], last.get("more_body", False)) == (b"", False)


# --- overload


@pytest.fixture
def busy():
    """Holds all threads that work for requests until `busy.set()`."""
    release, size = threading.Event(), database.requests.executor._max_workers
    barrier = threading.Barrier(size + 1)

    def hold():
        barrier.wait(PATIENCE)
        release.wait(PATIENCE)

    calls = [database.requests.submit(hold) for _ in range(size)]
    barrier.wait(PATIENCE)
    yield release
    release.set()
    for call in calls:
        call.result(PATIENCE)


@pytest.mark.v0_3
def test_a_request_that_waited_too_long_for_a_thread_is_refused(make_client, busy, a2a, eventually):
    client = make_client()
    a2a(REQUEST_WAIT_SECONDS=0.000_001)
    sending = client.sending("task completed")
    eventually(database.requests.executor._work_queue.qsize)
    busy.set()
    check_told(client, sending)
    assert not Task.objects.exists()
    a2a(REQUEST_WAIT_SECONDS=None)
    assert state(client.task()) == "COMPLETED"


# --- no database


OPERATIONS = ["send", "stream", "get", "list", "cancel", "subscribe", "list_push", "extended_card"]


@pytest.mark.parametrize("name", OPERATIONS)
def test_without_a_database_callers_are_told_to_come_again(client, outage, name, caplog):
    outage.begin()
    call = getattr(client, name)
    check_told(client, call if name in ("send", "stream", "list", "extended_card") else lambda: call("a-task"))
    assert SECRET not in caplog.text
    outage.end()
    assert state(client.task()) == "COMPLETED"


@pytest.mark.v0_3
def test_streams_outlast_an_outage(client, gate, outage, eventually):
    stream = client.stream("task working wait:a artifact:a:b completed")
    task = next(stream).data["task"]
    next(stream)
    outage.begin()
    gate("a").open()
    doorbell.ring(task["id"])
    eventually(lambda: {"a2a-log", "a2a-commit"} <= set(outage.hits))
    outage.end()
    assert kinds(stream.all()) == ["artifactUpdate", "COMPLETED"]


@pytest.mark.v0_3
def test_waiting_calls_outlast_an_outage(client, gate, outage, eventually):
    sending = client.sending("task working wait:a completed")
    gate("a").reached()
    (task,) = eventually(lambda: Task.objects.filter(last_sequence=2))
    outage.begin()
    gate("a").open()
    doorbell.ring(task.pk)
    eventually(lambda: {"a2a-request", "a2a-commit"} <= set(outage.hits))
    outage.end()
    assert state(sending()["task"]) == "COMPLETED"


@pytest.mark.v0_3
def test_who_waits_gives_up_when_a_lease_would_have_expired(client, gate, outage, said, a2a):
    sending = client.sending("task working wait:a completed")
    gate("a").reached()
    task = Task.objects.get()
    said(task.pk, 2)
    a2a(LEASE_SECONDS=0.2)
    stream = client.subscribe(task.pk)
    next(stream)
    outage.begin()
    doorbell.ring(task.pk)
    check_told(client, sending)
    assert _error(lambda: next(stream)).reason == "UNAVAILABLE"
    outage.end()

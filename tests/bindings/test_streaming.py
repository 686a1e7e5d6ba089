"""SendStreamingMessage and SubscribeToTask over every binding, through the real ASGI application."""

import json

import pytest
from django.db import connection
from django.utils import timezone

from a2a_django.bindings import streaming
from a2a_django.models import Event, Task, Turn
from a2a_django.protocol import codec
from tests.clients import Error, artifact, folded, kinds, message, state, words
from tests.executors import SECRET


@pytest.fixture
def working(client, gate, said):
    """working(script): a task that has come to `wait:here` in its script, the answer to a send that didn't wait."""

    def make(script="task working wait:here completed"):
        task = client.task(script, returnImmediately=True)
        gate("here").reached()
        said(task["id"], script.split().index("wait:here"))
        return task

    return make


# --- what comes, and when it ends


@pytest.mark.v0_3
def test_a_stream_tells_all_from_the_task_to_its_end(client):
    stream = client.stream("task working artifact:a:one append:a:two completed:done")
    events = list(stream)

    assert kinds(event.data for event in events) == ["task", "WORKING", "artifactUpdate", "artifactUpdate", "COMPLETED"]
    task = client.get(events[0].data["task"]["id"])
    assert folded([event.data for event in events]) == task
    assert {event.data[kind]["taskId"] for event in events[1:] for kind in event.data} == {task["id"]}


@pytest.mark.v0_3
@pytest.mark.http
def test_events_are_numbered(client, working, gate):
    assert [event.id for event in client.stream("task working completed")] == [1, 2, 3]

    stream = client.subscribe(working("task artifact:a:one working wait:here completed")["id"])
    assert next(stream).id == 3
    gate("here").open()
    assert [event.id for event in stream] == [4]


@pytest.mark.v0_3
@pytest.mark.http
def test_headers_of_a_stream(client):
    stream = client.stream()

    assert stream.headers["content-type"] == "text/event-stream"
    assert "no-store" in stream.headers["cache-control"]
    assert stream.headers["x-accel-buffering"] == "no"
    assert "content-length" not in stream.headers
    stream.all()


@pytest.mark.v0_3
def test_events_come_while_the_executor_works(client, gate):
    stream = client.stream("task wait:a working wait:b completed")

    assert "task" in next(stream).data
    gate("a").open()
    assert kinds([next(stream).data]) == ["WORKING"]
    gate("b").open()
    assert kinds(stream.all()) == ["COMPLETED"]


@pytest.mark.v0_3
def test_a_message_is_the_one_event(client):
    """CASES 66."""
    (event,) = client.stream("message:hello").all()
    assert event["message"]["parts"] == [{"text": "hello"}]


@pytest.mark.v0_3
def test_input_required_ends_a_stream_and_a_follow_up_opens_one(client):
    first = client.stream("task working input:what?").all()
    assert kinds(first) == ["task", "WORKING", "INPUT_REQUIRED"]

    task = first[0]["task"]
    events = client.stream(message("working completed", taskId=task["id"])).all()
    assert kinds(events) == ["task", "WORKING", "COMPLETED"]
    assert state(events[0]["task"]) == "INPUT_REQUIRED"
    assert folded(events)["status"] == client.get(task["id"])["status"]


def test_auth_required_keeps_a_stream_while_the_executor_runs_on(make_client, gate):
    stream = make_client("AuthThenGoOn").stream("x")
    assert kinds([next(stream).data, next(stream).data]) == ["task", "AUTH_REQUIRED"]

    gate("auth").open()
    assert kinds(stream.all()) == ["COMPLETED"]


@pytest.mark.v0_3
def test_a_turn_that_ends_working_ends_the_stream_not_the_task(make_client):
    client = make_client("Unfinished")
    events = client.stream("x").all()

    assert kinds(events) == ["task", "WORKING", "artifactUpdate"]
    assert state(client.get(events[0]["task"]["id"])) == "WORKING"


@pytest.mark.parametrize("length", [0, 1, 99])
def test_history_length_of_a_streams_task(client, length):
    """CASES 44."""
    (first, *_) = client.stream("task completed", historyLength=length).all()
    assert len(first["task"].get("history", [])) == min(length, 1)

    asked = client.task("task input:what?")
    (first, *_) = client.stream(message("completed", taskId=asked["id"]), historyLength=length).all()
    assert len(first["task"].get("history", [])) <= length


@pytest.mark.v0_3
@pytest.mark.http
def test_line_breaks_of_all_kinds_stay_within_their_event(make_client):
    text = "a\n\nb\r\nc\rd\u2028e\u2029f\x85g\x1e\x0b"
    stream = make_client("Echo").stream(text)

    assert artifact(folded(stream.all())) == text
    lines = stream.raw.decode().split("\n")
    assert [line.splitlines() for line in lines if line] == [[line] for line in lines if line]


@pytest.mark.v0_3
@pytest.mark.http
@pytest.mark.parametrize("accept", ["text/event-stream", "application/a2a+json", "*/*", "text/html", None])
def test_accept_is_not_asked(client, accept):
    """CASES 5."""
    client = client.with_headers(Accept=accept)

    assert kinds(client.stream().all()) == ["task", "COMPLETED"]
    with pytest.raises(Error) as error:
        client.stream(message(messageId=None))
    assert error.value.reason == "INVALID_PARAMS"


# --- what goes wrong


@pytest.mark.v0_3
@pytest.mark.parametrize(
    ("executor", "reason"),
    [
        ("BoomFirst", "INTERNAL_ERROR"),
        ("Silent", "INVALID_AGENT_RESPONSE"),
        ("TwoMessages", "INVALID_AGENT_RESPONSE"),
        ("A2AErrorFirst", "CONTENT_TYPE_NOT_SUPPORTED"),
    ],
)
def test_a_failure_before_the_first_event_is_a_plain_error(make_client, executor, reason):
    """CASES 66."""
    with pytest.raises(Error) as error:
        make_client(executor).stream("x")

    assert error.value.reason == reason
    assert SECRET.encode() not in error.value.response.body


@pytest.mark.v0_3
@pytest.mark.parametrize("executor", ["Boom", "WrongIds", "MessageInTaskMode", "NaNArtifact", "A2AErrorLater"])
def test_a_failure_after_the_first_event_is_the_last_one(make_client, executor):
    """CASES 66."""
    client = make_client(executor)
    stream = client.stream("x")
    events = stream.all()

    assert (kinds(events)[0], kinds(events)[-1], kinds(events).count("FAILED")) == ("task", "FAILED", 1)
    assert SECRET.encode() not in stream.raw
    assert state(client.get(events[0]["task"]["id"])) == "FAILED"


@pytest.mark.v0_3
@pytest.mark.http
def test_a_failure_after_the_stream_has_begun_without_an_event_is_an_error_event(client, gate, a2a):
    a2a(HEARTBEAT_SECONDS=0.02)
    stream = client.stream("wait:a raise")
    stream.comment()

    gate("a").open()
    with pytest.raises(Error) as error:
        next(stream)
    assert error.value.reason == "INTERNAL_ERROR"
    assert SECRET.encode() not in stream.raw
    with pytest.raises(StopIteration):
        next(stream)


@pytest.mark.v0_3
@pytest.mark.parametrize("off", ["agent", "site"])
def test_streams_of_an_agent_that_does_not_stream_are_refused(make_client, a2a, off):
    """CASES 66."""
    client = make_client(streaming=off != "agent")
    a2a(STREAMING=off != "site")
    task = client.task("task input:what?")

    for call in (client.stream, lambda: client.subscribe(task["id"])):
        with pytest.raises(Error) as error:
            call()
        assert error.value.reason == "UNSUPPORTED_OPERATION"
    assert Task.objects.count() == 1


@pytest.mark.v0_3
@pytest.mark.parametrize("task_id", ["nobody's", "6a1f8d5c-9c1b-4b0e-9d63-1d1d1d1d1d1d"])
def test_subscribing_to_nothing(client, task_id):
    with pytest.raises(Error) as error:
        client.subscribe(task_id)
    assert error.value.reason == "TASK_NOT_FOUND"


def test_subscribing_to_an_ended_task(client):
    """CASES 36."""
    with pytest.raises(Error) as error:
        client.subscribe(client.task()["id"])
    assert error.value.reason == "UNSUPPORTED_OPERATION"


# --- heartbeats and leaving


@pytest.mark.v0_3
@pytest.mark.http
def test_a_silent_stream_sends_comments(client, gate, a2a):
    """CASES 14."""
    a2a(HEARTBEAT_SECONDS=0.02)
    stream = client.stream("task working wait:a completed")
    assert kinds([next(stream).data, next(stream).data]) == ["task", "WORKING"]

    for _ in range(3):
        stream.comment()
    gate("a").open()
    assert kinds(stream.all()) == ["COMPLETED"]


@pytest.mark.v0_3
def test_a_client_that_leaves_is_noticed_and_the_task_goes_on(client, gate, eventually, a2a):
    """CASES 59, 64: `close` waits until the application has returned, and nothing but the leaving wakes it."""
    a2a(HEARTBEAT_SECONDS=3600)
    stream = client.stream("task working wait:a artifact:a:b completed")
    task = next(stream).data["task"]
    next(stream)
    stream.close()

    gate("a").open()
    assert eventually(lambda: state(client.get(task["id"])) == "COMPLETED")
    assert artifact(client.get(task["id"])) == "b"


@pytest.mark.http
def test_a_client_that_leaves_before_the_first_event(client, gate, eventually, a2a):
    a2a(HEARTBEAT_SECONDS=3600)
    exchange = client.call(*_streaming_call(client, "wait:a task completed"))
    gate("a").reached()
    exchange.disconnect()

    gate("a").open()
    assert eventually(lambda: [state(task) for task in client.list()["tasks"]] == ["COMPLETED"])


def _streaming_call(client, text):
    request = {"message": message(text)}
    return ("SendStreamingMessage", request) if client.binding == "jsonrpc" else ("POST", "/message:stream", request)


@pytest.mark.v0_3
@pytest.mark.http
def test_a_stream_is_closed_after_its_time_and_can_be_resumed(client, working, gate, a2a):
    a2a(STREAM_MAX_SECONDS=0.01, HEARTBEAT_SECONDS=0.01)
    task = working()
    events = list(client.subscribe(task["id"]))
    gate("here").open()
    a2a(STREAM_MAX_SECONDS=None)

    assert kinds(client.subscribe(task["id"], last=events[-1].id).all()) == ["COMPLETED"]


@pytest.mark.v0_3
@pytest.mark.http
def test_a_stream_is_closed_after_so_many_bytes_and_can_be_resumed(client, a2a):
    """CASES 62: after a whole event; who comes back with the id of the last gets exactly 1..n."""
    task = client.task("task chunks:2000 completed")
    stream = client.subscribe(task["id"], last=0)
    assert len(stream.all()) == 2002
    limit = len(stream.raw) // 4
    a2a(STREAM_MAX_BYTES=limit)
    ids, streams = [], 0
    while len(ids) < 2002:
        stream = client.subscribe(task["id"], last=len(ids))
        ids += [event.id for event in stream]
        assert len(stream.raw) < limit + 2 * streaming.WRITE
        streams += 1

    assert ids == list(range(1, 2003))
    assert streams > 2


# --- subscribing and coming back (CASES 60)


@pytest.mark.v0_3
def test_a_subscriber_gets_the_task_and_then_what_follows(client, working, gate):
    task = working("task artifact:a:one working wait:here append:a:two completed")
    stream = client.subscribe(task["id"])
    first = next(stream)
    assert (state(first.data["task"]), artifact(first.data["task"])) == ("WORKING", "one")

    gate("here").open()
    rest = stream.all()
    assert kinds(rest) == ["artifactUpdate", "COMPLETED"]
    assert folded([first.data, *rest]) == client.get(task["id"])


def test_a_subscription_outlasts_turns(client):
    """DESIGN 6: it ends at a terminal state only."""
    task = client.task("task input:what?")
    stream = client.subscribe(task["id"])
    assert state(next(stream).data["task"]) == "INPUT_REQUIRED"

    client.follow(task, "working input:more?")
    assert kinds([next(stream).data, next(stream).data]) == ["WORKING", "INPUT_REQUIRED"]
    client.follow(task, "completed")
    assert kinds(stream.all()) == ["COMPLETED"]


@pytest.mark.v0_3
@pytest.mark.http
@pytest.mark.parametrize("last", [0, 1, 2, 3])
def test_resuming_after_any_event(client, working, gate, last):
    task = working("task working artifact:a:one wait:here append:a:two completed")
    stream = client.subscribe(task["id"], last=last)
    gate("here").open()
    everything = ["task", "WORKING", "artifactUpdate", "artifactUpdate", "COMPLETED"]

    events = list(stream)
    assert kinds(event.data for event in events) == everything[last:]
    assert [event.id for event in events] == [1, 2, 3, 4, 5][last:]


@pytest.mark.v0_3
@pytest.mark.http
@pytest.mark.parametrize("last", [0, 1, 3, 4])
def test_resuming_a_task_that_has_ended_since(client, last):
    """DESIGN 6: the rest and a close, not an error."""
    task = client.task("task working artifact:a:b completed")

    events = list(client.subscribe(task["id"], last=last))
    assert [event.id for event in events] == [1, 2, 3, 4][last:]


@pytest.mark.v0_3
@pytest.mark.http
@pytest.mark.parametrize("last", ["5", "-1", "abc", "1.0", "²", "99999999999999999999"])
def test_resuming_from_nowhere_is_refused(client, last):
    task = client.task("task working artifact:a:b completed")
    with pytest.raises(Error) as error:
        client.subscribe(task["id"], last=last)
    assert (error.value.reason, error.value.fields) == ("INVALID_PARAMS", ["Last-Event-ID"])


@pytest.mark.v0_3
@pytest.mark.http
def test_resuming_a_stream_of_many_events_from_the_middle(client):
    task = client.task("task chunks:1200 completed")

    events = list(client.subscribe(task["id"], last=350))
    assert [event.id for event in events] == list(range(351, 1203))
    assert kinds([events[-1].data]) == ["COMPLETED"]


# --- the instant between reading and listening (CASES 60)


class AtStatement:
    """A CONTEXT_BUILDER that calls `act` just before the n-th SQL statement of the operation that follows it."""

    def __init__(self, number, act):
        self.left, self.act, self.wrappers = number, act, None

    def __call__(self, request, context):
        if self.wrappers is None:
            self.wrappers = connection.execute_wrappers  # of the thread that does the operation
            self.wrappers.append(self.wrapper)

    def wrapper(self, execute, *args):
        if self.left == 0:
            self.left = -1  # what `act` itself asks the database comes by here, too
            self.act()
        self.left = max(self.left - 1, -1)
        return execute(*args)

    def remove(self):
        self.wrappers.remove(self.wrapper)


@pytest.fixture
def at_statement(a2a):
    """at_statement(n, act): see AtStatement."""
    made = []

    def arrange(number, act):
        made.append(AtStatement(number, act))
        a2a(CONTEXT_BUILDER=made[-1])
        return made[-1]

    yield arrange
    for one in made:
        one.remove()


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("ends", [False, True])
def test_what_happens_while_a_subscriber_reads_is_neither_lost_nor_doubled(
    client, gate, eventually, at_statement, number, ends
):
    """Whatever instant of the reading it falls into: `number` is the SQL statement before which it happens."""
    rest = "append:a:two completed" if ends else "append:a:two wait:end append:a:three completed"
    task = client.task(f"task working artifact:a:one wait:here {rest}", returnImmediately=True)
    gate("here").reached()

    def act():
        gate("here").open()
        eventually(lambda: Event.objects.filter(task=task["id"], sequence=5 if ends else 4).exists())

    happened = at_statement(number, act)
    if ends and number == 0:  # ended before it was looked at
        with pytest.raises(Error) as error:
            client.subscribe(task["id"])
        assert error.value.reason == "UNSUPPORTED_OPERATION"
        return
    stream = client.subscribe(task["id"])
    assert happened.left == -1, "the operation has fewer statements: lower the range"
    gate("end").open()
    assert folded(stream.all()) == client.get(task["id"])


# --- many readers, slow readers, readers that are not rung


@pytest.mark.v0_3
def test_many_subscribers_see_the_same(client, working, gate):
    """CASES 61."""
    task = working("task working wait:here artifact:a:one wait:b append:a:two completed")
    streams = [client.subscribe(task["id"]) for _ in range(3)]
    firsts = [next(stream) for stream in streams]
    gate("here").open()
    seconds = [next(stream) for stream in streams]
    streams[1].close()
    late = client.subscribe(task["id"])
    late_first = next(late).data
    gate("b").open()

    rests = [streams[0].all(), streams[2].all()]
    assert firsts[0] == firsts[1] == firsts[2]
    assert seconds[0] == seconds[1] == seconds[2]
    assert rests[0] == rests[1]
    assert kinds(rests[0]) == ["artifactUpdate", "COMPLETED"]
    assert folded([late_first, *late.all()]) == client.get(task["id"])


@pytest.mark.v0_3
@pytest.mark.parametrize("layer", [{}, {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}])
def test_a_paused_reader_loses_nothing(client, gate, settings, layer):
    """CASES 62, 63."""
    settings.CHANNEL_LAYERS = layer
    stream = client.stream("task wait:a chunks:1500 completed")
    next(stream)
    stream.exchange.pause()
    gate("a").open()
    client.task("task completed")
    stream.exchange.resume()

    events = stream.all()
    assert kinds(events) == ["artifactUpdate"] * 1500 + ["COMPLETED"]
    text = "".join(event["artifactUpdate"]["artifact"]["parts"][0]["text"] for event in events[:-1])
    assert text == "".join(f"{count:019d} " for count in range(1500))


def unheard(task, sequence, kind, data, **columns):
    """What an append leaves in the database when its ring is lost."""
    text = codec.dumps({kind: data})
    Event.objects.create(task_id=task.pk, sequence=sequence, kind=kind, body=text, state=columns.get("state", ""))
    Task.objects.filter(pk=task.pk).update(last_sequence=sequence, **columns)


@pytest.mark.v0_3
def test_a_reader_that_is_never_rung_looks_by_itself(client, make_task, a2a):
    """CASES 63: a lost ring costs a look, never an event."""
    a2a(LOOK_SECONDS=0.02)
    task = make_task(state="TASK_STATE_WORKING")
    stream = client.subscribe(task.pk)
    next(stream)

    ids = {"taskId": task.pk, "contextId": task.context_id}
    unheard(task, 3, "artifactUpdate", {**ids, "artifact": {"artifactId": "a", "parts": [{"text": "x"}]}})
    assert kinds([next(stream).data]) == ["artifactUpdate"]
    status = {"state": "TASK_STATE_COMPLETED", "timestamp": codec.timestamp(timezone.now())}
    unheard(task, 4, "statusUpdate", {**ids, "status": status}, state=status["state"], status=codec.dumps(status))
    assert kinds(stream.all()) == ["COMPLETED"]


@pytest.mark.v0_3
def test_a_waiting_send_that_is_never_rung_looks_by_itself(client, gate, a2a, said):
    a2a(LOOK_SECONDS=0.02)
    pending = client.sending("task working wait:here")
    gate("here").reached()
    task = Task.objects.get()
    said(task.pk, 2)

    status = {"state": "TASK_STATE_COMPLETED", "timestamp": codec.timestamp(timezone.now())}
    ids = {"taskId": task.pk, "contextId": task.context_id}
    unheard(task, 3, "statusUpdate", {**ids, "status": status}, state=status["state"], status=codec.dumps(status))
    assert state(pending()["task"]) == "COMPLETED"
    assert Turn.objects.get().state == "running"
    assert words(client.get(task.pk)) == ["task working wait:here"]


@pytest.mark.v0_3
@pytest.mark.http
def test_what_streams_send_is_what_is_stored(client):
    stream = client.stream("task chunks:3 completed")
    sent = [json.dumps(event) for event in stream.all()]
    assert sent == [json.dumps(json.loads(body)) for body in Event.objects.values_list("body", flat=True)]

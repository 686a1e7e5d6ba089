"""The SDK's own request handler in memory is the oracle: the same calls to the same executors, through it and us.

Results and event sequences must be equal but for ids and times. What differs on purpose stands in DIFFERENCES, each
with its reason; a scenario that is named there must differ exactly so.
"""

import asyncio
import json
import re
from itertools import count

import pytest
from a2a.server.context import ServerCallContext
from a2a.server.request_handlers import DefaultRequestHandlerV2
from a2a.server.tasks import InMemoryTaskStore
from a2a.types import AgentCard, CancelTaskRequest, GetTaskRequest, SendMessageRequest, SubscribeToTaskRequest
from google.protobuf.json_format import MessageToDict, ParseDict

from a2a_django.protocol import errors
from tests import clients, executors

KINDS = {
    "Task": "task",
    "Message": "message",
    "TaskStatusUpdateEvent": "statusUpdate",
    "TaskArtifactUpdateEvent": "artifactUpdate",
}

PIECES = " ".join(
    f"piece:{json.dumps(piece, separators=(',', ':'))}"
    for piece in (
        {"artifact": {"artifactId": "a", "name": "n", "parts": [{"text": "1"}], "metadata": {"k": [1], "l": 1}}},
        {"artifact": {"artifactId": "b", "parts": [{"data": {"x": None}}], "extensions": ["urn:x"]}},
        {
            "artifact": {"artifactId": "a", "name": "other", "parts": [{"text": "2"}], "metadata": {"k": [2], "m": 1}},
            "append": True,
            "metadata": {"of": "the_event"},
        },
        {"artifact": {"artifactId": "a", "parts": [{"url": "https://x.y/"}]}, "append": True, "lastChunk": True},
        {"artifact": {"artifactId": "b", "parts": [{"text": "new"}]}, "lastChunk": True},
    )
)

# name: (executor, [(operation, *arguments), …]); after the last one the task is read.
SCENARIOS = {
    "complete": ("Script", [("send", "task working artifact:a:one append:a:two completed:done")]),
    "complete at once": ("Script", [("send", "task:completed")]),
    "complete in a stream": ("Script", [("stream", "task working artifact:a:one append:a:two completed:done")]),
    "chunks in a stream": ("Script", [("stream", "task chunks:30 completed")]),
    "artifacts replaced and mixed": ("Script", [("send", "task artifact:a:1 artifact:b:2 artifact:a:3 completed")]),
    "artifacts in pieces": ("Script", [("stream", f"task {PIECES} completed")]),
    "artifacts in pieces over turns": (
        "Script",
        [("send", f"task {PIECES} input:more?"), ("send", f"{PIECES} completed")],
    ),
    "status messages become history": ("Script", [("send", "task working:one working:two completed:three")]),
    "failed by the executor": ("Script", [("stream", "task working failed:sorry")]),
    "rejected": ("Script", [("send", "task rejected:no")]),
    "a message": ("Script", [("send", "message:hello")]),
    "a message in a stream": ("Script", [("stream", "message:hello")]),
    "a message at once": ("Script", [("send_now", "message:hello")]),
    "input required": ("Script", [("send", "task input:what?"), ("send", "working artifact:a:b completed:done")]),
    "input required in streams": ("Script", [("stream", "task working input:what?"), ("stream", "working completed")]),
    "a follow-up that names only the task": (
        "Script",
        [("send", "task input:what?"), ("forget_context",), ("send", "completed")],
    ),
    "a follow-up before the next status": (
        "Script",
        [("send", "task input:what?"), ("send_now", "artifact:a:b wait:a completed"), ("open", "a")],
    ),
    "what a follow-up's executor is told": ("Script", [("send", "task input:what?"), ("send", "dump completed")]),
    "three turns": ("Script", [("send", "task input:1?"), ("send", "working:x input:2?"), ("send", "completed")]),
    "artifacts over turns": ("Script", [("send", "task artifact:a:1 input:?"), ("send", "append:a:2 completed")]),
    "auth required": ("Script", [("send", "task auth:please"), ("send", "working completed")]),
    "auth required and going on": ("Script", [("send", "task auth:please wait:a completed"), ("open", "a")]),
    "returns at once": ("Script", [("send_now", "task wait:a working completed"), ("open", "a")]),
    "returns at once working": ("Script", [("send_now", "task:working wait:a completed"), ("open", "a")]),
    "a follow-up returns at once": (
        "Script",
        [("send", "task input:what?"), ("send_now", "working wait:a completed"), ("open", "a")],
    ),
    "returns working": ("Script", [("send", "task working")]),
    "returns working in a stream": ("Script", [("stream", "task working artifact:a:b")]),
    "works on after returning": ("Script", [("send", "task working"), ("send", "completed")]),
    "canceled while it runs": ("Script", [("send_now", "task wait:a"), ("reached", "a"), ("cancel",)]),
    "canceled while it waits for input": ("Script", [("send", "task input:what?"), ("cancel",)]),
    "canceled after the end": ("Script", [("send", "task completed"), ("cancel",)]),
    "canceled twice": ("Script", [("send", "task input:what?"), ("cancel",), ("cancel",)]),
    "cancel refused": (
        "RefuseCancel",
        [("send_now", "task wait:a completed"), ("reached", "a"), ("cancel",), ("open", "a")],
    ),
    "empty cancel": ("EmptyCancel", [("send_now", "task wait:a"), ("reached", "a"), ("cancel",)]),
    "subscribed": ("Script", [("send_now", "task:working wait:a completed"), ("reached", "a"), ("subscribe", "a")]),
    "subscribed after the end": ("Script", [("send", "task completed"), ("subscribe", "a")]),
    "said to an ended task": ("Script", [("send", "task completed"), ("send", "more")]),
    "said to an ended task in a stream": ("Script", [("send", "task completed"), ("stream", "more")]),
    "an A2A error first": ("A2AErrorFirst", [("send", "x")]),
    "an A2A error first in a stream": ("A2AErrorFirst", [("stream", "x")]),
    "an A2A error later": ("A2AErrorLater", [("send", "x")]),
    "an exception first": ("BoomFirst", [("send", "x")]),
    "an exception later": ("Boom", [("send", "x")]),
    "an exception later in a stream": ("Boom", [("stream", "x")]),
    "nothing at all": ("Silent", [("send", "x")]),
    "a status before the task": ("StatusFirst", [("send", "x")]),
    "an artifact before the task": ("ArtifactFirst", [("send", "x")]),
    "an artifact before the task in a stream": ("ArtifactFirst", [("stream", "x")]),
    "a second task": ("SecondTask", [("send", "x")]),
    "a second task in a stream": ("SecondTask", [("stream", "x")]),
    "two messages": ("TwoMessages", [("send", "x")]),
    "a message in task mode": ("MessageInTaskMode", [("send", "x")]),
    "another task's id": ("WrongIds", [("send", "x")]),
    "an event after the end": ("AfterTerminal", [("send", "x")]),
    "an event after the end in a stream": ("AfterTerminal", [("stream", "x")]),
    "append to nothing": ("Script", [("send", "task append:a:b completed")]),
}

FAILED = ["send: task FAILED", "get: task FAILED"]
RAISES = "DESIGN 5.5: an executor that fails after its first event ends the task FAILED; that is the answer, no error."

# name: (why, what we answer)
DIFFERENCES = {
    "input required in streams": (
        "DESIGN 6: a stream starts with the Task as read, also for follow-ups.",
        [
            "stream: task SUBMITTED",
            "stream: statusUpdate WORKING",
            "stream: statusUpdate INPUT_REQUIRED",
            "stream: end",
            "stream: task INPUT_REQUIRED",
            "stream: statusUpdate WORKING",
            "stream: statusUpdate COMPLETED",
            "stream: end",
            "get: task COMPLETED",
        ],
    ),
    "a follow-up that names only the task": (
        "DESIGN 6: its contextId is the task's; the SDK makes up another.",
        ["send: task INPUT_REQUIRED", "send: task COMPLETED", "get: task COMPLETED"],
    ),
    "cancel refused": (
        "DESIGN 5.6: a refusal lets the turn run on; the SDK's ends the task FAILED.",
        ["send: task SUBMITTED", "cancel: TASK_NOT_CANCELABLE", "get: task COMPLETED"],
    ),
    "an A2A error later": (RAISES, FAILED),
    "an exception later": (RAISES, FAILED),
    "an exception later in a stream": (
        RAISES,
        [
            "stream: task SUBMITTED",
            "stream: statusUpdate WORKING",
            "stream: statusUpdate FAILED",
            "stream: end",
            "get: task FAILED",
        ],
    ),
    "a message in task mode": (RAISES, FAILED),
    "another task's id": (RAISES, FAILED),
    "append to nothing": (RAISES, FAILED),
    "nothing at all": (
        "DESIGN 5.5: it is the agent that is at fault, not the server.",
        ["send: INVALID_AGENT_RESPONSE"],
    ),
    "a status before the task": (
        "DESIGN 5.5: the server makes the Task.",
        ["send: task COMPLETED", "get: task COMPLETED"],
    ),
    "an artifact before the task in a stream": (
        "DESIGN 6: a stream starts with the Task.",
        [
            "stream: task SUBMITTED",
            "stream: artifactUpdate",
            "stream: statusUpdate COMPLETED",
            "stream: end",
            "get: task COMPLETED",
        ],
    ),
    "a second task in a stream": (
        "DESIGN 5.5: a second Task changes nothing and is not sent.",
        [
            "stream: task SUBMITTED",
            "stream: statusUpdate WORKING",
            "stream: statusUpdate COMPLETED",
            "stream: end",
            "get: task COMPLETED",
        ],
    ),
    "an event after the end": (
        "DESIGN 5.5: nothing follows a terminal state; the SDK adds the artifact.",
        ["send: task COMPLETED", "get: task COMPLETED"],
    ),
    "an event after the end in a stream": (
        "DESIGN 5.5: nothing follows a terminal state; the SDK adds and sends the artifact.",
        ["stream: task SUBMITTED", "stream: statusUpdate COMPLETED", "stream: end", "get: task COMPLETED"],
    ),
}


def summary(line):
    """`operation: kind STATE`, or `operation: REASON`"""
    operation, answer = line
    if isinstance(answer, str):
        return f"{operation}: {answer}"
    ((kind, data),) = answer.items()
    return f"{operation}: {kind} {clients.state(data)}" if "status" in data else f"{operation}: {kind}"


class Transcript:
    """What a side has answered, with ids and times by the order of their appearance."""

    def __init__(self):
        self.lines = []
        self._ids, self._numbers = {}, count(1)

    def add(self, *answer):
        text = json.dumps(answer, sort_keys=True, ensure_ascii=False)
        text = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", self._id, text)
        text = re.sub(r'"timestamp": "[^"]*"', '"timestamp": "T"', text)
        self.lines.append(json.loads(text))

    def _id(self, found):
        return self._ids.setdefault(found[0], f"id-{next(self._numbers)}")


class Side:
    """Goes through a scenario."""

    def __init__(self):
        self.transcript, self.ids, self._messages = Transcript(), {}, count(1)

    def go(self, steps):
        for operation, *arguments in steps:
            getattr(self, operation)(*arguments)
        self.read()
        return self.transcript.lines

    def message(self, text):
        said = {"messageId": f"m{next(self._messages)}", "role": "ROLE_USER", "parts": [{"text": text}]}
        return said | self.ids

    def note(self, data):
        """Keeps the ids of the task that `data` is about."""
        for kind, value in data.items():
            if kind != "message":
                self.ids = {"taskId": value.get("id") or value.get("taskId"), "contextId": value["contextId"]}

    @property
    def task_id(self):
        return self.ids.get("taskId")

    def forget_context(self):
        """Later messages name the task only."""
        del self.ids["contextId"]

    def open(self, gate):
        executors.gate(gate).open()

    def reached(self, gate):
        executors.gate(gate).reached()


class Ours(Side):
    """Through REST, the ASGI application and the database."""

    def __init__(self, client):
        super().__init__()
        self.client = client

    def _answer(self, operation, call):
        try:
            data = call()
            self.note(data)
            self.transcript.add(operation, data)
        except clients.Error as error:
            self.transcript.add(operation, error.reason)

    def _stream(self, operation, call):
        try:
            for event in call():
                self.note(event.data)
                self.transcript.add(operation, event.data)
            self.transcript.add(operation, "end")
        except clients.Error as error:
            self.transcript.add(operation, error.reason)

    def send(self, text):
        self._answer("send", lambda: self.client.send(self.message(text)))

    def send_now(self, text):
        self._answer("send", lambda: self.client.send(self.message(text), returnImmediately=True))

    def stream(self, text):
        self._stream("stream", lambda: self.client.stream(self.message(text)))

    def subscribe(self, gate):
        def call():
            stream = self.client.subscribe(self.task_id)
            yield next(stream)
            self.open(gate)
            yield from stream

        self._stream("subscribe", call)

    def cancel(self):
        self._answer("cancel", lambda: {"task": self.client.cancel(self.task_id)})

    def read(self):
        if self.task_id:
            self._settled()
            self._answer("get", lambda: {"task": self.client.get(self.task_id)})

    def _settled(self):
        """Executors that go on after the last call have come to their end."""
        from a2a_django.models import Turn

        while Turn.objects.filter(state__in=("queued", "running")).exists():
            self.client.list()


class Theirs(Side):
    """Through DefaultRequestHandlerV2 and InMemoryTaskStore."""

    def __init__(self, executor, loop):
        super().__init__()
        self.loop = loop
        self.handler = self._run(self._make(executor))
        self.context = ServerCallContext()

    async def _make(self, executor):
        card = AgentCard(name="Test", description="A test.", version="1.0.0")
        card.capabilities.streaming = True
        return DefaultRequestHandlerV2(executor, InMemoryTaskStore(), card)

    def _run(self, work):
        async def bounded():
            async with asyncio.timeout(clients.PATIENCE):
                return await work

        return asyncio.run_coroutine_threadsafe(bounded(), self.loop).result()

    def close(self):
        self._run(self.handler.aclose())

    def _request(self, text, **configuration):
        return ParseDict({"message": self.message(text), "configuration": configuration}, SendMessageRequest())

    def _seen(self, operation, event):
        data = {KINDS[type(event).__name__]: MessageToDict(event)}
        self.note(data)
        self.transcript.add(operation, data)

    def _answer(self, operation, work):
        try:
            self._seen(operation, self._run(work))
        except Exception as error:
            self.transcript.add(operation, reason(error))

    def _stream(self, operation, events, gate=None):
        async def read():
            async for event in events:
                self._seen(operation, event)
                if gate:
                    self.open(gate)

        try:
            self._run(read())
            self.transcript.add(operation, "end")
        except Exception as error:
            self.transcript.add(operation, reason(error))

    def send(self, text):
        self._answer("send", self.handler.on_message_send(self._request(text), self.context))

    def send_now(self, text):
        request = self._request(text, returnImmediately=True)
        self._answer("send", self.handler.on_message_send(request, self.context))

    def stream(self, text):
        self._stream("stream", self.handler.on_message_send_stream(self._request(text), self.context))

    def subscribe(self, gate):
        request = SubscribeToTaskRequest(id=self.task_id)
        self._stream("subscribe", self.handler.on_subscribe_to_task(request, self.context), gate)

    def cancel(self):
        self._answer("cancel", self.handler.on_cancel_task(CancelTaskRequest(id=self.task_id), self.context))

    def read(self):
        if self.task_id:
            self._run(self._settled())
            self._answer("get", self.handler.on_get_task(GetTaskRequest(id=self.task_id), self.context))

    async def _settled(self):
        """The executor is idle; the handler shows it by nothing but its tasks, so a few rounds of the loop must do."""
        for _ in range(200):
            await asyncio.sleep(0)


def reason(error):
    """How an exception of the SDK's handler looks to a client."""
    return errors.rendering(error if isinstance(error, errors.A2AError) else errors.InternalError()).reason


@pytest.fixture(scope="module")
def loop():
    """Where the SDK's handlers live."""
    return clients.Server().loop


@pytest.fixture
def theirs(loop):
    """theirs(executor, steps): the SDK's transcript."""
    made = []

    def go(executor, steps):
        made.append(Theirs(getattr(executors, executor)(), loop))
        return made[-1].go(steps)

    yield go
    executors.open_all_gates()
    for side in made:
        side.close()


@pytest.mark.parametrize("binding", ["rest"], indirect=True)
@pytest.mark.parametrize("name", SCENARIOS)
def test_we_answer_as_the_sdk_does(make_client, theirs, name):
    executor, steps = SCENARIOS[name]
    expected = theirs(executor, steps)
    executors.open_all_gates()
    found = Ours(make_client(executor)).go(steps)

    if name in DIFFERENCES:
        assert found != expected, "no difference any more: take it off the list"
        assert [summary(line) for line in found] == DIFFERENCES[name][1]
    else:
        assert found == expected

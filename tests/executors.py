"""Executors for the tests, by dotted path: `tests.executors.Echo`. They know the a2a-sdk only, and run in any process.

`Script` does what the words of the message say, one after the other; the others are scripts with a name.
In process, a test waits for an executor to come to `wait:<name>` and lets it go on: `gate(name)`.
"""

import asyncio
import contextlib
import json
import time
from collections import defaultdict
from concurrent.futures import Future, InvalidStateError

from a2a.server.agent_execution import AgentExecutor
from a2a.types import Artifact, Message, Part, Role, Task, TaskArtifactUpdateEvent, TaskStatusUpdateEvent
from a2a.types import TaskState as State
from a2a.utils import errors
from google.protobuf.json_format import MessageToDict, ParseDict

PATIENCE = 20
SECRET = "password=hunter2"  # what no client may ever see


class Gate:
    """A place in a script where the executor stops until the test opens it."""

    def __init__(self):
        self._reached, self._opened = Future(), Future()

    def reached(self):
        """Returns when an executor stands here."""
        self._reached.result(PATIENCE)

    def open(self):
        """Lets all pass, now and later; from any thread."""
        with contextlib.suppress(InvalidStateError):
            self._opened.set_result(None)

    def arrive(self):
        with contextlib.suppress(InvalidStateError):
            self._reached.set_result(None)

    async def wait(self):
        self.arrive()
        await asyncio.shield(asyncio.wrap_future(self._opened))

    def block(self):
        """Waits with the whole thread, as code that isn't async does."""
        self.arrive()
        self._opened.result(PATIENCE)


_gates = defaultdict(Gate)
_retries = defaultdict(int)


def gate(name):
    """The gate called `name`."""
    return _gates[name]


def open_all_gates():
    """Ends whatever still waits, and forgets the gates."""
    while _gates:
        _gates.popitem()[1].open()


class Stage:
    """What one turn says; each method is a word of the scripts, with what stands behind its colon."""

    def __init__(self, context, event_queue):
        self.context, self.say = context, event_queue.enqueue_event

    def message(self, text):
        context = self.context
        return Message(
            message_id=f"{context.message.message_id}-{text}",
            role=Role.ROLE_AGENT,
            context_id=context.context_id,
            task_id=context.task_id,
            parts=[Part(text=text)],
        )

    async def status(self, state, text="", **ids):
        ids = {"task_id": self.context.task_id, "context_id": self.context.context_id} | ids
        event = TaskStatusUpdateEvent(**ids)
        event.status.state = state
        event.status.timestamp.GetCurrentTime()
        if text:
            event.status.message.CopyFrom(self.message(text))
        await self.say(event)

    async def chunk(self, name, *parts, append=False, **fields):
        context, artifact = self.context, Artifact(artifact_id=name, name=name, parts=parts)
        event = TaskArtifactUpdateEvent(task_id=context.task_id, context_id=context.context_id, artifact=artifact)
        event.append = append
        for key, value in fields.items():
            setattr(event, key, value)
        await self.say(event)

    # --- words: the task and its states

    async def do_task(self, argument):
        """A Task, SUBMITTED or in the state named, with the client's message; of a task that exists already nothing."""
        if self.context.current_task is None:
            await self.do_anothertask(argument)

    async def do_anothertask(self, argument):
        task = Task(id=self.context.task_id, context_id=self.context.context_id, history=[self.context.message])
        task.status.state = State.Value(f"TASK_STATE_{(argument or 'submitted').upper()}")
        task.status.timestamp.GetCurrentTime()
        await self.say(task)

    async def do_working(self, text):
        await self.status(State.TASK_STATE_WORKING, text)

    async def do_at(self, time):
        """`at:<time>`: WORKING since then."""
        event = TaskStatusUpdateEvent(task_id=self.context.task_id, context_id=self.context.context_id)
        event.status.state = State.TASK_STATE_WORKING
        event.status.timestamp.FromJsonString(time)
        await self.say(event)

    async def do_input(self, text):
        await self.status(State.TASK_STATE_INPUT_REQUIRED, text)

    async def do_auth(self, text):
        await self.status(State.TASK_STATE_AUTH_REQUIRED, text)

    async def do_completed(self, text):
        await self.status(State.TASK_STATE_COMPLETED, text)

    async def do_failed(self, text):
        await self.status(State.TASK_STATE_FAILED, text)

    async def do_rejected(self, text):
        await self.status(State.TASK_STATE_REJECTED, text)

    async def do_message(self, text):
        await self.say(self.message(text))

    # --- words: artifacts

    async def do_artifact(self, argument):
        """`artifact:<id>:<text>`"""
        name, _, text = argument.partition(":")
        await self.chunk(name, Part(text=text))

    async def do_append(self, argument):
        """`append:<id>:<text>`"""
        name, _, text = argument.partition(":")
        await self.chunk(name, Part(text=text), append=True)

    async def do_piece(self, argument):
        """`piece:<an artifact event as JSON, without ids and spaces>`"""
        ids = {"taskId": self.context.task_id, "contextId": self.context.context_id}
        await self.say(ParseDict(json.loads(argument) | ids, TaskArtifactUpdateEvent()))

    async def do_chunks(self, number):
        """`chunks:<n>`, or `chunks:<n>:<seconds between them>`: one artifact, 20 characters each."""
        number, _, seconds = number.partition(":")
        for count in range(int(number)):
            chunk = Part(text=f"{count:019d} ")
            await self.chunk("chunks", chunk, append=count > 0, last_chunk=count == int(number) - 1)
            if seconds:
                await asyncio.sleep(float(seconds))

    async def do_echo(self, argument):
        """The parts of the message as an artifact."""
        await self.chunk("echo", *self.context.message.parts)

    async def do_data(self, argument):
        """`data:nan`, `data:bytes`: what JSON has no word for."""
        part = Part(raw=b"\xff\xfe") if argument == "bytes" else Part()
        if argument == "nan":
            part.data.number_value = float("nan")
        await self.chunk("data", part)

    async def do_dump(self, argument):
        """All that the executor was told, as a JSON artifact."""
        context = self.context
        call = context.call_context
        told = {
            "message": MessageToDict(context.message),
            "metadata": context.metadata,
            "configuration": MessageToDict(context.configuration),
            "task": MessageToDict(context.current_task) if context.current_task else None,
            "related": [MessageToDict(task) for task in context.related_tasks],
            "user": call.user.user_name,
            "authenticated": call.user.is_authenticated,
            "tenant": context.tenant,
            "extensions": sorted(context.requested_extensions),
            "state": {key: sorted(value) if isinstance(value, set) else value for key, value in call.state.items()},
        }
        part = Part(media_type="application/json")
        ParseDict(told, part.data)
        await self.chunk("dump", part)

    async def do_agents(self, argument):
        """How many agents there are, by the async ORM of the site."""
        from a2a_django.models import Agent

        await self.chunk("agents", Part(text=str(await Agent.objects.acount())))

    # --- words: extensions

    async def do_activate(self, uri):
        self.context.call_context.state.setdefault("a2a_activated_extensions", set()).add(uri)

    async def do_activated(self, argument):
        """`activated:<uri>,<uri>` in place of what was there, as a list; `activated:5` is nonsense."""
        value = argument.split(",") if "," in argument else int(argument) if argument.isdigit() else argument
        self.context.call_context.state["a2a_activated_extensions"] = value

    async def do_inbox(self, number):
        """`inbox:<n>`: does what the words of the next n messages say; without a number of all, and then says so."""
        from a2a_django import inbox

        count = 0
        async for message in inbox(self.context):
            for word in message.parts[0].text.split():
                await self.perform(word)
            count += 1
            if str(count) == number:
                return
        gate("inbox ended").arrive()

    # --- words: time

    async def do_wait(self, name):
        await gate(name).wait()

    async def do_hang(self, argument):
        """For ever, or until the test is over."""
        await gate("hang").wait()

    async def do_block(self, name):
        gate(name).block()

    async def do_sleep(self, seconds):
        """In real processes, which have no gates."""
        await asyncio.sleep(float(seconds))

    async def do_timesleep(self, seconds):
        """Like `sleep`, with the whole thread."""
        time.sleep(float(seconds))  # noqa: ASYNC251

    # --- words: what goes wrong

    async def do_raise(self, argument):
        raise RuntimeError(f"connection to db.internal failed: {SECRET} {argument}")

    async def do_retry(self, argument):
        """`retry:<n>:<seconds>:<reason>`: asks n times to be run again."""
        from a2a_django import Retry

        times, after, reason = argument.split(":")
        _retries[self.context.message.message_id] += 1
        if _retries[self.context.message.message_id] <= int(times):
            raise Retry(after=float(after), reason=reason) from RuntimeError(SECRET)

    async def do_a2aerror(self, name):
        """`a2aerror:<name of the SDK's class>`"""
        raise getattr(errors, name)("The agent says no")

    async def do_stranger(self, argument):
        """`stranger:task` or `stranger:context`: a status of somebody else's task or context."""
        ids = {f"{argument}_id": "not-mine"}
        await self.status(State.TASK_STATE_WORKING, **ids)

    async def do_new(self, word):
        """Another word, if the task is new: `new:artifact:a:1`."""
        if self.context.current_task is None:
            await self.perform(word)

    async def do_swallow(self, word):
        """Another word, and goes on whatever it raises: `swallow:stranger:task`."""
        with contextlib.suppress(Exception):
            await self.perform(word)

    async def perform(self, word):
        name, _, argument = word.partition(":")
        await getattr(self, f"do_{name}")(argument)


class Script(AgentExecutor):
    """The text of the message is the script: "task working artifact:a:hello completed"."""

    script = ""
    follow_up = ""

    async def execute(self, context, event_queue):
        stage = Stage(context, event_queue)
        script = self.follow_up if self.follow_up and context.current_task else self.script
        argument = context.get_user_input().partition(":")[2]
        for word in (script.replace("…", argument) or context.get_user_input()).split():
            await stage.perform(word)

    async def cancel(self, context, event_queue):
        await self.cancelled(context, event_queue)

    async def cancelled(self, context, event_queue):
        event = TaskStatusUpdateEvent(task_id=context.task_id, context_id=context.context_id)
        event.status.state = State.TASK_STATE_CANCELED
        event.status.timestamp.GetCurrentTime()
        await event_queue.enqueue_event(event)


class Echo(Script):
    script = "task echo completed"


class Ask(Script):
    script = "task working input:what?"
    follow_up = "working artifact:answer:thanks completed"


class Slow(Script):
    """`slow:<seconds>`"""

    script = "task working sleep:… artifact:slept:well completed"


class Chunks(Script):
    """`chunks:<n>` or `chunks:<n>:<seconds between them>`"""

    script = "task chunks:… completed"


class Boom(Script):
    script = "task working raise"


class BoomFirst(Script):
    script = "raise"


class A2AErrorFirst(Script):
    script = "a2aerror:ContentTypeNotSupportedError"


class A2AErrorLater(Script):
    script = "task working a2aerror:UnsupportedOperationError"


class Hang(Script):
    script = "task working hang"


class Silent(AgentExecutor):
    """Says nothing at all."""

    async def execute(self, context, event_queue): ...

    async def cancel(self, context, event_queue): ...


class MessageOnly(Script):
    script = "message:hello"


class TwoMessages(Script):
    script = "message:one message:two"


class MessageInTaskMode(Script):
    script = "task working message:oops"


class AfterTerminal(Script):
    script = "task completed artifact:late:late"


class StatusFirst(Script):
    script = "working artifact:a:b completed"


class ArtifactFirst(Script):
    script = "artifact:a:b completed"


class SecondTask(Script):
    script = "task working anothertask:submitted completed"


class WrongIds(Script):
    script = "task stranger:task"


class Unfinished(Script):
    """Returns with the task WORKING."""

    script = "task working artifact:half:done"


class AuthThenGoOn(Script):
    """Asks for authorisation and goes on by itself when it has come."""

    script = "task auth:please wait:auth completed"


class NaNArtifact(Script):
    script = "task data:nan completed"


class RawBytes(Script):
    script = "task data:bytes completed"


class Dump(Script):
    script = "task dump completed"


class UsesOrm(Script):
    script = "task agents completed"


class Blocking(Script):
    """Holds its whole thread for `block:<seconds>`."""

    script = "task working timesleep:… completed"


class EmptyCancel(Script):
    async def cancel(self, context, event_queue): ...


class RefuseCancel(Script):
    async def cancel(self, context, event_queue):
        raise errors.UnsupportedOperationError("never")


class CancelRaises(Script):
    async def cancel(self, context, event_queue):
        raise RuntimeError(SECRET)


class CancelRetries(Script):
    async def cancel(self, context, event_queue):
        from a2a_django import Retry

        raise Retry(after=0)


class CancelHangs(Script):
    async def cancel(self, context, event_queue):
        await gate("cancel").wait()


class CompleteOnCancel(Script):
    """Is done just when it is asked to stop."""

    async def cancel(self, context, event_queue):
        event = TaskStatusUpdateEvent(task_id=context.task_id, context_id=context.context_id)
        event.status.state = State.TASK_STATE_COMPLETED
        await event_queue.enqueue_event(event)


class ClingOn(Script):
    """Goes on when it is cancelled, and says so."""

    async def execute(self, context, event_queue):
        stage = Stage(context, event_queue)
        try:
            await super().execute(context, event_queue)
        except asyncio.CancelledError:
            await stage.do_wait("cling")
            await stage.do_artifact("late:late")


class Goodbye(Script):
    """Has a last word when it is cancelled."""

    async def execute(self, context, event_queue):
        try:
            await super().execute(context, event_queue)
        except asyncio.CancelledError:
            await Stage(context, event_queue).do_completed("goodbye")
            raise

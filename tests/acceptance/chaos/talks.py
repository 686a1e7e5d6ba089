"""Clients that come back: whatever breaks, each goes on until it has its answer, and remembers what it saw."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple
from uuid import uuid4

from tests.acceptance.chaos.doors import AnsweredError, BrokenError, Door, Item, RefusedError
from tests.acceptance.chaos.plan import INPUT, KINDS, Talk

TERMINAL = frozenset(f"TASK_STATE_{name}" for name in ("COMPLETED", "FAILED", "CANCELED", "REJECTED"))
CANCELED = "TASK_STATE_CANCELED"
TIRING = 10  # answers to come again, after which a client does so less often: many would be too much for the site
PERSISTENCE = 3  # errors in a row, when all is well, that make an answer


class CutError(BrokenError):
    """The stream was closed in order, before its end: it is to be resumed."""


class Cut(NamedTuple):
    """A stream that was closed in order, before its end: when, after how many seconds and, at the least, bytes."""

    at: float
    seconds: float
    size: int


@dataclass
class Reading:
    """What one reader of a task has seen, however often it had to come back."""

    who: str
    ends: frozenset[str] = TERMINAL  # states that end the stream
    opening: Item | None = None  # the Task as it was, where the stream begins with that
    items: list[Item] = field(default_factory=list)
    closed: bool = False  # by the server, in order, at its end
    cuts: list[Cut] = field(default_factory=list)

    @property
    def last(self) -> int | None:
        """The event after which to go on."""
        if self.items:
            return self.items[-1].sequence
        return self.opening.sequence if self.opening else None

    @property
    def ended(self) -> bool:
        """Whether what came last is an end: a Message or a state."""
        last = self.items[-1] if self.items else self.opening
        if last is None:
            return False
        ((kind, data),) = json.loads(last.text).items()
        return kind == "message" or data.get("status", {}).get("state") in self.ends

    def take(self, item: Item, *, opens: bool) -> None:
        """Takes what has come; the first is no event where a stream opens with the Task as it is."""
        if opens and self.last is None:
            self.opening = item
        else:
            self.items.append(item)


@dataclass
class Sending:
    """One message of a client's, sent until it was answered."""

    params: dict[str, Any]
    follow_up: bool
    reading: Reading
    before: Any = None  # the status of the task that a poller knew
    answers: list[dict[str, Any]] = field(default_factory=list)  # Tasks and Messages, in the order in which they came
    refused: str = ""
    failed: bool = False  # answered by an error that came again and again when all was well

    @property
    def message(self) -> str:
        """Its id."""
        return str(self.params["message"]["messageId"])

    @property
    def told(self) -> bool:
        """Whether a poller knows what came of it."""
        if not self.answers or "status" not in self.answers[-1]:
            return bool(self.answers)
        status = self.answers[-1]["status"]
        return status != self.before and status["state"] in {*TERMINAL, INPUT}


@dataclass
class Cancel:
    """A cancel of somebody's task, sent until it was answered."""

    task: str
    answer: str = ""  # the state of the task, or the reason why not


@dataclass
class Conversation:
    """A Talk as it goes."""

    talk: Talk
    door: Door
    random: Random
    calm: asyncio.Event  # the faults are over
    task: str = ""
    sendings: list[Sending] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)
    came_back: int = 0
    diary: list[tuple[float, str]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    _said: list["asyncio.Task[None]"] = field(default_factory=list)
    _listening: list["asyncio.Task[None]"] = field(default_factory=list)

    async def hold(self) -> None:
        """Says what there is to be said, and returns when all of it was answered."""
        await self._say(KINDS[self.talk.kind].script)
        await asyncio.gather(*self._said)

    def all_read(self, newest: int) -> bool:
        """Whether each listener has left, or has seen event `newest`."""
        return all(reading.closed or reading.last == newest for reading in self.readings)

    async def leave(self) -> None:
        """Sends the listeners away; those of a task that hasn't ended would stay."""
        for listening in self._listening:
            listening.cancel()
        await asyncio.gather(*self._listening, return_exceptions=True)

    def note(self, what: str) -> None:
        """For the story."""
        self.diary.append((time.monotonic(), what))

    # --- coming back

    async def _persist(self, call: Callable[[], Awaitable[None]]) -> None:
        """Makes the call until it succeeds; an error that comes again and again when all is well is the answer."""
        pause, in_calm, answers = 0.1, 0, 0
        while True:
            try:
                return await call()
            except BrokenError as error:
                self.note(f"comes back: {error}")
                self.came_back += 1
                in_calm += self.calm.is_set() and not isinstance(error, CutError)
                answers += isinstance(error, AnsweredError)
                if in_calm > PERSISTENCE:
                    raise
            await asyncio.sleep(pause * self.random.uniform(0.5, 1.5))
            tired = answers > TIRING and not self.calm.is_set()
            pause = min(pause * 2, 20 if tired else 1)

    # --- sending

    async def _say(self, script: str, task: str = "") -> None:
        message = {"messageId": uuid4().hex, "role": "ROLE_USER", "parts": [{"text": script}]}
        params = {
            "message": {**message, "taskId": task} if task else message,
            "configuration": {"returnImmediately": self.talk.way == "poll"},
        }
        ends = TERMINAL if task else TERMINAL | {INPUT}  # what answers the question ends the task, in all scripts
        sending = Sending(params, bool(task), Reading(f"the sender of {message['messageId']}", ends))
        self.sendings.append(sending)
        self.note(f"says “{script}” as {sending.message}")
        ways = {"stream": self._stream, "block": self._block, "poll": self._poll}
        try:
            await self._persist(lambda: ways[self.talk.way](sending))
        except RefusedError as error:
            sending.refused = str(error.code)
            self.note(f"was refused: {error}")
        except BrokenError as error:
            sending.failed = True
            self.note(f"was answered with {error}")
        else:
            self.note("has its answer")

    async def _block(self, sending: Sending) -> None:
        self._answer(sending, await self.door.send(sending.params))

    async def _poll(self, sending: Sending) -> None:
        if sending.follow_up and not sending.before:
            sending.before = (await self.door.get(self.task))["status"]
        if not sending.answers:
            self._answer(sending, await self.door.send(sending.params))
        while not sending.told:
            await asyncio.sleep(self.random.uniform(0.1, 0.5))
            self._answer(sending, {"task": await self.door.get(self.task)})

    def _answer(self, sending: Sending, answer: dict[str, Any]) -> None:
        ((kind, data),) = answer.items()
        sending.answers.append(data)
        if kind == "task":
            self._hear(data["id"], data["status"]["state"])

    async def _stream(self, sending: Sending) -> None:
        reading = sending.reading
        await self._read(self.door.stream(sending.params, reading.last), reading, opens=sending.follow_up)

    async def cancel(self) -> Cancel:
        """Has the task canceled."""
        cancel = Cancel(self.task)

        async def call() -> None:
            cancel.answer = (await self.door.cancel(self.task))["status"]["state"]

        try:
            await self._persist(call)
        except (RefusedError, BrokenError) as error:
            cancel.answer = str(getattr(error, "code", error))
        self.note(f"a cancel was answered with {cancel.answer}")
        return cancel

    # --- reading

    async def _read(self, events: Any, reading: Reading, *, opens: bool) -> None:
        began, size = time.monotonic(), 0
        async with events as items:
            async for item in items:
                size += len(item.text)
                reading.take(item, opens=opens)
                self._look(item)
        if not reading.ended:
            reading.cuts.append(Cut(now := time.monotonic(), now - began, size))
            raise CutError(f"{reading.who}: the stream was closed after {reading.last}")
        reading.closed = True
        self.note(f"{reading.who}: the stream ended after {reading.last}")

    def _look(self, item: Item) -> None:
        ((kind, data),) = json.loads(item.text).items()
        if kind != "message":
            self._hear(data["id"] if kind == "task" else data["taskId"], data.get("status", {}).get("state", ""))

    async def _listen(self, delay: float, name: str) -> None:
        """Subscribes to the task, until that has ended or it is sent away."""
        await asyncio.sleep(delay)
        reading = Reading(name)
        try:
            await self._persist(lambda: self._subscribe(reading))
        except Exception as error:
            self.note(f"{name}: {error!r}")
            if reading.last is not None or getattr(error, "code", "") != "UNSUPPORTED_OPERATION":
                self.wrong.append(f"{name} got {error!r}")
            reading.closed = True

    async def _subscribe(self, reading: Reading) -> None:
        if reading not in self.readings:
            self.readings.append(reading)
        await self._read(self.door.subscribe(self.task, reading.last), reading, opens=True)

    # --- what is heard

    def _hear(self, task: str, state: str) -> None:
        """Does what has waited for the task to be known, or for its state."""
        if not self.task:
            self.task = task
            self.note(f"knows its task: {task}")
            for number, delay in enumerate(self.talk.listeners, 1):
                self._listening.append(asyncio.create_task(self._listen(delay, f"listener {number}")))
        elif self.task != task:
            self.wrong.append(f"an answer was for another task: {task}")
        kind = KINDS[self.talk.kind]
        if kind.answer and not self._said and kind.after in ("", state):
            self._said.append(asyncio.create_task(self._say(kind.answer, task)))

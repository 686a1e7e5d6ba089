"""SendStreamingMessage and SubscribeToTask: what comes after n, as stored text (A2A 3.1.2, 3.1.6; DESIGN 4)."""

import asyncio
import re
from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass
from functools import partial

from a2a.types import SendMessageRequest, SubscribeToTaskRequest

from a2a_django import database, draining, snapshots
from a2a_django.agents import activation, card
from a2a_django.doorbell import Ear
from a2a_django.models import Caller, Event, Scope, Task
from a2a_django.models.event import Kind
from a2a_django.operations import news, quotas
from a2a_django.operations.news import Item
from a2a_django.operations.reading import visible_task
from a2a_django.operations.sending import Accepted, accept, rejoin
from a2a_django.protocol import codec, errors, versions
from a2a_django.protocol.states import INTERRUPTED, TERMINAL
from a2a_django.settings import a2a_settings

_NUMBER = re.compile(r"[0-9]{1,10}")
FEW = 50  # events of a stream's first look
CHARACTERS = 2**20  # of a later one, about: it waits in memory for as long as its reader is slow


@dataclass
class Stream:
    """A stream that may begin: no error came up. `turn_id` closes it when that turn has ended.

    `negotiating` is the caller of a turn that may activate extensions, which then have to be known before it begins.
    """

    task_id: str
    ear: Ear
    after: int
    turn_id: int | None = None
    opening: str = ""
    history_length: int | None = None
    resumed: bool = False
    over: bool = False  # with the opening: nothing follows
    ends: Collection[str] = TERMINAL
    negotiating: Caller | None = None
    begun: tuple[Sequence[Item], bool] = ((), False)
    limit: int = FEW  # events of the next look
    full: bool = False  # the last look took as many as it was to: there may be more

    async def first(self) -> None:
        """Waits for something to send, for as long as a silent stream may be; raises what keeps it from beginning."""
        if self.negotiating is not None:
            heard = await self._negotiate(self.negotiating)
        elif self.opening:
            return
        else:
            heard = self.resumed or await self.ear.wait(a2a_settings.HEARTBEAT_SECONDS)
        if heard:
            brought = self._heard()
            self.begun = (self._short(brought), False) if brought else await self._look()
        if not any(self.begun):
            draining.check()

    async def _negotiate(self, caller: Caller) -> bool:
        """Whether the turn has begun to speak meanwhile: what it has activated by then is in `caller.activated`."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + a2a_settings.HEARTBEAT_SECONDS
        learn = partial(database.log.run, activation.learn, caller, self.turn_id or 0)
        while not await database.patiently(learn):
            if not await self.ear.wait(max(ends - loop.time(), 0)) or draining.begun():
                return False
        return True

    async def items(self) -> AsyncIterator[Sequence[Item]]:
        """What there is to send, in order, as it comes; an empty one when the stream was silent for a while."""
        if self.opening:
            yield [(self.after, self.opening)]
        if self.over:
            return
        found, over = self.begun if any(self.begun) else await self._look()
        loop, heartbeat = asyncio.get_running_loop(), a2a_settings.HEARTBEAT_SECONDS
        ends = loop.time() + (a2a_settings.STREAM_MAX_SECONDS or float("inf"))
        over = over or draining.begun()
        while True:
            if found:
                yield found
            if over or loop.time() >= ends:
                return
            if not (self.full or await self.ear.wait(min(heartbeat, ends - loop.time()))):
                yield ()  # whoever is silent asks nothing: the keeper looks for all
                found = ()
            else:
                found, over = await self._next()

    async def _next(self) -> tuple[Sequence[Item], bool]:
        """What there is after a ring, and whether the stream is over with it."""
        heard = self._heard()
        if heard is not None:
            return self._short(heard), False
        found, over = await self._look()
        return found, over or draining.begun()  # rings that tell of this bring nothing

    def _heard(self) -> Sequence[Item] | None:
        """What rings have brought, if that is what follows; None: it has to be looked for."""
        letters = self.ear.letters()
        if letters is None or self.full:
            return None
        found, after = [], self.after
        for turn_id, events in letters:
            if self.turn_id not in (None, turn_id):
                return None
            for sequence, text in events:
                if sequence > after + 1:
                    return None
                if sequence == after + 1:
                    found.append((sequence, text))
                    after = sequence
        self.after = after
        return found

    async def _look(self) -> tuple[Sequence[Item], bool]:
        look = partial(news.look, self.task_id, self.after, self.turn_id, self.ends, self.limit)
        found, over = await database.patiently(look)
        self.full = len(found) == self.limit
        if found:
            self.after = found[-1][0]
            size = sum(len(text) for _, text in found) / len(found)
            self.limit = max(1, min(news.CHUNK, int(CHARACTERS / size)))
        return self._short(found), over

    def _short(self, found: Sequence[Item]) -> Sequence[Item]:
        """With no more history in the Task that a stream begins with than its client wants."""
        if self.history_length is not None and found and found[0][0] == 1:
            return [(1, _shortened(found[0][1], self.history_length)), *found[1:]]
        return found


def send_streaming_message(
    caller: Caller, request: SendMessageRequest, ear: Ear, last_event_id: str | None = None
) -> Stream:
    """Takes the message in; the stream ends at a terminal state or with the turn.

    `last_event_id` resumes the stream of a message that was sent before, after that event.
    """
    caller.need(Scope.SEND)
    _check_streaming(caller)
    quotas.open_stream(caller, ear)
    if last_event_id:
        first = rejoin(caller, request, ear)
        return _resumed(caller, Task.objects.get(pk=first.task_id), ear, last_event_id, first)
    accepted = accept(caller, request, ear)
    opening = f'{{"task":{accepted.opening}}}' if accepted.opening else ""
    return Stream(
        accepted.task_id,
        ear,
        accepted.cursor,
        accepted.turn_id,
        opening,
        accepted.history_length,
        ends=_ends(caller),
        negotiating=caller if caller.available else None,
    )


def subscribe_to_task(
    caller: Caller, request: SubscribeToTaskRequest, ear: Ear, last_event_id: str | None = None
) -> Stream:
    """The Task as it is and then its events until a terminal state; `last_event_id` resumes after that event."""
    caller.need(Scope.READ)
    _check_streaming(caller)
    quotas.open_stream(caller, ear)
    ear.listen(request.id)  # first listen, then read: nothing falls in between
    task = visible_task(caller, request.id)
    if last_event_id:
        return _resumed(caller, task, ear, last_event_id)
    # In 0.3 a finished task is an answer; so is one that waits for its client while nothing runs.
    ends = _ends(caller)
    over = caller.version == versions.LEGACY and task.state in ends and not task.lease
    if task.terminal and not over:
        raise errors.UnsupportedOperationError("The task is in a terminal state; use GetTask", {"taskId": task.pk})
    return _opened(task, ear, over=over, ends=ends)


def _opened(task: Task, ear: Ear, *, over: bool, ends: Collection[str]) -> Stream:
    """A stream that begins with the Task as it is."""
    snapshot = snapshots.snapshot(task)
    opening = f'{{"task":{snapshot.text()}}}'
    return Stream(task.pk, ear, snapshot.task.last_sequence, opening=opening, over=over, ends=ends)


def _resumed(caller: Caller, task: Task, ear: Ear, last_event_id: str, sent: Accepted | None = None) -> Stream:
    """What comes after that event; or the Task, if it has ended and its events are not kept any more."""
    cursor, ends = _cursor(last_event_id, task), _ends(caller)
    kept = Event.objects.filter(task=task, sequence=cursor + 1)
    if task.terminal and cursor < task.last_sequence and not kept.exists():
        if not task.visible:  # an answer without a task, which has nothing else to show
            raise news.purged(task.pk)
        return _opened(task, ear, over=True, ends=ends)
    turn_id, length = (sent.turn_id, sent.history_length) if sent else (None, None)
    return Stream(task.pk, ear, cursor, turn_id, history_length=length, resumed=True, ends=ends)


def _ends(caller: Caller) -> frozenset[str]:
    """The states that end a stream: in 0.3 the interrupted ones do, too."""
    return TERMINAL | INTERRUPTED if caller.version == versions.LEGACY else TERMINAL


def _check_streaming(caller: Caller) -> None:
    draining.check()
    if not card.streams(caller.agent):
        raise errors.UnsupportedOperationError("The agent does not stream; use SendMessage and GetTask")


def _cursor(last_event_id: str, task: Task) -> int:
    number = int(last_event_id) if _NUMBER.fullmatch(last_event_id) else None
    if number is None or number > task.last_sequence:
        raise errors.invalid_params(("Last-Event-ID", "is not the id of an event of this task"))
    return number


def _shortened(text: str, history_length: int) -> str:
    """A Task event with at most so many messages of history."""
    data = codec.loads(text)
    if "history" not in data.get(Kind.TASK, {}):
        return text
    history = data[Kind.TASK].pop("history")
    if history_length:
        data[Kind.TASK]["history"] = history[-history_length:]
    return codec.dumps(data)

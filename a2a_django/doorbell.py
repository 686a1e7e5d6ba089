"""Rings readers: "task X has news". Whoever is rung looks into the log; a lost ring costs one look.

A ring for a few events of a turn that goes on brings them along: a reader who has what is before them needn't look.

One keeper thread per process owns an event loop and alone touches the channel layer. It also looks
for all listeners in one query now and then, in case a ring was lost (DESIGN 4).
"""

import asyncio
import contextlib
import logging
import os
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, NamedTuple
from uuid import uuid4

from channels.layers import InMemoryChannelLayer, get_channel_layer

from a2a_django import database, draining
from a2a_django.models import Task
from a2a_django.settings import a2a_settings

log = logging.getLogger(__name__)

GROUP = "a2a.doorbell"
CANCEL = "cancel:"  # put before a task's id: its canceller rings, the runner that holds its lease listens
REJOIN_SECONDS = 30  # the core layer forgets groups, and so does a restarted Redis
DRAIN_SECONDS = 0.5  # within which all who wait hear that their process is about to stop


LETTERS = 16  # that wait for a slow reader
LETTER = 2**14  # characters of the events that a ring brings at the most

Waiting = tuple[asyncio.AbstractEventLoop, "asyncio.Future[None]"]


class Letter(NamedTuple):
    """What a ring may bring: events that a turn has added to its task's log, (sequence, text), but not its end."""

    turn_id: int
    events: list[tuple[int, str]]

    @property
    def fits(self) -> bool:
        """Whether a ring should bring it."""
        return sum(len(text) for _, text in self.events) <= LETTER

    def then(self, later: "Letter | None") -> "Letter | None":
        """This one and a later one in one, or none."""
        if later is None or later.turn_id != self.turn_id:
            return None
        both = Letter(self.turn_id, [*self.events, *later.events])
        return both if both.fits else None


Rings = Mapping[str, Letter | None]
"""What is rung for, with what a ring brings; None says "look"."""


class Ear:
    """One listener: made, put to keys and rung in any thread; who waits does so in an event loop.

    One that nobody keeps any more is forgotten by itself, but `close` is sooner: views are garbage that waits to be
    collected, and until then the keeper would look for them.
    """

    def __init__(self) -> None:
        keeper()  # the first call of a process has it recover what others left behind, whatever it asks
        self._lock, self._rung = threading.Lock(), False
        self._waiting: Waiting | None = None
        self._letters: list[Letter] | None = []
        self._keys: list[str] = []
        self._ends: list[weakref.finalize[[], Ear]] = []

    def listen(self, key: str) -> None:
        """From now on every ring for `key` is heard."""
        with _lock:
            _ears.setdefault(key, weakref.WeakSet()).add(self)
            self._keys.append(key)

    def close(self) -> None:
        """Hears no more."""
        with _lock:
            for key in self._keys:
                if ears := _ears.get(key):
                    ears.discard(self)
            self._keys.clear()
        for end in self._ends:
            end()

    def at_end(self, call: Callable[[], None]) -> None:
        """Has `call` called once, when this ear is closed or forgotten."""
        end = weakref.finalize(self, call)
        end.atexit = False
        self._ends.append(end)

    def ring(self) -> None:
        """Wakes the listener; from any thread."""
        _wake([(self, None)])

    def heed(self, letter: Letter | None) -> "Waiting | None":
        """Takes note of a ring; whom to wake in which loop."""
        with self._lock:
            waiting, self._rung, self._waiting = self._waiting, True, None
            if letter is None or (self._letters is not None and len(self._letters) >= LETTERS):
                self._letters = None
            elif self._letters is not None:
                self._letters.append(letter)
        return waiting

    def letters(self) -> list[Letter] | None:
        """What the rings since the last call have brought; None if it has to be looked for."""
        with self._lock:
            letters, self._letters = self._letters, []
        return letters

    async def wait(self, timeout: float | None) -> bool:
        """Whether a ring came within `timeout` seconds; who reads next misses nothing rung before."""
        loop = asyncio.get_running_loop()
        rung = loop.create_future()
        with self._lock:
            self._waiting = None if self._rung else (loop, rung)
            heard = self._rung
        if not heard:
            expiry = None if timeout is None else loop.call_later(timeout, _resolve, [rung])
            try:
                await rung
            finally:
                if expiry:
                    expiry.cancel()
        with self._lock:
            heard, self._rung, self._waiting = self._rung, False, None
        return heard


def _wake(ears: Iterable[tuple[Ear, Letter | None]]) -> None:
    """Rings the ears; each loop is called once, for waking it costs more than all else."""
    rung: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
    for ear, letter in ears:
        if waiting := ear.heed(letter):
            rung.setdefault(waiting[0], []).append(waiting[1])
    for loop, futures in rung.items():
        with contextlib.suppress(RuntimeError):  # it has closed
            loop.call_soon_threadsafe(_resolve, futures)


def _resolve(futures: "Iterable[asyncio.Future[None]]") -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)


class Duty(NamedTuple):
    """What a keeper does every `share` of A2A[`setting`] seconds; `name` is for the log."""

    name: str
    setting: str
    work: Callable[[], Awaitable[None]]
    share: float = 1.0


def duty(name: str, setting: str, work: Callable[[], Awaitable[None]], share: float = 1.0) -> None:
    """Has the keeper of each process await `work()` again and again; called when a module is imported."""
    _duties.append(Duty(name, setting, work, share))


class Keeper:
    """The thread, its loop, and what it does again and again."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._name = str(uuid4())  # its own rings come back to it
        self._outbox: dict[str, Letter | None] = {}
        self._sending: asyncio.Task[None] | None = None
        self._seen: dict[str, tuple[Any, ...]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        threading.Thread(target=self._run, name="a2a-keeper", daemon=True).start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        for duty in (Duty("Looking for news", "LOOK_SECONDS", self._look), *_duties):
            self.loop.call_soon(self._start, self._repeat(duty))
        self.loop.call_soon(self._start, self._drain())
        if _layer() is not None:
            self.loop.call_soon(self._start, self._hear())
        self.loop.run_forever()

    def _start(self, work: Any) -> None:
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _repeat(self, duty: Duty) -> None:
        while True:
            await asyncio.sleep(getattr(a2a_settings, duty.setting) * duty.share)
            try:
                await duty.work()
            except Exception as error:
                log.warning("%s failed and is tried again: %s", duty.name, type(error).__name__)

    async def _drain(self) -> None:
        """Wakes all who wait when the process is about to stop, those too that have come since."""
        while True:
            await asyncio.sleep(DRAIN_SECONDS)
            if draining.begun():
                _ring_here(dict.fromkeys(_all_keys()))

    # --- telling other processes

    def tell(self, rings: Rings) -> None:
        """Rings in all other processes; coalesces while the layer is slow or away."""
        if _layer() is None:
            return
        for key, letter in rings.items():
            if key not in self._outbox:
                self._outbox[key] = letter
            elif before := self._outbox[key]:
                self._outbox[key] = before.then(letter)
        if self._sending is None or self._sending.done():
            self._sending = self.loop.create_task(self._send())

    async def _send(self) -> None:
        while self._outbox:
            rings = dict(self._outbox.popitem() for _ in range(min(len(self._outbox), 500)))
            try:
                await _layer().group_send(GROUP, {"type": "a2a.ring", "rings": rings, "from": self._name})
            except Exception as error:
                log.warning("A ring was lost (%s); readers look by themselves.", type(error).__name__)

    # --- hearing other processes

    async def _hear(self) -> None:
        while True:
            try:
                await self._hear_layer(_layer())
            except Exception as error:
                log.warning("The channel layer is away (%s); readers look by themselves.", type(error).__name__)
                await asyncio.sleep(1)

    async def _hear_layer(self, layer: Any) -> None:
        channel, joined = await layer.new_channel(), 0.0
        while True:
            if time.monotonic() - joined > REJOIN_SECONDS:
                await layer.group_add(GROUP, channel)
                joined = time.monotonic()
            try:
                async with asyncio.timeout(REJOIN_SECONDS):
                    message = await layer.receive(channel)
            except TimeoutError:  # a pubsub layer drops the channel of a receive that was given up
                channel, joined = await layer.new_channel(), 0.0
                continue
            if message["from"] != self._name:
                _ring_here({key: letter and Letter(*letter) for key, letter in message["rings"].items()})

    # --- looking

    async def _look(self) -> None:
        keys = _listened()
        found = await database.log.run(_standing, keys) if keys else {}
        # That a task is gone is news, too, which no row tells.
        _ring_here(dict.fromkeys(key for key in keys if key not in found or self._seen.get(key) != found[key]))
        self._seen = found


def _standing(keys: list[str]) -> dict[str, tuple[Any, ...]]:
    """How each task stands; a difference between two looks is news."""
    columns = ("pk", "last_sequence", "lease", "cancel")
    rows: dict[str, tuple[Any, ...]] = {}
    for start in range(0, len(keys), 500):
        for row in Task.objects.filter(pk__in=keys[start : start + 500]).values_list(*columns):
            rows[row[0]] = row
    return rows


def _layer() -> Any:
    """The site's channel layer; an in-memory one doesn't wake other threads, so it counts as none."""
    layer = get_channel_layer()
    return None if isinstance(layer, InMemoryChannelLayer) else layer


# --- this process

_duties: list[Duty] = []
_lock = threading.Lock()
_ears: dict[str, "weakref.WeakSet[Ear]"] = {}
_keeper: Keeper | None = None


def ring(*task_ids: str) -> None:
    """These tasks have news: wakes their readers in all processes. Never blocks; from any thread."""
    bring(dict.fromkeys(task_ids))


def bring(rings: Rings) -> None:
    """As `ring`, and brings the news along, so that readers needn't look for them."""
    _ring_here(rings)
    loop_keeper = keeper()
    loop_keeper.loop.call_soon_threadsafe(loop_keeper.tell, rings)


def _ring_here(rings: Rings) -> None:
    with _lock:
        ears = [(ear, letter) for key, letter in rings.items() for ear in _ears.get(key, ())]
    _wake(ears)


def _all_keys() -> list[str]:
    with _lock:
        return list(_ears)


def _listened() -> list[str]:
    """The tasks that somebody listens for; renewals of leases look for cancels."""
    with _lock:
        for key in [key for key, ears in _ears.items() if not ears]:
            del _ears[key]
        return [key for key in _ears if not key.startswith(CANCEL)]


def keeper() -> Keeper:
    """This process's keeper, started at first use."""
    global _keeper
    if _keeper is None:
        with _lock:
            if _keeper is None:
                _keeper = Keeper()
    return _keeper


def _forget() -> None:
    """After a fork the thread is gone, and nobody who listened is here."""
    global _keeper, _lock
    _keeper, _lock = None, threading.Lock()
    _ears.clear()


os.register_at_fork(after_in_child=_forget)

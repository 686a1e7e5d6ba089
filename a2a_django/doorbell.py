"""Rings readers: "task X has news". Carries no data; whoever is rung looks; a lost ring costs one look.

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
from collections.abc import Awaitable, Callable
from typing import Any

from channels.layers import InMemoryChannelLayer, get_channel_layer

from a2a_django import database
from a2a_django.models import Task
from a2a_django.settings import a2a_settings

log = logging.getLogger(__name__)

GROUP = "a2a.doorbell"
CANCEL = "cancel:"  # put before a task's id: its canceller rings, the runner that holds its lease listens
REJOIN_SECONDS = 30  # the core layer forgets groups, and so does a restarted Redis


class Ear:
    """One listener. Made in the event loop that waits; may be put to a key from any thread, before it is read.

    One that nobody keeps any more is forgotten by itself, but `close` is sooner: views are garbage that waits to be
    collected, and until then the keeper would look for them.
    """

    def __init__(self) -> None:
        self._loop, self._rung = asyncio.get_running_loop(), asyncio.Event()
        self._keys: list[str] = []

    def listen(self, key: str) -> None:
        """From now on every ring for `key` is heard."""
        keeper()
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

    def ring(self) -> None:
        """Wakes the listener; from any thread."""
        with contextlib.suppress(RuntimeError):  # its loop has closed
            self._loop.call_soon_threadsafe(self._rung.set)

    async def wait(self, timeout: float | None) -> bool:
        """Whether a ring came within `timeout` seconds; who reads next misses nothing rung before."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._rung.wait()
        rung = self._rung.is_set()
        self._rung.clear()
        return rung


class Keeper:
    """The thread, its loop, and what it does again and again."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._outbox: set[str] = set()
        self._sending: asyncio.Task[None] | None = None
        self._seen: dict[str, tuple[Any, ...]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        threading.Thread(target=self._run, name="a2a-keeper", daemon=True).start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.call_soon(self.repeat, "LOOK_SECONDS", self._look)
        if _layer() is not None:
            self.loop.call_soon(self._start, self._hear())
        self.loop.run_forever()

    def _start(self, work: Any) -> None:
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def repeat(self, setting: str, work: Callable[[], Awaitable[None]], share: float = 1.0) -> None:
        """Awaits `work()` every `share` of A2A[`setting`] seconds, in the keeper's loop, for ever."""
        self._start(self._repeat(setting, work, share))

    async def _repeat(self, setting: str, work: Callable[[], Awaitable[None]], share: float) -> None:
        while True:
            await asyncio.sleep(getattr(a2a_settings, setting) * share)
            try:
                await work()
            except Exception as error:
                log.warning("Could not look for news, trying again: %s", type(error).__name__)

    # --- telling other processes

    def tell(self, key: str) -> None:
        """Rings `key` in all processes; coalesces while the layer is slow or away."""
        if _layer() is None:
            return
        self._outbox.add(key)
        if self._sending is None or self._sending.done():
            self._sending = self.loop.create_task(self._send())

    async def _send(self) -> None:
        while self._outbox:
            keys = [self._outbox.pop() for _ in range(min(len(self._outbox), 500))]
            try:
                await _layer().group_send(GROUP, {"type": "a2a.ring", "keys": keys})
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
            for key in message["keys"]:
                _ring_here(key)

    # --- looking

    async def _look(self) -> None:
        keys = _listened()
        found = await database.log.run(_standing, keys) if keys else {}
        for key, standing in found.items():
            if self._seen.get(key) != standing:
                _ring_here(key)
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

_lock = threading.Lock()
_ears: dict[str, "weakref.WeakSet[Ear]"] = {}
_keeper: Keeper | None = None


def ring(task_id: str) -> None:
    """Task `task_id` has news: wakes its readers in all processes. Never blocks; from any thread."""
    _ring_here(task_id)
    loop_keeper = keeper()
    loop_keeper.loop.call_soon_threadsafe(loop_keeper.tell, task_id)


def _ring_here(task_id: str) -> None:
    with _lock:
        ears = list(_ears.get(task_id, ()))
    for ear in ears:
        ear.ring()


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

"""Our own few threads for database work: one hop per operation, connections kept (DESIGN 4)."""

import asyncio
import contextlib
import contextvars
import os
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Generic, ParamSpec, TypeVar, cast

from asgiref.sync import sync_to_async
from django.db import InterfaceError, InternalError, OperationalError, connections

from a2a_django.settings import a2a_settings

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

AWAY = (OperationalError, InterfaceError, InternalError)
"""What comes of a database that is away, ends the connection or gives one of two locks up: soon it may be well."""

IDLE_SECONDS = 60.0  # a connection that rested longer is opened anew: servers and proxies drop idle ones


class Pool:
    """A few threads that each keep a database connection from call to call.

    CONN_MAX_AGE does not apply to them: their number bounds the connections of the process.
    """

    def __init__(self, name: str, size: str | int) -> None:
        self._name, self._size = name, size  # a number, or the setting that tells it
        self._executor: ThreadPoolExecutor | None = None

    def forget(self) -> None:
        """Starts afresh: after a fork the threads are gone."""
        self._executor = None
        self.__dict__.pop("_enter", None)

    async def run(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """What `function(*args)` returns, run in a thread of the pool with the caller's context variables."""
        context = contextvars.copy_context()
        call = asyncio.get_running_loop().run_in_executor(
            self.executor, lambda: context.run(_tidily, function, *args, **kwargs)
        )
        return await call

    def submit(self, function: Callable[[], R]) -> "Future[R]":
        """What `function()` will return, from a thread of the pool."""
        return self.executor.submit(_tidily, function)

    async def run_for_request(self, function: Callable[[], R]) -> R:
        """As `run`, with what Django keeps for a request: language, script name, urlconf, time zone.

        asgiref shows them to those threads only that it has entered itself, which costs a little more.
        """
        return cast("R", await self._enter(function))

    @cached_property
    def _enter(self) -> Callable[..., Awaitable[Any]]:
        return sync_to_async(_tidily, thread_sensitive=False, executor=self.executor)

    @property
    def executor(self) -> ThreadPoolExecutor:
        """The threads, started at first use."""
        if self._executor is None:
            size = self._size if isinstance(self._size, int) else getattr(a2a_settings, self._size)
            self._executor = ThreadPoolExecutor(size, thread_name_prefix=self._name)
        return self._executor


class Gathered(Generic[T]):
    """Calls of one kind: what comes while `work` is under way waits, and is its next argument, all at once."""

    def __init__(self, pool: Pool, work: Callable[[Sequence[T]], None]) -> None:
        self._pool, self._work = pool, work
        self.forget()
        os.register_at_fork(after_in_child=self.forget)

    def forget(self) -> None:
        """Starts afresh: after a fork the parent does what it was asked."""
        self._lock = threading.RLock()
        self._next: _Round[T] | None = None

    async def run(self, item: T) -> None:
        """Returns when `work` has seen `item`; who gives up before takes nothing from the others."""
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        self._ask(item, (loop, done))
        await done

    def add(self, item: T) -> None:
        """Has `work` see `item`, too, and nobody waits for it; from any thread."""
        self._ask(item)

    def _ask(self, item: T, *waiting: "tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]") -> None:
        with self._lock:
            begins, coming = self._next is None, self._next or _Round()
            coming.items.append(item)
            for loop, done in waiting:
                coming.waiting.setdefault(loop, []).append(done)
            if begins:
                self._next = coming
                self._pool.submit(self._run).add_done_callback(partial(self._end, coming))

    def _run(self) -> None:
        with self._lock:
            taken, self._next = self._next, None
        if taken is not None:
            self._work(taken.items)

    def _end(self, ended: "_Round[T]", call: "Future[None]") -> None:
        with self._lock:
            if self._next is ended:  # the thread could not even begin
                self._next = None
        for loop, waiting in ended.waiting.items():
            with contextlib.suppress(RuntimeError):  # it has closed
                loop.call_soon_threadsafe(_settle, waiting, call.exception())


@dataclass
class _Round(Generic[T]):
    """What one call of the work is for, and who waits for it in which event loop: each is woken once for all."""

    items: list[T] = field(default_factory=list)
    waiting: "dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]]" = field(default_factory=dict)


def _settle(waiting: "Sequence[asyncio.Future[None]]", error: BaseException | None) -> None:
    for done in waiting:
        if not done.done():
            done.set_exception(error) if error else done.set_result(None)


async def patiently(call: Callable[[], Awaitable[R]]) -> R:
    """What `call()` returns; while the database is away it is called again, for as long as a lease lasts."""
    loop = asyncio.get_running_loop()
    ends, pause = loop.time() + a2a_settings.LEASE_SECONDS, 0.05
    while True:
        try:
            return await call()
        except AWAY:
            if loop.time() + pause > ends:
                raise
        await asyncio.sleep(pause)
        pause = min(pause * 2, 2)


def keep_connections() -> None:
    """Has this thread's connections outlive the request, whatever CONN_MAX_AGE says."""
    for connection in connections.all(initialized_only=True):
        connection.close_at = None


def _tidily(function: Callable[..., R], /, *args: Any, **kwargs: Any) -> R:
    global _last_failure
    now = time.monotonic()
    for connection in connections.all(initialized_only=True):
        last_use = getattr(connection, "a2a_last_use", now)
        if now - last_use > IDLE_SECONDS or last_use < _last_failure:
            connection.close()
        connection.close_at = None
        connection.close_if_unusable_or_obsolete()
    try:
        return function(*args, **kwargs)
    finally:
        for connection in connections.all(initialized_only=True):
            connection.a2a_last_use = now  # type: ignore[attr-defined]
            if connection.errors_occurred:
                _last_failure = time.monotonic()


_last_failure = 0.0  # of any thread's connection: those that rest since before are probably broken, too


requests = Pool("a2a-request", "REQUEST_THREADS")
"""For requests: authentication, checks and an operation's database work in one call."""

log = Pool("a2a-log", "LOG_THREADS")
"""For readers of the log and claims, so that a slow authenticator can't keep them waiting."""

commits = Pool("a2a-commit", 1)
"""For what locks the rows of many tasks, appends and renewals of leases: one at a time, or they could deadlock."""


signals = Pool("a2a-signals", 1)
"""For the site's receivers of signals, in order; nothing of ours waits for them."""


def _after_fork() -> None:
    for pool in (requests, log, commits, signals):
        pool.forget()


os.register_at_fork(after_in_child=_after_fork)

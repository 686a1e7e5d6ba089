"""The event loops in which executors run: one shared thread per process, or a thread of its own (DESIGN 5.3)."""

import asyncio
import concurrent.futures
import contextvars
import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Coroutine
from typing import Any

log = logging.getLogger(__name__)

HELD_TOO_LONG = 1.0  # seconds without a breath of the shared loop before the watchdog speaks

_lock = threading.Lock()
_shared: "SharedLoop | None" = None
_submitted: "set[concurrent.futures.Future[None]]" = set()


class SharedLoop:
    """A thread whose loop runs the turns of all executors that don't block, and a watchdog that tells who does."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._breath = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="a2a-executors", daemon=True)
        self._thread.start()
        threading.Thread(target=self._watch, name="a2a-watchdog", daemon=True).start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.call_soon(self._breathe)
        self.loop.run_forever()

    def _breathe(self) -> None:
        self._breath = time.monotonic()
        self.loop.call_later(HELD_TOO_LONG / 4, self._breathe)

    def _watch(self) -> None:
        patience = HELD_TOO_LONG
        while self._thread.is_alive():
            time.sleep(HELD_TOO_LONG / 2)
            held = time.monotonic() - self._breath
            if held > patience:
                self._warn(held)
                patience = 2 * held  # again when it has lasted that long: by then it may be elsewhere
            elif held < HELD_TOO_LONG:
                patience = HELD_TOO_LONG

    def _warn(self, held: float) -> None:
        frame = sys._current_frames().get(self._thread.ident or 0)
        if frame is None or frame.f_code.co_name == "select":
            return  # the loop waits for work: the machine was slow, not an executor
        where = "".join(traceback.format_stack(frame, limit=8))
        log.warning(
            "An executor holds the shared event loop for %.1f s, all others wait; make it async, "
            "or register it with @executor(…, blocking=True). It is at:\n%s",
            held,
            where,
        )


def submit(work: Coroutine[Any, Any, None]) -> "concurrent.futures.Future[None]":
    """Runs `work` in the shared loop, in a fresh context: nothing of the caller's request leaks into the turn."""
    future = contextvars.Context().run(asyncio.run_coroutine_threadsafe, work, _shared_loop())
    _submitted.add(future)
    future.add_done_callback(_submitted.discard)
    return future


def join() -> None:
    """Returns when all that was submitted has ended, and what that has submitted in turn."""
    while _submitted:
        concurrent.futures.wait(list(_submitted))


def later(seconds: float, call: Callable[[], None]) -> None:
    """Has the shared loop call `call` after so long, if the process lives."""
    shared = _shared_loop()
    shared.call_soon_threadsafe(shared.call_later, seconds, call)


def _shared_loop() -> asyncio.AbstractEventLoop:
    global _shared
    with _lock:
        if _shared is None:
            _shared = SharedLoop()
        return _shared.loop


def in_own_thread(work: Coroutine[Any, Any, None]) -> "concurrent.futures.Future[None]":
    """Runs `work` in a thread with a loop of its own, with the caller's context; cancelling the future cancels it."""
    own = asyncio.new_event_loop()
    threading.Thread(target=_run_and_close, args=(own,), name="a2a-executor", daemon=True).start()
    return asyncio.run_coroutine_threadsafe(_to_the_end(work), own)


def _run_and_close(own: asyncio.AbstractEventLoop) -> None:
    own.run_forever()
    own.run_until_complete(own.shutdown_asyncgens())
    own.close()


async def _to_the_end(work: Coroutine[Any, Any, None]) -> None:
    """Awaits `work` and then has the loop that it ran in stop."""
    own = asyncio.get_running_loop()
    try:
        await work
    finally:
        own.call_soon(own.stop)


def _forget() -> None:
    """After a fork the thread is gone."""
    global _shared, _lock, _submitted
    _shared, _lock, _submitted = None, threading.Lock(), set()


os.register_at_fork(after_in_child=_forget)

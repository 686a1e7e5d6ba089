"""The event queue that an executor speaks into: serialised at once, bounded by count and bytes (DESIGN 4)."""

import asyncio
import contextlib
import threading
from collections.abc import Callable

from a2a.server.events import EventQueue

from a2a_django.agents.contract import Contract, Said
from a2a_django.entries import Entry
from a2a_django.models.event import Kind
from a2a_django.protocol import errors

MAX_ENTRIES = 1000
MAX_CHARACTERS = 4 * 2**20


class Speech(EventQueue):
    """What an executor has said and the log doesn't have yet. An executor that is too fast waits in here.

    Executors may speak in another thread than the one that takes. `said` is called where they do, when there is
    something to take, and `broke` when they have broken the contract.
    """

    def __init__(self, contract: Contract, said: Callable[[], None], broke: Callable[[], None]) -> None:
        self.contract = contract
        self._said, self._broke = said, broke
        self.breach: errors.InvalidAgentResponseError | None = None
        self.spoken = False
        self._lock = threading.Lock()
        self._entries: list[Entry] = []
        self._answer: list[Entry] = []
        self._size = 0
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
        self._closed = False

    async def enqueue_event(self, event: Said) -> None:
        """Takes `event`; InvalidAgentResponseError for a breach of the contract, which also ends the turn."""
        while self._full() and not self._closed:
            await self._room()
        if self._closed:
            return
        if self.breach is not None:
            raise self.breach
        try:
            entry = self.contract.entry(event)
        except errors.InvalidAgentResponseError as breach:
            self.breach = breach
            self._broke()
            raise
        self.spoken = True
        if entry.kind == Kind.MESSAGE:
            self._answer.append(entry)
            return
        with self._lock:
            self._size += len(entry.text)
            self._entries.append(entry)
        self._said()

    def _full(self) -> bool:
        return len(self._entries) >= MAX_ENTRIES or self._size >= MAX_CHARACTERS

    async def _room(self) -> None:
        room = asyncio.Event()
        with self._lock:
            self._waiting.append((asyncio.get_running_loop(), room))
        self._said()
        await room.wait()

    def take(self) -> list[Entry]:
        """All that was said since the last call, in order; a Message is kept for `answer`."""
        with self._lock:
            entries, self._entries, self._size = self._entries, [], 0
            waiting, self._waiting = self._waiting, []
        for loop, room in waiting:
            with contextlib.suppress(RuntimeError):  # its loop has closed
                loop.call_soon_threadsafe(room.set)
        return entries

    def answer(self) -> list[Entry]:
        """The one Message, if that is what was said."""
        return self._answer

    def close(self) -> None:
        """From now on what is said is not heard."""
        self._closed = True
        self.take()

"""Server-Sent Events by a Channels consumer: framing, heartbeat, resume (A2A 11.7; DESIGN 4)."""

import asyncio
import math
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, Protocol

from channels.consumer import AsyncConsumer
from channels.exceptions import StopConsumer
from django.http import HttpResponse

from a2a_django import draining
from a2a_django.bindings import faults
from a2a_django.bindings.handover import Handover, Send
from a2a_django.operations import Stream
from a2a_django.protocol import errors
from a2a_django.settings import a2a_settings

HEADERS = {"Cache-Control": "no-cache, no-store", "X-Accel-Buffering": "no"}  # nginx must not gather events
HEARTBEAT = b": still here\n\n"
WRITE = 2**16  # characters, or the one event that is longer


class View(Protocol):
    """What a stream needs of the view that it answers for."""

    def wrap(self, text: str) -> str:
        """The data of an event from a StreamResponse's JSON text."""

    def error_text(self, error: errors.A2AError) -> str:
        """The data of an `error` event."""

    def extension_headers(self) -> dict[str, str]:
        """The headers that name the extensions which take part."""

    def handle_exception(self, error: Exception) -> HttpResponse:
        """The plain response for an error before the first event."""


class EventStream(AsyncConsumer):
    """Sends what a Stream yields until it ends or the client goes; the follow-up of a streaming view."""

    channel_layer_alias = None  # type: ignore[assignment]  # readers are rung by the doorbell

    def __init__(self, stream: Stream, view: View) -> None:
        self.stream, self.view = stream, view
        self.begun = False

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Writes and listens for the client's leaving, whichever ends first."""
        writing = asyncio.create_task(self.write(scope["a2a_django"], send))
        listening = asyncio.create_task(super().__call__(scope, receive, send))
        try:
            await asyncio.wait({writing, listening}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:  # the server stops, and daphne lets nobody wait
            writing.cancel()
            await self.break_off(scope["a2a_django"], send)
            raise
        finally:
            for task in (writing, listening):
                task.cancel()
            await asyncio.gather(writing, listening, return_exceptions=True)
            self.stream.ear.close()

    async def dispatch(self, message: dict[str, Any]) -> None:
        """Channels' own would send every message through one thread of the process, for the database's sake."""
        if message["type"] == "http.disconnect":
            raise StopConsumer

    async def write(self, handover: Handover, send: Send) -> None:
        """The whole response; an error before the first event is a plain one (A2A 11.6)."""
        try:
            await self.stream.first()
        except Exception as error:
            return await handover.send(self.view.handle_exception(error), send)
        await send(handover.start("text/event-stream", headers=HEADERS | self.view.extension_headers()))
        # Daphne keeps the headers back until there is a body, and a resumed stream may have none for a while.
        await send({"type": "http.response.body", "body": b"", "more_body": True})
        self.begun = True
        async for chunk in self._chunks():
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def break_off(self, handover: Handover, send: Send) -> None:
        """A clean end between two events: the client comes again."""
        if self.begun:
            await send({"type": "http.response.body", "body": b""})
        else:
            await handover.send(self.view.handle_exception(draining.refusal()), send)

    async def _chunks(self) -> AsyncIterator[bytes]:
        left = a2a_settings.STREAM_MAX_BYTES or math.inf
        try:
            async for items in self.stream.items():
                for chunk in self._frames(items) if items else (HEARTBEAT,):
                    yield chunk
                    left -= len(chunk)
                    if left <= 0:
                        return
        except Exception as error:
            yield self._error(faults.as_a2a(error, "A stream"))

    def _frames(self, items: Sequence[tuple[int, str]]) -> Iterator[bytes]:
        """The events, as many at a time as one write should hold."""
        frames, size = [], 0
        for sequence, text in items:
            frames.append(f"id: {sequence}\ndata: {self.view.wrap(text)}\n\n")
            size += len(text)
            if size >= WRITE:
                yield "".join(frames).encode()
                frames, size = [], 0
        if frames:
            yield "".join(frames).encode()

    def _error(self, error: errors.A2AError) -> bytes:
        return f"event: error\ndata: {self.view.error_text(error)}\n\n".encode()

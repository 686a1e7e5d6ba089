"""A view hands its request over: what waits or streams runs when Django has let the request go (DESIGN 2)."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import Any

from django.http import HttpRequest, HttpResponse

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

# On the empty response that isn't sent: a middleware that answers otherwise leaves it out.
MARK = "x-a2a-handed-over"
# What Django and the middleware say of that response alone.
NOT_OURS = {b"content-length", b"content-type", b"content-encoding", b"transfer-encoding", b"etag", MARK.encode()}


FollowUp = Callable[[Any, Receive, Send], Awaitable[None]]
"""The ASGI application that runs instead of the response which a view has returned."""


class Handover:
    """Stands in `scope["a2a_django"]` for as long as Django has the request."""

    def __init__(self) -> None:
        self.follow_up: FollowUp | None = None
        self.headers: list[tuple[bytes, bytes]] = []
        self.left = False  # whether the client has gone already
        self.arrived = time.monotonic()

    def listen(self, receive: Receive) -> Receive:
        """A `receive` that notes the client's leaving: servers may tell it once, and here Django hears it."""

        async def listening() -> Message:
            message = await receive()
            self.left = self.left or message["type"] == "http.disconnect"
            return message

        return listening

    def filter(self, send: Send) -> Send:
        """A `send` that keeps back the response of a view that has handed its request over."""

        async def filtered(message: Message) -> None:
            if self.follow_up is None:
                await send(message)
            elif message["type"] == "http.response.start":
                names = {pair[0].lower() for pair in message["headers"]}
                if message["status"] == 200 and MARK.encode() in names:
                    self.headers = [pair for pair in message["headers"] if pair[0].lower() not in NOT_OURS]
                else:  # a middleware has overruled the view
                    self.follow_up = None
                    await send(message)

        return filtered

    def start(self, content_type: str, status: int = 200, headers: dict[str, str] | None = None) -> Message:
        """The start of the response that is sent after all, with the headers of Django and the middleware."""
        own = {"Content-Type": content_type, **(headers or {})}
        names = {name.lower().encode() for name in own}
        kept = [pair for pair in self.headers if pair[0].lower() not in names]
        ours = [(name.lower().encode(), value.encode("latin-1")) for name, value in own.items()]
        return {"type": "http.response.start", "status": status, "headers": kept + ours}

    async def send(self, response: HttpResponse, send: Send) -> None:
        """Sends `response` whole."""
        headers = {name: value for name, value in response.items() if name != "Content-Type"}
        headers["Content-Length"] = str(len(response.content))
        await send(self.start(response["Content-Type"], response.status_code, headers))
        await send({"type": "http.response.body", "body": response.content})


def available(request: HttpRequest) -> Handover | None:
    """Where the follow-up of `request` goes; None under WSGI or without `with_streaming`."""
    handover: Handover | None = getattr(request, "scope", {}).get("a2a_django")
    return handover


def hand_over(handover: Handover, follow_up: FollowUp) -> HttpResponse:
    """Leaves `follow_up`; the response returned here is what Django and the middleware see."""
    handover.follow_up = follow_up
    return HttpResponse(headers={"Cache-Control": "no-store", MARK: "1"})


def answer_later(respond: Callable[[], Awaitable[HttpResponse]], refuse: Callable[[], HttpResponse]) -> FollowUp:
    """A follow-up that sends what `respond()` returns, unless the client goes away before.

    A server that stops cancels it; then it sends what `refuse()` returns, at once: daphne lets nobody wait.
    """

    async def follow_up(scope: Any, receive: Receive, send: Send) -> None:
        answering = asyncio.ensure_future(respond())
        leaving = asyncio.ensure_future(disconnect(receive))
        try:
            await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await scope["a2a_django"].send(refuse(), send)
            raise
        else:
            if answering.done():
                await scope["a2a_django"].send(answering.result(), send)
        finally:
            for task in (answering, leaving):
                task.cancel()
            await asyncio.gather(answering, leaving, return_exceptions=True)

    return follow_up


async def disconnect(receive: Receive) -> None:
    """Returns when the client has gone."""
    with contextlib.suppress(asyncio.CancelledError):
        while (await receive())["type"] != "http.disconnect":
            pass

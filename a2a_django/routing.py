"""`with_streaming`: lets a view hand its request over to what streams or waits (DESIGN 2)."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, cast
from urllib.parse import quote

from django.core.exceptions import RequestAborted
from django.core.handlers.asgi import ASGIHandler, get_script_prefix
from django.core.signals import request_started
from django.http.response import HttpResponseBase
from django.urls import set_script_prefix

from a2a_django import database
from a2a_django.bindings import refusals
from a2a_django.bindings.handover import Handover, Receive, Send
from a2a_django.settings import a2a_settings

_ASCII = bytes(range(0x21, 0x7F))  # Django answers other bytes in a query string with a page of its own
Application = Callable[[Any, Receive, Send], Awaitable[None]]


def with_streaming(application: Application) -> Application:
    """The site's ASGI application, with A2A streams: `application = with_streaming(get_asgi_application())`."""
    answer: Any = OneHopHandler() if type(application) is ASGIHandler else application

    async def with_follow_up(scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or a2a_settings.PATH not in scope["path"]:
            return await application(scope, receive, send)
        scope = {**scope, "query_string": quote(scope.get("query_string", b""), safe=_ASCII).encode()}
        handover = scope["a2a_django"] = Handover()
        await answer(scope, handover.listen(receive), handover.filter(send))
        if handover.follow_up is not None and not handover.left:
            await handover.follow_up(scope, receive, send)

    return with_follow_up


class OneHopHandler(ASGIHandler):
    """Django's handler, with signals, middleware and view in one call, in a thread that keeps its connection.

    Django's own goes to a thread and back for each of them, a dozen times with the middleware of `startproject`,
    which is a third of what an A2A request costs.
    """

    def load_middleware(self, is_async: bool = False) -> None:
        """The chain for sync views, whatever the caller is."""
        super().load_middleware(is_async=False)

    async def handle(self, scope: Any, receive: Any, send: Any) -> None:
        """Answers one request; a client's leaving is for the follow-up to hear."""
        try:
            body = await self.read_body(receive)
        except RequestAborted:
            return
        response = await database.requests.run_for_request(partial(self._respond, scope, body))
        await self.send_response(response, send)
        if response.streaming:  # a middleware's: the view has none
            await database.requests.run_for_request(response.close)

    def _respond(self, scope: Any, body: Any) -> HttpResponseBase:
        set_script_prefix(get_script_prefix(scope))
        request_started.send(sender=self.__class__, scope=scope)
        request, refusal = self.create_request(scope, body)
        response: Any = self.get_response(request) if request is not None else refusal
        if request is not None:
            refusals.restate(request, response)
        response._handler_class = self.__class__
        if not response.streaming:
            database.keep_connections()  # `request_finished` would close those that were opened just now
            response.close()
            body.close()
        return cast(HttpResponseBase, response)

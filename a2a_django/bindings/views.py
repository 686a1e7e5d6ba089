"""The DRF view of all bindings: checks and database work in one go, waiting after the hand-over."""

import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, cast

from asgiref.sync import async_to_sync
from django.db import DataError
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from rest_framework import exceptions
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.parsers import BaseParser
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from a2a_django import audit, draining, throttling
from a2a_django.agents import card
from a2a_django.bindings import admission, faults, handover
from a2a_django.bindings import caller as callers
from a2a_django.bindings.refusals import Restating
from a2a_django.bindings.streaming import EventStream
from a2a_django.doorbell import Ear
from a2a_django.models import Agent, Caller
from a2a_django.models.access_token import FORMAT
from a2a_django.operations import Stream
from a2a_django.protocol import errors, versions
from a2a_django.settings import a2a_settings

Waiting = Callable[[], Awaitable[str]]
Outcome = str | Waiting | Stream | HttpResponse

JSON_TYPES = ("application/json", "application/a2a+json")


class Unread(BaseParser):
    """Leaves the body alone, which is read raw: DRF sees none in a chunked request. A CSRF check asks for a form."""

    media_type = "*/*"

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> dict[str, Any]:
        """Nothing."""
        return {}


class AnyAccept(BaseContentNegotiation):
    """The bindings answer in one format, whatever Accept and `?format=` say (A2A 11.1, 11.5)."""

    def select_parser(self, request: Request, parsers: Any) -> Any:
        """The one that there is."""
        return parsers[0]

    def select_renderer(self, request: Request, renderers: Any, format_suffix: str | None = None) -> Any:
        """The one that there is."""
        return renderers[0], renderers[0].media_type


class A2AView(Restating, APIView):
    """Answers for one agent; a subclass says how `handle` answers and how errors look.

    Authenticators, permissions and throttles come from the `A2A` settings, never from REST_FRAMEWORK.
    """

    renderer_classes = (JSONRenderer,)
    parser_classes = (Unread,)
    content_negotiation_class = AnyAccept
    versioning_class = None
    metadata_class = None
    throttle_scope = "a2a"
    size = 0  # bytes of the body, once it is read
    ear: Ear
    caller: Caller | None = None  # once it is known
    arrived: float | None = None  # by time.monotonic(), where that is known

    # --- what DRF asks for

    def get_authenticators(self) -> list[Any]:
        return [authenticator() for authenticator in a2a_settings.load("AUTHENTICATION_CLASSES")]

    def get_permissions(self) -> list[Any]:
        return [permission() for permission in a2a_settings.load("PERMISSION_CLASSES")]

    def check_permissions(self, request: Request) -> None:
        """As DRF does, but one that has no words for its refusal is named."""
        for permission in self.get_permissions():
            if not permission.has_permission(request, self):
                message = getattr(permission, "message", None) or f"Permission denied by {type(permission).__name__}"
                self.permission_denied(request, message, getattr(permission, "code", None))

    def get_throttles(self) -> list[Any]:
        return [throttle() for throttle in a2a_settings.load("THROTTLE_CLASSES")]

    def perform_authentication(self, request: Request) -> None:
        if request.authenticators:
            throttling.FailureThrottle().check(request)
        try:
            super().perform_authentication(request)
        except DataError as error:  # PostgreSQL won't even look for a name or a session with a NUL
            raise exceptions.AuthenticationFailed from error

    def get_exception_handler(self) -> Callable[[Exception, Mapping[str, Any]], HttpResponse]:
        return self._show_exception

    def shown(self, error: Exception) -> errors.A2AError:
        """`error` as the client may see it; one more failure of its address if its credentials were wrong."""
        shown = faults.as_a2a(error, type(self).__name__)
        if isinstance(error, exceptions.AuthenticationFailed):
            throttling.FailureThrottle().note(self.request)
            self._note("authentication.failed")
        elif isinstance(shown, errors.PermissionDeniedError):
            self._note("access.denied", reason=shown.message)
        return shown

    def _note(self, event: str, **facts: Any) -> None:
        """A refusal, for the audit; it may come before anything is known of the caller."""
        request, agent = self.request, self.caller.agent.slug if self.caller else self.kwargs.get("agent")
        token = FORMAT.search(request.headers.get("Authorization", ""))
        address = throttling.address(request) or request.META.get("REMOTE_ADDR")
        user = getattr(getattr(request, "_user", None), "pk", None)  # not `user`, which may fail once more
        named = {"agent": agent, "user": user, "token": token and token[1], "address": address}
        audit.note(event, denied=True, **named, **facts)

    def _show_exception(self, error: Exception, context: Mapping[str, Any]) -> HttpResponse:
        shown = self.shown(error)
        response = self._response(self.error_text(shown), "application/json", self.error_status(shown))
        for name, value in self.error_headers(shown).items():
            response[name] = value
        if isinstance(shown, errors.MethodNotAllowedError):
            response["Allow"] = ", ".join(self.allowed_methods)
        return response

    def error_headers(self, shown: errors.A2AError) -> dict[str, str]:
        """What the client is told besides: how to authenticate, when to come again."""
        headers = {}
        if isinstance(shown, errors.UnauthenticatedError):
            headers["WWW-Authenticate"] = self._challenge()
        if isinstance(shown, errors.PermissionDeniedError) and (scope := (shown.data or {}).get("scope")):
            headers["WWW-Authenticate"] = f'Bearer error="insufficient_scope", scope="{scope}"'
        if (seconds := errors.retry_after(shown)) is not None:
            headers["Retry-After"] = str(seconds)
        return headers

    def _challenge(self) -> str:
        """How callers may authenticate: what the authenticators say of the schemes that the card declares."""
        declared = card.challenges(self._agent())
        said = (each.authenticate_header(self.request) for each in self.get_authenticators())
        known = {scheme.lower() for scheme in declared}
        fitting = [header for header in said if header and header.split()[0].lower() in known]
        return ", ".join(dict.fromkeys(fitting or declared))

    def _agent(self) -> Agent | None:
        """The agent in the path; authentication fails before it is looked for."""
        try:
            return self.caller.agent if self.caller else callers.agent(self.kwargs["agent"])
        except (KeyError, errors.NotFoundError):
            return None

    @property
    def default_response_headers(self) -> dict[str, str]:
        return {}

    # --- the request's way

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """All that is synchronous, here and now; what is to be waited for is handed over."""
        self.args, self.kwargs, self.headers = args, kwargs, {}
        request.encoding = "utf-8"  # a charset in Content-Type would decode the query, by any of Python's codecs
        self.ear = Ear()
        self.request = self.initialize_request(request, *args, **kwargs)
        free = handover.available(request)
        self.arrived = free.arrived if free else None
        try:
            self.initial(self.request, *args, **kwargs)
            if self.request.method not in self.allowed_methods:
                raise exceptions.MethodNotAllowed(self.request.method or "")
            response = self._conclude(self.handle())
        except Exception as error:
            self.ear.close()
            response = self.handle_exception(error)
        return self.finalize_response(self.request, cast(Response, response), *args, **kwargs)

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Refuses what has waited too long for a thread, before anything is done for it; then as DRF does."""
        patience = a2a_settings.REQUEST_WAIT_SECONDS
        if patience and self.arrived and time.monotonic() - self.arrived > patience:
            raise errors.UnavailableError("The server is overloaded, try again later")
        super().initial(request, *args, **kwargs)

    def _conclude(self, outcome: Outcome) -> HttpResponse:
        """The response, or an empty one when the rest has been handed over."""
        if isinstance(outcome, HttpResponse | str):
            self.ear.close()
            return outcome if isinstance(outcome, HttpResponse) else self.answer(outcome)
        if isinstance(outcome, Stream):
            return handover.hand_over(self._handover(), EventStream(outcome, self))
        free, respond = handover.available(self.request._request), partial(self._respond, outcome)
        if free is None:
            return async_to_sync(respond)()
        refuse = partial(self.handle_exception, draining.refusal())
        return handover.hand_over(free, handover.answer_later(respond, refuse))

    def check_can_stream(self) -> None:
        """UnsupportedOperationError where nothing could carry a stream; before anything is stored."""
        self._handover()

    def _handover(self) -> handover.Handover:
        free = handover.available(self.request._request)
        if free is None:
            raise errors.UnsupportedOperationError(
                "This site can't stream: it is served by WSGI, or its asgi.py lacks a2a_django.routing.with_streaming"
            )
        return free

    async def _respond(self, waiting: Waiting) -> HttpResponse:
        try:
            return self.answer(await waiting())
        except Exception as error:
            return cast(HttpResponse, self.handle_exception(error))
        finally:
            self.ear.close()

    def handle(self) -> Outcome:
        """Does the operation, for what `self.kwargs` has of the path."""
        raise NotImplementedError

    # --- bodies

    def body(self) -> bytes:
        """The raw body whatever its framing; PayloadTooLargeError beyond what the site or the tenant takes."""
        limit = admission.max_body(self.caller)
        raw: bytes = self.request._request.read(limit + 1)
        self.size = len(raw)
        if self.size > limit:
            raise admission.too_large(limit)
        return raw

    def enter(self, caller: Caller, tenant: str) -> Caller:
        """`caller`, in the tenant that the body names; nothing is done for it before."""
        return callers.within(self.request, caller, tenant, self.size)

    def check_content_type(self) -> None:
        """ContentTypeNotSupportedError for a body that doesn't call itself JSON (A2A 11.1)."""
        content_type = self.request._request.content_type or ""
        if content_type and content_type not in JSON_TYPES:
            raise errors.ContentTypeNotSupportedError(f"Send the body as {JSON_TYPES[1]}, not as {content_type}")

    # --- answers, as the binding shows them

    content_type = "application/json"

    def wrap(self, text: str) -> str:
        """The JSON text of an answer or a stream's event from that of the operation."""
        return text

    def error_status(self, error: errors.A2AError) -> int:
        """The HTTP status of an error."""
        return errors.rendering(error).http

    def answer(self, text: str) -> HttpResponse:
        """The response to an operation that has brought forth `text`."""
        response = self._response(self.wrap(text), self.content_type)
        for name, value in self.extension_headers().items():
            response[name] = value
        return response

    def extension_headers(self) -> dict[str, str]:
        """The headers of an answer that name the extensions which take part (A2A 4.6)."""
        return versions.tell(self.caller.activated, self.caller.version) if self.caller else {}

    def _response(self, text: str, content_type: str, status: int = 200) -> HttpResponse:
        return HttpResponse(text, content_type=content_type, status=status, headers={"Cache-Control": "no-store"})

"""gRPC: the a2a-sdk's servicers over the operations, with the site's own authentication (A2A 10)."""

import re
import time
from collections.abc import Iterator
from io import BytesIO
from typing import Any, TypeAlias, TypeVar
from urllib.parse import unquote, urlsplit

import grpc
from a2a.compat.v0_3.grpc_handler import CompatGrpcHandler
from a2a.server.context import ServerCallContext
from a2a.server.request_handlers.grpc_handler import GrpcHandler, GrpcServerCallContextBuilder
from a2a.types.a2a_pb2 import DESCRIPTOR
from django.core.handlers.asgi import ASGIRequest
from google.protobuf import json_format
from google.protobuf.message import Message as ProtoMessage
from google.rpc import status_pb2

from a2a_django.agents import card
from a2a_django.bindings import caller as callers
from a2a_django.bindings import cards, sdk, views
from a2a_django.models import Caller
from a2a_django.protocol import errors, versions, wire
from a2a_django.settings import a2a_settings

SERVICE = DESCRIPTOR.services_by_name["A2AService"].full_name
Proto = TypeVar("Proto", bound=ProtoMessage)
Metadata = tuple[tuple[str, str | bytes], ...]
Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"

_TENANT = re.compile(r"(?:([-\w]+)(?:/([-\w]+))?)?")
MAX_STATUS, MAX_MESSAGE = 3000, 1000  # bytes: both get longer on their way, and clients refuse trailers beyond 8 KB


class Call(views.A2AView):
    """One call, as a view's request: authenticators, permissions and throttles are those of HTTP."""

    def __init__(self, context: Context, version: str) -> None:
        super().__init__()
        self.context, self.version, self.arrived = context, version, time.monotonic()

    def identify(self, tenant: str, size: int) -> Caller:
        """The caller of the agent that `tenant` names as `<agent>` or `<agent>/<tenant>`, else of the default one."""
        self.size = size
        named = _TENANT.fullmatch(tenant)
        if named is None:
            raise errors.NotFoundError("There is no such agent: the tenant is <agent> or <agent>/<tenant>")
        self.args, self.kwargs = (), {"agent": named[1], "tenant": named[2]} if named[1] else {}
        self.request = self.initialize_request(ASGIRequest(_scope(self.context), BytesIO()))
        self.initial(self.request, **self.kwargs)
        agent = callers.agent(named[1]) if named[1] else callers.default_agent()
        self.caller = callers.caller(self.request, agent, named[2] or "", self.version)
        return self.enter(self.caller, "")

    def urls(self, caller: Caller) -> card.Urls:
        """Those of HTTP only if the settings tell them: a gRPC call doesn't come to the web's host."""
        if not a2a_settings.BASE_URL:
            return card.Urls(grpc=a2a_settings.GRPC_URL)
        return cards.urls(self.request, caller.agent)

    async def begin(self) -> None:
        """Tells in initial metadata which extensions take part (A2A 4.6)."""
        if headers := self.extension_headers():
            await self.context.send_initial_metadata(_metadata(headers))

    def shown(self, error: Exception) -> errors.A2AError:
        """`error` as the client may see it; what HTTP puts into headers goes into trailing metadata."""
        shown = super().shown(error)
        self.context.set_trailing_metadata(_metadata(self.error_headers(shown)))
        return shown


def _metadata(headers: dict[str, str]) -> Metadata:
    return tuple((name.lower(), value) for name, value in headers.items())


class Calls(GrpcServerCallContextBuilder):
    """Makes the SDK's context of a call to the service of A2A `version`."""

    def __init__(self, version: str) -> None:
        self._version = version

    def build(self, context: Context) -> ServerCallContext:
        return ServerCallContext(state={sdk.CALL: Call(context, self._version)})


# --- the call as an HTTP request


def _scope(context: Context) -> dict[str, Any]:
    """The ASGI scope of a POST with the call's metadata for headers; binary metadata is left out."""
    encrypted = b"ssl" in context.auth_context().get("transport_security_type", ())
    said = [(name, value) for name, value in context.invocation_metadata() or () if isinstance(value, str)]
    if a2a_settings.BASE_URL:  # gRPC doesn't tell the host that was called
        said.append(("host", urlsplit(a2a_settings.BASE_URL).netloc))
    return {
        "type": "http",
        "http_version": "2",
        "method": "POST",
        "scheme": "https" if encrypted else "http",
        "path": f"/{SERVICE}",
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in said],
        "client": _address(context.peer()),
    }


def _address(peer: str) -> list[Any] | None:
    """Host and port of `ipv4:127.0.0.1:80` or `ipv6:[::1]:80`; None for a Unix socket."""
    kind, _, rest = unquote(peer).partition(":")
    host, _, port = rest.rpartition(":")
    return [host.strip("[]"), int(port)] if kind in ("ipv4", "ipv6") else None


# --- errors


async def abort(context: Context, error: errors.A2AError, prefix: str = "") -> None:
    """Ends the call with `error` as google.rpc.Status (A2A 10.6)."""
    code = grpc.StatusCode[errors.rendering(error).grpc]
    message = (prefix + error.message).encode()[:MAX_MESSAGE].decode(errors="ignore")
    status = _status(code, message, errors.details(error))
    trailing: Metadata = (*(context.trailing_metadata() or ()), ("grpc-status-details-bin", status.SerializeToString()))
    context.set_trailing_metadata(trailing)
    await context.abort(code, message)


def _status(code: grpc.StatusCode, message: str, details: list[dict[str, Any]]) -> status_pb2.Status:
    """The status, with as much of the details as fits."""
    for some in _shorter_and_shorter(details):
        status = status_pb2.Status(code=code.value[0], message=message)
        for detail in some:  # of types that the SDK's handlers have imported
            json_format.ParseDict(detail, status.details.add())
        if status.ByteSize() <= MAX_STATUS:
            break
    return status


def _shorter_and_shorter(details: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    info, *rest = details
    yield details
    violations = rest[0].get("fieldViolations", []) if rest else []
    while len(violations) > 1:
        violations = violations[: len(violations) // 2]
        yield [info, {**rest[0], "fieldViolations": violations}]
    yield [{**info, "metadata": {}}]


class Handler(GrpcHandler):
    """The service of A2A 1.0."""

    async def abort_context(self, error: errors.A2AError, context: Context) -> None:
        await abort(context, error)


class LegacyHandler(CompatGrpcHandler):
    """The service of A2A 0.3, whose requests name no tenant: it serves the default agent."""

    async def abort_context(self, error: errors.A2AError, context: Context) -> None:
        await abort(context, error, f"{errors.kind(error).__name__}: ")  # that is where its clients look

    # The SDK converts these before an operation can check them.

    async def SendMessage(self, request: Any, context: Context) -> Any:  # noqa: N802
        return await super().SendMessage(await self._checked(request, context), context)

    async def SendStreamingMessage(self, request: Any, context: Context) -> Any:  # noqa: N802
        async for event in super().SendStreamingMessage(await self._checked(request, context), context):
            yield event

    async def CreateTaskPushNotificationConfig(self, request: Any, context: Context) -> Any:  # noqa: N802
        return await super().CreateTaskPushNotificationConfig(await self._checked(request, context), context)

    async def _checked(self, request: Proto, context: Context) -> Proto:
        try:
            return wire.checked(request)
        except errors.A2AError as error:
            await self.abort_context(error, context)
            raise


def handler() -> Handler:
    """The servicer of A2A 1.0."""
    return Handler(sdk.Operations(), Calls(versions.CURRENT))


def legacy_handler() -> LegacyHandler:
    """The servicer of A2A 0.3."""
    return LegacyHandler(sdk.Operations(), Calls(versions.LEGACY))

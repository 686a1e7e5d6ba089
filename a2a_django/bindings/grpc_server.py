"""The gRPC server: services, health, reflection, TLS, and how it stops (A2A 10.1)."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple, cast

import grpc
from a2a.compat.v0_3 import a2a_v0_3_pb2, a2a_v0_3_pb2_grpc
from a2a.types import a2a_pb2, a2a_pb2_grpc
from google.protobuf.message import DecodeError
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from a2a_django import accidents
from a2a_django.bindings import grpc as binding
from a2a_django.bindings.grpc import Context
from a2a_django.protocol import errors
from a2a_django.settings import a2a_settings

log = logging.getLogger(__name__)

CURRENT = a2a_pb2.DESCRIPTOR.services_by_name["A2AService"].full_name
LEGACY = a2a_v0_3_pb2.DESCRIPTOR.services_by_name["A2AService"].full_name
METADATA = 16 * 2**10  # bytes of a call's metadata: tokens may be longer than the 8 KB which gRPC takes by itself
LAST = 2.0  # seconds that calls have to end in when the grace is over


class Tls(NamedTuple):
    """PEM texts; with `client_ca` only clients that have a certificate of that authority may connect."""

    certificate: bytes
    key: bytes
    client_ca: bytes | None = None


class Server:
    """A server for all agents of this site, in the running event loop."""

    def __init__(self) -> None:
        self._guard, self._health = Guard(), health.aio.HealthServicer()
        self._server = grpc.aio.server(interceptors=[self._guard], options=list(_options()))
        self._services = [CURRENT]
        a2a_pb2_grpc.add_A2AServiceServicer_to_server(binding.handler(), self._server)  # type: ignore[no-untyped-call]
        if a2a_settings.ENABLE_V0_3:
            self._services.append(LEGACY)
            a2a_v0_3_pb2_grpc.add_A2AServiceServicer_to_server(binding.legacy_handler(), self._server)  # type: ignore[no-untyped-call]
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        names = (*self._services, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, self._server)

    def listen(self, address: str, tls: Tls | None = None) -> int:
        """The port, chosen by the system for `host:0`; RuntimeError if it can't be had."""
        if tls is None:
            return self._server.add_insecure_port(address)
        asks = tls.client_ca is not None
        credentials = grpc.ssl_server_credentials([(tls.key, tls.certificate)], tls.client_ca, asks)
        return self._server.add_secure_port(address, credentials)

    async def start(self) -> None:
        """Takes calls from now on."""
        await self._server.start()
        for service in ("", *self._services):
            await self._health.set(service, health_pb2.HealthCheckResponse.SERVING)

    async def stop(self, grace: float) -> None:
        """Takes no more calls; those that run have `grace` seconds to end in, and then end as UNAVAILABLE."""
        await self._health.enter_graceful_shutdown()
        refusing = asyncio.create_task(self._server.stop(grace + LAST))
        await self._guard.drain(grace)
        await self._server.stop(0)  # who watches our health would stay
        await refusing


def _options() -> list[tuple[str, Any]]:
    return [
        ("grpc.max_receive_message_length", a2a_settings.MAX_BODY_BYTES),
        ("grpc.max_metadata_size", METADATA),
        ("grpc.absolute_max_metadata_size", 2 * METADATA),
        # What the heartbeat is for streams of HTTP: proxies keep the connection, and one that is dead gets noticed.
        ("grpc.keepalive_time_ms", int(a2a_settings.HEARTBEAT_SECONDS * 1000)),
        # Clients may do the same: by itself gRPC hangs up on who asks more than every five minutes in a silent stream.
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 5000),
    ]


class Guard(grpc.aio.ServerInterceptor):
    """Around every call: no text of an unexpected exception reaches a client, and a stop ends what still runs."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()
        self._stopping = False

    async def drain(self, grace: float) -> None:
        """Waits for the calls that run; after `grace` seconds it ends them."""
        if self._running:
            await asyncio.wait(self._running.copy(), timeout=grace)
        self._stopping = True
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(self._running.copy(), timeout=LAST)

    async def intercept_service(self, continuation: Callable[..., Awaitable[Any]], details: Any) -> Any:
        """The method's handler; those of our own services guarded."""
        handler = await continuation(details)
        if handler is None or details.method.split("/")[1] not in (CURRENT, LEGACY):
            return handler
        decode, encode = _decoder(handler.request_deserializer), handler.response_serializer
        if handler.response_streaming:
            return grpc.unary_stream_rpc_method_handler(self._stream(handler.unary_stream), decode, encode)
        return grpc.unary_unary_rpc_method_handler(self._unary(handler.unary_unary), decode, encode)

    def _unary(self, behaviour: Callable[[Any, Context], Awaitable[Any]]) -> Any:
        async def guarded(request: Any, context: Context) -> Any:
            async with self._guarded(request, context):
                return await behaviour(request, context)

        return guarded

    def _stream(self, behaviour: Callable[[Any, Context], Any]) -> Any:
        async def guarded(request: Any, context: Context) -> AsyncIterator[Any]:
            async with self._guarded(request, context), contextlib.aclosing(behaviour(request, context)) as items:
                async for item in items:
                    yield item

        return guarded

    @contextlib.asynccontextmanager
    async def _guarded(self, request: Any, context: Context) -> AsyncIterator[None]:
        self._running.add(task := cast("asyncio.Task[Any]", asyncio.current_task()))
        try:
            if isinstance(request, Unreadable):
                await binding.abort(context, errors.InvalidRequestError("The request could not be read"))
            yield
        except grpc.aio.AbortError:
            raise
        except asyncio.CancelledError:
            if self._stopping:
                await binding.abort(context, errors.UnavailableError("The server is stopping, try again"))
            raise
        except Exception as error:
            log.error("A gRPC call failed: %s", accidents.place(error))
            await binding.abort(context, errors.InternalError())
        finally:
            self._running.discard(task)


class Unreadable:
    """A request that was no protobuf of its type."""


def _decoder(decode: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """`decode`, which gRPC would show the client the exception of."""

    def decoded(raw: bytes) -> Any:
        try:
            return decode(raw)
        except DecodeError:
            return Unreadable()

    return decoded

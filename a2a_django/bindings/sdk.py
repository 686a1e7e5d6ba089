"""The operations as the a2a-sdk's RequestHandler, for the bindings that the SDK's own handlers serve (DESIGN 3)."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from a2a.server.context import ServerCallContext
from a2a.server.events.event_queue import Event
from a2a.server.request_handlers.request_handler import RequestHandler
from a2a.types import (
    AgentCard,
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse,
    ListTasksRequest,
    ListTasksResponse,
    Message,
    SendMessageRequest,
    SendMessageResponse,
    StreamResponse,
    SubscribeToTaskRequest,
    Task,
    TaskPushNotificationConfig,
)
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import Message as ProtoMessage

from a2a_django import database, operations
from a2a_django.agents import card
from a2a_django.doorbell import Ear
from a2a_django.models import Caller
from a2a_django.protocol import codec, errors, wire

Proto = TypeVar("Proto", bound=ProtoMessage)
R = TypeVar("R")
Waiting = Callable[[], Awaitable[str]]
Operation = Callable[[Caller, Any, Ear], R]

LONG = 20_000  # characters; to read so many takes longer than other calls should wait for the loop


class Call(Protocol):
    """What the operations need to know of a call; in a ServerCallContext's state it stands as CALL."""

    def identify(self, tenant: str, size: int) -> Caller:
        """Who calls by a request of `size` bytes, in what its `tenant` names; in a thread of `database.requests`."""

    def urls(self, caller: Caller) -> card.Urls:
        """Where the caller finds the agent."""

    async def begin(self) -> None:
        """Called when there is an answer, or a stream's first event, before it is sent."""

    def shown(self, error: Exception) -> errors.A2AError:
        """`error` as the client may see it: never the text of an unexpected one."""


CALL = "a2a_django.call"


class Operations(RequestHandler):
    """Each method is one operation; whatever it raises is exactly one of the table's errors."""

    async def on_message_send(self, params: SendMessageRequest, context: ServerCallContext) -> Task | Message:
        answer = await _answer(operations.send_message, params, context, SendMessageResponse)
        return answer.task if answer.HasField("task") else answer.message

    async def on_message_send_stream(
        self, params: SendMessageRequest, context: ServerCallContext
    ) -> AsyncGenerator[Event]:
        async for event in _events(operations.send_streaming_message, params, context):
            yield event

    async def on_get_task(self, params: GetTaskRequest, context: ServerCallContext) -> Task:
        return await _answer(_deaf(operations.get_task), params, context, Task)

    async def on_list_tasks(self, params: ListTasksRequest, context: ServerCallContext) -> ListTasksResponse:
        return await _answer(_deaf(operations.list_tasks), params, context, ListTasksResponse)

    async def on_cancel_task(self, params: CancelTaskRequest, context: ServerCallContext) -> Task:
        return await _answer(operations.cancel_task, params, context, Task)

    async def on_subscribe_to_task(
        self, params: SubscribeToTaskRequest, context: ServerCallContext
    ) -> AsyncGenerator[Event]:
        async for event in _events(operations.subscribe_to_task, params, context):
            yield event

    async def on_create_task_push_notification_config(
        self, params: TaskPushNotificationConfig, context: ServerCallContext
    ) -> TaskPushNotificationConfig:
        return await _answer(_deaf(operations.create_push_config), params, context, TaskPushNotificationConfig)

    async def on_get_task_push_notification_config(
        self, params: GetTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> TaskPushNotificationConfig:
        return await _answer(_deaf(operations.get_push_config), params, context, TaskPushNotificationConfig)

    async def on_list_task_push_notification_configs(
        self, params: ListTaskPushNotificationConfigsRequest, context: ServerCallContext
    ) -> ListTaskPushNotificationConfigsResponse:
        kind = ListTaskPushNotificationConfigsResponse
        return await _answer(_deaf(operations.list_push_configs), params, context, kind)

    async def on_delete_task_push_notification_config(
        self, params: DeleteTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> None:
        await _answer(_deaf(operations.delete_push_config), params, context, Empty)

    async def on_get_extended_agent_card(
        self, params: GetExtendedAgentCardRequest, context: ServerCallContext
    ) -> AgentCard:
        def extended(caller: Caller, request: GetExtendedAgentCardRequest, ear: Ear) -> str:
            return operations.get_extended_agent_card(caller, request, _call(context).urls(caller))

        return await _answer(extended, params, context, AgentCard)


def _call(context: ServerCallContext) -> Call:
    call: Call = context.state[CALL]
    return call


def _deaf(operation: Callable[[Caller, Any], str]) -> Operation[str]:
    """An operation that waits for nothing, as one with an Ear."""
    return lambda caller, request, ear: operation(caller, request)


async def _answer(
    operation: Operation[str | Waiting], params: ProtoMessage, context: ServerCallContext, kind: type[Proto]
) -> Proto:
    """What the operation brings forth, waited for if need be, as a `kind`."""
    call, ear = _call(context), Ear()
    try:
        outcome = await database.requests.run(_start, operation, params, call, ear)
        with _shown(call):
            answer = await _read(outcome if isinstance(outcome, str) else await outcome(), kind)
            await call.begin()
            return answer
    finally:
        ear.close()


async def _events(
    operation: Operation[operations.Stream], params: ProtoMessage, context: ServerCallContext
) -> AsyncGenerator[Event]:
    """What the stream yields; a client that goes away ends it at whatever it waits for."""
    call, ear = _call(context), Ear()
    try:
        stream = await database.requests.run(_start, operation, params, call, ear)
        with _shown(call):
            await stream.first()
            await call.begin()
            async for items in stream.items():
                for _, text in items:
                    yield _event(await _read(text, StreamResponse))
    finally:
        ear.close()


def _start(operation: Operation[R], params: Any, call: Call, ear: Ear) -> R:
    """Authentication, checks and the operation, in one hop; the agent's part of the tenant ends here."""
    with _shown(call):
        caller = call.identify(params.tenant, params.ByteSize())
        params.tenant = caller.tenant.slug if caller.tenant else ""
        return operation(caller, wire.checked(params), ear)


@contextmanager
def _shown(call: Call) -> Iterator[None]:
    """Errors as the client may see them, each the very class of the table, which is what the SDK's handlers know."""
    try:
        yield
    except Exception as error:
        shown = call.shown(error)
        kind = errors.kind(shown)
        raise (shown if type(shown) is kind else kind(shown.message, shown.data)) from None


async def _read(text: str, kind: type[Proto]) -> Proto:
    if len(text) > LONG:
        return await database.requests.run(codec.read, text, kind)
    return codec.read(text, kind)


def _event(response: StreamResponse) -> Event:
    event: Event = getattr(response, response.WhichOneof("payload") or "task")
    return event

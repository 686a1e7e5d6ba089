"""JSON-RPC 2.0 on one URL for each agent (A2A 9)."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from a2a.types import (
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTasksRequest,
    SendMessageRequest,
    SubscribeToTaskRequest,
    TaskPushNotificationConfig,
)
from django.http import HttpResponse
from google.protobuf.message import Message as ProtoMessage

from a2a_django import operations
from a2a_django.bindings import caller as callers
from a2a_django.bindings import cards
from a2a_django.bindings.views import A2AView, Outcome
from a2a_django.models import Caller
from a2a_django.protocol import codec, errors, v0_3, values, versions

MAX_ID = 1000


def _as_it_is(text: str) -> str:
    return text


class Method(NamedTuple):
    """How a method's params become a request, what it does for the view's caller, and how it shows what came of it."""

    request: Callable[[dict[str, Any]], ProtoMessage]
    call: Callable[["JsonRpc", Caller, Any], Outcome]
    answer: Callable[[str], str] = _as_it_is
    version: str = versions.CURRENT


def _method(kind: type[ProtoMessage], call: Callable[["JsonRpc", Caller, Any], Outcome]) -> Method:
    return Method(partial(codec.to_proto, kind=kind), call)


class JsonRpc(A2AView):
    """`POST /a2a/<agent>`: errors are JSON-RPC's, with HTTP 200 but for what is about access and size."""

    id_text = "null"  # the JSON of the request's id, which the answer repeats
    method: Method | None = None

    @property
    def allowed_methods(self) -> list[str]:
        return ["POST"]

    def handle(self) -> Outcome:
        found = callers.agent(self.kwargs["agent"])
        self.check_content_type()
        call = codec.parse_json(self.body())
        self.id_text = _id_text(call)
        _check_envelope(call)
        if "id" not in call:  # a notification gets no answer, so it isn't executed either (DESIGN 6)
            return HttpResponse(status=204)
        self.method = method = METHODS.get(call["method"])
        spoken = method.version if method else None
        caller = self.caller = callers.caller(self.request, found, self.kwargs.get("tenant") or "", spoken)
        if method is None:
            raise errors.MethodNotFoundError(data={"method": call["method"][:100]})
        request = method.request(_params(call))
        return method.call(self, self.enter(caller, getattr(request, "tenant", "")), request)

    def wrap(self, text: str) -> str:
        answer = self.method.answer(text) if self.method else text
        return f'{{"jsonrpc":"2.0","id":{self.id_text},"result":{answer}}}'

    def error_text(self, error: errors.A2AError) -> str:
        shown = errors.jsonrpc_error(error)
        if self.method and self.method.version == versions.LEGACY and shown["code"] not in v0_3.CODES:
            shown["code"] = errors.rendering(errors.InternalError()).jsonrpc
        return f'{{"jsonrpc":"2.0","id":{self.id_text},"error":{codec.dumps(shown)}}}'

    def error_status(self, error: errors.A2AError) -> int:
        status = errors.rendering(error).http
        return status if status in (401, 403, 405, 413, 429, 503) or isinstance(error, errors.NotFoundError) else 200

    # --- the methods that need more than caller and params

    def stream(self, caller: Caller, request: SendMessageRequest) -> Outcome:
        """SendStreamingMessage."""
        self.check_can_stream()
        last = self.request.headers.get("Last-Event-ID")
        return operations.send_streaming_message(caller, request, self.ear, last)

    def subscribe(self, caller: Caller, request: SubscribeToTaskRequest) -> Outcome:
        """SubscribeToTask."""
        self.check_can_stream()
        last = self.request.headers.get("Last-Event-ID")
        return operations.subscribe_to_task(caller, request, self.ear, last)

    def extended_card(self, caller: Caller, request: GetExtendedAgentCardRequest) -> Outcome:
        """GetExtendedAgentCard."""
        urls = cards.urls(self.request, caller.agent)
        return operations.get_extended_agent_card(caller, request, urls)


def _id_text(call: Any) -> str:
    """The JSON of the request's id as the answer repeats it; `null` for one that is none."""
    identifier = call.get("id") if isinstance(call, dict) else None
    return codec.dumps(identifier) if _is_id(identifier) else "null"


def _is_id(identifier: Any) -> bool:
    if isinstance(identifier, str):  # it goes out with each event of a stream
        return len(identifier) <= MAX_ID and (values.flaw(identifier) == "" or "\0" in identifier)
    return identifier is None or type(identifier) is int


def _check_envelope(call: Any) -> None:
    """InvalidRequestError says what is wrong with the request object."""
    if isinstance(call, list):
        raise errors.InvalidRequestError("Batches are not supported, send one request at a time")
    if isinstance(call, values.Doubled):
        raise errors.InvalidRequestError(f"The request {call.WRONG}")
    if not isinstance(call, dict) or call.get("jsonrpc") != "2.0":
        raise errors.InvalidRequestError('A request is an object with "jsonrpc": "2.0"')
    if not isinstance(call.get("method"), str) or values.flaw(call["method"]):
        raise errors.InvalidRequestError("method must be a string")
    if not _is_id(call.get("id")):
        raise errors.InvalidRequestError(f"id must be a string of at most {MAX_ID} characters, an integer or null")


def _params(call: dict[str, Any]) -> Any:
    params = call.get("params")
    if params is None:
        return {}
    if not isinstance(params, dict | values.Doubled):
        raise errors.invalid_params(("params", "must be an object"))
    return params


METHODS = {
    "SendMessage": _method(
        SendMessageRequest, lambda v, caller, params: operations.send_message(caller, params, v.ear)
    ),
    "SendStreamingMessage": _method(SendMessageRequest, JsonRpc.stream),
    "GetTask": _method(GetTaskRequest, lambda v, caller, params: operations.get_task(caller, params)),
    "ListTasks": _method(ListTasksRequest, lambda v, caller, params: operations.list_tasks(caller, params)),
    "CancelTask": _method(CancelTaskRequest, lambda v, caller, params: operations.cancel_task(caller, params, v.ear)),
    "SubscribeToTask": _method(SubscribeToTaskRequest, JsonRpc.subscribe),
    "CreateTaskPushNotificationConfig": _method(
        TaskPushNotificationConfig, lambda v, caller, params: operations.create_push_config(caller, params)
    ),
    "GetTaskPushNotificationConfig": _method(
        GetTaskPushNotificationConfigRequest, lambda v, caller, params: operations.get_push_config(caller, params)
    ),
    "ListTaskPushNotificationConfigs": _method(
        ListTaskPushNotificationConfigsRequest, lambda v, caller, params: operations.list_push_configs(caller, params)
    ),
    "DeleteTaskPushNotificationConfig": _method(
        DeleteTaskPushNotificationConfigRequest, lambda v, caller, params: operations.delete_push_config(caller, params)
    ),
    "GetExtendedAgentCard": _method(GetExtendedAgentCardRequest, JsonRpc.extended_card),
}
METHODS |= {
    name: METHODS[old.successor]._replace(request=old.request, answer=old.answer, version=versions.LEGACY)
    for name, old in v0_3.METHODS.items()
}

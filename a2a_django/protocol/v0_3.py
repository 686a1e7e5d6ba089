"""A2A 0.3 as data: its requests as those of 1.0, and what the operations answer as its JSON.

The shapes and their conversion are the a2a-sdk's (a2a.compat.v0_3). JSON-RPC speaks its pydantic types,
REST its protos.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, NamedTuple, TypeVar

import pydantic
from a2a.compat.v0_3 import a2a_v0_3_pb2 as pb
from a2a.compat.v0_3 import conversions, proto_utils, types
from a2a.types import (
    AgentCard,
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse,
    SendMessageRequest,
    StreamResponse,
    SubscribeToTaskRequest,
    Task,
    TaskPushNotificationConfig,
)
from google.protobuf import json_format
from google.protobuf.message import Message as ProtoMessage

from a2a_django.protocol import codec, errors, values, wire

Proto = TypeVar("Proto", bound=ProtoMessage)
Event = types.Task | types.Message | types.TaskStatusUpdateEvent | types.TaskArtifactUpdateEvent

INTERRUPTED = (types.TaskState.input_required, types.TaskState.auth_required)
CODES = frozenset({-32700, -32600, -32601, -32602, -32603, *range(-32007, -32000), -32009})
"""The JSON-RPC error codes that its clients know, and the one for who asked for another version."""


class Method(NamedTuple):
    """A JSON-RPC method: the method of 1.0 that does it, its params as that one's, and the answer as its JSON."""

    successor: str
    request: Callable[[dict[str, Any]], ProtoMessage]
    answer: Callable[[str], str]


# --- requests


def send_message(params: dict[str, Any]) -> SendMessageRequest:
    """MessageSendParams."""
    return _send_message(_valid(types.MessageSendParams, params))


def _send_message(params: types.MessageSendParams) -> SendMessageRequest:
    request = types.SendMessageRequest(id=0, params=params)
    if violations := list(_standard_base64(params.message.parts)):
        raise errors.invalid_params(*violations)
    return _converted(lambda: conversions.to_core_send_message_request(request))


def _standard_base64(parts: list[types.Part]) -> Iterator[tuple[str, str]]:
    """Spells the files' bytes as the SDK's conversion reads them: it would leave out what it doesn't know."""
    for index, part in enumerate(parts):
        file = getattr(part.root, "file", None)
        if isinstance(file, types.FileWithBytes):
            yield from values.base64_bytes(file.bytes, f"message.parts[{index}].file.bytes")
            file.bytes = values.standard_base64(file.bytes)


def get_task(params: dict[str, Any]) -> GetTaskRequest:
    """TaskQueryParams; a history length of 0 meant all of it."""
    given = _valid(types.TaskQueryParams, params)
    return codec.to_proto({"id": given.id, "historyLength": given.history_length or None}, GetTaskRequest)


def cancel_task(params: dict[str, Any]) -> CancelTaskRequest:
    """TaskIdParams."""
    return codec.to_proto({"id": _valid(types.TaskIdParams, params).id}, CancelTaskRequest)


def subscribe_to_task(params: dict[str, Any]) -> SubscribeToTaskRequest:
    """TaskIdParams."""
    return codec.to_proto({"id": _valid(types.TaskIdParams, params).id}, SubscribeToTaskRequest)


def create_push_config(params: dict[str, Any]) -> TaskPushNotificationConfig:
    """TaskPushNotificationConfig."""
    given = _valid(types.TaskPushNotificationConfig, params)
    return _converted(lambda: conversions.to_core_task_push_notification_config(given))


def get_push_config(params: dict[str, Any]) -> GetTaskPushNotificationConfigRequest:
    """GetTaskPushNotificationConfigParams, whose config id may be missing."""
    task_id, config_id = _valid(types.TaskIdParams, params).id, params.get("pushNotificationConfigId") or ""
    if not isinstance(config_id, str):
        raise errors.invalid_params(("pushNotificationConfigId", "must be a string"))
    return GetTaskPushNotificationConfigRequest(task_id=task_id, id=config_id)


def list_push_configs(params: dict[str, Any]) -> ListTaskPushNotificationConfigsRequest:
    """ListTaskPushNotificationConfigParams."""
    return codec.to_proto({"taskId": _valid(types.TaskIdParams, params).id}, ListTaskPushNotificationConfigsRequest)


def delete_push_config(params: dict[str, Any]) -> DeleteTaskPushNotificationConfigRequest:
    """DeleteTaskPushNotificationConfigParams."""
    given = _valid(types.DeleteTaskPushNotificationConfigParams, params)
    data = {"taskId": given.id, "id": given.push_notification_config_id}
    return codec.to_proto(data, DeleteTaskPushNotificationConfigRequest)


def extended_card(params: dict[str, Any]) -> GetExtendedAgentCardRequest:
    """Nothing."""
    return GetExtendedAgentCardRequest()


Model = TypeVar("Model", bound=pydantic.BaseModel)


def _valid(model: type[Model], params: dict[str, Any]) -> Model:
    if unfit := list(islice(values.json_value(params, "params"), errors.MAX_VIOLATIONS)):
        raise errors.invalid_params(*unfit)
    try:
        return model.model_validate(params)
    except pydantic.ValidationError as error:
        found = error.errors(include_url=False, include_input=False, include_context=False)[: errors.MAX_VIOLATIONS]
        raise errors.invalid_params(*((_path(item["loc"]), item["msg"]) for item in found)) from None


def _path(location: tuple[str | int, ...]) -> str:
    """message.parts[0].text"""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return text.lstrip(".") or "params"


def _converted(convert: Callable[[], Proto]) -> Proto:
    """What `convert` makes, checked as strictly as a request of 1.0 is."""
    try:
        made = convert()
    except (ValueError, TypeError, KeyError, RecursionError, json_format.ParseError):  # of binascii and protobuf, too
        raise errors.invalid_params(("params", "are not those of A2A 0.3")) from None
    return wire.checked(made)


# --- requests of REST


def rest_send_message(data: Any) -> SendMessageRequest:
    """A SendMessageRequest, its message called `message` or `request`, or a bare Message."""
    bare = isinstance(data, dict) and {"content", "messageId", "message_id"} & data.keys()
    wrapped = {"message": data} if bare else data
    proto = codec.to_proto(wrapped, pb.SendMessageRequest)
    return _send_message(proto_utils.FromProto.message_send_params(proto))


def rest_create_push_config(data: Any, task_id: str) -> TaskPushNotificationConfig:
    """A CreateTaskPushNotificationConfigRequest, or the TaskPushNotificationConfig that it holds."""
    data = data if isinstance(data, dict) else {}
    given = data.get("config", data)
    holder = given if isinstance(given, dict) else {}
    found = holder.get("pushNotificationConfig") or holder.get("push_notification_config") or {}
    config = proto_utils.FromProto.push_notification_config(codec.to_proto(found, pb.PushNotificationConfig))
    config.id = config.id or data.get("configId") or data.get("config_id")
    whole = types.TaskPushNotificationConfig(task_id=task_id, push_notification_config=config)
    return _converted(lambda: conversions.to_core_task_push_notification_config(whole))


# --- answers


def event(text: str) -> str:
    """A StreamResponse, or what a send answers, as a Task, Message, status or artifact event."""
    return _dumped(_event(text))


def task(text: str) -> str:
    """A Task."""
    return _dumped(conversions.to_compat_task(codec.read(text, Task)))


def push_config(text: str) -> str:
    """A TaskPushNotificationConfig."""
    return _dumped(_push_config(codec.read(text, TaskPushNotificationConfig)))


def push_configs(text: str) -> str:
    """A list of them."""
    found = codec.read(text, ListTaskPushNotificationConfigsResponse).configs
    return f"[{','.join(_dumped(_push_config(config)) for config in found)}]"


def nothing(text: str) -> str:
    """null"""
    return "null"


def card(text: str) -> str:
    """An AgentCard; VersionNotSupportedError where the agent has no interface of this version."""
    return _dumped(conversions.to_compat_agent_card(codec.read(text, AgentCard)))


def card_fields(found: AgentCard) -> dict[str, Any]:
    """What clients of 0.3 read in a card, to be put beside what those of 1.0 do; none without such an interface."""
    try:
        legacy = conversions.to_compat_agent_card(found)
    except errors.VersionNotSupportedError:
        return {}
    return legacy.model_dump(mode="json", by_alias=True, exclude_none=True)


def _event(text: str) -> Event:
    converted: Event = conversions.to_compat_stream_response(codec.read(text, StreamResponse), 0).result
    if isinstance(converted, types.TaskStatusUpdateEvent) and converted.status.state in INTERRUPTED:
        converted.final = True  # the stream ends with it
    return converted


def _push_config(config: TaskPushNotificationConfig) -> types.TaskPushNotificationConfig:
    return conversions.to_compat_task_push_notification_config(config)


def _dumped(model: pydantic.BaseModel) -> str:
    return codec.dumps(model.model_dump(mode="json", by_alias=True, exclude_none=True))


METHODS = {
    "message/send": Method("SendMessage", send_message, event),
    "message/stream": Method("SendStreamingMessage", send_message, event),
    "tasks/get": Method("GetTask", get_task, task),
    "tasks/cancel": Method("CancelTask", cancel_task, task),
    "tasks/resubscribe": Method("SubscribeToTask", subscribe_to_task, event),
    "tasks/pushNotificationConfig/set": Method("CreateTaskPushNotificationConfig", create_push_config, push_config),
    "tasks/pushNotificationConfig/get": Method("GetTaskPushNotificationConfig", get_push_config, push_config),
    "tasks/pushNotificationConfig/list": Method("ListTaskPushNotificationConfigs", list_push_configs, push_configs),
    "tasks/pushNotificationConfig/delete": Method("DeleteTaskPushNotificationConfig", delete_push_config, nothing),
    "agent/getAuthenticatedExtendedCard": Method("GetExtendedAgentCard", extended_card, card),
    "agent/authenticatedExtendedCard": Method("GetExtendedAgentCard", extended_card, card),
}


# --- answers of REST


def rest_event(text: str) -> str:
    """A StreamResponse, or a SendMessageResponse, which has the same form."""
    return codec.to_text(proto_utils.ToProto.stream_response(_event(text)))


def rest_task(text: str) -> str:
    """A Task."""
    return codec.to_text(proto_utils.ToProto.task(conversions.to_compat_task(codec.read(text, Task))))


def rest_push_config(text: str) -> str:
    """A TaskPushNotificationConfig."""
    return codec.to_text(_rest_push_config(codec.read(text, TaskPushNotificationConfig)))


def rest_push_configs(text: str) -> str:
    """A ListTaskPushNotificationConfigResponse."""
    found = codec.read(text, ListTaskPushNotificationConfigsResponse).configs
    return codec.to_text(pb.ListTaskPushNotificationConfigResponse(configs=map(_rest_push_config, found)))


def _rest_push_config(config: TaskPushNotificationConfig) -> pb.TaskPushNotificationConfig:
    return proto_utils.ToProto.task_push_notification_config(_push_config(config))

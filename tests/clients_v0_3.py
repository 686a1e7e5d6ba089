"""Clients of A2A 0.3 that look like those of 1.0: what they send and get is converted by the a2a-sdk."""

import json
from dataclasses import dataclass, field

from a2a.compat.v0_3 import a2a_v0_3_pb2 as pb
from a2a.compat.v0_3 import a2a_v0_3_pb2_grpc as pb_grpc
from a2a.compat.v0_3 import conversions, proto_utils, types
from a2a.types import ListTaskPushNotificationConfigsResponse, SendMessageRequest, TaskPushNotificationConfig
from google.protobuf.empty_pb2 import Empty
from google.protobuf.json_format import MessageToDict, ParseDict

from tests.clients import JsonRpc, Pending, Rest
from tests.clients_grpc import Grpc, shown

KINDS = {
    "task": types.Task,
    "message": types.Message,
    "status-update": types.TaskStatusUpdateEvent,
    "artifact-update": types.TaskArtifactUpdateEvent,
}
METHODS = {
    "SendMessage": "message/send",
    "SendStreamingMessage": "message/stream",
    "GetTask": "tasks/get",
    "CancelTask": "tasks/cancel",
    "SubscribeToTask": "tasks/resubscribe",
    "CreateTaskPushNotificationConfig": "tasks/pushNotificationConfig/set",
    "GetTaskPushNotificationConfig": "tasks/pushNotificationConfig/get",
    "ListTaskPushNotificationConfigs": "tasks/pushNotificationConfig/list",
    "DeleteTaskPushNotificationConfig": "tasks/pushNotificationConfig/delete",
    "GetExtendedAgentCard": "agent/getAuthenticatedExtendedCard",
}
HEADERS = {"A2A-Version": "0.3", "Content-Type": "application/json"}


def _dumped(model):
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


def _send_params(params):
    request = ParseDict(params, SendMessageRequest())
    return conversions.to_compat_send_message_request(request, 0).params


def _push(config):
    """A 0.3 TaskPushNotificationConfig as 1.0 data."""
    return MessageToDict(conversions.to_core_task_push_notification_config(config))


def _event(model):
    response = types.SendStreamingMessageSuccessResponse(id=0, result=model)
    return MessageToDict(conversions.to_core_stream_response(response))


@dataclass
class LegacyJsonRpc(JsonRpc):
    """JSON-RPC of 0.3"""

    headers: dict = field(default_factory=lambda: dict(HEADERS))

    binding = "jsonrpc"

    def call(self, method, params, headers=None):
        params = getattr(self, f"_{method}", lambda params: params)(params)
        return super().call(METHODS[method], params, headers)

    def _SendMessage(self, params):  # noqa: N802  the name of the method
        return _dumped(_send_params(params))

    _SendStreamingMessage = _SendMessage

    def _CreateTaskPushNotificationConfig(self, params):  # noqa: N802
        config = ParseDict(params, TaskPushNotificationConfig())
        return _dumped(conversions.to_compat_task_push_notification_config(config))

    def _GetTaskPushNotificationConfig(self, params):  # noqa: N802
        return {"id": params["taskId"], "pushNotificationConfigId": params["id"]}

    _DeleteTaskPushNotificationConfig = _GetTaskPushNotificationConfig

    def _ListTaskPushNotificationConfigs(self, params):  # noqa: N802
        return {"id": params["taskId"]}

    def event(self, data):
        result = super().event(data)
        if isinstance(result, list):
            return {"configs": [_push(types.TaskPushNotificationConfig.model_validate(item)) for item in result]}
        if result is None:
            return {}
        if "pushNotificationConfig" in result:
            return _push(types.TaskPushNotificationConfig.model_validate(result))
        return _event(KINDS[result["kind"]].model_validate(result)) if "kind" in result else result

    def get(self, task_id, **params):
        return super().get(task_id, **params)["task"]

    def cancel(self, task_id):
        return super().cancel(task_id)["task"]


@dataclass
class LegacyRest(Rest):
    """HTTP+JSON of 0.3"""

    headers: dict = field(default_factory=lambda: dict(HEADERS))

    binding = "rest"

    @property
    def url(self):
        return super().url + "/v1"

    def result(self, response):
        data = json.loads(response.body)
        assert response.headers["content-type"] == "application/json"
        return self.event(data) if response.status == 200 else self.error(response, data)

    def error(self, response, data):
        assert data.pop("type")
        assert data.pop("code") < 0
        assert data.pop("message") == data["error"]["message"]
        return super().error(response, data)

    @staticmethod
    def send_request(said, configuration, metadata=None):
        params = _send_params(Rest.send_request(said, configuration, metadata))
        to_proto = proto_utils.ToProto
        request = pb.SendMessageRequest(request=to_proto.message(params.message))
        if params.configuration:
            request.configuration.CopyFrom(to_proto.message_send_configuration(params.configuration))
        if params.metadata:
            request.metadata.CopyFrom(to_proto.metadata(params.metadata))
        return MessageToDict(request, preserving_proto_field_name=True)

    def event(self, data):
        if set(data) & {"task", "message", "statusUpdate", "artifactUpdate"}:
            proto = ParseDict(data, pb.StreamResponse())
            return _event(proto_utils.FromProto.stream_response(proto))
        if "pushNotificationConfig" in data:
            return self._push(data)
        if "configs" in data:
            return {"configs": [self._push(item) for item in data["configs"]]}
        if "contextId" in data:
            return MessageToDict(conversions.to_core_task(proto_utils.FromProto.task(ParseDict(data, pb.Task()))))
        return data

    @staticmethod
    def _push(data):
        proto = ParseDict(data, pb.TaskPushNotificationConfig())
        return _push(proto_utils.FromProto.task_push_notification_config(proto))

    def extended_card(self):
        return self.ask("GET", "/card")

    def create_push(self, task_id, **config):
        body = MessageToDict(_create_push(task_id, config), preserving_proto_field_name=True)
        return self.ask("POST", f"/tasks/{task_id}/pushNotificationConfigs", body)


def _create_push(task_id, config):
    core = ParseDict({"taskId": task_id, **config}, TaskPushNotificationConfig())
    compat = conversions.to_compat_task_push_notification_config(core)
    return pb.CreateTaskPushNotificationConfigRequest(
        parent=f"tasks/{task_id}",
        config_id=core.id,
        config=proto_utils.ToProto.task_push_notification_config(compat),
    )


@dataclass
class LegacyGrpc(Grpc):
    """gRPC of 0.3, whose requests name neither agent nor tenant"""

    headers: dict = field(default_factory=dict)

    @property
    def stub(self):
        return pb_grpc.A2AServiceStub(self.served.channel)

    def request(self, kind, data):
        return data

    def event(self, message):
        return shown(CORE[type(message)](message))

    def _send(self, said, configuration, metadata):
        params = _send_params(self.send_request(said, configuration, metadata))
        to_proto = proto_utils.ToProto
        return pb.SendMessageRequest(
            request=to_proto.message(params.message),
            configuration=to_proto.message_send_configuration(params.configuration),
            metadata=to_proto.metadata(params.metadata),
        )

    def sending(self, said, metadata=None, **configuration):
        return Pending(self, self.call("SendMessage", None, self._send(said, configuration, metadata)))

    def stream(self, said="task completed", metadata=None, **configuration):
        return self.streaming("SendStreamingMessage", None, self._send(said, configuration, metadata))

    def get(self, task_id, **query):
        request = pb.GetTaskRequest(name=f"tasks/{task_id}", history_length=query.get("historyLength", 0))
        return self.ask("GetTask", None, request)

    def canceling(self, task_id):
        return Pending(self, self.call("CancelTask", None, pb.CancelTaskRequest(name=f"tasks/{task_id}")))

    def subscribe(self, task_id):
        return self.streaming("TaskSubscription", None, pb.TaskSubscriptionRequest(name=f"tasks/{task_id}"))

    def create_push(self, task_id, **config):
        return self.ask("CreateTaskPushNotificationConfig", None, _create_push(task_id, config))

    def get_push(self, task_id, config_id):
        name = f"tasks/{task_id}/pushNotificationConfigs/{config_id}"
        request = pb.GetTaskPushNotificationConfigRequest(name=name)
        return self.ask("GetTaskPushNotificationConfig", None, request)

    def list_push(self, task_id):
        request = pb.ListTaskPushNotificationConfigRequest(parent=f"tasks/{task_id}")
        return self.ask("ListTaskPushNotificationConfig", None, request)

    def delete_push(self, task_id, config_id):
        name = f"tasks/{task_id}/pushNotificationConfigs/{config_id}"
        request = pb.DeleteTaskPushNotificationConfigRequest(name=name)
        return self.ask("DeleteTaskPushNotificationConfig", None, request)

    def extended_card(self):
        return self.ask("GetAgentCard", None, pb.GetAgentCardRequest())


def _core_push(proto):
    return conversions.to_core_task_push_notification_config(proto_utils.FromProto.task_push_notification_config(proto))


def _core_event(proto):
    result = proto_utils.FromProto.stream_response(proto)
    return conversions.to_core_stream_response(types.SendStreamingMessageSuccessResponse(id=0, result=result))


CORE = {  # what a message of 0.3 is in 1.0
    pb.SendMessageResponse: lambda proto: _core_event(pb.StreamResponse.FromString(proto.SerializeToString())),
    pb.StreamResponse: _core_event,
    pb.Task: lambda proto: conversions.to_core_task(proto_utils.FromProto.task(proto)),
    pb.TaskPushNotificationConfig: _core_push,
    pb.ListTaskPushNotificationConfigResponse: lambda proto: ListTaskPushNotificationConfigsResponse(
        configs=map(_core_push, proto.configs)
    ),
    pb.AgentCard: lambda proto: conversions.to_core_agent_card(proto_utils.FromProto.agent_card(proto)),
    Empty: lambda proto: proto,
}
LEGACY = {"grpc": LegacyGrpc, "jsonrpc": LegacyJsonRpc, "rest": LegacyRest}

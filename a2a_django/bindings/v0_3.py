"""HTTP+JSON of A2A 0.3, below `v1/` of each agent; its JSON-RPC methods stand beside those of 1.0."""

from a2a.types import (
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    SubscribeToTaskRequest,
)

from a2a_django import operations
from a2a_django.bindings import cards
from a2a_django.bindings.rest import RestView
from a2a_django.bindings.views import Outcome
from a2a_django.protocol import codec, errors, v0_3, versions


class LegacyView(RestView):
    """A path of 0.3."""

    version = versions.LEGACY
    content_type = "application/json"

    def error_text(self, error: errors.A2AError) -> str:
        """The error as in 1.0, and as clients of 0.3 read it: the Python SDK by type, the JavaScript SDK by code."""
        code, kind = errors.rendering(error).jsonrpc, errors.kind(error).__name__
        legacy = {"code": code, "type": kind, "message": error.message}
        return codec.dumps(errors.rest_body(error) | legacy)


class SendMessage(LegacyView):
    """`POST v1/message:send`"""

    def answer_post(self) -> Outcome:
        request = self.within(v0_3.rest_send_message(self.json()))
        return operations.send_message(self.caller, request, self.ear)

    def wrap(self, text: str) -> str:
        return v0_3.rest_event(text)


class SendStreamingMessage(LegacyView):
    """`POST v1/message:stream`"""

    def answer_post(self) -> Outcome:
        self.check_can_stream()
        request = self.within(v0_3.rest_send_message(self.json()))
        return operations.send_streaming_message(self.caller, request, self.ear)

    def wrap(self, text: str) -> str:
        return v0_3.rest_event(text)


class Task(LegacyView):
    """`GET v1/tasks/{id}`"""

    def answer_get(self, task_id: str) -> Outcome:
        request = self.from_query(GetTaskRequest, id=task_id)
        if not request.history_length:  # 0 meant all of it
            request.ClearField("history_length")
        return operations.get_task(self.caller, request)

    def wrap(self, text: str) -> str:
        return v0_3.rest_task(text)


class CancelTask(LegacyView):
    """`POST v1/tasks/{id}:cancel`"""

    def answer_post(self, task_id: str) -> Outcome:
        return operations.cancel_task(self.caller, self.from_body(CancelTaskRequest, id=task_id), self.ear)

    def wrap(self, text: str) -> str:
        return v0_3.rest_task(text)


class SubscribeToTask(LegacyView):
    """`GET` and `POST v1/tasks/{id}:subscribe`"""

    def answer_post(self, task_id: str) -> Outcome:
        self.check_can_stream()
        last, request = self.request.headers.get("Last-Event-ID"), self.from_query(SubscribeToTaskRequest, id=task_id)
        return operations.subscribe_to_task(self.caller, request, self.ear, last)

    answer_get = answer_post

    def wrap(self, text: str) -> str:
        return v0_3.rest_event(text)


class PushConfigs(LegacyView):
    """`GET` and `POST v1/tasks/{id}/pushNotificationConfigs`"""

    def answer_post(self, task_id: str) -> Outcome:
        request = self.within(v0_3.rest_create_push_config(self.json(), task_id))
        return operations.create_push_config(self.caller, request)

    def answer_get(self, task_id: str) -> Outcome:
        request = self.from_query(ListTaskPushNotificationConfigsRequest, taskId=task_id)
        return operations.list_push_configs(self.caller, request)

    def wrap(self, text: str) -> str:
        return v0_3.rest_push_config(text) if self.request.method == "POST" else v0_3.rest_push_configs(text)


class PushConfig(LegacyView):
    """`GET` and `DELETE v1/tasks/{id}/pushNotificationConfigs/{configId}`"""

    def answer_get(self, task_id: str, config_id: str) -> Outcome:
        request = self.from_query(GetTaskPushNotificationConfigRequest, taskId=task_id, id=config_id)
        return operations.get_push_config(self.caller, request)

    def answer_delete(self, task_id: str, config_id: str) -> Outcome:
        request = self.from_query(DeleteTaskPushNotificationConfigRequest, taskId=task_id, id=config_id)
        return operations.delete_push_config(self.caller, request)

    def wrap(self, text: str) -> str:
        return v0_3.rest_push_config(text) if self.request.method == "GET" else text


class ExtendedAgentCard(LegacyView):
    """`GET v1/card`, and its older path `agent/authenticatedExtendedCard`"""

    def answer_get(self) -> Outcome:
        request = self.from_query(GetExtendedAgentCardRequest)
        urls = cards.urls(self.request, self.caller.agent)
        return operations.get_extended_agent_card(self.caller, request, urls)

    def wrap(self, text: str) -> str:
        return v0_3.card(text)

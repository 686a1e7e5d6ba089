"""HTTP+JSON of A2A 0.3, below `v1/` of each agent; its JSON-RPC methods stand beside those of 1.0."""

from a2a.types import GetTaskRequest, SendMessageRequest, TaskPushNotificationConfig

from a2a_django import operations
from a2a_django.bindings import rest
from a2a_django.bindings.views import Outcome
from a2a_django.protocol import codec, errors, v0_3, versions


class Legacy(rest.RestView):
    """What the paths of 0.3 have in common."""

    version = versions.LEGACY
    content_type = "application/json"

    def error_text(self, error: errors.A2AError) -> str:
        """The error as in 1.0, and as clients of 0.3 read it: the Python SDK by type, the JavaScript SDK by code."""
        code, kind = errors.rendering(error).jsonrpc, errors.kind(error).__name__
        legacy = {"code": code, "type": kind, "message": error.message}
        return codec.dumps(errors.rest_body(error) | legacy)


class SendMessage(Legacy, rest.SendMessage):
    """`POST v1/message:send`"""

    def said(self) -> SendMessageRequest:
        return self.within(v0_3.rest_send_message(self.json()))

    def wrap(self, text: str) -> str:
        return v0_3.rest_event(text)


class SendStreamingMessage(SendMessage, rest.SendStreamingMessage):
    """`POST v1/message:stream`"""


class Task(Legacy, rest.Task):
    """`GET v1/tasks/{id}`"""

    def answer_get(self, task_id: str) -> Outcome:
        request = self.from_query(GetTaskRequest, id=task_id)
        if not request.history_length:  # 0 meant all of it
            request.ClearField("history_length")
        return operations.get_task(self.caller, request)

    def wrap(self, text: str) -> str:
        return v0_3.rest_task(text)


class CancelTask(Legacy, rest.CancelTask):
    """`POST v1/tasks/{id}:cancel`"""

    def wrap(self, text: str) -> str:
        return v0_3.rest_task(text)


class SubscribeToTask(Legacy, rest.SubscribeToTask):
    """`GET` and `POST v1/tasks/{id}:subscribe`"""

    def wrap(self, text: str) -> str:
        return v0_3.rest_event(text)


class PushConfigs(Legacy, rest.PushConfigs):
    """`GET` and `POST v1/tasks/{id}/pushNotificationConfigs`"""

    def config(self, task_id: str) -> TaskPushNotificationConfig:
        return self.within(v0_3.rest_create_push_config(self.json(), task_id))

    def wrap(self, text: str) -> str:
        return v0_3.rest_push_config(text) if self.request.method == "POST" else v0_3.rest_push_configs(text)


class PushConfig(Legacy, rest.PushConfig):
    """`GET` and `DELETE v1/tasks/{id}/pushNotificationConfigs/{configId}`"""

    def wrap(self, text: str) -> str:
        return v0_3.rest_push_config(text) if self.request.method == "GET" else text


class ExtendedAgentCard(Legacy, rest.ExtendedAgentCard):
    """`GET v1/card`, and its older path `agent/authenticatedExtendedCard`"""

    def wrap(self, text: str) -> str:
        return v0_3.card(text)

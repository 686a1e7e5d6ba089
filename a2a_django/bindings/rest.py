"""HTTP+JSON: one view for each path of A2A 5.3."""

from typing import Any, TypeVar
from urllib.parse import unquote_to_bytes

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
from django.http import HttpResponse, QueryDict
from google.protobuf.message import Message as ProtoMessage

from a2a_django import operations
from a2a_django.bindings import caller as callers
from a2a_django.bindings import cards
from a2a_django.bindings.views import A2AView, Outcome
from a2a_django.models import Caller
from a2a_django.protocol import codec, errors, versions

Proto = TypeVar("Proto", bound=ProtoMessage)


class RestView(A2AView):
    """A path of one agent; `answer_<method>` does the operation for `self.caller`."""

    content_type = "application/a2a+json"
    version = versions.CURRENT
    caller: Caller

    @property
    def allowed_methods(self) -> list[str]:
        return [name.upper() for name in ("get", "post", "delete") if hasattr(self, f"answer_{name}")]

    def handle(self) -> Outcome:
        ids = dict(self.kwargs)
        agent, tenant = callers.agent(ids.pop("agent")), ids.pop("tenant", None)
        self.caller = callers.caller(self.request, agent, tenant or "", self.version)
        outcome: Outcome = getattr(self, f"answer_{(self.request.method or '').lower()}")(**ids)
        return outcome

    def error_text(self, error: errors.A2AError) -> str:
        return codec.dumps(errors.rest_body(error))

    # --- requests

    def from_body(self, kind: type[Proto], **path: str) -> Proto:
        """The request in the body; what the path says goes before it."""
        return self.within(codec.to_proto(self.json(), kind, path))

    def json(self) -> Any:
        """The JSON value in the body, an empty body being `{}`."""
        self.check_content_type()
        raw = self.body()
        return codec.parse_json(raw) if raw.strip() else {}

    def from_query(self, kind: type[Proto], **path: str) -> Proto:
        """The request in the query parameters (A2A 11.5)."""
        return self.within(codec.query_to_proto(self._query().lists(), path, kind))

    def _query(self) -> QueryDict:
        """The query parameters; Django would put a replacement for what is no UTF-8."""
        try:
            unquote_to_bytes(self.request.META.get("QUERY_STRING", "")).decode()
        except UnicodeDecodeError as error:
            raise errors.invalid_params(("query", "must be UTF-8")) from error
        return self.request.query_params

    def within(self, request: Proto) -> Proto:
        """`request`, which may name a tenant; nothing is done for the caller before."""
        self.enter(self.caller, getattr(request, "tenant", ""))
        return request


class SendMessage(RestView):
    """`POST message:send`"""

    def answer_post(self) -> Outcome:
        return operations.send_message(self.caller, self.said(), self.ear)

    def said(self) -> SendMessageRequest:
        """What the body asks for."""
        return self.from_body(SendMessageRequest)


class SendStreamingMessage(SendMessage):
    """`POST message:stream`"""

    def answer_post(self) -> Outcome:
        self.check_can_stream()
        last = self.request.headers.get("Last-Event-ID")
        return operations.send_streaming_message(self.caller, self.said(), self.ear, last)


class Tasks(RestView):
    """`GET tasks`"""

    def answer_get(self) -> Outcome:
        return operations.list_tasks(self.caller, self.from_query(ListTasksRequest))


class Task(RestView):
    """`GET tasks/{id}`"""

    def answer_get(self, task_id: str) -> Outcome:
        return operations.get_task(self.caller, self.from_query(GetTaskRequest, id=task_id))


class CancelTask(RestView):
    """`POST tasks/{id}:cancel`"""

    def answer_post(self, task_id: str) -> Outcome:
        return operations.cancel_task(self.caller, self.from_body(CancelTaskRequest, id=task_id), self.ear)


class SubscribeToTask(RestView):
    """`GET` and `POST tasks/{id}:subscribe`"""

    def answer_post(self, task_id: str) -> Outcome:
        return self._subscribe(self.from_body(SubscribeToTaskRequest, id=task_id))

    def answer_get(self, task_id: str) -> Outcome:
        return self._subscribe(self.from_query(SubscribeToTaskRequest, id=task_id))

    def _subscribe(self, request: SubscribeToTaskRequest) -> Outcome:
        self.check_can_stream()
        last = self.request.headers.get("Last-Event-ID")
        return operations.subscribe_to_task(self.caller, request, self.ear, last)


class PushConfigs(RestView):
    """`GET` and `POST tasks/{id}/pushNotificationConfigs`"""

    def answer_post(self, task_id: str) -> Outcome:
        return operations.create_push_config(self.caller, self.config(task_id))

    def config(self, task_id: str) -> TaskPushNotificationConfig:
        """What the body asks for."""
        return self.from_body(TaskPushNotificationConfig, taskId=task_id)

    def answer_get(self, task_id: str) -> Outcome:
        request = self.from_query(ListTaskPushNotificationConfigsRequest, taskId=task_id)
        return operations.list_push_configs(self.caller, request)


class PushConfig(RestView):
    """`GET` and `DELETE tasks/{id}/pushNotificationConfigs/{configId}`"""

    def answer_get(self, task_id: str, config_id: str) -> Outcome:
        request = self.from_query(GetTaskPushNotificationConfigRequest, taskId=task_id, id=config_id)
        return operations.get_push_config(self.caller, request)

    def answer_delete(self, task_id: str, config_id: str) -> Outcome:
        request = self.from_query(DeleteTaskPushNotificationConfigRequest, taskId=task_id, id=config_id)
        return operations.delete_push_config(self.caller, request)


class ExtendedAgentCard(RestView):
    """`GET extendedAgentCard`"""

    def answer_get(self) -> Outcome:
        request = self.from_query(GetExtendedAgentCardRequest)
        urls = cards.urls(self.request, self.caller.agent)
        return operations.get_extended_agent_card(self.caller, request, urls)

    def answer(self, text: str) -> HttpResponse:
        return cards.private(self.request, super().answer(text))


class NotFound(RestView):
    """Any other path below ours: a JSON 404, never a redirect to a slash."""

    permission_classes = ()

    @property
    def allowed_methods(self) -> list[str]:
        return ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"]

    def initial(self, request: Any, *args: Any, **kwargs: Any) -> None:
        """Nothing to protect."""

    def handle(self) -> Outcome:
        raise errors.NotFoundError("There is no such path")

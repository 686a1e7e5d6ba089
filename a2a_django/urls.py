"""Where the agents are: `path("", include("a2a_django.urls"))` (DESIGN 2).

Every path answers with and without a trailing slash, and what is not ours below A2A["PATH"] gets a JSON 404, so
that no POST is ever redirected.
"""

from typing import Any

from django.db import transaction
from django.urls import URLPattern, re_path

from a2a_django.bindings import cards, jsonrpc, rest
from a2a_django.bindings.views import A2AView
from a2a_django.settings import a2a_settings

app_name = "a2a_django"

PREFIX = a2a_settings.PATH.strip("/")
AGENT = rf"^{PREFIX}/(?P<agent>[-\w]+)"
IN_TENANT = r"(?:/(?P<tenant>[-\w]+))?"
TASK = r"tasks/(?P<task_id>[^/:\0]+)"
CONFIG = r"/(?P<config_id>[^/\0]+)"


def _path(route: str, view: type[A2AView], name: str | None = None) -> URLPattern:
    # Views do their database work in threads of their own, where no ATOMIC_REQUESTS reaches.
    return re_path(route + "/?$", transaction.non_atomic_requests(view.as_view()), name=name)


def _of_agent(route: str, view: type[A2AView], name: str) -> URLPattern:
    return _path(f"{AGENT}{IN_TENANT}/{route}", view, name)


def _rest() -> list[URLPattern]:
    return [
        _of_agent("message:send", rest.SendMessage, "send-message"),
        _of_agent("message:stream", rest.SendStreamingMessage, "send-streaming-message"),
        _of_agent("tasks", rest.Tasks, "tasks"),
        _of_agent(TASK, rest.Task, "task"),
        _of_agent(f"{TASK}:cancel", rest.CancelTask, "cancel-task"),
        _of_agent(f"{TASK}:subscribe", rest.SubscribeToTask, "subscribe-to-task"),
        _of_agent(f"{TASK}/pushNotificationConfigs", rest.PushConfigs, "push-configs"),
        _of_agent(f"{TASK}/pushNotificationConfigs{CONFIG}", rest.PushConfig, "push-config"),
        _of_agent("extendedAgentCard", rest.ExtendedAgentCard, "extended-agent-card"),
    ]


def _card(route: str, name: str) -> URLPattern:
    return _path(route + a2a_settings.AGENT_CARD_PATH.strip("/").replace(".", r"\."), cards.AgentCardView, name)


discovery_urls: list[Any] = [_card("^", "default-agent-card")]
"""The well-known paths alone, for a site that includes the rest below a prefix."""

urlpatterns = [
    *discovery_urls,
    _card(f"{AGENT}/", "agent-card"),
    *(_rest() if a2a_settings.ENABLE_HTTP_JSON else ()),
    _path(AGENT + IN_TENANT, jsonrpc.JsonRpc if a2a_settings.ENABLE_JSONRPC else rest.NotFound, "agent"),
    re_path(rf"^{PREFIX}(?:/[\s\S]*)?$", transaction.non_atomic_requests(rest.NotFound.as_view())),
]

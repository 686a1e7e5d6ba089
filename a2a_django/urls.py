"""Where the agents are: `path("", include("a2a_django.urls"))` (DESIGN 2).

Every path answers with and without a trailing slash, and what is not ours below A2A["PATH"] gets a JSON 404, so
that no POST is ever redirected.
"""

import re
from typing import Any

from django.db import transaction
from django.urls import URLPattern, re_path

from a2a_django.bindings import cards, jsonrpc, rest, v0_3
from a2a_django.bindings.views import A2AView
from a2a_django.settings import a2a_settings

app_name = "a2a_django"

# str(): a value of another type is for the system checks to tell, and they import this.
PREFIX = re.escape(str(a2a_settings.PATH).strip("/"))
BELOW = r"(?:/[\s\S]*)?" if PREFIX else r"[\s\S]*"
WITHIN = f"^{PREFIX}/" if PREFIX else "^"
AGENT = WITHIN + r"(?P<agent>[-\w]+)"
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


def _legacy_rest() -> list[URLPattern]:
    return [
        _of_agent("v1/message:send", v0_3.SendMessage, "v0_3-send-message"),
        _of_agent("v1/message:stream", v0_3.SendStreamingMessage, "v0_3-send-streaming-message"),
        _of_agent(f"v1/{TASK}", v0_3.Task, "v0_3-task"),
        _of_agent(f"v1/{TASK}:cancel", v0_3.CancelTask, "v0_3-cancel-task"),
        _of_agent(f"v1/{TASK}:subscribe", v0_3.SubscribeToTask, "v0_3-subscribe-to-task"),
        _of_agent(f"v1/{TASK}/pushNotificationConfigs", v0_3.PushConfigs, "v0_3-push-configs"),
        _of_agent(f"v1/{TASK}/pushNotificationConfigs{CONFIG}", v0_3.PushConfig, "v0_3-push-config"),
        _of_agent("v1/card", v0_3.ExtendedAgentCard, "v0_3-extended-agent-card"),
        _of_agent(r"v1(?:/[\s\S]*)?", rest.NotFound, "v0_3-not-found"),
        _of_agent("agent/authenticatedExtendedCard", v0_3.ExtendedAgentCard, "v0_3-authenticated-extended-card"),
    ]


def _cards(route: str, name: str) -> list[URLPattern]:
    path = str(a2a_settings.AGENT_CARD_PATH).strip("/").replace(".", r"\.")
    old = _path(rf"{route}\.well-known/agent\.json", cards.LegacyAgentCardView, f"v0_3-{name}")
    return [_path(route + path, cards.AgentCardView, name), *([old] if a2a_settings.ENABLE_V0_3 else ())]


discovery_urls: list[Any] = _cards("^", "default-agent-card")
"""The well-known paths alone, for a site that includes the rest below a prefix."""

urlpatterns = [
    *discovery_urls,
    *_cards(f"{AGENT}{IN_TENANT}/", "agent-card"),
    _path(f"{WITHIN}jwks\\.json", cards.KeysView, "jwks"),
    *(_legacy_rest() if a2a_settings.ENABLE_HTTP_JSON and a2a_settings.ENABLE_V0_3 else ()),
    *(_rest() if a2a_settings.ENABLE_HTTP_JSON else ()),
    _path(AGENT + IN_TENANT, jsonrpc.JsonRpc if a2a_settings.ENABLE_JSONRPC else rest.NotFound, "agent"),
    re_path(f"^{PREFIX}{BELOW}$", transaction.non_atomic_requests(rest.NotFound.as_view())),
]

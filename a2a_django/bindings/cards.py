"""Public agent cards, and where this site serves an agent (A2A 8)."""

import logging
from functools import cache
from typing import Any, cast

from django.http import HttpResponse
from django.urls import reverse
from django.utils.cache import get_conditional_response
from rest_framework.request import Request

from a2a_django.agents import card
from a2a_django.bindings import caller as callers
from a2a_django.bindings.views import A2AView, Outcome
from a2a_django.models import Agent, Tenant
from a2a_django.protocol import codec, errors
from a2a_django.settings import a2a_settings

log = logging.getLogger(__name__)

MOVED = "@1753833600"  # 30 July 2025, when 0.3.0 came out (RFC 9745)


class AgentCardView(A2AView):
    """`GET …/.well-known/agent-card.json`, of the default agent or of the one in the path."""

    @property
    def allowed_methods(self) -> list[str]:
        return ["GET", "HEAD", "OPTIONS"]

    def get_permissions(self) -> list[Any]:
        return [permission() for permission in a2a_settings.load("CARD_PERMISSION_CLASSES")]

    def handle(self) -> Outcome:
        found = callers.agent(self.kwargs["agent"]) if "agent" in self.kwargs else callers.default_agent()
        rendered = card.render(card.public(found, urls(self.request, found, None)))
        response = HttpResponse(rendered.body, content_type="application/json")
        response["ETag"] = rendered.etag
        response["Cache-Control"] = f"public, max-age={a2a_settings.AGENT_CARD_MAX_AGE}"
        request = self.request._request
        return cast(HttpResponse, get_conditional_response(request, etag=rendered.etag, response=response))

    def error_text(self, error: errors.A2AError) -> str:
        return codec.dumps(errors.rest_body(error))


class LegacyAgentCardView(AgentCardView):
    """`GET …/.well-known/agent.json`, where clients of A2A 0.2 look."""

    def handle(self) -> Outcome:
        _tell_of_old_clients()
        response = cast(HttpResponse, super().handle())
        response["Deprecation"] = MOVED
        response["Link"] = '<agent-card.json>; rel="successor-version"'
        return response


@cache
def _tell_of_old_clients() -> None:
    log.warning("A client asked for agent.json, which A2A 0.3 has moved to agent-card.json; it is told only once.")


def urls(request: Request, agent: Agent, tenant: Tenant | None) -> card.Urls:
    """The agent's URLs as clients reach them: A2A["BASE_URL"], else the request's host as Django trusts it."""
    path = {"agent": agent.slug} | ({"tenant": tenant.slug} if tenant else {})
    url = absolute(request, reverse("a2a_django:agent", kwargs=path))
    return card.Urls(
        jsonrpc=url if a2a_settings.ENABLE_JSONRPC else "",
        http_json=url if a2a_settings.ENABLE_HTTP_JSON else "",
        grpc=a2a_settings.GRPC_URL,
    )


def absolute(request: Request, path: str) -> str:
    """`path` of this site as an absolute URL."""
    if a2a_settings.BASE_URL:
        return a2a_settings.BASE_URL.rstrip("/") + path
    return request.build_absolute_uri(path)

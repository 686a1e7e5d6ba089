"""Public agent cards, the keys that sign them, and where this site serves an agent (A2A 8)."""

import hashlib
import logging
from datetime import datetime
from functools import cache
from typing import Any, cast

from django.conf import settings
from django.contrib.auth.models import AnonymousUser
from django.http import HttpResponse
from django.urls import reverse
from django.utils.cache import get_conditional_response, patch_vary_headers
from django.utils.http import http_date
from rest_framework.request import Request

from a2a_django import keys
from a2a_django.agents import card
from a2a_django.bindings import admission
from a2a_django.bindings import caller as callers
from a2a_django.bindings.views import A2AView, Outcome
from a2a_django.models import Agent
from a2a_django.protocol import codec, errors
from a2a_django.settings import a2a_settings

log = logging.getLogger(__name__)

READERS = ("Authorization", "Cookie")  # by these we know who asks
MOVED = "@1753833600"  # 30 July 2025, when 0.3.0 came out (RFC 9745)


class KeptView(A2AView):
    """What is only read, and kept for a while by those who have read it."""

    @property
    def allowed_methods(self) -> list[str]:
        return ["GET", "HEAD", "OPTIONS"]

    def kept(self, body: bytes, etag: str, content_type: str, readers: str = "public") -> HttpResponse:
        """The response, or a 304 for those who have this very one."""
        response = HttpResponse(body, content_type=content_type)
        response["ETag"] = etag
        response["Cache-Control"] = f"{readers}, max-age={a2a_settings.AGENT_CARD_MAX_AGE}"
        request = self.request._request
        return cast(HttpResponse, get_conditional_response(request, etag=etag, response=response))

    def error_text(self, error: errors.A2AError) -> str:
        return codec.dumps(errors.rest_body(error))


class AgentCardView(KeptView):
    """`GET …/.well-known/agent-card.json`, of the default agent or of the one in the path, maybe within a tenant."""

    def get_authenticators(self) -> list[Any]:
        """None where everybody may read cards: they tell those with outdated credentials how to get new ones."""
        return super().get_authenticators() if a2a_settings.CARD_PERMISSION_CLASSES else []

    def get_permissions(self) -> list[Any]:
        return [permission() for permission in a2a_settings.load("CARD_PERMISSION_CLASSES")]

    def handle(self) -> Outcome:
        found = callers.agent(self.kwargs["agent"]) if "agent" in self.kwargs else callers.default_agent()
        tenant = self.kwargs.get("tenant") or ""
        if tenant:  # such a card is for everybody, or there is none
            admission.tenant(tenant, found, AnonymousUser())
        known = urls(self.request, found)
        rendered = card.render(card.public(found, known, tenant), known.keys)
        readers = "private" if a2a_settings.CARD_PERMISSION_CLASSES else "public"
        response = self.kept(rendered.body, rendered.etag, "application/json", readers)
        # It is told, but no condition: settings and keys change a card, too, and have no date.
        response["Last-Modified"] = http_date(_changed(found).timestamp())
        if deciding := _deciding_headers():
            patch_vary_headers(response, deciding)
        return response


class LegacyAgentCardView(AgentCardView):
    """`GET …/.well-known/agent.json`, where clients of A2A 0.2 look."""

    def handle(self) -> Outcome:
        _tell_of_old_clients()
        response = cast(HttpResponse, super().handle())
        response["Deprecation"] = MOVED
        response["Link"] = '<agent-card.json>; rel="successor-version"'
        return response


class KeysView(KeptView):
    """`GET /a2a/jwks.json`: the public keys that tell whether a signature is this site's (RFC 7517)."""

    def get_authenticators(self) -> list[Any]:
        return []

    def get_permissions(self) -> list[Any]:
        return []

    def handle(self) -> Outcome:
        body = codec.dumps({"keys": keys.published()}).encode()
        return self.kept(body, f'"{hashlib.sha256(body).hexdigest()}"', "application/jwk-set+json")


def _changed(agent: Agent) -> datetime:
    """When staff changed what its card says."""
    return max(agent.updated_at, agent.published.published_at) if agent.published else agent.updated_at


def private(request: Request, response: HttpResponse) -> HttpResponse:
    """The response with a card that is its reader's alone, who asks each time whether it still holds (A2A 13.3)."""
    etag = f'"{hashlib.sha256(response.content).hexdigest()}"'
    response["ETag"] = etag
    response["Cache-Control"] = "private, no-cache"
    patch_vary_headers(
        response, [name for name in (*READERS, a2a_settings.TENANT_HEADER, *_deciding_headers()) if name]
    )
    return cast(HttpResponse, get_conditional_response(request._request, etag=etag, response=response))


@cache
def _tell_of_old_clients() -> None:
    log.warning("A client asked for agent.json, which A2A 0.3 has moved to agent-card.json; it is told only once.")


def urls(request: Request, agent: Agent) -> card.Urls:
    """The agent's URLs as clients reach them: A2A["BASE_URL"], else the request's host as Django trusts it."""
    url = absolute(request, reverse("a2a_django:agent", kwargs={"agent": agent.slug}))
    return card.Urls(
        site=absolute(request, ""),
        jsonrpc=url if a2a_settings.ENABLE_JSONRPC else "",
        http_json=url if a2a_settings.ENABLE_HTTP_JSON else "",
        grpc=a2a_settings.GRPC_URL,
        keys=absolute(request, reverse("a2a_django:jwks")),
    )


def absolute(request: Request, path: str) -> str:
    """`path` of this site, script name and all, as an absolute URL."""
    return (a2a_settings.BASE_URL.rstrip("/") or f"{request.scheme}://{request.get_host()}") + path


def _deciding_headers() -> list[str]:
    """The request headers on which a card depends, for caches that stand before this site."""
    found = ["Authorization"] if a2a_settings.CARD_PERMISSION_CLASSES else []
    if a2a_settings.BASE_URL:
        return found
    if settings.USE_X_FORWARDED_HOST:
        found.append("X-Forwarded-Host")
    if settings.SECURE_PROXY_SSL_HEADER:
        found.append(settings.SECURE_PROXY_SSL_HEADER[0].removeprefix("HTTP_").replace("_", "-").title())
    return found

"""An Agent row as the AgentCard that a viewer gets: bytes and ETag (A2A 4.4, 8)."""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from a2a.types import AgentCard, SecurityScheme
from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.auth.models import AnonymousUser

from a2a_django.agents import documents, schemes, signatures
from a2a_django.agents.documents import Document
from a2a_django.models import Agent
from a2a_django.protocol import codec, v0_3, versions
from a2a_django.settings import a2a_settings

Viewer = AbstractBaseUser | AnonymousUser


@dataclass(frozen=True)
class Urls:
    """Where this site is, serves an agent and its public keys: absolute URLs, empty for a binding that is off."""

    site: str = ""
    jsonrpc: str = ""
    http_json: str = ""
    grpc: str = ""
    keys: str = ""


@dataclass(frozen=True)
class Rendered:
    """A card as it is served."""

    body: bytes
    etag: str


def streams(agent: Agent) -> bool:
    """Whether the agent streams on this site."""
    return agent.streaming and a2a_settings.STREAMING


def public(agent: Agent, urls: Urls, tenant: str = "") -> AgentCard:
    """The card that everybody may see; A2A["CARD_MODIFIER"] has the last word."""
    document = documents.served(agent)
    card = _card(agent, document, urls, tenant, _visible(document["skills"], AnonymousUser()))
    modify = a2a_settings.load("CARD_MODIFIER")
    if modify is None:
        return card
    modified: AgentCard = modify(card)
    return modified


def extended(agent: Agent, user: Viewer, urls: Urls, tenant: str = "") -> AgentCard | None:
    """The card for `user`, None where the agent has nothing to show that isn't public (A2A 3.1.11)."""
    document = documents.served(agent)
    if not any(documents.VISIBLE_TO in skill for skill in document["skills"]):
        return None
    return _card(agent, document, urls, tenant, _visible(document["skills"], user))


def skills(agent: Agent, user: Viewer) -> list[dict[str, Any]]:
    """The skills that the card lists for `user`."""
    return _visible(documents.skills(agent), user)


def _visible(listed: list[dict[str, Any]], user: Viewer) -> list[dict[str, Any]]:
    groups = _groups(user) if any(isinstance(_seers(skill), list) for skill in listed) else set()
    seen = (skill for skill in listed if _sees(user, groups, _seers(skill)))
    return [{name: value for name, value in skill.items() if name != documents.VISIBLE_TO} for skill in seen]


def _seers(skill: dict[str, Any]) -> str | list[str] | None:
    return skill.get(documents.VISIBLE_TO)


def _sees(user: Viewer, groups: set[str], seers: str | list[str] | None) -> bool:
    if isinstance(seers, list):
        return not groups.isdisjoint(seers) or getattr(user, "is_superuser", False)
    return seers is None or user.is_authenticated


def _groups(user: Viewer) -> set[str]:
    """The names of the groups that `user` is in; accounts of some sites have none."""
    return set(user.groups.values_list("name", flat=True)) if hasattr(user, "groups") else set()


def challenges(agent: Agent | None) -> list[str]:
    """The names in WWW-Authenticate of the security schemes that the card declares (A2A 3.3.2, 7.4)."""
    declared = (agent.security_schemes if agent else {}) or {each.name: each.body for each in schemes.configured()}
    names = (_challenge(name, codec.parse(body, SecurityScheme)) for name, body in declared.items())
    return [re.sub(r"[^A-Za-z0-9._~+-]", "-", name) for name in dict.fromkeys(names)]


def _challenge(name: str, scheme: SecurityScheme) -> str:
    match scheme.WhichOneof("scheme"):
        case "http_auth_security_scheme":
            return scheme.http_auth_security_scheme.scheme
        case "oauth2_security_scheme" | "open_id_connect_security_scheme":
            return "Bearer"
    return name  # HTTP has none for keys in headers and cookies, nor for certificates


def render(card: AgentCard, keys: str | None = None) -> Rendered:
    """`card` as JSON, signed if this site has keys; `keys` is the URL of the public ones, None asks for no signatures.

    It holds what A2A 5.7 wants to be there and nothing that 8.4.1 wants left out, so that it is signed as it stands.
    Names are sorted: protobuf's maps come in another order in each process, and the ETag is to be the same in all.
    """
    data = _merged(codec.to_complete_data(card), v0_3.card_fields(card))
    for scheme in data.get("securitySchemes", {}).values():
        _tell_all(scheme)
    signed = data.pop("signatures", [])  # by the CARD_MODIFIER
    if keys is not None:
        signed += signatures.of(codec.dumps(data, sort_keys=True), keys)
    body = codec.dumps(data | {"signatures": signed} if signed else data, sort_keys=True).encode()
    return Rendered(body, f'"{hashlib.sha256(body).hexdigest()}"')


def _merged(data: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """`data` with what only `more` has, at every depth, but for what is False, as it is if it isn't there."""
    for name, value in more.items():
        if value is False:
            continue
        pairs = [(data.setdefault(name, value), value)]
        if isinstance(value, list) and isinstance(data[name], list):
            pairs = list(zip(data[name], value, strict=False))
        for own, other in pairs:
            if isinstance(own, dict) and isinstance(other, dict):
                _merged(own, other)
    return data


def _tell_all(scheme: dict[str, Any]) -> None:
    """Clients of the a2a-sdk read a scheme that has fields of 0.3 by these alone, so they get what 1.0 adds."""
    if "type" in scheme:
        (content,) = (value for name, value in scheme.items() if name.endswith("SecurityScheme"))
        _merged(scheme, content)


def _card(agent: Agent, document: Document, urls: Urls, tenant: str, listed: list[dict[str, Any]]) -> AgentCard:
    """`document` with what depends on the request and on this site."""
    data = document | _security(agent, urls)
    data["capabilities"] = document["capabilities"] | {"streaming": streams(agent)}
    data["supportedInterfaces"] = list(interfaces(agent, document, urls, tenant))
    data["skills"] = listed
    return codec.parse(data, AgentCard)


def interfaces(agent: Agent, document: Document, urls: Urls, tenant: str = "") -> Iterable[dict[str, str]]:
    """The interfaces as clients read them; those that this site doesn't serve are left out."""
    own = {"JSONRPC": urls.jsonrpc, "HTTP+JSON": urls.http_json, "GRPC": urls.grpc}
    chosen = [_chosen(item, own, agent, tenant) for item in document["supportedInterfaces"]] or [
        (binding, url, version, _named(binding, version, agent, tenant))
        for version in versions.supported()
        for binding, url in own.items()
        if (binding, version) != ("GRPC", versions.LEGACY) or (agent.is_default and not tenant)
    ]
    for binding, url, version, interface_tenant in chosen:
        if url:
            spoken = versions.major_minor(version)
            # Clients of 1.0 put the tenant in themselves (A2A 5.3), those of 0.3 know nothing but the URL.
            by_url = interface_tenant and spoken == versions.LEGACY and url in (urls.jsonrpc, urls.http_json)
            place = f"{url}/{interface_tenant}" if by_url else url
            interface = {"url": place, "protocolBinding": binding, "protocolVersion": spoken}
            yield interface | ({"tenant": interface_tenant} if interface_tenant else {})


def _chosen(item: dict[str, str], own: dict[str, str], agent: Agent, tenant: str) -> tuple[str, str, str, str]:
    """Binding, URL, version and tenant of an interface that the document lists."""
    binding, version, elsewhere = item["protocolBinding"], item["protocolVersion"], item.get("url", "")
    named = item.get("tenant", "")
    if not elsewhere and (tenant or not named):
        named = _named(binding, version, agent, tenant)
    return binding, elsewhere or own.get(binding, ""), version, named


def _named(binding: str, version: str, agent: Agent, tenant: str) -> str:
    """The tenant that clients send. All agents have one gRPC address, so there it names the agent, too.

    In A2A 0.3 requests name no tenant: over gRPC they reach the default agent.
    """
    if binding != "GRPC":
        return tenant
    return f"{agent.slug}/{tenant}".rstrip("/") if versions.major_minor(version) != versions.LEGACY else ""


def _security(agent: Agent, urls: Urls) -> dict[str, Any]:
    """The schemes that staff have written or the authenticators amount to, any one of which will do."""
    configured = list(schemes.configured(urls.site))
    scopes = {each.name: list(each.scopes) for each in configured}
    declared = agent.security_schemes or {each.name: each.body for each in configured}
    any_one = [{"schemes": {name: {"list": scopes.get(name, [])}}} for name in declared]
    if agent.anonymous_access != "denied" and not agent.restricted:
        any_one = []
    return {"securitySchemes": declared, "securityRequirements": agent.security_requirements or any_one}

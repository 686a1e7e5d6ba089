"""What is wrong with the document of a card, by field (A2A 4.4)."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, cast
from urllib.parse import urlsplit

from a2a.types import AgentCard, SecurityRequirement, SecurityScheme
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message as ProtoMessage

from a2a_django.agents import card
from a2a_django.agents.documents import AUTHENTICATED, VISIBLE_TO, Document
from a2a_django.models import Agent
from a2a_django.protocol import codec, errors, schema, values
from a2a_django.protocol.values import Violation
from a2a_django.settings import a2a_settings

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:\S+")


def faults(document: Any) -> list[Violation]:
    """What is wrong with that which `document` says; what it doesn't say only hinders publishing."""
    found = [(field, what) for field, what in _shape(document) if what not in schema.MISSING]
    return found or [*values.json_value(document, "AgentCard"), *_visibility(document), *_repeated(document)]


def problems(agent: Agent, document: Document) -> list[Violation]:
    """What keeps `document` from being published as the card of `agent`."""
    listed = list(card.interfaces(agent, document, _own(agent)))
    missing = [*_shape(document | {"supportedInterfaces": listed})]
    return [*missing, *_repeated(document), *_extensions(document), *_unserved(document), *_interfaces(agent, listed)]


def unknown(document: Document) -> list[str]:
    """The fields that no row holds; signatures are made when a card is served."""
    found = list(schema.unknown(_plain(document), cast(Descriptor, AgentCard.DESCRIPTOR)))
    return [*found, *(["signatures"] if document.get("signatures") else [])]


def _shape(document: Any) -> Iterator[Violation]:
    found = _wrong(_plain(document), AgentCard)
    yield from found
    if not found or all(what in schema.MISSING for _, what in found):
        for name, scheme in (document.get("securitySchemes") or {}).items():
            yield from ((f"securitySchemes.{name}: {field}", what) for field, what in _wrong(scheme, SecurityScheme))
        for index, item in enumerate(document.get("securityRequirements") or []):
            wrong = _wrong(item, SecurityRequirement)
            yield from ((f"securityRequirements[{index}]: {field}", what) for field, what in wrong)


def _plain(document: Any) -> Any:
    """`document` without who sees which skill, which is ours alone."""
    if not isinstance(document, dict) or not isinstance(document.get("skills"), list):
        return document
    skills = [
        {name: value for name, value in skill.items() if name != VISIBLE_TO} if isinstance(skill, dict) else skill
        for skill in document["skills"]
    ]
    return document | {"skills": skills}


def _wrong(data: Any, kind: type[ProtoMessage]) -> list[Violation]:
    try:
        codec.to_proto(data, kind)
    except errors.InvalidParamsError as error:
        listed = [(item["field"], item["message"]) for item in (error.data or {}).get("errors") or []]
        return listed or [(kind.DESCRIPTOR.name, error.message)]
    return []


def _visibility(document: Document) -> Iterator[Violation]:
    for index, skill in enumerate(document.get("skills") or []):
        seers = skill.get(VISIBLE_TO, AUTHENTICATED)
        if seers != AUTHENTICATED and not (isinstance(seers, list) and all(isinstance(name, str) for name in seers)):
            yield f"skills[{index}].{VISIBLE_TO}", f'must be "{AUTHENTICATED}" or a list of groups'


def _repeated(document: Document) -> Iterator[Violation]:
    ids = [skill.get("id") for skill in document.get("skills") or []]
    often = {name for name, count in Counter(ids).items() if name and count > 1}
    for index, name in enumerate(ids):
        if name in often:
            yield f"skills[{index}].id", f"“{name}” is given to more than one skill"


def _extensions(document: Document) -> Iterator[Violation]:
    for index, item in enumerate((document.get("capabilities") or {}).get("extensions") or []):
        if not _URI.fullmatch(item.get("uri") or ""):
            yield f"capabilities.extensions[{index}].uri", "must be a URI, such as https://example.com/ext/v1"


def _unserved(document: Document) -> Iterator[Violation]:
    """Interfaces that would be left out."""
    ours = {"JSONRPC": a2a_settings.ENABLE_JSONRPC, "HTTP+JSON": a2a_settings.ENABLE_HTTP_JSON}
    ours |= {"GRPC": bool(a2a_settings.GRPC_URL)}
    for index, item in enumerate(document["supportedInterfaces"]):
        binding = item.get("protocolBinding")
        if binding and not item.get("url") and not ours.get(binding):
            yield f"supportedInterfaces[{index}].url", f"is required: this site does not serve {binding}"


def _interfaces(agent: Agent, listed: list[dict[str, str]]) -> Iterator[Violation]:
    """Clients must find this very agent by one of them; a site that has gRPC alone has no such URL."""
    if not (a2a_settings.ENABLE_JSONRPC or a2a_settings.ENABLE_HTTP_JSON):
        return
    end = f"/{_path(agent)}"
    places = [urlsplit(interface["url"]) for interface in listed]
    if not any(
        url.scheme in ("http", "https") and url.hostname and url.path.rstrip("/").endswith(end) for url in places
    ):
        yield "supportedInterfaces", f"needs an http or https URL whose path ends in {end}: that is where this agent is"


def _own(agent: Agent) -> card.Urls:
    """Where this agent is, as far as it can be known without a request."""
    url = f"{a2a_settings.BASE_URL.rstrip('/') or 'https://localhost'}/{_path(agent)}"
    return card.Urls(
        jsonrpc=url if a2a_settings.ENABLE_JSONRPC else "",
        http_json=url if a2a_settings.ENABLE_HTTP_JSON else "",
        grpc=a2a_settings.GRPC_URL,
    )


def _path(agent: Agent) -> str:
    return f"{a2a_settings.PATH.strip('/')}/{agent.slug}".lstrip("/")

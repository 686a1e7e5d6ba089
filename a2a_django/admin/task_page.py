"""What a task's page shows of its log, bounded: a task may have more than a browser can take."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Any
from urllib.parse import urlsplit

from django.db.models.functions import Length, Substr

from a2a_django import snapshots
from a2a_django.models import Event, PushConfig, Task, Turn
from a2a_django.models.event import Kind
from a2a_django.protocol import codec
from a2a_django.protocol.states import TaskState

EVENTS = 200
MESSAGES = 200
ARTIFACTS = 200
TURNS = 100
WEBHOOKS = 100
LONGEST = 20_000
"""Characters of one text that are shown."""


@dataclass
class Page:
    """All that the template needs."""

    status_message: "Said | None"
    metadata: str
    messages: list["Said"]
    earlier_messages: int
    artifacts: list["Shown"]
    more_artifacts: int
    turns: list[Turn]
    more_turns: bool
    events: list["LogLine"]
    after: int
    next_after: int
    more_events: int
    push_configs: list["Webhook"]


@dataclass
class Piece:
    """One part of a message or artifact: text to read, or data, or a note of what is there."""

    kind: str
    text: str
    note: str = ""


@dataclass
class Said:
    """A message of the conversation."""

    role: str
    message_id: str
    pieces: list[Piece]


@dataclass
class Shown:
    """An artifact."""

    artifact_id: str
    name: str
    description: str
    pieces: list[Piece]


@dataclass
class LogLine:
    """An event of the log."""

    sequence: int
    kind: str
    state: str
    created_at: datetime
    body: str


@dataclass
class Webhook:
    """Where a client wants to hear of the task; says that there are secrets, never which."""

    config_id: str
    where: str
    scheme: str
    secrets: list[str]


def of(task: Task, *, after: str = "") -> Page:
    """The page of `task`, its events following number `after`."""
    row = Task.objects.get(pk=task.pk)  # whole, and at one moment
    found = snapshots.snapshot(row)
    history, artifacts = found.history, found.artifacts
    start = int(after) if after.isdecimal() and len(after) < 10 else 0
    events = log_lines(row, start)
    turns = list(Turn.objects.filter(task=row).select_related("user").order_by("-pk").defer("request")[: TURNS + 1])
    message = codec.loads(found.status).get("message")
    return Page(
        status_message=said(message) if message else None,
        metadata="" if row.metadata == "{}" else pretty(row.metadata),
        messages=[said(item) for item in history[-MESSAGES:]],
        earlier_messages=max(0, len(history) - MESSAGES),
        artifacts=[shown(item) for item in artifacts[:ARTIFACTS]],
        more_artifacts=max(0, len(artifacts) - ARTIFACTS),
        turns=turns[:TURNS],
        more_turns=len(turns) > TURNS,
        events=events,
        after=start,
        next_after=events[-1].sequence if events else start,
        more_events=max(0, row.last_sequence - events[-1].sequence) if events else 0,
        push_configs=[webhook(config) for config in PushConfig.objects.filter(task=row).order_by("pk")[:WEBHOOKS]],
    )


def log_lines(task: Task, after: int) -> list[LogLine]:
    """The next EVENTS events; no more of a long body than is shown leaves the database."""
    events = Event.objects.after(task.pk, after)
    rows = events.values_list("sequence", "kind", "state", "created_at", Substr("body", 1, LONGEST), Length("body"))[
        :EVENTS
    ]
    kinds, states = dict(Kind.choices), dict(TaskState.choices)
    return [
        LogLine(sequence, kinds.get(kind, kind), states.get(state, state), created_at, pretty(start, size))
        for sequence, kind, state, created_at, start, size in rows
    ]


def loads(text: str) -> Any:
    """JSON that we stored, or None where it is cut off."""
    try:
        return json.loads(text)
    except ValueError:
        return None


def pretty(text: str, size: int = 0) -> str:
    """JSON text with indentation; `size` is its whole length where `text` is only the start."""
    value = loads(text)
    if value is None:
        return f"{text}{_cut(size - len(text))}"
    return pretty_data(value)


def pretty_data(value: Any) -> str:
    """JSON data as indented text, up to LONGEST characters."""
    return clipped(json.dumps(value, ensure_ascii=False, indent=2))


def clipped(text: str) -> str:
    """Its first LONGEST characters, and how many follow."""
    return f"{text[:LONGEST]}{_cut(len(text) - LONGEST)}"


def _cut(missing: int) -> str:
    return f"\n… {missing:,} more characters" if missing > 0 else ""


def said(message: dict[str, Any]) -> Said:
    """A message (ProtoJSON) to show."""
    role = "user" if message.get("role") == "ROLE_USER" else "agent"
    return Said(role, message.get("messageId", ""), pieces(message.get("parts", ())))


def shown(artifact: dict[str, Any]) -> Shown:
    """An artifact (ProtoJSON) to show."""
    return Shown(
        artifact.get("artifactId", ""),
        artifact.get("name", ""),
        artifact.get("description", ""),
        pieces(artifact.get("parts", ())),
    )


def pieces(parts: Sequence[dict[str, Any]]) -> list[Piece]:
    """The parts to show; the chunks of a streamed text read as one."""
    found: list[Piece] = []
    for is_text, group in groupby(parts, key=lambda part: "text" in part):
        run = list(group)
        found += [_text(run)] if is_text else [_piece(part) for part in run[:MESSAGES]]
    return found


def _text(parts: list[dict[str, Any]]) -> Piece:
    note = f"{len(parts)} parts" if len(parts) > 1 else parts[0].get("mediaType", "")
    return Piece("text", clipped("".join(part["text"] for part in parts)), note)


def _piece(part: dict[str, Any]) -> Piece:
    note = " ".join(filter(None, [part.get("filename"), part.get("mediaType")]))
    if "data" in part:
        return Piece("data", pretty_data(part["data"]), note)
    if "url" in part:
        return Piece("url", clipped(part["url"]), note)  # as text: a client's link is not ours to offer
    return Piece("raw", f"{len(part.get('raw', '')) * 3 // 4:,} bytes", note)


def webhook(config: PushConfig) -> Webhook:
    """A push config to show, without user, password, query and fragment of its URL: they may be secrets."""
    try:
        url = urlsplit(config.url)
        where = f"{url.scheme}://{url.netloc.rpartition('@')[2]}{url.path}{'?…' if url.query or url.fragment else ''}"
    except ValueError:
        where = "not a URL"
    kept = {"token": config.token, "credentials": config.credentials}
    secrets = [name if secret.readable else f"{name} (unreadable)" for name, secret in kept.items() if secret]
    return Webhook(config.config_id, where, config.authentication_scheme, secrets)

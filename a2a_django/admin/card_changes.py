"""What differs between two cards, line by line, to be read by people."""

import difflib
import json
from dataclasses import dataclass
from typing import Any

from a2a_django.agents.documents import Document
from a2a_django.models import AgentCardVersion
from a2a_django.protocol import codec

_KINDS = {"+": "added", "-": "removed", "@": "place"}


@dataclass
class Line:
    """A line of the comparison; `kind` is one of _KINDS, or nothing for what is in both."""

    kind: str
    text: str


def between(old: Document, new: Document) -> list[Line]:
    """What turns `old` into `new`, with some lines around; nothing if they say the same."""
    lines = list(difflib.unified_diff(_lines(old), _lines(new), n=3, lineterm=""))[2:]  # the first two name files
    return [Line(_KINDS.get(line[0], ""), line) for line in lines]


def content(version: AgentCardVersion | None) -> Document:
    """The card of a version; an empty one before the first."""
    found: Document = codec.loads(version.content) if version else {}
    return found


def _lines(card: Document) -> list[str]:
    return json.dumps(_sorted(card), ensure_ascii=False, indent=2).splitlines() if card else []


def _sorted(value: Any) -> Any:
    """Objects by name within the card's own order: databases don't keep the order of what is in a JSON column."""
    if isinstance(value, list):
        return [_sorted(item) for item in value]
    return {name: _sorted(value[name]) for name in sorted(value)} if isinstance(value, dict) else value

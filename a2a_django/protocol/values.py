"""What single values of JSON data must be: each check yields what is wrong with one, and what is right."""

import base64
import binascii
import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from google.protobuf.timestamp_pb2 import Timestamp

from a2a_django.settings import a2a_settings

Violation = tuple[str, str]  # (camelCase path of the field, what is wrong)
Check = Callable[[Any, str], Iterator[Violation]]

INT32 = (-(2**31), 2**31 - 1)
_INTEGER = re.compile(r"-?[0-9]{1,12}")
_TIME = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
)
_BLANK = re.compile(r"[\x00-\x20\x7f]")

# Protobuf reads 100 messages within each other, and five stand around the data of a part in a Task's status. A list
# of JSON is two messages of protobuf, an object three.
_FRAMES = 95
_LIST_FRAMES, _OBJECT_FRAMES = 2, 3
_CONTAINERS = (dict, list)


@dataclass(frozen=True)
class Doubled:
    """A JSON object in which a key stands twice; `content` has the last value of each."""

    content: dict[str, Any]

    WRONG = "has a key that stands twice"


def any_string(value: Any, where: str) -> Iterator[Violation]:
    """Text of an executor's: protobuf has seen to it that it is text."""
    if not isinstance(value, str):
        yield where, "must be a string"


def string(value: Any, where: str) -> Iterator[Violation]:
    """Text that every database column and every UTF-8 answer can hold."""
    if not isinstance(value, str):
        yield where, "must be a string"
    elif wrong := flaw(value):
        yield where, wrong


def flaw(text: str) -> str:
    """What keeps `text` from being stored or sent; empty when nothing does."""
    if "\0" in text:
        return "must not have a NUL character"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "must not have half of a surrogate pair"
    return ""


def short(value: Any, where: str, length: int) -> Iterator[Violation]:
    """Text for a column of `length` characters."""
    yield from string(value, where)
    if isinstance(value, str) and len(value) > length:
        yield where, f"must have at most {length} characters"


def url(value: Any, where: str) -> Iterator[Violation]:
    """The absolute URL of a file, which executors fetch."""
    schemes: Sequence[str] = a2a_settings.PART_URL_SCHEMES
    if not isinstance(value, str) or flaw(value) or not _is_absolute(value, schemes):
        yield where, f"must be an absolute URL that begins with {' or '.join(f'{scheme}:' for scheme in schemes)}"


def _is_absolute(text: str, schemes: Sequence[str]) -> bool:
    try:
        parts = urlsplit(text)
        placed = parts.hostname if parts.scheme in ("http", "https") else parts.netloc + parts.path
        return parts.scheme in schemes and bool(placed) and parts.port != 0 and not _BLANK.search(text)
    except ValueError:
        return False


def boolean(value: Any, where: str) -> Iterator[Violation]:
    """True or false."""
    if not isinstance(value, bool):
        yield where, "must be true or false"


def integer(value: Any, where: str, bounds: tuple[int, int] = INT32) -> Iterator[Violation]:
    """A whole number within `bounds`, as a number or as text."""
    whole = type(value) is int or (isinstance(value, float) and value.is_integer())
    if isinstance(value, str):
        whole = _INTEGER.fullmatch(value) is not None
    if not whole or not bounds[0] <= int(value) <= bounds[1]:
        yield where, f"must be a whole number from {bounds[0]} to {bounds[1]}"


def base64_bytes(value: Any, where: str) -> Iterator[Violation]:
    """Base64 of either alphabet, padded or not."""
    if not isinstance(value, str) or not _is_base64(value):
        yield where, "must be a base64 string"


def _is_base64(text: str) -> bool:
    if text.endswith("=") and len(text) % 4:
        return False
    try:
        base64.b64decode(standard_base64(text), validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


def standard_base64(text: str) -> str:
    """Base64 of either alphabet, padded or not, in the standard one and padded."""
    return text.replace("-", "+").replace("_", "/") + "=" * (-len(text) % 4)


def time(value: Any, where: str) -> Iterator[Violation]:
    """A time of any offset, in the years that protobuf knows."""
    if isinstance(value, str) and _TIME.fullmatch(value.replace(" ", "+")) and " " in value:
        yield where, "has a space for a +, which must be written as %2B in a query string"
    elif not isinstance(value, str) or not _is_time(value):
        yield where, "must be a time such as 2026-01-31T12:00:00.000Z or 2026-01-31T13:00:00+01:00"


def _is_time(text: str) -> bool:
    try:
        Timestamp().FromJsonString(text)
    except (ValueError, OverflowError):
        return False
    return _TIME.fullmatch(text) is not None


# --- JSON within JSON


def any_json(value: Any, where: str) -> Iterator[Violation]:
    """Data of an executor's that protobuf can carry through every binding."""
    if _too_deep(value):
        yield where, "is nested too deeply: protobuf carries 31 objects or 47 arrays within each other"


def json_value(value: Any, where: str) -> Iterator[Violation]:
    """Data that can be stored, sent and read back by every binding."""
    too_deep = list(any_json(value, where))
    yield from too_deep
    if not too_deep and not is_fit(value):
        yield from _unfit(value, where)


def an_object(check: Check) -> Check:
    """`check`, for objects only."""

    def checked(value: Any, where: str) -> Iterator[Violation]:
        if isinstance(value, dict | Doubled):
            yield from check(value, where)
        else:
            yield where, "must be an object"

    return checked


def deeper(value: Any, levels: int) -> bool:
    """Whether more than so many objects and arrays stand within each other."""
    level: list[Any] = [value] if isinstance(value, _CONTAINERS) else []
    for _ in range(levels):
        level = [
            child
            for item in level
            for child in (item.values() if isinstance(item, dict) else item)
            if isinstance(child, _CONTAINERS)
        ]
        if not level:
            return False
    return bool(level)


def _too_deep(value: Any) -> bool:
    if not deeper(value, _FRAMES // _OBJECT_FRAMES):
        return False
    return deeper(value, _FRAMES // _LIST_FRAMES) or _frames(value) > _FRAMES


def _frames(value: Any) -> int:
    """How many messages of protobuf `value` is deep."""
    if isinstance(value, dict):
        return _OBJECT_FRAMES + max(map(_frames, value.values()), default=0)
    return _LIST_FRAMES + max(map(_frames, value), default=0) if isinstance(value, list) else 0


def is_fit(value: Any) -> bool:
    """Whether a JSON column and a UTF-8 answer can hold `value`; ten times as fast as to say why not."""
    if value is None or isinstance(value, bool):
        return True
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        text.encode()
    except (ValueError, TypeError, RecursionError):  # no finite number, half a pair; no JSON at all, or `Doubled`
        return False
    return "\\u0000" not in text or "\\u0000" not in text.replace("\\\\", "")


def _unfit(value: Any, where: str) -> Iterator[Violation]:
    if isinstance(value, Doubled):
        yield where, Doubled.WRONG
    elif isinstance(value, dict):
        for key, item in value.items():
            inner = f"{where}.{key[:50].encode(errors='replace').decode()}"
            if wrong := flaw(key):
                yield inner, f"has a name that {wrong}"
            yield from _unfit(item, inner)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _unfit(item, f"{where}[{index}]")
    elif isinstance(value, str):
        yield from string(value, where)
    elif isinstance(value, float) and not math.isfinite(value):
        yield where, "must be a number that a double can hold"

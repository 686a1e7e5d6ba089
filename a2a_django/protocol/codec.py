"""Strict JSON in, ProtoJSON text out: the same for all bindings (A2A 5.5 to 5.7)."""

import json
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, NoReturn, TypeVar, cast

from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message as ProtoMessage
from google.protobuf.timestamp_pb2 import Timestamp

from a2a_django.protocol import errors, schema
from a2a_django.settings import a2a_settings

_LINE_BREAKS = re.compile("[\x85\u2028\u2029]")  # httpx, and so the a2a-sdk's client, ends lines at these
Proto = TypeVar("Proto", bound=ProtoMessage)


def parse_json(raw: bytes) -> Any:
    """The JSON value in `raw` (UTF-8); JSONParseError says what is wrong with it."""
    try:
        value = json.loads(raw.decode(), parse_constant=_no_constant, parse_float=_finite, object_pairs_hook=_unique)
    except RecursionError as error:
        raise errors.JSONParseError("The JSON is nested too deeply") from error
    except ValueError as error:
        raise errors.JSONParseError(f"The body is not JSON in UTF-8: {error}") from error
    if b"\\u" in raw:
        _check_text(value)
    if raw.count(b"{") + raw.count(b"[") > a2a_settings.MAX_NESTING:
        _check_depth(value, a2a_settings.MAX_NESTING)
    return value


def _no_constant(name: str) -> NoReturn:
    raise errors.InvalidParamsError(f"{name} is not a JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise errors.InvalidParamsError(f"{text[:40]} is beyond a double")
    return number


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands twice in one object")
    return found


def _check_text(value: Any) -> None:
    """NUL and lone surrogates: no database column and no UTF-8 answer can hold them."""
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise errors.JSONParseError("The JSON has a lone surrogate") from error
    if "\\u0000" in text.replace("\\\\", ""):
        raise errors.JSONParseError("The JSON has a NUL character")


def _check_depth(value: Any, allowed: int) -> None:
    level: list[Any] = [value]
    for _ in range(allowed + 1):
        level = [
            child
            for item in level
            if isinstance(item, dict | list)
            for child in (item.values() if isinstance(item, dict) else item)
        ]
        if not level:
            return
    raise errors.JSONParseError(f"The JSON is nested more than {allowed} levels deep")


def to_proto(data: Any, kind: type[Proto]) -> Proto:
    """`data` as a `kind`; InvalidParamsError lists every field at fault, unknown fields are ignored."""
    if violations := schema.violations(data, cast(Descriptor, kind.DESCRIPTOR)):
        raise errors.invalid_params(*violations)
    return parse(data, kind)


def parse(data: Any, kind: type[Proto]) -> Proto:
    """`data` of our own as a `kind`, without looking for what is missing."""
    try:
        return json_format.ParseDict(data, kind(), ignore_unknown_fields=True)
    except (json_format.ParseError, ValueError, OverflowError, RecursionError) as error:
        raise errors.InvalidParamsError(f"The request is not a {kind.DESCRIPTOR.name}: {error}") from error


def query_to_proto(query: Iterable[tuple[str, list[str]]], path: Mapping[str, str], kind: type[Proto]) -> Proto:
    """A `kind` from query parameters (camelCase, A2A 11.5) and what the path says."""
    data, violations = schema.from_query(query, cast(Descriptor, kind.DESCRIPTOR))
    if violations:
        raise errors.invalid_params(*violations)
    return to_proto({**data, **path}, kind)


def read(text: str, kind: type[Proto]) -> Proto:
    """The `kind` that stands in `text` that we stored."""
    return json_format.Parse(text, kind(), ignore_unknown_fields=True)


def to_data(message: ProtoMessage) -> dict[str, Any]:
    """`message` as ProtoJSON data; ValueError for NaN and Infinity."""
    try:
        return json_format.MessageToDict(message)
    except json_format.SerializeToJsonError as error:
        raise ValueError(str(error)) from error


def dumps(data: Any) -> str:
    """`data` as the compact JSON text that we store and send: raw UTF-8, in one line for every SSE reader."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return _LINE_BREAKS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def loads(text: str) -> Any:
    """The JSON data in `text` that we stored."""
    return json.loads(text)


def to_text(message: ProtoMessage) -> str:
    """`message` as ProtoJSON text."""
    return dumps(to_data(message))


def timestamp(moment: datetime) -> str:
    """`moment` as A2A writes it: UTC, milliseconds, `Z` (A2A 5.6.1)."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def moment(text: str) -> datetime:
    """The time that a protobuf timestamp in JSON stands for, to the millisecond."""
    parsed = Timestamp()
    parsed.FromJsonString(text)
    whole: datetime = parsed.ToDatetime(UTC)
    return whole.replace(microsecond=whole.microsecond // 1000 * 1000)

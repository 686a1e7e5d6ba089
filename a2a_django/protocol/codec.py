"""Strict JSON in, ProtoJSON text out: the same for all bindings (A2A 5.5 to 5.7)."""

import json
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from itertools import chain, islice
from typing import Any, TypeVar, cast

from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message as ProtoMessage
from google.protobuf.timestamp_pb2 import Timestamp

from a2a_django.protocol import errors, schema, values
from a2a_django.protocol.values import Doubled, Violation
from a2a_django.settings import a2a_settings

_LINE_BREAKS = re.compile("[\x85\u2028\u2029]")  # httpx, and so the a2a-sdk's client, ends lines at these
_DOUBLE_DIGITS = 308  # whole numbers of more may be beyond a double; of 4300 Python makes none
_DEEP = 1000  # more than any data that `schema` lets pass
Proto = TypeVar("Proto", bound=ProtoMessage)


def parse_json(raw: bytes) -> Any:
    """The JSON value in `raw` (UTF-8); JSONParseError says where it is none.

    What JSON allows and we don't is in there for `to_proto` to name: NaN and infinity, also for numbers beyond a
    double, NUL and halves of surrogate pairs, objects that are `Doubled`.
    """
    try:
        text = raw.decode()
        return json.loads(text, parse_int=_integer, object_pairs_hook=_unique)
    except UnicodeDecodeError as error:
        raise errors.JSONParseError(f"The body is not UTF-8: see byte {error.start}") from error
    except json.JSONDecodeError as error:
        if text.startswith("\ufeff"):
            raise errors.JSONParseError("The body begins with a byte order mark, which JSON must not") from error
        raise errors.JSONParseError(f"The body is not JSON: see line {error.lineno}, column {error.colno}") from error
    except RecursionError as error:
        raise errors.JSONParseError("The JSON is nested too deeply") from error


def _integer(text: str) -> int | float:
    return int(text) if len(text) <= _DOUBLE_DIGITS else float(text)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any] | Doubled:
    found = dict(pairs)
    return found if len(found) == len(pairs) else Doubled(found)


def to_proto(data: Any, kind: type[Proto], path: Mapping[str, str] | None = None) -> Proto:
    """`data` of a client's as a `kind`; InvalidParamsError lists the fields at fault, unknown ones are ignored.

    What `path` says goes before what `data` says.
    """
    return _checked(schema.bound(data, path or {}, _descriptor(kind)), kind)


def query_to_proto(query: Iterable[tuple[str, list[str]]], path: Mapping[str, str], kind: type[Proto]) -> Proto:
    """A `kind` from query parameters (camelCase, A2A 11.5) and what the path says."""
    data, doubled = schema.from_query(query, _descriptor(kind))
    return _checked(schema.bound(data, path, _descriptor(kind)), kind, doubled)


def _checked(data: Any, kind: type[Proto], found: Iterable[Violation] = ()) -> Proto:
    descriptor = _descriptor(kind)
    if values.deeper(data, a2a_settings.MAX_NESTING):
        raise errors.invalid_params((descriptor.name, f"is nested more than {a2a_settings.MAX_NESTING} levels deep"))
    wrong = list(islice(chain(found, schema.violations(data, descriptor)), errors.MAX_VIOLATIONS + 1))
    if wrong:
        raise errors.invalid_params(*wrong)
    return parse(data, kind)


def _descriptor(kind: type[Proto]) -> Descriptor:
    return cast(Descriptor, kind.DESCRIPTOR)


def parse(data: Any, kind: type[Proto]) -> Proto:
    """`data` of our own as a `kind`, without looking for what is missing."""
    try:
        return json_format.ParseDict(data, kind(), ignore_unknown_fields=True, max_recursion_depth=_DEEP)
    except (json_format.ParseError, ValueError, OverflowError, RecursionError) as error:
        raise errors.InvalidParamsError(f"The data is no {kind.DESCRIPTOR.name}") from error


def read(text: str, kind: type[Proto]) -> Proto:
    """The `kind` that stands in `text` that we stored."""
    return json_format.Parse(text, kind(), ignore_unknown_fields=True, max_recursion_depth=_DEEP)


def to_data(message: ProtoMessage) -> dict[str, Any]:
    """`message` as ProtoJSON data; ValueError for NaN and Infinity."""
    try:
        return json_format.MessageToDict(message)
    except json_format.SerializeToJsonError as error:
        raise ValueError(str(error)) from error


def to_complete_data(message: ProtoMessage) -> dict[str, Any]:
    """The same with the required fields that are empty, which ProtoJSON leaves out (A2A 5.7)."""
    return schema.completed(to_data(message), _descriptor(type(message)))


def dumps(data: Any, sort_keys: bool = False) -> str:
    """`data` as the compact JSON text that we store and send: raw UTF-8, in one line for every SSE reader."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False, sort_keys=sort_keys)
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

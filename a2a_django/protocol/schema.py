"""What a2a.proto demands of JSON data: types, enum names, required fields, all violations at once."""

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from typing import Any, NamedTuple

from google.api.field_behavior_pb2 import FieldBehavior, field_behavior
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.timestamp_pb2 import Timestamp

Violation = tuple[str, str]  # (camelCase path of the field, what is wrong)

_MAX_LENGTH = {  # by the end of the field's full name: DESIGN 6, and the columns that hold them
    "context_id": 256,
    "message_id": 256,
    "artifact_id": 256,
    "TaskPushNotificationConfig.id": 256,
    "TaskPushNotificationConfig.url": 2000,
    "AuthenticationInfo.scheme": 50,
}
_INTEGER = re.compile(r"-?\d{1,12}")


class Field(NamedTuple):
    """What we need of a proto field, looked up once."""

    name: str
    repeated: bool
    required: bool
    oneof: str
    check: Callable[[Any, str], Iterator[Violation]]
    nullable: bool  # google.protobuf.Value: null is a value
    map: bool


def violations(data: Any, descriptor: Descriptor, path: str = "") -> list[Violation]:
    """What keeps `data` from being a `descriptor` message; empty when nothing does."""
    return list(_object(data, descriptor, path))


def _object(data: Any, descriptor: Descriptor, path: str) -> Iterator[Violation]:
    if not isinstance(data, dict):
        yield path or descriptor.name, "must be an object"
        return
    fields, required, choices = _layout(descriptor)
    given: dict[str, Field] = {}
    for key, value in data.items():
        field = fields.get(key)
        if field is None or (value is None and not field.nullable):
            continue
        where = f"{path}.{field.name}" if path else field.name
        if field.name in given:
            yield where, "is given twice"
        given[field.name] = field
        yield from _value(field, value, where)
    for name in required:
        if name not in given:
            yield f"{path}.{name}" if path else name, "is required"
    for choice in choices:
        yield from _choice(descriptor, choice, [name for name, field in given.items() if field.oneof == choice], path)


def _choice(descriptor: Descriptor, choice: str, chosen: list[str], path: str) -> Iterator[Violation]:
    names = [field.json_name for field in descriptor.oneofs_by_name[choice].fields]
    if len(chosen) > 1:
        yield path or descriptor.name, f"has {' and '.join(chosen)}, but only one of {', '.join(names)} may be set"
    elif not chosen and descriptor.name in ("Part", "SecurityScheme"):
        yield path or descriptor.name, f"needs one of {', '.join(names)}"


def _value(field: Field, value: Any, where: str) -> Iterator[Violation]:
    if field.map:
        if not isinstance(value, dict):
            yield where, "must be an object"
        return
    if not field.repeated:
        wrong = list(field.check(value, where))
        yield from wrong
        if field.required and value == "" and not wrong:
            yield where, "must not be empty"
        return
    if not isinstance(value, list):
        yield where, "must be an array"
        return
    if field.required and not value:
        yield where, "must have at least one element"
    for index, item in enumerate(value):
        yield from field.check(item, f"{where}[{index}]")


@cache
def _layout(descriptor: Descriptor) -> tuple[dict[str, Field], tuple[str, ...], tuple[str, ...]]:
    """Fields by both their names, names of the required ones, names of the real oneofs."""
    fields = {proto.name: _field(proto) for proto in descriptor.fields}
    required = tuple(field.name for field in fields.values() if field.required)
    choices = tuple(name for name in descriptor.oneofs_by_name if not name.startswith("_"))
    return fields | {field.name: field for field in fields.values()}, required, choices


def _field(proto: FieldDescriptor) -> Field:
    message = proto.message_type
    oneof = proto.containing_oneof
    return Field(
        name=proto.json_name,
        repeated=proto.is_repeated,
        required=FieldBehavior.REQUIRED in proto.GetOptions().Extensions[field_behavior],
        oneof=oneof.name if oneof is not None and not oneof.name.startswith("_") else "",
        check=_checker(proto),
        nullable=message is not None and message.full_name == "google.protobuf.Value",
        map=message is not None and message.GetOptions().map_entry,
    )


def _checker(proto: FieldDescriptor) -> Callable[[Any, str], Iterator[Violation]]:
    message, enum = proto.message_type, proto.enum_type
    if message is not None:
        if message.full_name in _WELL_KNOWN:
            return _WELL_KNOWN[message.full_name]
        return lambda value, where: _object(value, message, where)
    if enum is not None:
        return lambda value, where: _enum(value, enum, where)
    for name, length in _MAX_LENGTH.items():
        if proto.full_name.endswith(f".{name}"):
            return partial(_short, length=length)
    return _SCALARS[proto.type]


def _enum(value: Any, enum: EnumDescriptor, where: str) -> Iterator[Violation]:
    known = enum.values_by_number.get(value) if type(value) is int else enum.values_by_name.get(str(value))
    if known is None or known.number == 0:
        names = ", ".join(item.name for item in enum.values if item.number)
        yield where, f"is not one of {names}"


def _string(value: Any, where: str) -> Iterator[Violation]:
    if not isinstance(value, str):
        yield where, "must be a string"


def _short(value: Any, where: str, length: int) -> Iterator[Violation]:
    if not isinstance(value, str):
        yield where, "must be a string"
    elif len(value) > length or "\0" in value:
        yield where, f"must have at most {length} characters, and no NUL among them"


def _boolean(value: Any, where: str) -> Iterator[Violation]:
    if not isinstance(value, bool):
        yield where, "must be true or false"


def _int32(value: Any, where: str) -> Iterator[Violation]:
    whole = type(value) is int or (isinstance(value, float) and value.is_integer())
    if isinstance(value, str):
        whole = _INTEGER.fullmatch(value) is not None
    if not whole or not -(2**31) <= int(value) < 2**31:
        yield where, "must be a 32-bit integer"


def base64_text(value: Any, where: str) -> Iterator[Violation]:
    """Whether `value` is base64, standard or for URLs, padded or not."""
    try:
        text = value.replace("-", "+").replace("_", "/").rstrip("=")
        base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (AttributeError, binascii.Error, ValueError):
        yield where, "must be a base64 string"


def _struct(value: Any, where: str) -> Iterator[Violation]:
    if not isinstance(value, dict):
        yield where, "must be an object"


def _anything(value: Any, where: str) -> Iterator[Violation]:
    yield from ()


def _timestamp(value: Any, where: str) -> Iterator[Violation]:
    try:
        Timestamp().FromJsonString(value)
    except (ValueError, TypeError, AttributeError, OverflowError):
        yield where, "must be a time such as 2026-01-31T12:00:00.000Z"


_WELL_KNOWN = {
    "google.protobuf.Struct": _struct,
    "google.protobuf.Value": _anything,
    "google.protobuf.Timestamp": _timestamp,
}
_SCALARS = {
    FieldDescriptor.TYPE_STRING: _string,
    FieldDescriptor.TYPE_BOOL: _boolean,
    FieldDescriptor.TYPE_INT32: _int32,
    FieldDescriptor.TYPE_BYTES: base64_text,
}


def from_query(
    query: Iterable[tuple[str, list[str]]], descriptor: Descriptor
) -> tuple[dict[str, Any], list[Violation]]:
    """Data for `descriptor` from query parameters, and what is wrong with them; unknown names are ignored."""
    fields = {proto.json_name: proto for proto in descriptor.fields}
    data: dict[str, Any] = {}
    wrong: list[Violation] = []
    for name, values in query:
        proto = fields.get(name)
        if proto is None or (proto.message_type is not None and proto.message_type.full_name not in _WELL_KNOWN):
            continue
        if len(values) > 1:
            wrong.append((name, "is given more than once"))
        elif proto.type == FieldDescriptor.TYPE_BOOL:
            if values[0] not in ("true", "false"):
                wrong.append((name, "must be true or false"))
            data[name] = values[0] == "true"
        elif "\0" in values[0]:  # parse_json refuses it in bodies; what executors say may have it
            wrong.append((name, "must not have a NUL character"))
        elif values[0] or proto.type != FieldDescriptor.TYPE_STRING:
            data[name] = values[0]
    return data, wrong

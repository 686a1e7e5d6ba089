"""What a2a.proto demands of JSON data: types, enum names, required fields, all violations at once."""

from collections.abc import Iterable, Iterator, Mapping
from functools import cache, partial
from typing import Any, NamedTuple

from google.api.field_behavior_pb2 import FieldBehavior, field_behavior
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

from a2a_django.protocol import values
from a2a_django.protocol.values import Check, Doubled, Violation

REQUIRED, EMPTY, NO_ELEMENT = "is required", "must not be empty", "must have at least one element"
MISSING = frozenset({REQUIRED, EMPTY, NO_ELEMENT})
"""What is wrong with data that is right as far as it goes."""

_MAX_LENGTH = {  # by the end of the field's full name: DESIGN 6, and the columns that hold them
    "context_id": 256,
    "message_id": 256,
    "artifact_id": 256,
    "TaskPushNotificationConfig.id": 256,
    "TaskPushNotificationConfig.url": 2000,
    "AuthenticationInfo.scheme": 50,
}
_BOUNDS = {  # likewise: A2A 3.1.4, 3.2.4
    "history_length": (0, values.INT32[1]),
    "ListTasksRequest.page_size": (1, 100),
}


class Field(NamedTuple):
    """What we need of a proto field, looked up once."""

    name: str
    repeated: bool
    required: bool
    oneof: str
    check: Check
    nullable: bool  # google.protobuf.Value: null is a value
    map: bool


def violations(data: Any, descriptor: Descriptor, *, client: bool = True) -> Iterator[Violation]:
    """What keeps `data` from being a `descriptor` message, as far as the caller wants to hear of it.

    `client`: data of a client's. An executor may say more: a NUL within text, files under any URL.
    """
    return _object(data, descriptor, "", client)


def _object(data: Any, descriptor: Descriptor, path: str, client: bool) -> Iterator[Violation]:
    if isinstance(data, Doubled):
        yield path or descriptor.name, Doubled.WRONG
        data = data.content
    if not isinstance(data, dict):
        yield path or descriptor.name, "must be an object"
        return
    fields, required, choices = _layout(descriptor, client)
    yield from _strange_names(data.keys() - fields.keys(), path or descriptor.name)
    given: dict[str, Field] = {}
    named: set[str] = set()
    for key, value in data.items():
        field = fields.get(key)
        if field is None:
            continue
        where = f"{path}.{field.name}" if path else field.name
        if field.name in named:  # a null, too: protobuf would take the other value away
            yield where, "is given twice"
        named.add(field.name)
        if value is not None or field.nullable:
            given[field.name] = field
            yield from _value(field, value, where)
    for name in required:
        if name not in given:
            yield f"{path}.{name}" if path else name, REQUIRED
    for choice in choices:
        yield from _choice(descriptor, choice, [name for name, field in given.items() if field.oneof == choice], path)


def _strange_names(unknown: Iterable[str], where: str) -> Iterator[Violation]:
    """Unknown names are ignored, but for those that protobuf could not even look for."""
    for name in sorted(unknown):
        if wrong := values.flaw(name):
            yield where, f"has a name that {wrong}"


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
        right = True
        for wrong in field.check(value, where):
            right = False
            yield wrong
        if field.required and value == "" and right:
            yield where, EMPTY
        return
    if not isinstance(value, list):
        yield where, "must be an array"
        return
    if field.required and not value:
        yield where, NO_ELEMENT
    for index, item in enumerate(value):
        yield from field.check(item, f"{where}[{index}]")


@cache
def _layout(descriptor: Descriptor, client: bool) -> tuple[dict[str, Field], tuple[str, ...], tuple[str, ...]]:
    """Fields by both their names, names of the required ones, names of the real oneofs."""
    fields = {proto.name: _field(proto, client) for proto in descriptor.fields}
    required = tuple(field.name for field in fields.values() if field.required)
    choices = tuple(name for name in descriptor.oneofs_by_name if not name.startswith("_"))
    return fields | {field.name: field for field in fields.values()}, required, choices


def _field(proto: FieldDescriptor, client: bool) -> Field:
    message = proto.message_type
    oneof = proto.containing_oneof
    return Field(
        name=proto.json_name,
        repeated=proto.is_repeated,
        required=_required(proto),
        oneof=oneof.name if oneof is not None and not oneof.name.startswith("_") else "",
        check=_checker(proto, client),
        nullable=message is not None and message.full_name == "google.protobuf.Value",
        map=_is_map(proto),
    )


def _checker(proto: FieldDescriptor, client: bool) -> Check:
    message, enum = proto.message_type, proto.enum_type
    if message is not None:
        if message.full_name in _WELL_KNOWN:
            return _well_known(message.full_name, client)
        return lambda value, where: _object(value, message, where, client)
    if enum is not None:
        return _enum(enum)
    if client and proto.full_name.endswith(".Part.url"):
        return values.url
    if length := _by_name(proto, _MAX_LENGTH):
        return partial(values.short, length=length)
    if bounds := _by_name(proto, _BOUNDS):
        return partial(values.integer, bounds=bounds)
    if proto.type == FieldDescriptor.TYPE_STRING:
        return values.string if client else values.any_string
    return _SCALARS[proto.type]


def _by_name(proto: FieldDescriptor, table: Mapping[str, Any]) -> Any:
    return next((value for name, value in table.items() if proto.full_name.endswith(f".{name}")), None)


def _well_known(name: str, client: bool) -> Check:
    if name == "google.protobuf.Timestamp":
        return values.time
    check = values.json_value if client else values.any_json
    return values.an_object(check) if name == "google.protobuf.Struct" else check


def _enum(enum: EnumDescriptor) -> Check:
    """The names and numbers of `enum`, but for what stands for none."""
    names = [item.name for item in enum.values if item.number]
    numbers = [item.number for item in enum.values if item.number]

    def check(value: Any, where: str) -> Iterator[Violation]:
        if value not in (names if isinstance(value, str) else numbers if type(value) is int else ()):
            yield where, f"is not one of {', '.join(names)}"

    return check


_WELL_KNOWN = ("google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.Timestamp")
_SCALARS: dict[int, Check] = {
    FieldDescriptor.TYPE_BOOL: values.boolean,
    FieldDescriptor.TYPE_INT32: values.integer,
    FieldDescriptor.TYPE_BYTES: values.base64_bytes,
}


def bound(data: Any, path: Mapping[str, str], descriptor: Descriptor) -> Any:
    """`data` with what the path of a request says, whatever `data` says there by either name of a field."""
    if not path or not isinstance(data, dict):
        return data
    names = {name for field in descriptor.fields if field.json_name in path for name in (field.name, field.json_name)}
    return {key: value for key, value in data.items() if key not in names} | dict(path)


def from_query(
    query: Iterable[tuple[str, list[str]]], descriptor: Descriptor
) -> tuple[dict[str, Any], list[Violation]]:
    """Data for `descriptor` from query parameters, and what is wrong with them; unknown names are ignored."""
    fields = {proto.json_name: proto for proto in descriptor.fields}
    data: dict[str, Any] = {}
    wrong: list[Violation] = []
    for name, given in query:
        proto = fields.get(name)
        if proto is None or (proto.message_type is not None and proto.message_type.full_name not in _WELL_KNOWN):
            continue
        if len(given) > 1:
            wrong.append((name, "is given more than once"))
        if proto.type == FieldDescriptor.TYPE_BOOL:
            data[name] = {"true": True, "false": False}.get(given[-1], given[-1])
        elif given[-1] or proto.type != FieldDescriptor.TYPE_STRING:
            data[name] = given[-1]
    return data, wrong


def completed(data: dict[str, Any], descriptor: Descriptor) -> dict[str, Any]:
    """`data` with the required fields that it lacks, empty, at every depth."""
    for proto in descriptor.fields:
        if _required(proto):
            data.setdefault(proto.json_name, _empty(proto))
        for message, kind in _messages(data.get(proto.json_name), proto):
            completed(message, kind)
    return data


def _required(proto: FieldDescriptor) -> bool:
    return FieldBehavior.REQUIRED in proto.GetOptions().Extensions[field_behavior]


def _empty(proto: FieldDescriptor) -> Any:
    if proto.is_repeated and not _is_map(proto):
        return []
    return proto.default_value if proto.message_type is None else {}


def unknown(data: Any, descriptor: Descriptor, path: str = "") -> Iterator[str]:
    """The fields of `data` that a `descriptor` message lacks, at every depth but within maps and Structs."""
    for name, value in data.items() if isinstance(data, dict) else ():
        where = f"{path}.{name}" if path else name
        proto = next((proto for proto in descriptor.fields if proto.json_name == name), None)
        if proto is None:
            yield where
        elif (message := proto.message_type) and message.full_name not in _WELL_KNOWN and not _is_map(proto):
            items = enumerate(value) if isinstance(value, list) else [("", value)]
            for index, item in items:
                yield from unknown(item, message, f"{where}[{index}]" if proto.is_repeated else where)


def _is_map(proto: FieldDescriptor) -> bool:
    return proto.message_type is not None and bool(proto.message_type.GetOptions().map_entry)


def _messages(value: Any, proto: FieldDescriptor) -> Iterator[tuple[dict[str, Any], Descriptor]]:
    """The messages in a field's value, and what they are."""
    message = proto.message_type
    if message is not None and _is_map(proto):
        message, value = message.fields_by_name["value"].message_type, list((value or {}).values())
    if value and message is not None and message.full_name not in _WELL_KNOWN:
        yield from ((item, message) for item in (value if isinstance(value, list) else [value]))

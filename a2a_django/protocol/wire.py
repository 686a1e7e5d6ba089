"""What came as protobuf, under the checks that JSON goes through: one code decides for all bindings."""

import base64
from collections.abc import Callable
from typing import Any, TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message as ProtoMessage

from a2a_django.protocol import codec

Proto = TypeVar("Proto", bound=ProtoMessage)


def checked(message: Proto) -> Proto:
    """A client's `message` as strictly looked at as JSON; InvalidParamsError lists every field at fault."""
    return codec.to_proto(_data(message), type(message))


def _data(message: ProtoMessage) -> dict[str, Any]:
    """`message` as ProtoJSON data, also where JSON has no word for it: that is for the checks to find."""
    return {field.json_name: _field(field, value) for field, value in message.ListFields()}


def _field(field: FieldDescriptor, value: Any) -> Any:
    return [_single(field, item) for item in value] if field.is_repeated else _single(field, value)


def _single(field: FieldDescriptor, value: Any) -> Any:
    if field.message_type is not None:
        read: Callable[[Any], Any] = _WELL_KNOWN.get(field.message_type.full_name, _data)
        return read(value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return known.name if known else value
    return base64.b64encode(value).decode() if field.type == FieldDescriptor.TYPE_BYTES else value


def _struct(struct: Any) -> dict[str, Any]:
    return {key: _json(value) for key, value in struct.fields.items()}


def _json(value: Any) -> Any:
    """A google.protobuf.Value, whose numbers may be NaN or infinite here."""
    match value.WhichOneof("kind"):
        case "struct_value":
            return _struct(value.struct_value)
        case "list_value":
            return [_json(item) for item in value.list_value.values]
        case None | "null_value":
            return None
        case kind:
            return getattr(value, kind)


def _time(value: Any) -> str:
    try:
        return str(value.ToJsonString())
    except (ValueError, OverflowError):  # beyond the years that JSON has
        return f"{value.seconds}s"


_WELL_KNOWN: dict[str, Callable[[Any], Any]] = {
    "google.protobuf.Struct": _struct,
    "google.protobuf.Value": _json,
    "google.protobuf.Timestamp": _time,
}

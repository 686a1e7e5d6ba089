"""Form fields for what an agent card holds: lists of strings, A2A objects as JSON, names of executors."""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from a2a.types import SecurityRequirement, SecurityScheme
from django import forms
from django.core.exceptions import ValidationError
from google.protobuf.message import Message as ProtoMessage

from a2a_django.agents import registry
from a2a_django.protocol import codec, errors, values

_MEDIA_TYPE = re.compile(r"(\*/\*|[\w!#$&^.+-]+/[\w!#$&^.+*-]+)(\s*;.*)?")


class StringListField(forms.CharField):
    """A list of strings, edited one per line; one that has line breaks in it is shown as JSON."""

    widget: forms.Widget = forms.Textarea(attrs={"rows": 3})
    separator = re.compile(r"[\r\n]+")
    joiner = "\n"

    def prepare_value(self, value: Any) -> Any:
        """The text to edit."""
        if not isinstance(value, list):
            return value
        text = self.joiner.join(map(str, value))
        return text if self.split(text) == value else json.dumps(value, ensure_ascii=False)

    def to_python(self, value: Any) -> Any:
        """The strings in the text."""
        if isinstance(value, list):
            return value
        text = str(value or "")
        if "\0" in text:
            raise ValidationError("Null characters are not allowed.", code="null_characters_not_allowed")
        return _json_strings(text) or self.split(text)

    def split(self, text: str) -> list[str]:
        """Its pieces without surrounding spaces, none twice."""
        return list(dict.fromkeys(piece for part in self.separator.split(text) if (piece := part.strip())))


def _json_strings(text: str) -> list[str] | None:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, list) and all(isinstance(item, str) for item in value) else None


class TagsField(StringListField):
    """A list of short strings, separated by commas."""

    widget = forms.TextInput(attrs={"class": "vTextField"})
    separator = re.compile(r"[,\r\n]+")
    joiner = ", "


class MediaTypesField(StringListField):
    """A list of media types, one per line."""

    def validate(self, value: Any) -> None:
        """Each must look like type/subtype."""
        super().validate(value)
        wrong = [item for item in value if not _MEDIA_TYPE.fullmatch(item)]
        if wrong:
            raise ValidationError([f"“{item}” is not a media type such as text/plain." for item in wrong])


class StrictJSONField(forms.JSONField):
    """JSON that every database and every client can take: no NUL, no lone surrogates, no key twice."""

    widget = forms.Textarea(attrs={"rows": 6, "class": "vLargeTextField a2a-json", "spellcheck": "false"})
    kind: type[Any] = dict
    shape = 'a JSON object: {"name": …}'

    def to_python(self, value: Any) -> Any:
        """The parsed value; no text gives an empty one."""
        if value is None or (isinstance(value, str) and not value.strip()):
            return self.kind()
        if not isinstance(value, str):
            return value
        try:
            parsed = codec.parse_json(value.encode())
        except errors.A2AError as error:
            raise ValidationError(error.message, code="invalid") from error
        if wrong := list(values.json_value(parsed, "It")):
            raise ValidationError([f"{where} {what}." for where, what in wrong], code="invalid")
        return parsed

    def validate(self, value: Any) -> None:
        """Refuses what is of another kind."""
        super().validate(value)
        if not isinstance(value, self.kind):
            raise ValidationError(f"Must be {self.shape}.", code="wrong_kind")

    def prepare_value(self, value: Any) -> Any:
        """Indented, since people read it; nothing where there is nothing."""
        if isinstance(value, str):
            return value
        return json.dumps(value, ensure_ascii=False, indent=2) if value else ""

    def bound_data(self, data: Any, initial: Any) -> Any:
        """What was typed, as it was typed, also when it is wrong."""
        return data


class SecuritySchemesField(StrictJSONField):
    """SecurityScheme objects by name (A2A 4.5)."""

    def validate(self, value: Any) -> None:
        """Names each scheme and field at fault."""
        super().validate(value)
        _check(f"“{name}”: {text}" for name, item in value.items() for text in faults(item, SecurityScheme))


class SecurityRequirementsField(StrictJSONField):
    """A list of SecurityRequirement objects; a caller has to meet one of them (A2A 4.5)."""

    kind = list
    shape = 'a JSON array: [{"schemes": {"name": {"list": []}}}]'

    def validate(self, value: Any) -> None:
        """Names each requirement and field at fault."""
        super().validate(value)
        _check(f"[{index}] {text}" for index, item in enumerate(value) for text in faults(item, SecurityRequirement))


def faults(data: Any, kind: type[ProtoMessage]) -> list[str]:
    """What keeps `data` from being a `kind`, a sentence each."""
    try:
        codec.to_proto(data, kind)
    except errors.A2AError as error:
        found = (error.data or {}).get("errors") or []
        return [f"{item['field']} {item['message']}." for item in found] or [error.message]
    return []


def _check(messages: Iterable[str]) -> None:
    if found := list(messages):
        raise ValidationError(found, code="invalid")


def executor_choices(saved: str) -> Callable[[], Sequence[tuple[str, str]]]:
    """The executors there are now, and `saved` even where it is none of them any more."""

    def choices() -> list[tuple[str, str]]:
        names = registry.names()
        missing = [(saved, f"{saved} (missing)")] if saved and saved not in names else []
        return [("", "---------"), *missing, *((name, name) for name in names)]

    return choices

"""Column types of our own."""

from typing import TYPE_CHECKING, Any

from django.core.exceptions import FieldError
from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models.query_utils import DeferredAttribute

from a2a_django.encryption import Secret


class IdentifierField(models.CharField):  # type: ignore[type-arg]
    """A string compared character by character on every database (MySQL would ignore case)."""

    def db_parameters(self, connection: BaseDatabaseWrapper) -> Any:
        parameters: dict[str, Any] = dict(super().db_parameters(connection))
        if connection.vendor == "mysql":
            parameters["collation"] = "utf8mb4_bin"
        return parameters


class SecretAttribute(DeferredAttribute):
    """Encrypts text when it is assigned, so that the attribute is always a `Secret`."""

    def __set__(self, instance: models.Model, value: "Secret | str | None") -> None:
        instance.__dict__[self.field.attname] = Secret.of(value) if isinstance(value, str) else value


if TYPE_CHECKING:
    _TextField = models.TextField[Secret | str, Secret]  # what is assigned, what is read
else:
    _TextField = models.TextField


class EncryptedField(_TextField):
    """Text that is encrypted in the database; `row.field.reveal()` gives it. No form edits it, no lookup finds it."""

    descriptor_class = SecretAttribute
    IN_FIXTURES = "encrypted:"  # tells what dumpdata wrote from text that somebody has put into a fixture

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs | {"editable": False})

    def deconstruct(self) -> Any:
        name, path, args, kwargs = super().deconstruct()
        del kwargs["editable"]
        return name, path, args, kwargs

    def from_db_value(self, value: str | None, *args: Any) -> Secret | None:
        return None if value is None else Secret(value)

    def get_prep_value(self, value: Any) -> Any:
        secret = Secret.of(value) if isinstance(value, str) else value
        return secret.ciphertext if isinstance(secret, Secret) else secret

    def get_lookup(self, lookup_name: str) -> Any:
        if lookup_name != "isnull":
            raise FieldError(f"{self} is encrypted: nothing can be looked up by its value.")
        return super().get_lookup(lookup_name)

    def value_to_string(self, obj: models.Model) -> str:
        """What fixtures hold; loading it needs no key, reading it then does."""
        secret = self.value_from_object(obj)
        return f"{self.IN_FIXTURES}{secret.ciphertext}" if secret else ""

    def to_python(self, value: Any) -> Any:
        """What a fixture holds as a `Secret`."""
        if isinstance(value, str) and value.startswith(self.IN_FIXTURES):
            return Secret(value.removeprefix(self.IN_FIXTURES))
        return Secret.of(value) if isinstance(value, str) else value


def string_list(help_text: str = "") -> "models.JSONField[list[str], list[str]]":
    """A column that holds a list of strings."""
    return models.JSONField(default=list, blank=True, help_text=help_text)

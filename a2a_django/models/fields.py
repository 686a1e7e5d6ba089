"""Column types of our own."""

from typing import Any

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper


class IdentifierField(models.CharField):  # type: ignore[type-arg]
    """A string compared character by character on every database (MySQL would ignore case)."""

    def db_parameters(self, connection: BaseDatabaseWrapper) -> Any:
        parameters: dict[str, Any] = dict(super().db_parameters(connection))
        if connection.vendor == "mysql":
            parameters["collation"] = "utf8mb4_bin"
        return parameters


def string_list() -> "models.JSONField[list[str], list[str]]":
    """A column that holds a list of strings."""
    return models.JSONField(default=list, blank=True)

"""Deletion that does not first load all that hangs on a row: a task may have ten thousand events."""

from collections.abc import Iterable
from typing import Any

from django.contrib import admin
from django.db.models import Model
from django.http import HttpRequest
from django.utils.text import capfirst

Deleted = tuple[list[str], dict[str, int], set[str], list[str]]


class KeptByTasks(admin.ModelAdmin):  # type: ignore[type-arg]
    """Rows that can be deleted as long as no task refers to them."""

    def get_deleted_objects(self, objs: Iterable[Any], request: HttpRequest) -> Deleted:
        """Asks whether there is one task, where Django would collect them all to show them."""
        objects = list(objs)
        kept = [f"{item} has tasks and stays; turn it off instead." for item in objects if item.tasks.exists()]
        if not kept:
            return super().get_deleted_objects(objects, request)
        return [described(item) for item in objects], counted(objects), set(), kept


def described(item: Model) -> str:
    """What the confirmation page says of a row."""
    return f"{capfirst(str(item._meta.verbose_name))}: {item}"


def counted(objects: list[Any]) -> dict[str, int]:
    """How many rows of which model the confirmation page announces."""
    return {str(objects[0]._meta.verbose_name_plural): len(objects)} if objects else {}

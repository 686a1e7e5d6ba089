"""What is limited to others stays closed when those are deleted."""

from collections.abc import Callable
from typing import Any

from django.db import models
from django.db.models.signals import post_delete, pre_delete


def keep_closed(model: type[models.Model], name: str, close: Callable[[Any], object]) -> None:
    """Has `close` called with the rows of `model` that lose the last of their many-to-many `name` by a deletion.

    No row there stands for no limit: what was for the deleted ones only would be open to all.
    """
    target = getattr(model, name).rel.model  # its class; what `_meta` knows is not ready yet
    rows, noted = model._default_manager, f"a2a_{model.__name__}_{name}"

    def note(instance: Any, **kwargs: object) -> None:
        setattr(instance, noted, list(rows.filter(**{name: instance}).values_list("pk", flat=True)))

    def check(instance: Any, **kwargs: object) -> None:
        # Only now: where several are deleted at once, none of them is the last one before.
        close(rows.filter(**{name: None}, pk__in=getattr(instance, noted)))

    pre_delete.connect(note, sender=target, weak=False)
    post_delete.connect(check, sender=target, weak=False)

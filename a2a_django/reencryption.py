"""After a change of A2A["ENCRYPTION_KEYS"]: what the database holds, encrypted with the first of them."""

from typing import Any

from django.apps import apps
from django.db import router, transaction
from django.db.models import Model

from a2a_django.encryption import DecryptionError
from a2a_django.models.fields import EncryptedField

BATCH = 500  # rows that are locked at a time


def reencrypt() -> tuple[int, list[str]]:
    """How many rows were looked through, and the places of the secrets that no key of this site opens."""
    done, unreadable = 0, list[str]()
    for model in apps.get_models():
        names = [field.attname for field in model._meta.local_concrete_fields if isinstance(field, EncryptedField)]
        after: Any = None
        while names and (rows := _batch(model, names, after, unreadable)):
            done, after = done + len(rows), rows[-1].pk
    return done, unreadable


def _batch(model: type[Model], names: list[str], after: Any, unreadable: list[str]) -> list[Model]:
    """The next rows; they are locked so that nothing is lost that somebody writes meanwhile."""
    database = router.db_for_write(model)
    found = model._base_manager.using(database).order_by("pk")
    with transaction.atomic(using=database):
        rows = list((found if after is None else found.filter(pk__gt=after)).select_for_update()[:BATCH])
        for row in rows:
            unreadable += [f"{model._meta.object_name} {row.pk}: {name}" for name in names if not _renewed(row, name)]
        found.bulk_update(rows, names)
    return rows


def _renewed(row: Model, name: str) -> bool:
    try:
        if secret := getattr(row, name):
            setattr(row, name, secret.renewed())
    except DecryptionError:
        return False
    return True

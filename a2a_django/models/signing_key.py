"""The keys that agent cards are signed with (A2A 8.4)."""

from datetime import timedelta
from typing import Any

from django.db import models
from django.db.models.functions import Coalesce, Now
from django.utils import timezone

from a2a_django import audit
from a2a_django.encryption import DecryptionError
from a2a_django.models.fields import EncryptedField, IdentifierField

KEPT = timedelta(days=30)
"""For so long clients can check what a retired key has signed, unless told otherwise."""


class Algorithm(models.TextChoices):
    """How a key signs; the two that A2A 8.4.2 names."""

    ES256 = "ES256", "ES256 (elliptic curve P-256)"
    RS256 = "RS256", "RS256 (RSA, 2048 bits)"


class SigningKeyQuerySet(models.QuerySet["SigningKey"]):
    """Keys by what they are good for."""

    def active(self) -> "SigningKeyQuerySet":
        """Those that sign."""
        return self.filter(retired_at=None)

    def published(self) -> "SigningKeyQuerySet":
        """Those whose signatures hold."""
        return self.filter(models.Q(retired_at=None) | models.Q(published_until__gt=Now()))

    def retire(self, keep: timedelta = KEPT) -> int:
        """Lets them sign no more, and their signatures hold for as long as `keep`; how many they were.

        Nothing needs their private halves any more, so these are erased.
        """
        until = models.ExpressionWrapper(Now() + keep, output_field=models.DateTimeField()) if keep else Now()
        for kid in self.values_list("kid", flat=True):
            audit.note("key.retired", key=kid)
        return self.update(retired_at=Coalesce("retired_at", Now()), published_until=until, private_key="")


class SigningKey(models.Model):
    """A key pair. It signs until it is retired, and is published for a while longer."""

    kid = IdentifierField("key id", max_length=64, unique=True)
    algorithm = models.CharField(max_length=5, choices=Algorithm, default=Algorithm.ES256)
    private_key = EncryptedField(blank=True, help_text="PEM; empty when the key is retired.")
    public_key = models.JSONField(editable=False, help_text="JWK.")
    created_at = models.DateTimeField(auto_now_add=True)
    retired_at = models.DateTimeField(null=True, editable=False)
    published_until = models.DateTimeField(null=True, editable=False)

    objects = SigningKeyQuerySet.as_manager()

    class Meta:
        ordering = ["-created_at", "-pk"]

    def __str__(self) -> str:
        return str(self.kid)

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Notes a new one for the audit."""
        made = self._state.adding
        super().save(*args, **kwargs)
        if made:
            audit.note("key.made", key=self.kid, algorithm=self.algorithm)

    @property
    def state(self) -> str:
        """What it is good for, in words."""
        if self.retired_at is None:
            return "signs" if self.private_key.readable else f"can't sign. {DecryptionError()}"
        if self.published_until is not None and self.published_until > timezone.now():
            return f"retired, published until {self.published_until:%Y-%m-%d %H:%M}"
        return "retired"

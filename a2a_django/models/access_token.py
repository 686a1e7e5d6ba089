"""Access tokens: credentials for programs that call in the name of a user (A2A 7)."""

import hashlib
import re
from datetime import timedelta
from functools import cached_property
from typing import Any

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django.utils import timezone
from django.utils.crypto import constant_time_compare, get_random_string

from a2a_django import audit
from a2a_django.models.agent import Agent
from a2a_django.models.caller import Scope
from a2a_django.models.fields import IdentifierField, string_list
from a2a_django.models.limits import keep_closed
from a2a_django.models.tenant import Tenant

FORMAT = re.compile(r"(a2a_[0-9A-Za-z]{8})_[0-9A-Za-z]{43}")
"""A whole token; what stands before the secret is its visible prefix."""

MINUTE = timedelta(minutes=1)
UNUSED = Q(last_used_at=None) | Q(last_used_at__lt=Now() - MINUTE)
"""Tokens that were not used in the last minute, as far as is known: their use is written down no more often."""


class AccessTokenQuerySet(models.QuerySet["AccessToken"]):
    """Tokens by what they are good for."""

    def usable(self) -> "AccessTokenQuerySet":
        """Those that are neither revoked nor expired, by the database's clock."""
        return self.filter(Q(expires_at=None) | Q(expires_at__gt=Now()), revoked_at=None)

    def revoke(self) -> int:
        """Makes them worthless from the next call on; how many were not so yet."""
        good = self.filter(revoked_at=None)
        for prefix, user in good.values_list("prefix", "user"):
            audit.note("token.revoked", token=prefix, user=user)
        return good.update(revoked_at=Now())


class AccessToken(models.Model):
    """A token of one user, for all that the user may do or for less; its text is known to whoever made it alone."""

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.CASCADE, related_name="+", help_text="Calls are this user's."
    )
    name = models.CharField(max_length=100, help_text="What it is for, such as the program that has it.")
    prefix = IdentifierField(max_length=12, unique=True, editable=False)
    # Of 256 random bits, so that nobody finds the token by trying: a slow, salted hash, as passwords need it,
    # would only cost each call a tenth of a second.
    digest = models.CharField(max_length=64, editable=False)
    tenant = models.ForeignKey(
        Tenant,
        models.CASCADE,
        null=True,
        blank=True,
        related_name="+",
        help_text="Good within it only; empty: anywhere.",
    )
    agents = models.ManyToManyField(
        Agent, blank=True, related_name="+", help_text="Good for them only; empty: for all that the user may call."
    )
    scopes = string_list()
    expires_at = models.DateTimeField("expires", null=True, blank=True, help_text="Empty: never.")
    revoked_at = models.DateTimeField("revoked", null=True, editable=False)
    last_used_at = models.DateTimeField("last used", null=True, editable=False)
    created_at = models.DateTimeField("created", auto_now_add=True)

    objects = AccessTokenQuerySet.as_manager()

    class Meta:
        ordering = ["-created_at", "-pk"]
        permissions = [("make_accesstoken_for_others", "Can make access tokens for other users")]

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Notes a new one for the audit."""
        made = self._state.adding
        super().save(*args, **kwargs)
        if made:
            audit.note("token.made", token=self.prefix, user=self.user_id, scopes=" ".join(self.scopes))

    def renew(self) -> str:
        """The text of the token, made now and told this once; the caller saves."""
        self.prefix = f"a2a_{get_random_string(8)}"
        text = f"{self.prefix}_{get_random_string(43)}"
        self.digest = _digest(text)
        return text

    def is_that_of(self, text: str) -> bool:
        """Whether `text` is this token; takes as long for any that is not."""
        return constant_time_compare(self.digest, _digest(text))

    @property
    def state(self) -> str:
        """What staff want to know first."""
        if self.revoked_at:
            return "revoked"
        return "expired" if self.expires_at and self.expires_at <= timezone.now() else "in use"

    @property
    def granted(self) -> frozenset[str]:
        """The scopes that it has."""
        return frozenset(self.scopes or Scope.values)

    @cached_property
    def agent_ids(self) -> frozenset[int]:
        """The keys of the agents that it is limited to; whoever finds a token may fill them in."""
        return frozenset(self.agents.values_list("pk", flat=True))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


keep_closed(AccessToken, "agents", AccessTokenQuerySet.revoke)

"""Published agent cards: what was served when, by whom it was published, and why."""

from typing import Any

from django.conf import settings
from django.db import models
from django.db.models.functions import Now

from a2a_django.models.agent import Agent


class AgentCardVersion(models.Model):
    """One published card of an agent, never changed; the newest is what is served.

    `content` is the AgentCard as JSON, without what depends on a request: `agents.documents` says what it holds.
    """

    agent = models.ForeignKey(Agent, models.CASCADE, related_name="card_versions")
    number = models.PositiveIntegerField()
    content = models.TextField()
    digest = models.CharField(max_length=64, help_text="SHA-256 of the content.")
    note = models.CharField(max_length=500, blank=True, help_text="What has changed, and why.")
    published_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True, related_name="+")
    published_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ["-number"]
        default_permissions = ["view"]
        constraints = [models.UniqueConstraint(fields=["agent", "number"], name="a2a_card_version_once_per_agent")]

    def __str__(self) -> str:
        return f"{self.agent}, version {self.number}"

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Saves a new version; one that was published stays as it is."""
        if not self._state.adding:
            raise TypeError("A published card is not changed: publish another version.")
        super().save(*args, **kwargs)

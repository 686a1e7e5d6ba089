"""Push notification configs: where a client wants to hear of a task (A2A 4.3.1)."""

from django.db import models

from a2a_django.models.fields import EncryptedField, IdentifierField
from a2a_django.models.task import Task


class PushConfig(models.Model):
    """One webhook of a task. Its `config_id` is unique within the task."""

    task = models.ForeignKey(Task, models.CASCADE, related_name="push_configs", db_index=False)
    config_id = IdentifierField(max_length=256)
    url = models.URLField("URL", max_length=2000)
    token = EncryptedField(blank=True)
    authentication_scheme = models.CharField(max_length=50, blank=True)
    credentials = EncryptedField(blank=True)
    version = models.CharField(max_length=8, default="1.0", help_text="The A2A version that its deliveries speak.")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["pk"]
        constraints = [models.UniqueConstraint(fields=["task", "config_id"], name="a2a_push_config_id")]

    def __str__(self) -> str:
        return str(self.config_id)

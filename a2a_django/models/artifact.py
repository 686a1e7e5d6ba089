"""Artifacts: what a task has brought forth, folded from its events (A2A 4.1.7)."""

from django.db import models

from a2a_django.models.fields import IdentifierField
from a2a_django.models.task import Task


class Artifact(models.Model):
    """One artifact as the events up to `through` make it; later chunks may still stand in the log alone."""

    task = models.ForeignKey(Task, models.CASCADE, related_name="artifacts", db_index=False)
    artifact_id = IdentifierField(max_length=256)
    body = models.TextField(help_text="Artifact as ProtoJSON.")
    through = models.PositiveIntegerField(help_text="Sequence of the newest event folded into it.")

    class Meta:
        ordering = ["pk"]
        constraints = [models.UniqueConstraint(fields=["task", "artifact_id"], name="a2a_artifact_once_per_task")]

    def __str__(self) -> str:
        return str(self.artifact_id)

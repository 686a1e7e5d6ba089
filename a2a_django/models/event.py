"""Events: the log of a task, numbered 1, 2, 3 without holes (DESIGN 4)."""

from django.db import models

from a2a_django.models.task import Task


class Kind(models.TextChoices):
    """What a StreamResponse carries."""

    TASK = "task", "task"
    MESSAGE = "message", "message"
    STATUS = "statusUpdate", "status update"
    ARTIFACT = "artifactUpdate", "artifact update"


class EventQuerySet(models.QuerySet["Event"]):
    """What comes after n."""

    def after(self, task_id: str, sequence: int) -> "EventQuerySet":
        """The events of a task that follow `sequence`, in order."""
        return self.filter(task_id=task_id, sequence__gt=sequence).order_by("sequence")


class Event(models.Model):
    """One StreamResponse as it is sent, written once by `event_log.append`."""

    task = models.ForeignKey(Task, models.CASCADE, related_name="events", db_index=False)
    sequence = models.PositiveIntegerField()
    kind = models.CharField(max_length=14, choices=Kind)
    state = models.CharField(max_length=32, blank=True, help_text="The task state it set, if any.")
    body = models.TextField(help_text="StreamResponse as ProtoJSON.")
    created_at = models.DateTimeField(auto_now_add=True)

    objects = EventQuerySet.as_manager()

    class Meta:
        ordering = ["sequence"]
        constraints = [models.UniqueConstraint(fields=["task", "sequence"], name="a2a_event_sequence")]

    def __str__(self) -> str:
        return f"{self.sequence} {self.kind}"

"""Messages: a task's history (A2A 4.1.4)."""

from django.db import models

from a2a_django.models.fields import IdentifierField
from a2a_django.models.task import Task


class Message(models.Model):
    """One message of a task: a client's, or one that came with a status or in an executor's Task."""

    task = models.ForeignKey(Task, models.CASCADE, related_name="messages", db_index=False)
    message_id = IdentifierField(max_length=256)
    role = models.CharField(max_length=20)
    body = models.TextField(help_text="Message as ProtoJSON.")
    event_sequence = models.PositiveIntegerField(default=0, help_text="The status event it came with, or 0.")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["pk"]
        indexes = [models.Index(fields=["task", "id"], name="a2a_message_in_order")]

    def __str__(self) -> str:
        return str(self.message_id)

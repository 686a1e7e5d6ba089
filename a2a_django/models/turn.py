"""Turns: one user message handed to an executor (DESIGN 5)."""

from django.conf import settings
from django.db import models
from django.db.models.functions import Now

from a2a_django.models.message import Message
from a2a_django.models.task import Task


class TurnState(models.TextChoices):
    """Where a turn stands."""

    QUEUED = "queued", "queued"
    RUNNING = "running", "running"
    DONE = "done", "done"
    FAILED = "failed", "failed"


ENDED = (TurnState.DONE, TurnState.FAILED)


class TurnQuerySet(models.QuerySet["Turn"]):
    """Turns of one task run one at a time, in the order of their keys."""

    def queued(self) -> "TurnQuerySet":
        """Those that wait to be run."""
        return self.filter(state=TurnState.QUEUED)


class Turn(models.Model):
    """One run of an executor: what it was asked, by whom, how it went."""

    task = models.ForeignKey(Task, models.CASCADE, related_name="turns", db_index=False)
    message = models.ForeignKey(Message, models.CASCADE, related_name="+")  # else each deletion of one reads all turns
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True, related_name="+")
    request = models.TextField(help_text="SendMessageRequest as ProtoJSON, without the message and without secrets.")
    context = models.JSONField(default=dict, help_text="Version, extensions and state of the call.")
    state = models.CharField(max_length=8, choices=TurnState, default=TurnState.QUEUED)
    attempt = models.PositiveSmallIntegerField(default=0)
    worker = models.CharField(max_length=200, blank=True, help_text="host:process that ran it.")
    start_sequence = models.PositiveIntegerField(default=0, help_text="The task's newest event when it started.")
    end_sequence = models.PositiveIntegerField(null=True, blank=True, help_text="The newest event when it ended.")
    idempotency_key = models.CharField(  # noqa: DJ001  NULLs don't collide in a unique constraint
        max_length=64, null=True, blank=True, help_text="Digest of caller, task and message id."
    )
    payload_digest = models.CharField(max_length=64, blank=True, help_text="Digest of what was sent under the key.")
    activated = models.JSONField(default=list, help_text="URIs of the extensions that took part (A2A 4.6).")
    answer = models.JSONField(null=True, blank=True, help_text="The error that the caller gets instead of a task.")
    error = models.TextField(blank=True, help_text="For staff: what went wrong. Never sent to a client.")
    # Processes decide by these, so the database's clock writes all of them: those of machines differ.
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    due_at = models.DateTimeField(
        db_default=Now(), help_text="From when on it may be run; later than now after a Retry."
    )
    handed_at = models.DateTimeField(db_default=Now(), help_text="When it was last handed on to be run, or will be.")
    started_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    objects = TurnQuerySet.as_manager()

    class Meta:
        ordering = ["pk"]
        constraints = [models.UniqueConstraint(fields=["idempotency_key"], name="a2a_turn_once")]
        indexes = [
            models.Index(fields=["task", "id"], name="a2a_turn_in_order"),
            models.Index(fields=["state", "id"], name="a2a_turn_by_state"),
        ]

    def __str__(self) -> str:
        return f"turn {self.pk}"

    @property
    def ended(self) -> bool:
        """Whether its executor has nothing more to say."""
        return self.state in ENDED

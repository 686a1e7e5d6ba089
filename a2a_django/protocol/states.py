"""Task states: which end a task, which hand the word back to the client (A2A 4.1.3)."""

from django.db import models


class TaskState(models.TextChoices):
    """The states of a task by the names that the protocol sends."""

    SUBMITTED = "TASK_STATE_SUBMITTED", "submitted"
    WORKING = "TASK_STATE_WORKING", "working"
    INPUT_REQUIRED = "TASK_STATE_INPUT_REQUIRED", "input required"
    AUTH_REQUIRED = "TASK_STATE_AUTH_REQUIRED", "auth required"
    COMPLETED = "TASK_STATE_COMPLETED", "completed"
    FAILED = "TASK_STATE_FAILED", "failed"
    CANCELED = "TASK_STATE_CANCELED", "canceled"
    REJECTED = "TASK_STATE_REJECTED", "rejected"


TERMINAL = frozenset({TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELED, TaskState.REJECTED})
INTERRUPTED = frozenset({TaskState.INPUT_REQUIRED, TaskState.AUTH_REQUIRED})

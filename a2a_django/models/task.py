"""Tasks: the unit of work, and the row that every append to its log updates (A2A 4.1.1)."""

from typing import TYPE_CHECKING

from django.conf import settings
from django.db import models

from a2a_django.models.agent import Agent, AnonymousAccess
from a2a_django.models.fields import IdentifierField
from a2a_django.models.tenant import Tenant
from a2a_django.protocol.states import TERMINAL, TaskState

if TYPE_CHECKING:
    from a2a_django.models.caller import Caller


class Cancel(models.TextChoices):
    """How far a cancel of a running task has come."""

    NONE = "", "none"
    REQUESTED = "requested", "requested"
    REFUSED = "refused", "refused by the executor"


class TaskQuerySet(models.QuerySet["Task"]):
    """Every queryset that serves a client starts from `visible_to`."""

    def visible_to(self, caller: "Caller") -> "TaskQuerySet":
        """What `caller` may read by id: same agent AND tenant AND owner (DESIGN 7)."""
        if not caller.authenticated and caller.agent.anonymous_access == AnonymousAccess.DENIED:
            return self.none()
        return self.filter(agent=caller.agent, tenant=caller.tenant, owner=caller.owner, visible=True)

    def listed_for(self, caller: "Caller") -> "TaskQuerySet":
        """What `caller` may list: knowing an id is no right to a list."""
        if not caller.authenticated and caller.agent.anonymous_access == AnonymousAccess.BY_ID:
            return self.none()
        return self.visible_to(caller)

    def live(self) -> "TaskQuerySet":
        """Those that no terminal state has closed."""
        return self.exclude(state__in=TERMINAL)


class Task(models.Model):
    """A task as its log stands at `last_sequence`; hidden until the executor speaks of it."""

    id = IdentifierField(max_length=64, primary_key=True)
    agent = models.ForeignKey(Agent, models.PROTECT, related_name="tasks", db_index=False)
    tenant = models.ForeignKey(Tenant, models.PROTECT, null=True, blank=True, related_name="tasks", db_index=False)
    owner = IdentifierField(max_length=191, blank=True, help_text="The scope that may see it; a user's primary key.")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True, related_name="a2a_tasks")
    context_id = IdentifierField(max_length=256)
    visible = models.BooleanField(default=False, help_text="False for calls that were answered without a task.")

    state = models.CharField(max_length=32, choices=TaskState, default=TaskState.SUBMITTED)
    status = models.TextField(help_text="TaskStatus as ProtoJSON.")
    status_timestamp = models.DateTimeField()
    status_sequence = models.PositiveIntegerField(default=0, help_text="The event that set the status.")
    metadata = models.TextField(default="{}", help_text="JSON.")

    last_sequence = models.PositiveIntegerField(default=0, help_text="Sequence of the newest event.")
    folded_sequence = models.PositiveIntegerField(default=0, help_text="Artifact rows hold the events up to here.")

    lease = models.CharField(max_length=36, blank=True, help_text="Token of the turn that runs; empty when none does.")
    lease_expires = models.DateTimeField(null=True, blank=True, help_text="By the database's clock.")
    crowded = models.BooleanField(default=False, help_text="Turns have had to wait: the end of one looks for the next.")
    cancel = models.CharField(max_length=10, choices=Cancel, default=Cancel.NONE, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    objects = TaskQuerySet.as_manager()

    class Meta:
        ordering = ["-status_timestamp", "-id"]
        indexes = [
            models.Index(fields=["agent", "tenant", "owner", "status_timestamp", "id"], name="a2a_task_by_caller"),
            models.Index(
                fields=["agent", "tenant", "owner", "context_id", "status_timestamp", "id"], name="a2a_task_by_context"
            ),
            models.Index(fields=["status_timestamp", "id"], name="a2a_task_by_time"),
        ]

    def __str__(self) -> str:
        return str(self.id)

    @property
    def terminal(self) -> bool:
        """Whether nothing can follow."""
        return self.state in TERMINAL

"""Tenants: customers of the site whose tasks are kept apart."""

from django.conf import settings
from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError
from django.core.validators import MinValueValidator
from django.db import models
from django.db.models import Q

from a2a_django.models.agent import Agent
from a2a_django.models.limits import keep_closed

RESERVED = frozenset({"v1", "tasks", "extendedAgentCard", "message", "agent"})


def not_reserved(slug: str) -> None:
    """Refuses a slug that is a path segment of the bindings."""
    if slug in RESERVED:
        raise ValidationError(f"“{slug}” is a path of the protocol, choose another slug.", code="reserved")


class Tenant(models.Model):
    """A tenant, named by `slug` in paths (`/a2a/<agent>/<tenant>`), in request bodies or in a header.

    It is there for its members and superusers alone, unless it is public; one without members is nobody's.
    """

    slug = models.SlugField(max_length=64, unique=True, validators=[not_reserved])
    name = models.CharField(max_length=200)
    enabled = models.BooleanField(default=True, help_text="A tenant that is off is not found by anyone.")
    public = models.BooleanField(
        default=False, help_text="For all whom an agent lets in, and its cards for everybody; else for members only."
    )
    agents = models.ManyToManyField(
        Agent, blank=True, related_name="+", help_text="Only they can be called within it; empty: all agents."
    )
    task_retention = models.FloatField(
        null=True,
        blank=True,
        validators=[MinValueValidator(0)],
        help_text="Seconds for which ended tasks are kept; empty: as A2A['TASK_RETENTION'] says.",
    )
    event_retention = models.FloatField(
        null=True,
        blank=True,
        validators=[MinValueValidator(0)],
        help_text="Seconds for which their events are kept; empty: A2A['EVENT_RETENTION'].",
    )
    requests_per_minute = models.PositiveIntegerField(
        null=True,
        blank=True,
        validators=[MinValueValidator(1)],
        help_text="Calls by all its callers together; empty: as A2A['TENANT_THROTTLE_RATE'] says.",
    )
    running_tasks = models.PositiveIntegerField(
        null=True,
        blank=True,
        validators=[MinValueValidator(1)],
        help_text="Tasks that may run or wait to run at a time; empty: as A2A['RUNNING_TASKS'] says.",
    )
    open_streams = models.PositiveIntegerField(
        null=True,
        blank=True,
        validators=[MinValueValidator(1)],
        help_text="Streams that may be open at a time in each web process; empty: as A2A['OPEN_STREAMS'] says.",
    )
    max_body_bytes = models.PositiveIntegerField(
        null=True,
        blank=True,
        validators=[MinValueValidator(1)],
        help_text="Larger requests are refused; empty, or more than A2A['MAX_BODY_BYTES']: as that says.",
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["slug"]

    def __str__(self) -> str:
        return self.name


class TenantMembership(models.Model):
    """A member of a tenant: a user, or whoever is in a group."""

    tenant = models.ForeignKey(Tenant, models.CASCADE, related_name="memberships", db_index=False)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, null=True, blank=True, related_name="+")
    group = models.ForeignKey(Group, models.CASCADE, null=True, blank=True, related_name="+")

    class Meta:
        ordering = ["pk"]
        constraints = [
            models.UniqueConstraint(fields=["tenant", "user"], name="a2a_member_once_per_tenant"),
            models.UniqueConstraint(fields=["tenant", "group"], name="a2a_member_group_once_per_tenant"),
            models.CheckConstraint(
                condition=Q(user=None, group__isnull=False) | Q(user__isnull=False, group=None),
                name="a2a_member_is_user_or_group",
                violation_error_message="Choose a user or a group.",
            ),
        ]

    def __str__(self) -> str:
        return str(self.user or self.group)


# What was for deleted agents only must not become good for all.
keep_closed(Tenant, "agents", lambda tenants: tenants.update(enabled=False))

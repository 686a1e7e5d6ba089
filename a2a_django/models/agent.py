"""Agents and what their cards say (A2A 4.4)."""

from functools import cached_property
from typing import TYPE_CHECKING, Any

from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError
from django.db import models, transaction

from a2a_django.models.fields import string_list
from a2a_django.models.limits import keep_closed

if TYPE_CHECKING:
    from a2a_django.models.agent_card_version import AgentCardVersion

RESERVED = frozenset({"jwks.json"})


def text_plain() -> list[str]:
    """What agents take and give unless told otherwise."""
    return ["text/plain"]


def not_reserved(slug: str) -> None:
    """Refuses a slug that is a path of ours at the same level."""
    if slug in RESERVED:
        raise ValidationError(f"“{slug}” is a path of its own, choose another slug.", code="reserved")


class AnonymousAccess(models.TextChoices):
    """What callers without credentials may do."""

    DENIED = "denied", "denied"
    BY_ID = "by_id", "by id: send, and follow a task whose id they know"
    SHARED = "shared", "shared: all anonymous callers see each other's tasks"


class Agent(models.Model):
    """An agent that clients can call: its card, and the executor that does the work."""

    slug = models.SlugField(
        max_length=64, unique=True, validators=[not_reserved], help_text="Its place, below /a2a/. Clients keep it."
    )
    enabled = models.BooleanField(default=True, help_text="An agent that is off is not found by anyone.")
    is_default = models.BooleanField(
        "default", default=False, help_text="Its card is served at /.well-known/agent-card.json. One agent can be it."
    )
    executor = models.CharField(
        max_length=200, help_text="Name given to @executor in an agents.py, or a path listed in A2A['EXECUTORS']."
    )
    anonymous_access = models.CharField(
        max_length=8, choices=AnonymousAccess, default=AnonymousAccess.DENIED, help_text="Callers without credentials."
    )
    allowed_groups = models.ManyToManyField(
        Group,
        blank=True,
        related_name="a2a_agents",
        help_text="Only their members, and superusers, may call it; empty: whoever is authenticated.",
    )
    requires_tenant = models.BooleanField(default=False, help_text="Calls that name no tenant are refused.")

    name = models.CharField(max_length=200)
    description = models.TextField()
    version = models.CharField(max_length=50, default="1.0.0")
    provider_organization = models.CharField(max_length=200, blank=True)
    provider_url = models.URLField(blank=True)
    documentation_url = models.URLField(blank=True)
    icon_url = models.URLField(blank=True)
    default_input_modes = models.JSONField(default=text_plain, help_text="Media types the agent understands.")
    default_output_modes = models.JSONField(default=text_plain, help_text="Media types the agent answers in.")
    streaming = models.BooleanField(default=True)
    push_notifications = models.BooleanField(default=False)
    extended_card = models.BooleanField(
        default=False, help_text="Authenticated callers may fetch a card with more skills than the public one."
    )
    hidden_skills = string_list(help_text="Ids of skills declared in code that the card does not list.")
    security_schemes = models.JSONField(
        default=dict, blank=True, help_text="SecurityScheme objects by name; empty: made from the authenticators."
    )
    security_requirements = models.JSONField(
        default=list, blank=True, help_text="SecurityRequirement objects; empty: any one of the schemes."
    )
    restartable = models.BooleanField(
        default=False, help_text="A turn whose process has died or was stopped is run again; otherwise its task fails."
    )
    turn_timeout = models.FloatField(
        null=True,
        blank=True,
        help_text="Seconds after which a turn that still runs fails, at each attempt; empty: never.",
    )
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["slug"]
        permissions = [("publish_agentcard", "Can publish agent cards and roll them back")]

    def __str__(self) -> str:
        return self.name

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Saves; a new default agent takes the place of the old one."""
        with transaction.atomic():
            super().save(*args, **kwargs)
            if self.is_default:
                Agent.objects.exclude(pk=self.pk).filter(is_default=True).update(is_default=False)

    @cached_property
    def published(self) -> "AgentCardVersion | None":
        """The newest published version of its card."""
        return self.card_versions.first()

    @cached_property
    def offers(self) -> dict[str, bool]:
        """The URIs of its extensions, and whether every call must ask for it; whoever finds an agent may fill it in."""
        # One that is listed twice counts as it stands last.
        return dict(self.extensions.order_by("required").values_list("uri", "required"))

    @cached_property
    def restricted(self) -> bool:
        """Whether it is for some groups only; whoever finds an agent may fill it in."""
        return self.allowed_groups.exists()


keep_closed(Agent, "allowed_groups", lambda agents: agents.update(enabled=False))


class AgentChild(models.Model):
    """Part of an agent's card that comes in an order which staff choose."""

    position = models.PositiveSmallIntegerField(default=0)

    class Meta:
        abstract = True


class Visibility(models.TextChoices):
    """Whose card lists a skill."""

    PUBLIC = "public", "everybody"
    AUTHENTICATED = "authenticated", "authenticated callers (extended card)"
    GROUPS = "groups", "members of these groups (extended card)"


class AgentSkill(AgentChild):
    """One thing an agent can do (A2A 4.4.5)."""

    agent = models.ForeignKey(Agent, models.CASCADE, related_name="skills")
    skill_id = models.CharField("id", max_length=100)
    name = models.CharField(max_length=200)
    description = models.TextField()
    tags = string_list()
    examples = string_list()
    input_modes = string_list()
    output_modes = string_list()
    security_requirements = models.JSONField(default=list, blank=True)
    visibility = models.CharField("listed for", max_length=16, choices=Visibility, default=Visibility.PUBLIC)
    groups = models.ManyToManyField("auth.Group", blank=True, related_name="+")

    class Meta:
        ordering = ["position", "pk"]
        constraints = [models.UniqueConstraint(fields=["agent", "skill_id"], name="a2a_skill_id_once_per_agent")]

    def __str__(self) -> str:
        return self.name


class AgentExtension(AgentChild):
    """A protocol extension that an agent supports or demands (A2A 4.4.4)."""

    agent = models.ForeignKey(Agent, models.CASCADE, related_name="extensions")
    uri = models.CharField("URI", max_length=500)
    description = models.TextField(blank=True)
    required = models.BooleanField(default=False, help_text="Calls that don't ask for it are refused.")
    params = models.JSONField(default=dict, blank=True)

    class Meta:
        ordering = ["position", "pk"]

    def __str__(self) -> str:
        return self.uri


class AgentInterface(AgentChild):
    """An interface named in the card (A2A 4.4.6); an agent without any lists all that this site serves."""

    agent = models.ForeignKey(Agent, models.CASCADE, related_name="interfaces")
    protocol_binding = models.CharField(
        max_length=200, help_text="JSONRPC, HTTP+JSON, GRPC or the URI of another binding."
    )
    url = models.CharField("URL", max_length=500, blank=True, help_text="Empty: this site's own URL of that binding.")
    protocol_version = models.CharField(max_length=10, default="1.0")
    tenant = models.CharField(max_length=64, blank=True)

    class Meta:
        ordering = ["position", "pk"]

    def __str__(self) -> str:
        return f"{self.protocol_binding} {self.protocol_version}"

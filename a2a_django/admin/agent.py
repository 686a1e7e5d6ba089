"""Agents, with what their cards list."""

from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.widgets import AdminTextareaWidget
from django.db import models
from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from a2a_django.admin import declared_skills
from a2a_django.admin.agent_forms import AgentForm, ExtensionForm, InterfaceForm, SkillForm
from a2a_django.admin.publishing import PublishingAdmin
from a2a_django.agents import registry
from a2a_django.models import Agent, AgentExtension, AgentInterface, AgentSkill
from a2a_django.models.agent import Visibility

SHORT_TEXT: "dict[type[models.Field[Any, Any]], dict[str, Any]]" = {
    models.TextField: {"widget": AdminTextareaWidget(attrs={"rows": 3})}
}


class SkillInline(admin.StackedInline):  # type: ignore[type-arg]
    """What the agent can do."""

    model = AgentSkill
    form = SkillForm
    prepopulated_fields = {"skill_id": ["name"]}
    formfield_overrides = SHORT_TEXT
    extra = 0
    verbose_name = "skill"
    verbose_name_plural = "skills"
    fieldsets = [
        (
            None,
            {
                "fields": [
                    ("name", "skill_id"),
                    "description",
                    "tags",
                    "examples",
                    ("input_modes", "output_modes"),
                    ("visibility", "groups", "position"),
                ]
            },
        ),
        ("Security", {"classes": ["collapse"], "fields": ["security_requirements"]}),
    ]


class ExtensionInline(admin.TabularInline):  # type: ignore[type-arg]
    """Protocol extensions."""

    model = AgentExtension
    form = ExtensionForm
    formfield_overrides = SHORT_TEXT
    extra = 0
    verbose_name = "extension"
    verbose_name_plural = "protocol extensions"
    fields = ["uri", "description", "required", "params", "position"]


class InterfaceInline(admin.TabularInline):  # type: ignore[type-arg]
    """Interfaces, for agents whose card should not name all that this site serves."""

    model = AgentInterface
    form = InterfaceForm
    extra = 0
    verbose_name = "interface"
    verbose_name_plural = "interfaces (none: all that this site serves)"
    fields = ["protocol_binding", "url", "protocol_version", "tenant", "position"]


@admin.register(Agent)
class AgentAdmin(PublishingAdmin):
    """Where staff create an agent and say what its card says."""

    form = AgentForm
    inlines = [SkillInline, ExtensionInline, InterfaceInline]
    list_display = [
        "name", "slug", "executor_name", "enabled", "is_default", "anonymous_access", "version", "card",
    ]  # fmt: skip
    list_display_links = ["name", "slug"]
    list_filter = ["enabled", "anonymous_access", "requires_tenant", "streaming", "push_notifications"]
    search_fields = ["name", "slug", "description", "executor"]
    prepopulated_fields = {"slug": ["name"]}
    filter_horizontal = ["allowed_groups"]
    readonly_fields = ["card", "published", "declared_skills", "created_at", "updated_at"]
    save_on_top = True
    formfield_overrides = {models.URLField: {"assume_scheme": "https"}, **SHORT_TEXT}
    fieldsets = [
        (None, {"fields": ["name", "slug", "description", "version", "executor", "enabled", "is_default"]}),
        ("Card", {"fields": ["card", "published"]}),
        ("Who may call", {"fields": ["anonymous_access", "allowed_groups", "requires_tenant"]}),
        ("Input and output", {"fields": [("default_input_modes", "default_output_modes")]}),
        (
            "Capabilities",
            {
                "description": "What the card promises to clients.",
                "fields": ["streaming", "push_notifications", "extended_card"],
            },
        ),
        (
            "Skills declared in code",
            {
                "classes": ["collapse"],
                "description": "They are in the card unless they are hidden, or a skill below has the same id.",
                "fields": ["declared_skills", "taken_over", "hidden_skills"],
            },
        ),
        ("When things go wrong", {"fields": [("restartable", "turn_timeout")]}),
        (
            "Provider and links",
            {
                "classes": ["collapse"],
                "fields": ["provider_organization", "provider_url", "documentation_url", "icon_url"],
            },
        ),
        ("Security", {"classes": ["collapse"], "fields": ["security_schemes", "security_requirements"]}),
        ("Record", {"classes": ["collapse"], "fields": ["created_at", "updated_at"]}),
    ]

    class Media:
        css = {"all": ["a2a_django/admin.css"]}

    @admin.display(description="executor", ordering="executor")
    def executor_name(self, agent: Agent) -> str:
        """The executor, marked where this site has none of that name."""
        return agent.executor if agent.executor in registry.names() else f"{agent.executor} (missing)"

    @admin.display(description="card")
    def card(self, agent: Agent) -> SafeString | str:
        """A link to the card that clients read; none while nobody is served it."""
        try:
            url = reverse("a2a_django:agent-card", kwargs={"agent": agent.slug})
        except NoReverseMatch:  # a new agent, or a site that does not include our URLs
            return "-"
        return format_html('<a href="{}">card</a>', url) if agent.enabled else "-"

    def get_fieldsets(self, request: HttpRequest, obj: Agent | None = None) -> Any:
        """Without the skills of the code, where it declares none for the agent's executor."""
        return [
            fieldset
            for fieldset in super().get_fieldsets(request, obj)
            if "declared_skills" not in fieldset[1]["fields"] or (obj and declared_skills.choices(obj))
        ]

    @admin.display(description="what they say")
    def declared_skills(self, agent: Agent) -> SafeString:
        """Each skill with what becomes of it."""
        return format_html_join("", "<p><strong>{}</strong>: {}</p>", declared_skills.described(agent))

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        """Saves the inlines, takes over skills, then says what clients will miss in the card."""
        super().save_related(request, form, formsets, change)
        declared_skills.take_over(form.instance, form.cleaned_data.get("taken_over", ()))
        for warning in warnings(Agent.objects.get(pk=form.instance.pk)):
            messages.warning(request, warning)


def warnings(agent: Agent) -> list[str]:
    """What is allowed, but hardly meant."""
    listed_for = set(agent.skills.values_list("visibility", flat=True))
    found = []
    if agent.executor not in registry.names():
        found.append(f"No executor is called “{agent.executor}” now: calls to this agent will fail.")
    if Visibility.PUBLIC not in listed_for and not declared_skills.listed(agent):
        found.append("The protocol wants a card to list at least one skill: add one that is listed for everybody.")
    if listed_for - {Visibility.PUBLIC} and not agent.extended_card:
        found.append("Skills for authenticated callers and groups are not shown to anyone until “extended card” is on.")
    return found

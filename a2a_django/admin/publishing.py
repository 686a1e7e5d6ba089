"""Publishing in the admin: each card is shown with what would change, or with what is wrong, and then asked for."""

from dataclasses import dataclass
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import get_object_or_404
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from a2a_django.admin import card_changes
from a2a_django.admin.deletion import Deleted, KeptByTasks
from a2a_django.agents import card_checks, documents, publishing
from a2a_django.agents.card_import import UnfitError
from a2a_django.models import Agent, AgentCardVersion
from a2a_django.protocol.values import Violation

PERMISSION = "a2a_django.publish_agentcard"


@dataclass
class Candidate:
    """An agent whose card somebody may want to publish."""

    agent: Agent
    problems: list[Violation]
    changes: list[card_changes.Line]


def candidate(agent: Agent) -> Candidate:
    """The agent with what keeps it from being published, and what would change."""
    draft = documents.of(agent)
    changes = card_changes.between(card_changes.content(agent.published), draft)
    return Candidate(agent, card_checks.problems(agent, draft), changes)


class PublishingAdmin(KeptByTasks):
    """Agents whose cards are published, in the list and on their own page."""

    actions = ["publish"]

    def has_publish_permission(self, request: HttpRequest) -> bool:
        """Whether the caller may publish cards, and roll them back."""
        return request.user.has_perm(PERMISSION)

    def get_urls(self) -> list[URLPattern]:
        """Those of Django, and the page of one agent's changes."""
        own = path("<path:pk>/publish/", self.admin_site.admin_view(self.publish_one), name="a2a_django_agent_publish")
        return [own, *super().get_urls()]

    def publish_one(self, request: HttpRequest, pk: str) -> HttpResponseBase:
        """What the action shows, for one agent."""
        if not (self.has_publish_permission(request) and self.has_view_permission(request)):
            raise PermissionDenied
        agent = get_object_or_404(Agent, pk=pk)
        return self._ask(request, Agent.objects.filter(pk=agent.pk))

    @admin.action(description="Publish the cards of selected agents", permissions=["publish"])
    def publish(self, request: HttpRequest, queryset: QuerySet[Agent]) -> HttpResponse | None:
        """Asks first."""
        if "confirmed" not in request.POST:
            return self._ask(request, queryset)
        for agent in queryset:
            self._publish(request, agent, request.POST.get("note", "")[:500])
        return None

    def _ask(self, request: HttpRequest, queryset: QuerySet[Agent]) -> TemplateResponse:
        context = self.admin_site.each_context(request) | {
            "title": "Publish cards?",
            "opts": self.opts,
            "candidates": [candidate(agent) for agent in queryset],
        }
        return TemplateResponse(request, "a2a_django/admin/publish.html", context)

    def _publish(self, request: HttpRequest, agent: Agent, note: str) -> None:
        before = agent.published
        try:
            version = publishing.publish(agent, request.user, note)
        except UnfitError as error:
            listed = "; ".join(f"{field} {what}" for field, what in error.problems)
            messages.error(request, f"The card of {agent} is not published: {listed}.")
            return
        if version == before:
            messages.info(request, f"{agent}: nothing has changed since version {version.number}.")
            return
        self.log_change(request, agent, f"Published version {version.number}.")
        messages.success(request, f"{agent}: version {version.number} is served from now on.")

    @admin.display(description="published")
    def published(self, agent: Agent) -> SafeString | str:
        """What is served, whether the draft differs, and where to go on from there."""
        if agent._state.adding:
            return "-"
        version = agent.published
        said = "never: the card is served as it is saved"
        if version:
            draft = "the draft differs" if publishing.differs(agent) else "the draft is the same"
            said = f"version {version.number}, {version.published_at:%Y-%m-%d %H:%M} UTC; {draft}"
        site = self.admin_site.name
        return format_html(
            '{} (<a href="{}">publish</a>, <a href="{}?agent__id__exact={}">versions</a>)',
            said,
            reverse("admin:a2a_django_agent_publish", args=[agent.pk], current_app=site),
            reverse("admin:a2a_django_agentcardversion_changelist", current_app=site),
            agent.pk,
        )

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Deleted:
        """The versions go with their agent, whoever may delete that."""
        shown, counts, lacking, kept = super().get_deleted_objects(objs, request)
        return shown, counts, lacking - {str(AgentCardVersion._meta.verbose_name)}, kept

"""The published versions of cards: what has changed, and the way back."""

from typing import Any

from django.contrib import admin, messages
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from a2a_django.admin import card_changes, task_page
from a2a_django.admin.lists import ReadOnlyAdmin
from a2a_django.admin.publishing import PERMISSION
from a2a_django.agents import publishing
from a2a_django.agents.card_import import UnfitError
from a2a_django.models import AgentCardVersion


@admin.register(AgentCardVersion)
class AgentCardVersionAdmin(ReadOnlyAdmin):
    """Read-only: versions are made by publishing, and go with their agent."""

    ordering = ["-published_at", "-pk"]
    list_display = ["agent", "number", "published_at", "published_by", "note", "short_digest"]
    list_display_links = ["agent", "number"]
    list_filter = ["agent"]
    list_select_related = ["agent", "published_by"]
    actions = ["compare", "roll_back"]
    change_form_template = "a2a_django/admin/card_version.html"
    fields = ["agent", "number", "published_at", "published_by", "note", "digest", "card"]
    readonly_fields = ["card"]

    class Media:
        css = {"all": ["a2a_django/admin.css"]}

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """No version is deleted alone."""
        return False

    def has_publish_permission(self, request: HttpRequest) -> bool:
        """Whether the caller may roll cards back."""
        return request.user.has_perm(PERMISSION)

    def render_change_form(
        self,
        request: HttpRequest,
        context: dict[str, Any],
        add: bool = False,
        change: bool = False,
        form_url: str = "",
        obj: Model | None = None,
    ) -> HttpResponse:
        """Adds what has changed since the version before."""
        if isinstance(obj, AgentCardVersion):
            before = AgentCardVersion.objects.filter(agent=obj.agent_id, number__lt=obj.number).first()
            context |= {"before": before, "changes": _changes(before, obj)}
        return super().render_change_form(request, context, add, change, form_url, obj)

    @admin.action(description="Compare two selected versions")
    def compare(self, request: HttpRequest, queryset: QuerySet[AgentCardVersion]) -> HttpResponse | None:
        """From the older to the newer."""
        versions = list(queryset.order_by("published_at", "pk")[:3])
        if len(versions) != 2:
            messages.error(request, "Select two versions to compare.")
            return None
        old, new = versions
        context = {"old": old, "new": new, "changes": _changes(old, new)}
        return self._page(request, "compare_cards.html", f"{new} against {old}", context)

    @admin.action(description="Roll back to the selected version", permissions=["publish"])
    def roll_back(self, request: HttpRequest, queryset: QuerySet[AgentCardVersion]) -> HttpResponse | None:
        """Asks first: what is unpublished in the draft is lost."""
        if len(queryset[:2]) != 1:
            messages.error(request, "Select the one version that is to be served again.")
            return None
        version = queryset.get()
        if "confirmed" in request.POST:
            self._roll_back(request, version)
            return None
        context = {
            "version": version,
            "changes": _changes(version.agent.published, version),
            "differs": publishing.differs(version.agent),
        }
        return self._page(request, "roll_back.html", f"Roll back to {version}?", context)

    def _roll_back(self, request: HttpRequest, version: AgentCardVersion) -> None:
        try:
            now = publishing.roll_back(version, request.user, request.POST.get("note", "")[:500])
        except UnfitError as error:
            listed = "; ".join(f"{field} {what}" for field, what in error.problems)
            messages.error(request, f"{version} can't be published again: {listed}.")
            return
        self.log_change(request, now, f"Rolled back to version {version.number}.")
        messages.success(request, f"{now} is served from now on; it says what version {version.number} said.")

    def _page(self, request: HttpRequest, template: str, title: str, context: dict[str, Any]) -> TemplateResponse:
        given = self.admin_site.each_context(request) | {"title": title, "opts": self.opts}
        return TemplateResponse(request, f"a2a_django/admin/{template}", given | context)

    @admin.display(description="digest")
    def short_digest(self, version: AgentCardVersion) -> SafeString:
        """The start of it."""
        return self.short(version.digest)

    @admin.display(description="card")
    def card(self, version: AgentCardVersion) -> SafeString:
        """The whole of it."""
        return format_html('<pre class="a2a-code">{}</pre>', task_page.pretty_data(card_changes.content(version)))


def _changes(old: AgentCardVersion | None, new: AgentCardVersion) -> list[card_changes.Line]:
    return card_changes.between(card_changes.content(old), card_changes.content(new))

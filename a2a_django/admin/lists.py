"""Read-only pages, and lists that stay quick however many rows there are."""

from typing import Any

from django.contrib import admin
from django.core.paginator import Paginator
from django.db.models import Model
from django.http import HttpRequest
from django.urls import reverse
from django.utils.functional import cached_property
from django.utils.html import format_html
from django.utils.safestring import SafeString

MOST = 10_000
"""A list counts and pages so far; what lies further back is found by search and filters."""

SHORT = 8


class BoundedPaginator(Paginator):  # type: ignore[type-arg]
    """Counts at most MOST rows: COUNT(*) over a million takes longer than the page itself."""

    @cached_property
    def count(self) -> int:
        """The number of rows that can be paged through."""
        rows: Any = self.object_list
        # Unordered, so that the database may stop at any MOST rows instead of sorting them first.
        return int(rows.order_by()[:MOST].count())

    @property
    def bounded(self) -> bool:
        """Whether there may be more rows than it counts."""
        return self.count == MOST


class ReadOnlyAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """What the protocol writes; staff look at it."""

    paginator = BoundedPaginator
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER  # each count would read the whole table
    sortable_by = ()  # the list's own order is the only one that an index serves
    actions: Any = None
    list_per_page = 50
    list_max_show_all = 0
    change_list_template = "a2a_django/admin/bounded_list.html"

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Only the protocol adds rows."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Only the protocol changes rows."""
        return False

    def short(self, identifier: str) -> SafeString:
        """The start of an identifier, the whole of it when pointed at."""
        shown = identifier if len(identifier) <= SHORT else f"{identifier[:SHORT]}…"
        return format_html('<span title="{}">{}</span>', identifier, shown)

    def link(self, model: type[Model], pk: Any, text: object) -> SafeString:
        """A link to the page of another row, on the same admin site."""
        name = f"admin:{model._meta.app_label}_{model._meta.model_name}_change"
        return format_html('<a href="{}">{}</a>', reverse(name, args=[pk], current_app=self.admin_site.name), text)

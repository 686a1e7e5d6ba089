"""Tenants, with who is in them."""

from typing import Any

from django.contrib import admin
from django.db.models import Count, QuerySet
from django.http import HttpRequest

from a2a_django.admin.deletion import KeptByTasks
from a2a_django.models import Tenant, TenantMembership


class MembershipInline(admin.TabularInline):  # type: ignore[type-arg]
    """Members are added and removed, each by whoever may do that; to change one would be both."""

    model = TenantMembership
    fields = ["user", "group"]
    raw_id_fields = ["user"]
    extra = 0
    verbose_name = "member"
    verbose_name_plural = "members (users, and whoever is in a group)"

    def get_queryset(self, request: HttpRequest) -> QuerySet[TenantMembership]:
        """With their names."""
        return super().get_queryset(request).select_related("user", "group")

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody: so those that there are are shown as text, without a query for each."""
        return False


@admin.register(Tenant)
class TenantAdmin(KeptByTasks):
    """Customers of the site whose tasks are kept apart."""

    inlines = [MembershipInline]
    list_display = ["slug", "name", "enabled", "public", "members", "created_at"]
    list_display_links = ["slug", "name"]
    list_filter = ["enabled", "public", "agents"]
    search_fields = ["slug", "name"]
    readonly_fields = ["created_at"]
    filter_horizontal = ["agents"]
    fieldsets = [
        (None, {"fields": ["slug", "name", "enabled", "created_at"]}),
        ("Who may call", {"fields": ["public", "agents"]}),
        ("Limits", {"fields": ["requests_per_minute", "running_tasks", "open_streams", "max_body_bytes"]}),
        ("Retention", {"fields": ["task_retention", "event_retention"]}),
    ]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Tenant]:
        """With how many members each has."""
        found: QuerySet[Tenant] = super().get_queryset(request).annotate(members=Count("memberships", distinct=True))
        return found

    @admin.display(description="members", ordering="members")
    def members(self, tenant: Any) -> int:
        """How many users and groups are in it."""
        return int(tenant.members)

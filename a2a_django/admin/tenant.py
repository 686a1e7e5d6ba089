"""Tenants."""

from django.contrib import admin

from a2a_django.admin.deletion import KeptByTasks
from a2a_django.models import Tenant


@admin.register(Tenant)
class TenantAdmin(KeptByTasks):
    """Customers of the site whose tasks are kept apart."""

    list_display = ["slug", "name", "enabled", "created_at"]
    list_display_links = ["slug", "name"]
    list_filter = ["enabled"]
    search_fields = ["slug", "name"]
    readonly_fields = ["created_at"]
    fieldsets = [
        (None, {"fields": ["slug", "name", "enabled", "created_at"]}),
        ("Limits", {"fields": ["requests_per_minute", "running_tasks", "open_streams", "max_body_bytes"]}),
        ("Retention", {"fields": ["task_retention", "event_retention"]}),
    ]

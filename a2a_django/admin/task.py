"""Tasks: a list that finds them, and a page that shows all that happened."""

from collections.abc import Iterable
from typing import Any

from django.contrib import admin
from django.contrib.auth import get_user_model
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.safestring import SafeString

from a2a_django import audit
from a2a_django.admin import deletion, task_page
from a2a_django.admin.lists import ReadOnlyAdmin
from a2a_django.agents import retention
from a2a_django.models import Agent, Task


@admin.register(Task)
class TaskAdmin(ReadOnlyAdmin):
    """Read-only; may be deleted by staff who have the permission."""

    # Newest first is a2a_task_by_time (status_timestamp, id) read backwards; with a filter it is read until the page is
    # full. A filter that hardly any task passes reads all: half a second for a million tasks on PostgreSQL. So no more
    # filters than these, and no date_hierarchy.
    ordering = ["-status_timestamp", "-id"]
    list_display = ["short_id", "state_name", "agent", "tenant", "user", "context", "status_timestamp", "last_sequence"]
    list_filter = ["state", "agent", "tenant"]
    list_select_related = ["agent", "tenant", "user"]
    search_fields = ["id"]  # shows the search box; get_search_results does the rest
    search_help_text = "A whole task id, context id or user name."
    change_form_template = "a2a_django/admin/task.html"
    fieldsets = [
        (None, {"fields": ["state_name", ("agent_link", "tenant"), ("user", "owner"), "context_id"]}),
        ("Progress", {"fields": [("created_at", "status_timestamp"), ("running", "cancel")]}),
    ]
    readonly_fields = ["state_name", "agent_link", "running"]

    class Media:
        css = {"all": ["a2a_django/admin.css"]}

    def get_queryset(self, request: HttpRequest) -> QuerySet[Task]:
        """Without the two long texts, which a list has no use for."""
        return super().get_queryset(request).defer("status", "metadata")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Task], search_term: str
    ) -> tuple[QuerySet[Task], bool]:
        """What is exactly named so: one indexed look after the other, since an OR of the three would use no index."""
        term = search_term.strip()
        if not term:
            return queryset, False
        by_id = queryset.filter(pk=term)  # the primary key
        if by_id.exists():
            return by_id, False
        users = get_user_model()._default_manager.filter(**{get_user_model().USERNAME_FIELD: term})
        if user := users.first():
            return queryset.filter(user_id=user.pk), False  # the index of the foreign key
        # a2a_task_by_context has it behind agent, tenant and owner: on PostgreSQL a scan, 0.2 s for a million tasks.
        return queryset.filter(context_id=term), False

    def get_deleted_objects(self, objs: Iterable[Any], request: HttpRequest) -> deletion.Deleted:
        """Names the tasks alone: all that belongs to a task goes with it."""
        objects = list(objs)
        lines = [f"{deletion.described(item)}, with its messages, events, artifacts and turns" for item in objects]
        return lines, deletion.counted(objects), set(), []

    def delete_model(self, request: HttpRequest, obj: Task) -> None:
        """Deletes it even while it runs: its executor is stopped, and who waits hears that it is gone."""
        list(retention.erase(Task.objects.filter(pk=obj.pk)))

    def render_change_form(
        self,
        request: HttpRequest,
        context: dict[str, Any],
        add: bool = False,
        change: bool = False,
        form_url: str = "",
        obj: Model | None = None,
    ) -> HttpResponse:
        """Adds what the task's page shows below its own fields."""
        if isinstance(obj, Task):
            context["page"] = task_page.of(obj, after=request.GET.get("after", ""))
            audit.note("task.read_in_admin", task=obj.pk, user=request.user.pk)
        return super().render_change_form(request, context, add, change, form_url, obj)

    @admin.display(description="task")
    def short_id(self, task: Task) -> SafeString:
        """The id, short enough for a list."""
        return self.short(task.pk)

    @admin.display(description="context")
    def context(self, task: Task) -> SafeString:
        """The context's id, short enough for a list."""
        return self.short(task.context_id)

    @admin.display(description="state")
    def state_name(self, task: Task) -> str:
        """The state in words; of a hidden task, why no client sees it."""
        if task.visible:
            return task.get_state_display()
        return "answered with a message" if task.terminal else "not announced yet"

    @admin.display(description="agent")
    def agent_link(self, task: Task) -> SafeString:
        """The agent, with its page a click away."""
        return self.link(Agent, task.agent_id, task.agent)

    @admin.display(description="running")
    def running(self, task: Task) -> str:
        """Whether a process works on it now."""
        if not task.lease:
            return "no"
        return f"yes, its lease ends {task.lease_expires:%H:%M:%S}" if task.lease_expires else "yes"

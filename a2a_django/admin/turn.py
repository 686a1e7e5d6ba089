"""Turns: which failed, and why."""

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import Truncator

from a2a_django.admin import task_page
from a2a_django.admin.lists import ReadOnlyAdmin
from a2a_django.models import Task, Turn


@admin.register(Turn)
class TurnAdmin(ReadOnlyAdmin):
    """Read-only."""

    # Newest first is the primary key; with the state filter it is a2a_turn_by_state (state, id).
    ordering = ["-pk"]
    list_display = ["number", "state", "agent", "short_error", "task_short", "attempt", "worker", "created_at"]
    list_filter = ["state"]
    list_select_related = ["task__agent"]
    search_fields = ["task"]  # shows the search box; get_search_results does the rest
    search_help_text = "A whole task id, or the number of a turn."
    fieldsets = [
        (None, {"fields": ["state", "agent", "task_link", "user", "message_id"]}),
        ("Run", {"fields": ["attempt", "worker", "created_at", "due_at", "started_at", "ended_at", "start_sequence"]}),
        ("Outcome", {"fields": ["error_text", "answer_text"]}),
        ("Request", {"fields": ["request_text"]}),
    ]

    class Media:
        css = {"all": ["a2a_django/admin.css"]}

    def has_delete_permission(self, request: HttpRequest, obj: Turn | None = None) -> bool:
        """A turn goes with its task."""
        return False

    def get_queryset(self, request: HttpRequest) -> QuerySet[Turn]:
        """Without the task's long texts, which are not shown here."""
        return super().get_queryset(request).defer("task__status", "task__metadata")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Turn], search_term: str
    ) -> tuple[QuerySet[Turn], bool]:
        """A number is a primary key, anything else a task's id (a2a_turn_in_order)."""
        term = search_term.strip()
        if term.isdecimal() and len(term) < 19:
            return queryset.filter(pk=int(term)), False
        return (queryset.filter(task_id=term) if term else queryset), False

    @admin.display(description="turn")
    def number(self, turn: Turn) -> int:
        """The turn's key."""
        return turn.pk

    @admin.display(description="task")
    def task_short(self, turn: Turn) -> SafeString:
        """A link to the task, short enough for a list."""
        return self.link(Task, turn.task_id, self.short(turn.task_id))

    @admin.display(description="agent")
    def agent(self, turn: Turn) -> str:
        """Whose executor ran."""
        return str(turn.task.agent)

    @admin.display(description="task")
    def task_link(self, turn: Turn) -> SafeString:
        """The task, with its page a click away."""
        return self.link(Task, turn.task_id, turn.task_id)

    @admin.display(description="message")
    def message_id(self, turn: Turn) -> str:
        """The message that was handed to the executor."""
        return str(turn.message.message_id)

    @admin.display(description="error")
    def short_error(self, turn: Turn) -> str:
        """The error's last line, which in a traceback is what happened."""
        lines = turn.error.strip().splitlines()
        return Truncator(lines[-1]).chars(100) if lines else "-"

    @admin.display(description="error")
    def error_text(self, turn: Turn) -> SafeString | str:
        """The whole error, line by line."""
        return _block(turn.error)

    @admin.display(description="answer")
    def answer_text(self, turn: Turn) -> SafeString | str:
        """The error that the caller got instead of a task."""
        return _block(task_page.pretty_data(turn.answer)) if turn.answer else "-"

    @admin.display(description="request")
    def request_text(self, turn: Turn) -> SafeString | str:
        """What the caller asked for besides the message."""
        return _block(task_page.pretty(turn.request))


def _block(text: str) -> SafeString | str:
    return format_html('<pre class="a2a-code">{}</pre>', text) if text else "-"

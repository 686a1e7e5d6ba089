"""`manage.py a2a_purge`: deletes what has been kept for long enough, or all tasks of one person."""

from collections.abc import Iterator
from typing import Any

from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db.models import Q, QuerySet

from a2a_django.agents import retention
from a2a_django.agents.retention import Purged
from a2a_django.models import Event, Task
from a2a_django.settings import a2a_settings


class Command(BaseCommand):
    """Purges once, or says what a purge would do."""

    help = (
        "Deletes ended tasks after A2A['TASK_RETENTION'] and their events after A2A['EVENT_RETENTION'], or as their "
        "tenant says. Every A2A process does so by itself, too. With --user, deletes that person's tasks instead."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Which tasks, and whether to touch them at all."""
        either = parser.add_mutually_exclusive_group()
        either.add_argument(
            "--user", metavar="USER", help="delete all tasks of this user (login name or key), live ones too"
        )
        either.add_argument(
            "--abandoned",
            type=float,
            metavar="SECONDS",
            help="first end the tasks that have waited for their client for so long",
        )
        parser.add_argument("--dry-run", action="store_true", help="say how many, and do nothing")

    def handle(self, *args: Any, user: str | None, abandoned: float | None, dry_run: bool, **options: Any) -> None:
        """Says how much there was."""
        if user is not None:
            return self._erase(_tasks_of(user), dry_run=dry_run)
        if abandoned is not None:
            ended = retention.abandoned(abandoned).count() if dry_run else retention.give_up(abandoned)
            self.stdout.write(f"{ended} abandoned tasks {'would be ' if dry_run else ''}ended")
        if dry_run:
            return self._tell("would be ", retention.due())
        return self._delete(retention.purge())

    def _erase(self, tasks: "QuerySet[Task]", *, dry_run: bool) -> None:
        if dry_run:
            self._tell("would be ", Purged(tasks.count(), Event.objects.filter(task__in=tasks).count()))
        else:
            self._delete(retention.erase(tasks))

    def _delete(self, portions: Iterator[Purged]) -> None:
        done = list(portions)
        self._tell("", Purged(sum(portion.tasks for portion in done), sum(portion.events for portion in done)))

    def _tell(self, would_be: str, purged: Purged) -> None:
        self.stdout.write(f"{purged.tasks} tasks and {purged.events} events {would_be}deleted")


def _tasks_of(name: str) -> "QuerySet[Task]":
    """The tasks that a user has begun, and those of the scope that is theirs alone."""
    if not name:  # is how the scope of anonymous callers is called
        raise CommandError("--user is empty: give the login name or the key of the user.")
    users = get_user_model()._default_manager
    account = users.filter(**{get_user_model().USERNAME_FIELD: name}).first()
    if account is None:
        try:
            account = users.filter(pk=name).first()
        except (ValueError, ValidationError):  # no key of this site's users
            account = None
    key = str(account.pk) if account else name  # that of an account which is gone
    owned = Q(owner=key) if a2a_settings.OWNER_RESOLVER is None else Q(pk__in=())
    return Task.objects.filter(owned | Q(user=account) if account else owned)

"""`manage.py demo`: something to look at on a new site."""

import secrets
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand
from django.db import transaction
from django.utils import timezone

from a2a_django.models import Agent, AgentSkill
from example_project.support.models import Customer, Ticket
from example_project.tck import rows

ADMIN = "admin"

CUSTOMERS = {
    "Ada Byron": "ada@example.com",
    "Grace Murray": "grace@example.com",
    "Katherine Coleman": "katherine@example.com",
    "Linus Torv": "linus@example.com",
}

# Subject, customer, status, priority, age in days.
TICKETS = [
    ("Printer on the second floor is on fire", "Ada Byron", Ticket.Status.OPEN, Ticket.Priority.HIGH, 0),
    ("Invoice of March was sent twice", "Grace Murray", Ticket.Status.WAITING, Ticket.Priority.NORMAL, 3),
    ("Password mail never arrives", "Katherine Coleman", Ticket.Status.OPEN, Ticket.Priority.HIGH, 1),
    ("Export to CSV loses the last line", "Linus Torv", Ticket.Status.OPEN, Ticket.Priority.NORMAL, 5),
    ("Dark mode for the customer portal", "Ada Byron", Ticket.Status.OPEN, Ticket.Priority.LOW, 40),
    ("Login page is slow on Mondays", "Grace Murray", Ticket.Status.OPEN, Ticket.Priority.NORMAL, 9),
    ("Wrong time zone in reminders", "Katherine Coleman", Ticket.Status.CLOSED, Ticket.Priority.NORMAL, 21),
    ("Cannot attach files over 2 MB", "Linus Torv", Ticket.Status.WAITING, Ticket.Priority.HIGH, 2),
    ("Please delete my old account", "Ada Byron", Ticket.Status.CLOSED, Ticket.Priority.LOW, 60),
    ("Search does not find umlauts", "Grace Murray", Ticket.Status.OPEN, Ticket.Priority.LOW, 14),
    ("Webhook secret was rotated", "Katherine Coleman", Ticket.Status.WAITING, Ticket.Priority.LOW, 7),
    ("Two users share one phone number", "Linus Torv", Ticket.Status.OPEN, Ticket.Priority.NORMAL, 11),
]

# The fields of an Agent, and those of its one skill.
AGENTS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (
        {"slug": "echo", "name": "Echo", "description": "Repeats what it is told."},
        {
            "skill_id": "echo",
            "name": "Echo",
            "description": "Returns the parts of the message as an artifact.",
            "tags": ["demo"],
            "examples": ["Hello, is anybody there?"],
        },
    ),
    (
        {
            "slug": "tickets",
            "name": "Tickets",
            "description": "Tells how a support ticket stands, and asks for its number when there is none.",
            "default_output_modes": ["application/json", "text/plain"],
        },
        {
            "skill_id": "ticket-status",
            "name": "Status of a ticket",
            "description": "Looks a ticket up by its number and returns it as JSON.",
            "tags": ["support", "tickets"],
            "examples": ["How is ticket 3 doing?", "What became of my ticket?"],
        },
    ),
    (
        {
            "slug": "report",
            "name": "Report",
            "description": "Streams a report on all tickets that are not closed; it can be cancelled midway.",
            "default_output_modes": ["text/plain"],
        },
        {
            "skill_id": "ticket-report",
            "name": "Report on tickets",
            "description": "Writes a Markdown report, line by line.",
            "tags": ["support", "report"],
            "examples": ["Write the report on open tickets."],
        },
    ),
]


class Command(BaseCommand):
    """Makes what is missing and leaves alone what is there, so it may run at every start."""

    help = "Makes the demo's agents, tickets and an admin login, as far as they are missing."

    @transaction.atomic
    def handle(self, *args: Any, **options: Any) -> None:
        make_tickets()
        make_agents()
        if settings.A2A_TCK:
            rows.make_agents()
        password = make_admin()
        if password:
            self.stdout.write(f"Admin login, shown this once: user {ADMIN}, password {password}")


def make_tickets() -> None:
    """Customers and tickets, unless the desk already has some."""
    if Customer.objects.exists():
        return
    customers = {name: Customer.objects.create(name=name, email=email) for name, email in CUSTOMERS.items()}
    for subject, customer, status, priority, days in TICKETS:
        Ticket.objects.create(
            customer=customers[customer],
            subject=subject,
            status=status,
            priority=priority,
            opened_at=timezone.now() - timedelta(days=days),
        )


def make_agents() -> None:
    """The three agents of agents.py, open to everybody."""
    for fields, skill in AGENTS:
        if Agent.objects.filter(slug=fields["slug"]).exists():
            continue
        agent = Agent.objects.create(
            **fields,
            version="1.0.0",
            executor=fields["slug"],
            is_default=fields["slug"] == "echo" and not Agent.objects.filter(is_default=True).exists(),
            anonymous_access="shared",
            streaming=True,
        )
        AgentSkill.objects.create(agent=agent, **skill)


def make_admin() -> str | None:
    """The password of the superuser just made; None when there was one."""
    users = get_user_model().objects
    if users.filter(is_superuser=True).exists() or users.filter(username=ADMIN).exists():
        return None
    password = secrets.token_urlsafe(12)
    users.create_superuser(ADMIN, password=password)
    return password

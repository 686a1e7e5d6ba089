"""
The agents of the support desk, written against the a2a-sdk's own `AgentExecutor`.

a2a_django finds this module as Django finds admin.py. The decorator gives a class the name by which
staff choose it in the admin.
"""

import asyncio
import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from a2a.helpers import new_data_part, new_task, new_text_part
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.tasks import TaskUpdater
from a2a.types import Message, TaskState
from django.utils import timezone

from a2a_django import executor
from example_project.support.models import Ticket


async def start(context: RequestContext, event_queue: EventQueue) -> TaskUpdater:
    """Announce the task as being worked on; the updater says everything else about it."""
    if context.current_task is None:  # the first message of a conversation, not an answer to a question
        submitted = TaskState.TASK_STATE_SUBMITTED
        await event_queue.enqueue_event(
            new_task(context.task_id, context.context_id, submitted, history=[context.message])
        )
    updater = TaskUpdater(event_queue, context.task_id, context.context_id)
    await updater.start_work()
    return updater


def text(updater: TaskUpdater, words: str) -> Message:
    """A message of the agent's with one text in it."""
    return updater.new_agent_message([new_text_part(words)])


class SupportAgent(AgentExecutor):
    """An executor that can be cancelled whenever it runs."""

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        """End the task as cancelled; whoever runs `execute()` stops it."""
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


@executor("echo")
class Echo(SupportAgent):
    """Repeats what it is told, whatever its parts are."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        updater = await start(context, event_queue)
        await updater.add_artifact(list(context.message.parts), name="echo")
        await updater.complete()


@executor("tickets")
class Tickets(SupportAgent):
    """Tells how a ticket stands, and asks for its number when the question has none."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        updater = await start(context, event_queue)
        number = ticket_number(context.get_user_input())
        if number is None:
            await updater.requires_input(text(updater, "Which ticket is it about? Please tell me its number."))
            return
        ticket = await Ticket.objects.select_related("customer").filter(pk=number).afirst()
        if ticket is None:
            await updater.requires_input(text(updater, f"There is no ticket {number}. Which number is it?"))
            return
        await updater.add_artifact([new_data_part(as_json(ticket), "application/json")], name=f"ticket-{ticket.pk}")
        await updater.complete(text(updater, answer(ticket)))


def ticket_number(words: str) -> int | None:
    """The first number in the words that can be a ticket's."""
    found = re.search(r"(?<!\d)\d{1,9}(?!\d)", words)
    return int(found[0]) if found else None


def as_json(ticket: Ticket) -> dict[str, Any]:
    """What a program wants to know of a ticket."""
    return {
        "number": ticket.pk,
        "subject": ticket.subject,
        "customer": ticket.customer.name,
        "status": ticket.status,
        "priority": ticket.get_priority_display(),
        "openedAt": ticket.opened_at.isoformat(),
    }


def answer(ticket: Ticket) -> str:
    """What a person wants to know of a ticket."""
    return f"Ticket {ticket.pk}, “{ticket.subject}” from {ticket.customer.name}, is {ticket.get_status_display()}."


@executor("report")
class Report(SupportAgent):
    """Streams a report on all tickets that are not closed, line by line, as the chunks of one artifact."""

    seconds_between_lines = 0.1

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        updater = await start(context, event_queue)
        unsettled = Ticket.objects.select_related("customer").exclude(status=Ticket.Status.CLOSED)
        # Read to the end first: the pauses below must not hold a database cursor open.
        tickets = [ticket async for ticket in unsettled.order_by("status", "-priority", "opened_at")]
        for count, line in enumerate(report_lines(tickets)):
            await updater.add_artifact([new_text_part(line)], "report", name="report.md", append=count > 0)
            await asyncio.sleep(self.seconds_between_lines)
        await updater.complete()


def report_lines(tickets: Iterable[Ticket]) -> Iterator[str]:
    """The report in Markdown; the tickets come sorted by status."""
    yield f"# Tickets on {timezone.localdate():%d %B %Y}\n"
    for status, group in groupby(tickets, key=lambda ticket: ticket.get_status_display()):
        yield f"\n## {status.capitalize()}\n\n"
        for ticket in group:
            facts = f"{ticket.customer.name}, {ticket.get_priority_display()} priority, since {ticket.opened_at:%d %B}"
            yield f"- {ticket.pk}: {ticket.subject} ({facts})\n"

"""Executors that do what the client's message says, step by step, so that a test tells its whole story."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

from a2a.helpers import new_task, new_text_message, new_text_part
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.tasks import TaskUpdater
from a2a.types import Role, TaskState

from a2a_django import Retry
from example_project.support.models import Ticket

GATES = "ACCEPTANCE_GATES"
"""Environment variable: the directory of the gates; a gate is open when a file of its name, or `all`, is there."""


async def gate(name: str) -> None:
    """Waits until the test opens the gate; another process may do that."""
    folder = Path(os.environ[GATES])
    (folder / f"{name}.waiting-{os.getpid()}-{id(asyncio.current_task())}").touch()
    while not ((folder / name).exists() or (folder / "all").exists()):  # noqa: ASYNC110
        await asyncio.sleep(0.02)


class Steps:
    """One script on its way; the steps are the `do_` methods."""

    def __init__(self, context: RequestContext, event_queue: EventQueue) -> None:
        self.context, self.queue, self.count = context, event_queue, 0
        self.updater = TaskUpdater(event_queue, context.task_id, context.context_id)

    async def do_work(self, _: str) -> None:
        """The Task if it is new, and WORKING."""
        context = self.context
        if context.current_task is None:
            ids, state = (context.task_id, context.context_id), TaskState.TASK_STATE_SUBMITTED
            await self.queue.enqueue_event(new_task(*ids, state, history=[context.message]))
        await self.updater.start_work()

    async def do_chunks(self, number: str) -> None:
        """So many chunks of the artifact `chunks`, numbered on through the whole script."""
        for _ in range(int(number)):
            self.count += 1
            part = new_text_part(f"{self.count} ")
            await self.updater.add_artifact([part], "chunks", append=self.count > 1)

    async def do_fill(self, number: str) -> None:
        """So many chunks of the artifact `fill`, of 100,000 characters each."""
        for count in range(int(number)):
            await self.updater.add_artifact([new_text_part(f"{count:<100000}")], "fill", append=count > 0)

    async def do_dump(self, _: str) -> None:
        """What the executor was told, as an artifact."""
        known = self.context.current_task
        told: dict[str, Any] = {
            "task": self.context.task_id,
            "history": [message.message_id for message in known.history] if known else [],
            "worker": os.getpid(),
            "metadata": self.context.metadata,
            "user": self.context.call_context.user.user_name,
        }
        await self.updater.add_artifact([new_text_part(json.dumps(told))], "dump")

    async def do_wait(self, name: str) -> None:
        """Waits at a gate."""
        await gate(name)

    async def do_query(self, _: str) -> None:
        """One ORM query."""
        await Ticket.objects.acount()

    async def do_ask(self, words: str) -> None:
        """INPUT_REQUIRED."""
        await self.updater.requires_input(self.updater.new_agent_message([new_text_part(words)]))

    async def do_say(self, words: str) -> None:
        """One Message, no task."""
        await self.queue.enqueue_event(new_text_message(words, role=Role.ROLE_AGENT))

    async def do_retry(self, name: str) -> None:
        """Asks to be run again in a second, while the gate is closed."""
        if not (Path(os.environ[GATES]) / name).exists():
            raise Retry(after=1, reason="closed")

    async def do_raise(self, _: str) -> None:
        """An exception whose text no client may see."""
        raise RuntimeError("password=hunter2")

    async def do_complete(self, _: str) -> None:
        """COMPLETED."""
        await self.updater.complete()


class Script(AgentExecutor):
    """Obeys a script like `work; chunks 5; wait door; complete`."""

    steps: type[Steps] = Steps

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        steps = self.steps(context, event_queue)
        for step in context.get_user_input().split(";"):
            name, _, rest = step.strip().partition(" ")
            await getattr(steps, f"do_{name}")(rest)

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()

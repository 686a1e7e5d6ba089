"""The executors of a chaos run: they obey scripts, sign all that they say, and note it where no fault can reach."""

import asyncio
import time
from typing import Any

from a2a.server.agent_execution import RequestContext
from a2a.server.events import EventQueue

from a2a_django import Retry, executor, inbox
from tests.acceptance.agents import Script, Steps
from tests.acceptance.chaos import notes
from tests.acceptance.chaos.notes import Run
from tests.acceptance.chaos.plan import BUSY


class Signed(EventQueue):
    """Signs each event with the run that says it, and notes it before it is taken."""

    def __init__(self, queue: EventQueue, run: Run) -> None:
        self._queue, self._run = queue, run

    async def enqueue_event(self, event: Any) -> None:
        event.metadata.update(self._run.sign(event))
        await self._queue.enqueue_event(event)


class ChaosSteps(Steps):
    """What the scripts of a chaos run say besides."""

    async def do_drip(self, number: str) -> None:
        """So many chunks, one every tenth of a second."""
        for _ in range(int(number)):
            await self.do_chunks("1")
            await asyncio.sleep(0.1)

    async def do_silence(self, seconds: str) -> None:
        """Says nothing for a while."""
        await asyncio.sleep(float(seconds))

    async def do_block(self, seconds: str) -> None:
        """Blocks its thread for a while."""
        time.sleep(float(seconds))  # noqa: ASYNC251

    async def do_login(self, _: str) -> None:
        """AUTH_REQUIRED, until the client says something."""
        await self.updater.requires_auth()
        async with asyncio.timeout(60):
            async for _message in inbox(self.context):
                break
        await self.updater.start_work()

    async def do_retry(self, times: str) -> None:
        """Asks to be run again; after so many times no more."""
        if notes.count(f"{self.context.message.message_id}.retries") <= int(times):
            raise Retry(after=0.3, reason=BUSY)


@executor("chaos")
class Chaos(Script):
    """Obeys a script, with witnesses."""

    steps = ChaosSteps

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        with Run(context) as run:
            await super().execute(context, Signed(event_queue, run))


@executor("chaos-blocking", blocking=True)
class BlockingChaos(Chaos):
    """The same, registered as one that blocks its thread."""

"""The agent under test of the protocol's public conformance tools: what it does is told by message id or text."""

import asyncio
from collections.abc import Awaitable, Callable

from a2a.helpers import new_data_part, new_raw_part, new_text_message, new_text_part, new_url_part
from a2a.server.agent_execution import RequestContext
from a2a.server.events import EventQueue
from a2a.server.tasks import TaskUpdater
from a2a.types import Part, Role

from a2a_django import executor
from example_project.support import agents

FILE = {"media_type": "text/plain", "filename": "output.txt"}


class Reply:
    """One turn on its way: the words that came and what to say with."""

    def __init__(self, context: RequestContext, event_queue: EventQueue) -> None:
        self.words, self._context, self._queue = context.get_user_input(), context, event_queue

    async def begin(self) -> TaskUpdater:
        """The task if it is new, and WORKING."""
        return await agents.start(self._context, self._queue)

    async def complete(self, *parts: Part, say: str = "", after: float = 0) -> None:
        """WORKING for so many seconds, an artifact of `parts`, and COMPLETED, with a message if there is one."""
        updater = await self.begin()
        await asyncio.sleep(after)
        if parts:
            await updater.add_artifact(list(parts))
        await updater.complete(agents.text(updater, say) if say else None)

    async def message(self, words: str) -> None:
        """A message, and no task."""
        await self._queue.enqueue_event(new_text_message(words, role=Role.ROLE_AGENT))

    async def ask(self) -> None:
        """INPUT_REQUIRED."""
        updater = await self.begin()
        await updater.requires_input(agents.text(updater, "What else?"))

    async def chunks(self) -> None:
        """One artifact in two chunks."""
        updater = await self.begin()
        await updater.add_artifact([new_text_part("chunk-1 ")], "chunks", last_chunk=False)
        await updater.add_artifact([new_text_part("chunk-2")], "chunks", append=True, last_chunk=True)
        await updater.complete()

    async def fail(self) -> None:
        """FAILED."""
        updater = await self.begin()
        await updater.failed(agents.text(updater, "As you wished."))

    async def slow(self) -> None:
        """So many seconds of WORKING as the words say; a cancel ends it before."""
        number = self.words.removeprefix("slow:").strip()
        await self.complete(after=float(number) if number.replace(".", "", 1).isdigit() else 1)


Behaviour = Callable[[Reply], Awaitable[None]]

BY_MESSAGE_ID: dict[str, Behaviour] = {
    "tck-message-response": lambda reply: reply.message("Direct message response"),
    "tck-artifact-file-url": lambda reply: reply.complete(new_url_part("https://example.com/output.txt", **FILE)),
    "tck-artifact-file": lambda reply: reply.complete(new_raw_part(b"Generated file content", **FILE)),
    "tck-artifact-text": lambda reply: reply.complete(new_text_part("Generated text content")),
    "tck-artifact-data": lambda reply: reply.complete(new_data_part({"key": "value", "count": 42})),
    "tck-input-required": Reply.ask,
    "tck-complete-task": lambda reply: reply.complete(say="Hello from TCK"),
    "tck-stream-001": lambda reply: reply.complete(new_text_part("Stream hello from TCK")),
    "tck-stream-003": lambda reply: reply.complete(new_text_part("Stream task lifecycle")),
    "tck-stream-ordering-001": lambda reply: reply.complete(new_text_part("Ordered output")),
    "tck-stream-artifact-text": lambda reply: reply.complete(new_text_part("Streamed text content")),
    "tck-stream-artifact-file": lambda reply: reply.complete(new_raw_part(b"Streamed file content", **FILE)),
    "tck-stream-artifact-chunked": Reply.chunks,
    "tck-": Reply.complete,
}
BY_TEXT: dict[str, Behaviour] = {
    "task-probe": lambda reply: reply.complete(after=0.4),
    "count:": lambda reply: reply.complete(new_text_part(reply.words), after=2),
    "msg:": lambda reply: reply.message(reply.words.removeprefix("msg:").strip()),
    "chunks:": Reply.chunks,
    "input:": Reply.ask,
    "slow:": Reply.slow,
    "fail:": Reply.fail,
    "": lambda reply: reply.complete(new_text_part(reply.words), say=f"echo: {reply.words}"),
}


@executor("tck")
class Tck(agents.SupportAgent):
    """Does what the longest matching prefix means, of the message's id or else of its text."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        reply = Reply(context, event_queue)
        behaviour = _longest(BY_MESSAGE_ID, context.message.message_id) or _longest(BY_TEXT, reply.words)
        await behaviour(reply)


def _longest(behaviours: dict[str, Behaviour], text: str) -> Behaviour | None:
    found = [prefix for prefix in behaviours if text.startswith(prefix)]
    return behaviours[max(found, key=len)] if found else None

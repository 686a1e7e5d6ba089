"""What the client says while its executor runs: `async for message in inbox(context)` (A2A 7.6.1).

Knows no model, since the package exports it and sites import that before there are any.
"""

from collections.abc import AsyncIterator, Callable
from weakref import WeakKeyDictionary

from a2a.server.agent_execution import RequestContext
from a2a.types import Message

_messages: "WeakKeyDictionary[RequestContext, Callable[[], AsyncIterator[Message]]]" = WeakKeyDictionary()


def inbox(context: RequestContext) -> AsyncIterator[Message]:
    """The messages that come to the task while `execute()` runs, in order, each once; it waits for the next one.

    For an executor that goes on after it has asked, with AUTH_REQUIRED say. A message that is read here belongs to
    the running turn: its sender gets the task's next interrupted or terminal state. Those that are not read get turns
    of their own afterwards. It ends when the task has ended or is another's; bound the wait with `asyncio.timeout`.
    """
    try:
        return _messages[context]()
    except KeyError:
        raise LookupError("inbox() takes the RequestContext that execute() was called with.") from None


def provide(context: RequestContext, messages: Callable[[], AsyncIterator[Message]]) -> None:
    """Has `inbox(context)` return `messages()`."""
    _messages[context] = messages

"""Database connections of executors: given back while a turn waits, closed when it ends (DESIGN 5.3)."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

from asgiref.sync import SyncToAsync, ThreadSensitiveContext
from django.db import connections


async def close(context: ThreadSensitiveContext) -> None:
    """Closes what the turn's own thread has open; a turn that used no ORM has no thread."""
    if executor := _thread(context):
        await asyncio.get_running_loop().run_in_executor(executor, connections.close_all)


def rest(context: ThreadSensitiveContext) -> None:
    """Has the connections of the turn's thread closed that were not used since the last call, when it is free."""
    if executor := _thread(context):
        executor.submit(_close_unused)


def _thread(context: ThreadSensitiveContext) -> Executor | None:
    return SyncToAsync.context_to_thread_executor.get(context)


def _close_unused() -> None:
    for connection in connections.all(initialized_only=True):
        use = next((wrapper for wrapper in connection.execute_wrappers if isinstance(wrapper, _Use)), None)
        if use is None:
            connection.execute_wrappers.append(_Use())
        elif not use.seen and not connection.in_atomic_block:
            connection.close()
        else:
            use.seen = False


class _Use:
    """An execute wrapper that notes that its connection is in use."""

    seen = False

    def __call__(self, execute: Callable[..., Any], *args: Any) -> Any:
        self.seen = True
        return execute(*args)

"""`with_streaming`: lets a view hand its request over to what streams or waits (DESIGN 2)."""

from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from asgiref.sync import ThreadSensitiveContext

from a2a_django.bindings.handover import Handover, Receive, Send
from a2a_django.settings import a2a_settings

Application = Callable[[Any, Receive, Send], Awaitable[None]]

SPARE_THREADS = 32
"""So many threads of A2A requests that have ended are kept for the next ones."""

_spare: list[ThreadPoolExecutor] = []


def with_streaming(application: Application) -> Application:
    """The site's ASGI application, with A2A streams: `application = with_streaming(get_asgi_application())`."""

    async def with_follow_up(scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or a2a_settings.PATH not in scope["path"]:
            return await application(scope, receive, send)
        handover = scope["a2a_django"] = Handover()
        await _in_spare_thread(application, scope, handover.listen(receive), handover.filter(send))
        if handover.follow_up is not None and not handover.left:
            await handover.follow_up(scope, receive, send)

    return with_follow_up


async def _in_spare_thread(application: Application, scope: Any, receive: Receive, send: Send) -> None:
    """Runs the application with its sync code in the thread of an A2A request that has ended.

    Otherwise Django starts a thread for each request, for signals and sync middleware, and another to end that one,
    which is a third of what an A2A request costs.
    """
    thread = _spare.pop() if _spare else ThreadPoolExecutor(1, "a2a-django")
    try:
        async with ThreadSensitiveContext(executor=thread):
            await application(scope, receive, send)
    finally:
        if len(_spare) < SPARE_THREADS:
            _spare.append(thread)
        else:
            thread.shutdown(wait=False)

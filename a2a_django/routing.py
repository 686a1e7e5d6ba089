"""`with_streaming`: lets a view hand its request over to what streams or waits (DESIGN 2)."""

from collections.abc import Awaitable, Callable
from typing import Any

from a2a_django.bindings.handover import Handover, Receive, Send

Application = Callable[[Any, Receive, Send], Awaitable[None]]


def with_streaming(application: Application) -> Application:
    """The site's ASGI application, with A2A streams: `application = with_streaming(get_asgi_application())`."""

    async def with_follow_up(scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await application(scope, receive, send)
        handover = scope["a2a_django"] = Handover()
        await application(scope, handover.listen(receive), handover.filter(send))
        if handover.follow_up is not None and not handover.left:
            await handover.follow_up(scope, receive, send)

    return with_follow_up

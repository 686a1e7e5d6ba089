"""Whether this process is about to stop: then streams end, who waits comes again, nothing new is taken in (DESIGN 4).

Servers tell an application that they stop when its connections have been closed, and uvicorn and gunicorn wait for
those. But their own signal handler knows, and can be asked without taking the signal from it. Daphne, and any server
whose patience is at an end, cancels what runs: streams and waiting calls take that as the same message.
"""

import signal
from typing import Any

from a2a_django.protocol import errors


def begun() -> bool:
    """Whether the server of this process has been asked to stop; from any thread."""
    server: Any = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    return getattr(server, "should_exit", False) or not getattr(server, "alive", True)


def refusal() -> errors.UnavailableError:
    """What callers are told then."""
    return errors.UnavailableError("The server is stopping, try again")


def check() -> None:
    """UnavailableError once the process is about to stop."""
    if begun():
        raise refusal()

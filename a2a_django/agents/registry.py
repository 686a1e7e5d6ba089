"""Which executors there are: found in `agents.py` of the installed apps, or named in A2A["EXECUTORS"]."""

import threading
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from a2a.server.agent_execution import AgentExecutor
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from a2a_django.settings import a2a_settings

Factory = TypeVar("Factory", bound=Callable[[], AgentExecutor])


class Registration(NamedTuple):
    """An executor's maker, and whether it blocks its thread."""

    make: Callable[[], AgentExecutor]
    blocking: bool = False


_registered: dict[str, Registration] = {}
_instances: dict[str, AgentExecutor] = {}
_lock = threading.Lock()


def executor(name: str, *, blocking: bool = False) -> Callable[[Factory], Factory]:
    """Registers an a2a-sdk AgentExecutor class (or a function that makes one) as `name`.

    One instance serves the process. `blocking=True` gives each turn a thread and an event loop of its own,
    for an executor that blocks; it must not share async clients between turns.
    """

    def register(make: Factory) -> Factory:
        known = _registered.get(name)
        if known is not None and known.make is not make:
            raise ImproperlyConfigured(f"The executor name “{name}” is taken by {known.make!r}; choose another.")
        _registered[name] = Registration(make, blocking)
        return make

    return register


def names() -> list[str]:
    """All executor names that an agent may have, sorted."""
    return sorted({*_registered, *a2a_settings.EXECUTORS})


def registration(name: str) -> Registration:
    """How to make executor `name`; LookupError where there is none."""
    if name in _registered:
        return _registered[name]
    if name in a2a_settings.EXECUTORS:
        return Registration(import_string(name))
    raise LookupError(f"No executor is called “{name}”; there are: {', '.join(names()) or 'none'}.")


def blocks(name: str) -> bool:
    """Whether executor `name` was registered as one that blocks; False for one that there isn't."""
    try:
        return registration(name).blocking
    except LookupError:  # whoever gets it will say so, where the caller and staff can see it
        return False


def get(name: str) -> AgentExecutor:
    """This process's instance of executor `name`; LookupError where there is none."""
    with _lock:
        if name not in _instances:
            _instances[name] = registration(name).make()
        return _instances[name]

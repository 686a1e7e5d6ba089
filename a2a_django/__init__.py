"""A Django site as an Agent2Agent (A2A) server: `from a2a_django import executor`."""

from a2a_django.agents.declarations import a2a_skill
from a2a_django.agents.inbox import inbox
from a2a_django.agents.registry import executor
from a2a_django.agents.retries import Retry

__all__ = ["Retry", "a2a_skill", "executor", "inbox"]
__version__ = "0.1.0.dev0"

"""The eleven A2A operations, one function each: caller and request in, ProtoJSON text out (A2A 3.1).

They do database work and belong into a thread of `database.requests`. Those that take an `Ear` return what is still
to be waited for, in the event loop where the Ear was made.
"""

from a2a_django.operations.canceling import cancel_task
from a2a_django.operations.cards import get_extended_agent_card
from a2a_django.operations.push_configs import (
    create_push_config,
    delete_push_config,
    get_push_config,
    list_push_configs,
)
from a2a_django.operations.reading import get_task, list_tasks
from a2a_django.operations.sending import send_message
from a2a_django.operations.streams import Stream, send_streaming_message, subscribe_to_task

__all__ = [
    "Stream",
    "cancel_task",
    "create_push_config",
    "delete_push_config",
    "get_extended_agent_card",
    "get_push_config",
    "get_task",
    "list_push_configs",
    "list_tasks",
    "send_message",
    "send_streaming_message",
    "subscribe_to_task",
]

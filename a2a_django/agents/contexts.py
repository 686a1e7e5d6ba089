"""The a2a-sdk's RequestContext, rebuilt whole for an executor (DESIGN 5.3)."""

import inspect
from typing import Any

from a2a.server.agent_execution import RequestContext
from a2a.types import Task as ProtoTask

from a2a_django import database
from a2a_django.agents import claims
from a2a_django.agents.claims import Claim
from a2a_django.models import Task
from a2a_django.settings import a2a_settings


async def of_turn(claim: Claim) -> RequestContext:
    """What `execute()` is called with, made by the site's REQUEST_CONTEXT_BUILDER if there is one."""
    writer = claim.writer
    task: dict[str, Any] = {
        "task_id": writer.task_id,
        "context_id": writer.context_id,
        "task": claim.current_task,
    }
    builder: Any = a2a_settings.load("REQUEST_CONTEXT_BUILDER")
    if builder is not None:
        builder = builder() if inspect.isclass(builder) else builder
        built: RequestContext = await builder.build(context=claim.call_context, params=claim.request, **task)
        return built
    return RequestContext(claim.call_context, claim.request, **task, related_tasks=claim.related_tasks)


async def of_cancel(claim: Claim) -> RequestContext:
    """What `cancel()` is called with: the task as it is by now."""
    writer = claim.writer
    task = await database.log.run(_current, writer.task_id)
    return RequestContext(claim.call_context, task_id=writer.task_id, context_id=writer.context_id, task=task)


def _current(task_id: str) -> ProtoTask:
    return claims.current_task(Task.objects.get(pk=task_id))

"""CancelTask: one terminal state, whoever ends the task first (A2A 3.1.5; DESIGN 5.6)."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from a2a.types import CancelTaskRequest

from a2a_django import database, doorbell, draining, entries, event_log, snapshots
from a2a_django.agents import dispatch
from a2a_django.batches import End
from a2a_django.doorbell import Ear
from a2a_django.event_log import FencedError
from a2a_django.models import Caller, Scope, Task, Turn
from a2a_django.models.task import Cancel
from a2a_django.models.turn import TurnState
from a2a_django.operations.reading import visible_task
from a2a_django.protocol import errors
from a2a_django.protocol.states import TERMINAL, TaskState
from a2a_django.settings import a2a_settings

GRACE = 1.0  # seconds beyond CANCEL_TIMEOUT: the runner, which has it too, should be the one that ends the task


def cancel_task(caller: Caller, request: CancelTaskRequest, ear: Ear) -> str | Callable[[], Awaitable[str]]:
    """The Task, CANCELED, or what waits for it while the executor is asked; TaskNotCancelableError if it has ended."""
    caller.need(Scope.CANCEL)
    ear.listen(request.id)
    task = visible_task(caller, request.id)
    if not task.terminal:
        caller.note("task.cancel_requested", task=task.pk)
    while not task.terminal:
        if task.lease and _ask(task):
            return partial(_wait, task.pk, ear)
        if not task.lease and _end(task):
            return _canceled(task.pk)
        task.refresh_from_db()
    raise _ended(task.pk)


def _ask(task: Task) -> bool:
    """Asks the runner to cancel; False if the turn has ended meanwhile."""
    running = Task.objects.live().filter(pk=task.pk, lease=task.lease)
    if not running.update(cancel=Cancel.REQUESTED):
        return False
    doorbell.ring(doorbell.CANCEL + task.pk)
    return True


def _end(task: Task) -> bool:
    """Ends the task as it stands, without its executor; False if another was first."""
    writer, canceled = event_log.writer(task), entries.status(task.pk, task.context_id, TaskState.CANCELED)
    try:
        event_log.append(writer, [canceled], end=_end_of_turn(task), release=True)
    except FencedError:
        return False
    dispatch.next_turn(task.pk)
    return True


def _end_of_turn(task: Task) -> End | None:
    """The end of the turn that runs, if one does: its process is fenced off, and can't write that any more."""
    running = Turn.objects.filter(task=task, state=TurnState.RUNNING).order_by("pk").first()
    return (
        End(running.pk, failed=True, error="The process that ran this turn did not heed a cancel.") if running else None
    )


async def _wait(task_id: str, ear: Ear) -> str:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + a2a_settings.CANCEL_TIMEOUT + GRACE
    while True:
        rung = await ear.wait(max(deadline - loop.time(), 0))
        answer = await database.patiently(partial(database.requests.run, _look, task_id, late=not rung))
        if answer is not None:
            return answer
        draining.check()


def _look(task_id: str, *, late: bool) -> str | None:
    """The Task if it is CANCELED by now; `late` ends it without the executor."""
    task = Task.objects.get(pk=task_id)
    if task.state == TaskState.CANCELED:
        return _canceled(task_id)
    if task.state in TERMINAL:
        raise _ended(task_id)
    if task.cancel == Cancel.REFUSED:
        raise errors.TaskNotCancelableError("The agent does not cancel this task", {"taskId": task_id})
    # Without a lease the turn has ended between the request and now, and nobody is left to hear it.
    if (late or not task.lease) and _end(task):
        return _canceled(task_id)
    if task.lease and task.cancel == Cancel.NONE:  # so has it, and another has begun
        _ask(task)
    return None


def _canceled(task_id: str) -> str:
    return snapshots.snapshot(Task.objects.get(pk=task_id)).text()


def _ended(task_id: str) -> errors.TaskNotCancelableError:
    return errors.TaskNotCancelableError("The task has already ended", {"taskId": task_id})

"""Brings back what dead processes held: turns whose lease has expired, and turns whose job was lost (DESIGN 5.4).

Every process that has a keeper looks now and then; `manage.py a2a_recover` and the Celery job do so on demand. Any
number of them may work at once: whoever moves a row on is the one that goes on with it.
"""

import logging
from datetime import timedelta
from typing import Any

from celery import shared_task
from django.db import transaction
from django.db.models import BooleanField, DateTimeField, Exists, ExpressionWrapper, F, OuterRef, Q
from django.db.models.functions import Now

from a2a_django import database, doorbell, entries, event_log
from a2a_django.agents import dispatch, leases
from a2a_django.batches import End
from a2a_django.event_log import FencedError
from a2a_django.models import Task, Turn
from a2a_django.models.task import Cancel
from a2a_django.models.turn import ENDED, TurnState
from a2a_django.protocol.states import TaskState
from a2a_django.settings import a2a_settings

log = logging.getLogger(__name__)

AT_ONCE = 200  # turns of one round: the next comes soon
MOST = 16  # times REDISPATCH_SECONDS: the longest that a queued turn is waited for


def recover() -> int:
    """Recovers what is due, a bounded number; how many tasks that were."""
    expired = Turn.objects.filter(state=TurnState.RUNNING, task__lease_expires__lt=Now()).exclude(task__lease="")
    tasks = list(dict.fromkeys(expired.order_by("pk").values_list("task_id", flat=True)[:AT_ONCE]))
    return sum(map(recover_task, tasks)) + sum(map(_hand_again, list(_lost()[:AT_ONCE])))


EXPIRED = ExpressionWrapper(Q(lease_expires__lt=Now()), output_field=BooleanField())
"""Annotates a task: whether the process that holds it may have died; `recover_task` finds out."""


def recover_task(task_id: str) -> bool:
    """Takes a task from a process that has let its lease expire; False where there is nothing to take."""
    token = leases.token()
    held = Task.objects.filter(pk=task_id, lease_expires__lt=Now()).exclude(lease="")
    if not held.update(lease=token, lease_expires=leases.expiry()):
        return False
    # The old process is fenced off. If this one dies now, its lease will expire like any other.
    task = Task.objects.select_related("agent").get(pk=task_id)
    running = Turn.objects.filter(task=task, state=TurnState.RUNNING)
    turns = list(running.annotate(age=Now() - F("started_at")).order_by("pk"))
    log.warning("Task %s was held by %s, which is gone.", task_id, ", ".join(turn.worker for turn in turns) or "nobody")
    try:
        _go_on(task, turns)
    except FencedError:
        return False
    return True


def _go_on(task: Task, turns: list[Turn]) -> None:
    if task.cancel == Cancel.REQUESTED:
        _end(task, turns, TaskState.CANCELED)
    elif turns and _may_try_again(task, turns[0]):
        _requeue(task, turns)
    else:
        _end(task, turns, TaskState.FAILED)


def _may_try_again(task: Task, turn: Any) -> bool:
    """Whether there are attempts left, and time: each attempt has the whole turn_timeout."""
    timeout = task.agent.turn_timeout
    had_its_time = timeout is not None and turn.age is not None and turn.age > timedelta(seconds=timeout)
    return (
        task.agent.restartable and turn.attempt < a2a_settings.MAX_ATTEMPTS and not task.terminal and not had_its_time
    )


def _requeue(task: Task, turns: list[Turn]) -> None:
    with transaction.atomic():
        crowded = task.crowded or len(turns) > 1
        ours = Task.objects.filter(pk=task.pk, lease=task.lease)
        if not ours.update(lease="", lease_expires=None, crowded=crowded):
            raise FencedError
        again = {"state": TurnState.QUEUED, "due_at": Now(), "handed_at": Now()}
        Turn.objects.filter(pk__in=[turn.pk for turn in turns]).update(**again)
        transaction.on_commit(lambda: dispatch.hand(turns[0].pk))


def _end(task: Task, turns: list[Turn], state: TaskState) -> None:
    """Ends the task with a status of the server's; the turns that have not started fail with it."""
    writer = event_log.writer(task)
    said = [] if task.terminal else [_status(task, state, turns)]
    first = turns[0].pk if turns else None
    end = End(first, failed=True, error="The process that ran this turn died or lost its database.") if first else None
    event_log.append(writer, said, end=end, release=True)
    if len(turns) > 1 or task.crowded:
        dispatch.next_turn(task.pk)


def _status(task: Task, state: TaskState, turns: list[Turn]) -> Any:
    if state == TaskState.CANCELED:
        return entries.status(task.pk, task.context_id, state)
    return entries.interrupted(task.pk, task.context_id, turns[0].pk if turns else task.pk)


# --- lost jobs


def _lost() -> Any:
    """The tasks of turns that could run, but nobody has started; each is waited for twice as long as before.

    That spares a broker with more work than workers. It has a bound: jobs may be lost over and over, too.
    """
    earlier = Turn.objects.filter(task=OuterRef("task"), pk__lt=OuterRef("pk")).exclude(state__in=ENDED)
    due = ExpressionWrapper(F("handed_at") + (F("handed_at") - F("due_at")), output_field=DateTimeField())
    patience = timedelta(seconds=a2a_settings.REDISPATCH_SECONDS)
    waiting = Turn.objects.queued().filter(~Exists(earlier), task__lease="", handed_at__lt=Now() - patience)
    due_by_now = Q(due__lt=Now()) | Q(handed_at__lt=Now() - MOST * patience)
    return waiting.annotate(due=due).filter(due_by_now).order_by("pk").values_list("pk", "task_id", "handed_at")


def _hand_again(lost: tuple[int, str, Any]) -> bool:
    turn_id, task_id, handed_at = lost
    # Not by equality: SQLite writes Now() with fewer digits than it is asked for.
    mine = Turn.objects.queued().filter(pk=turn_id, handed_at__lte=handed_at).update(handed_at=Now())
    if mine:
        log.warning("Turn %s was not started, it is handed on again.", turn_id)
        dispatch.next_turn(task_id)
    return bool(mine)


# --- when


async def _look() -> None:
    await database.log.run(recover)


doorbell.duty("Recovery", "RECOVERY_SECONDS", _look)


@shared_task(name="a2a_django.recover", ignore_result=True)
def run_recovery() -> None:
    """The Celery job, for sites that want a clock of their own: `recover`."""
    recover()

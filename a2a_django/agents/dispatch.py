"""Hands a Turn to this process or to Celery, and the next one when it has ended (DESIGN 5)."""

import logging
import time
from functools import partial

from celery import shared_task

from a2a_django import accidents, database, doorbell
from a2a_django.agents import claims, loop, runner, shutdown
from a2a_django.agents.claims import Claim
from a2a_django.models import Task, Turn
from a2a_django.models.turn import TurnState
from a2a_django.settings import a2a_settings

log = logging.getLogger(__name__)

NEVER = 10 * 365 * 86_400  # seconds; an agent's turn_timeout bounds its turns
LONGEST_COUNTDOWN = 300.0  # seconds; brokers bound how long a worker may hold a job, longer pauses end with recovery

# Kombu alone would keep the request's thread for six seconds of retries, and for minutes where packets are dropped.
IMPATIENT = {"max_retries": 1, "interval_start": 0.1, "socket_connect_timeout": 2}
BROKER_REST = 5.0  # seconds for which a broker that failed is not asked again: an attempt takes its time
_broker_failed = -BROKER_REST


def in_process() -> bool:
    """Whether turns run in the process that accepts them."""
    return a2a_settings.EXECUTION == "inprocess"


def start(claim: Claim) -> None:
    """Runs a claimed turn in this process."""
    loop.submit(_perform(claim))


def hand(turn_id: int, pause: float = 0) -> None:
    """Has a queued turn run after `pause`, here or in a Celery worker. One that can't be handed on stays queued."""
    if not in_process():
        _publish(turn_id, pause)
    elif pause:
        loop.later(pause, partial(hand, turn_id))
    else:
        loop.submit(_claim_and_perform(turn_id))


def next_turn(task_id: str) -> None:
    """After a turn or a task has ended: has the task's next turn run; those of an ended task fail."""
    queued = Turn.objects.queued().filter(task_id=task_id).order_by("pk")
    turn_id = queued.values_list("pk", flat=True).first()
    if turn_id is None:
        return
    if Task.objects.live().filter(pk=task_id).exists():
        hand(turn_id)
    else:
        queued.update(state=TurnState.FAILED, error="The task had ended before this turn could start.")
        doorbell.ring(task_id)


def _publish(turn_id: int, pause: float) -> None:
    global _broker_failed
    if pause > LONGEST_COUNTDOWN or time.monotonic() - _broker_failed < BROKER_REST:
        return
    try:
        with run_turn.app.producer_or_acquire() as producer:
            options = producer.connection.transport_options
            producer.connection.transport_options = {**IMPATIENT, **options}
            run_turn.apply_async((turn_id,), countdown=pause, producer=producer, retry=False)
    except Exception as error:  # whatever the broker's client raises: the turn is safe in the database
        _broker_failed = time.monotonic()
        log.error("The broker did not take turn %s, it stays queued: %s", turn_id, accidents.place(error))


async def _claim_and_perform(turn_id: int) -> None:
    try:
        if shutdown.begun():
            await database.log.run(hand, turn_id)  # another worker takes it
        elif claim := await database.patiently(partial(database.log.run, claims.claim, turn_id)):
            await _perform(claim)
    except Exception as error:  # of whose text Celery would make a line of its log
        log.error("Turn %s stays as it is: %s", turn_id, accidents.place(error))


async def _perform(claim: Claim) -> None:
    again = None
    try:
        again = await runner.run(claim)
    except Exception as error:
        log.error("Turn %s was given up: %s", claim.turn_id, accidents.place(error))
    if again is not None:
        await database.log.run(hand, claim.turn_id, again.after)
    elif claim.writer.crowded:
        await database.log.run(next_turn, claim.writer.task_id)


# What is named here holds whatever the site's Celery settings say.
@shared_task(name="a2a_django.run_turn", ignore_result=True, acks_late=False, time_limit=NEVER, soft_time_limit=NEVER)
def run_turn(turn_id: int) -> None:
    """The Celery job: runs one queued turn; a second copy of it finds nothing to claim."""
    loop.submit(_claim_and_perform(turn_id)).result()

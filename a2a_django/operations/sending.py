"""SendMessage: takes a message in, hands the turn on, waits for what comes of it (A2A 3.1.1)."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from a2a.server.id_generator import IDGenerator, IDGeneratorContext, UUIDGenerator
from a2a.types import SendMessageRequest
from django.db import IntegrityError, transaction
from django.db.models import Exists
from django.utils import timezone

from a2a_django import batches, database, doorbell, draining, entries, event_log, snapshots, statements
from a2a_django.agents import activation, claims, dispatch, leases
from a2a_django.agents.claims import Claim
from a2a_django.doorbell import Ear
from a2a_django.event_log import FencedError
from a2a_django.models import Caller, Event, Scope, Task, Turn
from a2a_django.models.event import Kind
from a2a_django.models.turn import ENDED, TurnState
from a2a_django.operations import idempotency, input_modes, push_configs, quotas
from a2a_django.operations.idempotency import Stamp
from a2a_django.operations.reading import history_length, visible_task
from a2a_django.protocol import codec, errors
from a2a_django.protocol.states import INTERRUPTED, TaskState
from a2a_django.settings import a2a_settings


@dataclass
class Accepted:
    """A message that was taken in; its turn is on its way."""

    task_id: str
    turn_id: int
    ear: Ear
    history_length: int | None
    cursor: int = 0
    opening: str = ""  # the Task as it was, for a follow-up


def send_message(caller: Caller, request: SendMessageRequest, ear: Ear) -> Callable[[], Awaitable[str]]:
    """Takes the message in; what is returned waits for the SendMessageResponse JSON, or raises the A2AError."""
    caller.need(Scope.SEND)
    draining.check()
    accepted = accept(caller, request, ear)
    return partial(_answer, caller, accepted, immediately=request.configuration.return_immediately)


def accept(caller: Caller, request: SendMessageRequest, ear: Ear) -> Accepted:
    """Stores message, turn and, if need be, task in one transaction, and hands the turn on after it.

    A message that was sent before is not stored again: this is its first send then.
    """
    length = history_length(request.configuration)
    input_modes.check(caller, request.message)
    push_configs.check_inline(caller, request)
    stamp = idempotency.stamp(caller, request)
    follow_up = bool(request.message.task_id)
    store = partial(_follow_up if follow_up else _new_task, caller, request, ear, length, stamp)
    return _once(store, stamp, partial(_join, ear, length, follow_up=follow_up)) if stamp else store()


def rejoin(caller: Caller, request: SendMessageRequest, ear: Ear) -> Accepted:
    """The first send of a message whose stream is resumed, however long ago that was; nothing is ever stored."""
    stamp = idempotency.stamp(caller, request)
    turn = idempotency.first_send(stamp, ever=True) if stamp else None
    if turn is None:
        raise errors.invalid_params(
            ("Last-Event-ID", "resumes only what you sent under this messageId before; leave it out or SubscribeToTask")
        )
    return _join(ear, history_length(request.configuration), turn, follow_up=bool(request.message.task_id))


# The key is taken; or the first send has ended its task, or is itself what the quota is used up by.
_MAY_BE_SENT = (IntegrityError, errors.UnsupportedOperationError, errors.TooManyRequestsError)


def _once(store: Callable[[], Accepted], stamp: Stamp, join: Callable[[Turn], Accepted]) -> Accepted:
    """What `store` takes in, or what `join` makes of the first send: the constraint on the key decides races."""
    tries = 3  # the key may have been given free between our two statements
    while True:
        try:
            return store()
        except _MAY_BE_SENT as error:
            turn = idempotency.first_send(stamp)
            if turn is not None:
                return join(turn)
            tries -= 1
            if not (tries and isinstance(error, IntegrityError)):
                raise


def _join(ear: Ear, length: int | None, turn: Turn, *, follow_up: bool) -> Accepted:
    """The first send, with the task as it is for a follow-up."""
    ear.listen(turn.task_id)
    ear.ring()  # there may be nothing more to come
    if not follow_up:
        return Accepted(turn.task_id, turn.pk, ear, length)
    opening = snapshots.snapshot(turn.task)
    return Accepted(turn.task_id, turn.pk, ear, length, opening.task.last_sequence, opening.text(length))


# --- a new task


def _new_task(
    caller: Caller, request: SendMessageRequest, ear: Ear, length: int | None, stamp: Stamp | None
) -> Accepted:
    quotas.check_running(caller, "")
    message, ids = request.message, _id_generator()
    message.context_id = message.context_id or ids.generate(IDGeneratorContext())
    message.task_id = ids.generate(IDGeneratorContext(context_id=message.context_id))
    now = timezone.now()
    status = {"state": TaskState.SUBMITTED.value, "timestamp": codec.timestamp(now)}
    task = Task(
        pk=message.task_id,
        agent=caller.agent,
        tenant=caller.tenant,
        owner=caller.owner,
        user=caller.account,
        context_id=message.context_id,
        status=codec.dumps(status),
        status_timestamp=codec.moment(status["timestamp"]),
    )
    ear.listen(task.pk)
    with transaction.atomic():
        running = dispatch.in_process()
        if running:
            _take(task)
        statements.insert([task])
        turn = _store(caller, request, task, stamp, running=running)
    caller.note("task.created", task=task.pk)
    return Accepted(task.pk, turn.pk, ear, length)


def _id_generator() -> IDGenerator:
    made: Any = a2a_settings.load("ID_GENERATOR") or UUIDGenerator
    generator: IDGenerator = made() if isinstance(made, type) else made
    return generator


def _take(task: Task) -> None:
    """Gives an unsaved task the lease of this process: creating a turn claims it (DESIGN 4)."""
    task.lease, task.lease_expires = leases.token(), leases.expiry()


def _store(caller: Caller, request: SendMessageRequest, task: Task, stamp: Stamp | None, *, running: bool) -> Turn:
    """Writes message, turn and inline push config; the turn starts when the transaction has committed."""
    message = statements.insert_one(batches.message_row(task.pk, codec.to_data(request.message)))
    turn = statements.insert_one(
        Turn(
            task=task,
            message=message,
            user=caller.account,
            request=_without_secrets(request),
            context=_context(caller),
            activated=sorted(caller.activated),
            start_sequence=task.last_sequence,
            idempotency_key=stamp.key if stamp else None,
            payload_digest=stamp.digest if stamp else "",
            **(claims.running() if running else {}),
        )
    )
    push_configs.store_inline(caller, task, request)
    if running:
        claim = _claim(caller, request, task, turn)
        transaction.on_commit(partial(dispatch.start, claim))
    else:
        transaction.on_commit(partial(dispatch.hand, turn.pk))
    return turn


def _context(caller: Caller) -> dict[str, Any]:
    """What the runner rebuilds the call from."""
    return {
        "version": caller.version,
        "extensions": sorted(caller.extensions),
        "available": sorted(caller.available),
        "state": caller.state,
    }


def _without_secrets(request: SendMessageRequest) -> str:
    """What the runner rebuilds the request from: all but the message, which has its own row, and credentials."""
    rest = SendMessageRequest()
    rest.CopyFrom(request)
    rest.ClearField("message")
    if rest.configuration.HasField("task_push_notification_config"):
        rest.configuration.task_push_notification_config.ClearField("token")
        rest.configuration.task_push_notification_config.ClearField("authentication")
    return codec.to_text(rest)


def _claim(caller: Caller, request: SendMessageRequest, task: Task, turn: Turn) -> Claim:
    tenant = caller.tenant.slug if caller.tenant else ""
    return Claim(
        turn_id=turn.pk,
        executor=caller.agent.executor,
        writer=claims.writer(task, turn.pk, turn.message.message_id, turn.message.body),
        request=request,
        call_context=claims.call_context(caller.account, tenant, turn.context, turn.activated),
        restartable=caller.agent.restartable,
        timeout=caller.agent.turn_timeout,
        available=caller.available,
        current_task=claims.current_task(task, before=turn.message_id) if task.visible else None,
        spoken=task.visible,
        related_tasks=claims.related_tasks(task, request),
    )


# --- a follow-up


def _follow_up(
    caller: Caller, request: SendMessageRequest, ear: Ear, length: int | None, stamp: Stamp | None
) -> Accepted:
    message = request.message
    task = visible_task(caller, message.task_id)
    if message.context_id and message.context_id != task.context_id:
        raise errors.invalid_params(("message.contextId", "is not the context of the task; leave it out or correct it"))
    message.context_id = task.context_id
    if not task.terminal:  # else that is what the caller should hear
        quotas.check_running(caller, task.pk)
    ear.listen(task.pk)
    with transaction.atomic():
        running = dispatch.in_process() and _take_parked(task)
        if not running and not _queue_up(task):
            raise errors.UnsupportedOperationError(
                "The task is in a terminal state and takes no more messages; start a new one", {"taskId": task.pk}
            )
        task.refresh_from_db()
        turn = _store(caller, request, task, stamp, running=running)
        if task.lease and not running:
            transaction.on_commit(partial(doorbell.ring, task.pk))  # the executor that runs may want to read it
        opening = snapshots.snapshot(task)
    return Accepted(task.pk, turn.pk, ear, length, task.last_sequence, opening.text(length))


def _take_parked(task: Task) -> bool:
    """Takes the lease of a task that nobody runs and nobody waits to run."""
    waiting = Turn.objects.filter(task=task).exclude(state__in=ENDED)
    parked = Task.objects.live().filter(~Exists(waiting), pk=task.pk, lease="")
    return bool(parked.update(lease=leases.token(), lease_expires=leases.expiry()))


def _queue_up(task: Task) -> bool:
    """Has the end of the running turn look for this one; False for an ended task. Locks the row: it is in order."""
    return bool(Task.objects.live().filter(pk=task.pk).update(crowded=True))


# --- the answer


async def _answer(caller: Caller, accepted: Accepted, *, immediately: bool) -> str:
    """The Task at a terminal or interrupted state or when the turn has ended, or the Message (A2A 3.2.2)."""
    timeout = a2a_settings.IMMEDIATE_WAIT if immediately else a2a_settings.BLOCKING_TIMEOUT
    deadline = None if timeout is None else asyncio.get_running_loop().time() + timeout
    while True:
        left = None if deadline is None else max(deadline - asyncio.get_running_loop().time(), 0)
        rung = await accepted.ear.wait(left)
        if rung and accepted.ear.letters() is not None and not immediately:
            continue  # the turn goes on
        look = partial(database.requests.run, _look, accepted, immediately=immediately, now=not rung)
        answer = await database.patiently(look)
        if answer is not None:
            if caller.available:
                await database.requests.run(activation.learn, caller, accepted.turn_id)
            return answer
        draining.check()


def _look(accepted: Accepted, *, immediately: bool, now: bool) -> str | None:
    """The answer if there is one; `now` makes a hidden task visible and takes it as it is."""
    task = claims.TASKS.get(accepted.task_id)
    if not (task.visible and task.terminal):
        turn = Turn.objects.select_related("task").get(pk=accepted.turn_id)
        task = turn.task
        if not task.visible:
            return _unseen(turn, accepted, immediately=immediately, now=now)
        if not (now or _tells(turn, task, immediately)):
            return None
    return f'{{"task":{snapshots.snapshot(task).text(accepted.history_length)}}}'


def _tells(turn: Turn, task: Task, immediately: bool) -> bool:
    """Whether a waiting call is answered by how `task` stands."""
    if turn.ended or task.terminal:
        return True
    if turn.state == TurnState.QUEUED:
        return False
    if immediately:
        return task.last_sequence > turn.start_sequence
    return task.state in INTERRUPTED and task.status_sequence > turn.start_sequence


def _unseen(turn: Turn, accepted: Accepted, *, immediately: bool, now: bool) -> str | None:
    """The answer of a turn that has not spoken of its task: a Message, an error, or the Task after all."""
    if turn.answer:
        raise errors.restore(turn.answer)
    if turn.ended:
        return Event.objects.filter(task=turn.task, kind=Kind.MESSAGE).values_list("body", flat=True).get()
    if not now:
        return None
    task, writer = turn.task, event_log.writer(turn.task)
    with contextlib.suppress(FencedError):  # it has just ended or was handed over: the next look tells
        event_log.append(writer, [entries.submitted(task.pk, task.context_id, writer.opening)])
    return _look(accepted, immediately=immediately, now=Task.objects.filter(pk=task.pk, visible=True).exists())

"""Claiming a turn: the lease of its task, and the RequestContext that its executor gets (DESIGN 5)."""

import os
import socket
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from typing import Any

from a2a.auth.user import User
from a2a.server.context import ServerCallContext
from a2a.types import Message, SendMessageRequest
from a2a.types import Task as ProtoTask
from django.contrib.auth import get_user_model
from django.contrib.auth.base_user import AbstractBaseUser
from django.db import transaction
from django.db.models import Exists, F, OuterRef, Subquery
from django.db.models.functions import Now

from a2a_django import event_log, snapshots
from a2a_django.agents import leases
from a2a_django.batches import Writer
from a2a_django.models import Task, Turn
from a2a_django.models.turn import ENDED, TurnState
from a2a_django.protocol import codec, versions
from a2a_django.protocol.states import TaskState
from a2a_django.settings import a2a_settings
from a2a_django.statements import Select, Update

EARLY = timedelta(seconds=5)  # by so much a job may come before its turn is due: the clocks of workers differ


class DjangoUser(User):
    """A Django user as the a2a-sdk knows users; `account` is the row, None for an anonymous caller."""

    def __init__(self, account: AbstractBaseUser | None) -> None:
        self.account = account

    @property
    def is_authenticated(self) -> bool:
        return self.account is not None

    @property
    def user_name(self) -> str:
        return self.account.get_username() if self.account is not None else ""


def call_context(
    account: AbstractBaseUser | None, tenant: str, context: dict[str, Any], activated: Iterable[str] = ()
) -> ServerCallContext:
    """The a2a-sdk's view of a call, from what a Turn keeps of it."""
    active = {versions.ACTIVATED: set(activated)} if activated else {}
    return ServerCallContext(
        user=DjangoUser(account),
        tenant=tenant,
        requested_extensions=set(context.get("extensions", ())),
        state={**context.get("state", {}), **active},
    )


@dataclass
class Claim:
    """A turn whose task this process has the lease of, with all that its executor is told."""

    turn_id: int
    executor: str
    writer: Writer
    request: SendMessageRequest
    call_context: ServerCallContext
    attempt: int = 1
    restartable: bool = False
    timeout: float | None = None  # seconds
    available: frozenset[str] = frozenset()  # the extensions that may be activated
    current_task: ProtoTask | None = None
    spoken: bool = False  # of the task: an executor can't answer by a Message any more
    related_tasks: list[ProtoTask] = field(default_factory=list)


def running() -> dict[str, Any]:
    """The columns of a Turn that is made for this process to run at once."""
    return {"state": TurnState.RUNNING, "worker": worker(), "started_at": leases.now(), "attempt": 1}


def worker() -> str:
    """host:process, for staff."""
    return f"{socket.gethostname()}:{os.getpid()}"


def claim(turn_id: int) -> Claim | None:
    """Takes the lease for a queued turn; None where it is not its turn, or another copy of the job has it."""
    with transaction.atomic():
        if not _take_lease(a2a_settings.LEASE_SECONDS).run(turn_id, turn_id, leases.token()):
            return None
        task_id, user_id, attempt, request, context, activated, *more = _ASKED.row(turn_id)
        key, message_id, body, executor, restartable, timeout, tenant = more
        task = TASKS.get(task_id)
        if not start(turn_id, task.last_sequence):
            transaction.set_rollback(True)
            return None
    shown = current_task(task, before=key) if task.visible else None
    spoken = shown is not None and _is_spoken_of(task, shown)
    return Claim(
        turn_id=turn_id,
        executor=executor,
        writer=writer(task, turn_id, message_id, body),
        request=(asked := _request(request, body)),
        call_context=call_context(_account(user_id), tenant or "", context, activated),
        attempt=attempt + 1,
        restartable=restartable,
        timeout=timeout,
        available=frozenset(context.get("available", ())),
        current_task=shown if spoken or attempt else None,
        spoken=spoken,
        related_tasks=related_tasks(task, asked),
    )


def _is_spoken_of(task: Task, shown: ProtoTask) -> bool:
    """False if it may only be what a caller got who did not wait: the executor can still answer by a Message."""
    said = task.last_sequence > 1 or task.state != TaskState.SUBMITTED
    return said or bool(shown.history or shown.artifacts or shown.metadata)


def start(turn_id: int, sequence: int) -> bool:
    """Notes that a queued turn runs here, from that event on; False if it isn't queued any more."""
    return bool(_START.run(turn_id, sequence, worker()))


@cache
def _take_lease(seconds: float) -> Update[Task]:
    """The UPDATE that takes the lease of a queued turn's task, if no one has it and no earlier turn waits.

    A second copy of a job may come in the pause that a Retry asked for, which is not over then.
    """

    def build(turn_id: Any, before: Any, lease: Any) -> Any:
        due = Turn.objects.queued().filter(pk=turn_id, due_at__lte=Now() + EARLY)
        earlier = Turn.objects.filter(task=OuterRef("pk"), pk__lt=before).exclude(state__in=ENDED)
        free = Task.objects.live().filter(~Exists(earlier), pk=Subquery(due.values("task_id")), lease="")
        return free, {"lease": lease, "lease_expires": leases.expiry()}

    return Update(Task, build)


_ASKED = Select(
    Turn,
    lambda turn_id: (
        Turn.objects.filter(pk=turn_id)
        .order_by()
        .values_list(
            "task_id",
            "user_id",
            "attempt",
            "request",
            "context",
            "activated",
            "message_id",
            "message__message_id",
            "message__body",
            "task__agent__executor",
            "task__agent__restartable",
            "task__agent__turn_timeout",
            "task__tenant__slug",
        )
    ),
)
_START = Update(
    Turn,
    lambda turn_id, sequence, by: (
        Turn.objects.queued().filter(pk=turn_id),
        {
            "state": TurnState.RUNNING,
            "attempt": F("attempt") + 1,
            "start_sequence": sequence,
            "worker": by,
            "started_at": Now(),
        },
    ),
)
TASKS = Select(Task, lambda task_id: Task.objects.filter(pk=task_id).order_by())
"""A task by its id."""


def _request(text: str, body: str) -> SendMessageRequest:
    request = codec.read(text, SendMessageRequest)
    request.message.CopyFrom(codec.read(body, Message))
    return request


def _account(user_id: Any) -> Any:
    return get_user_model()._default_manager.filter(pk=user_id).first() if user_id is not None else None


def writer(task: Task, turn_id: int, message_id: str, body: str) -> Writer:
    """The log's writer for a claimed turn, which the message `body` began."""
    if task.last_sequence:
        return event_log.writer(task, turn_id)
    return Writer(task.pk, task.context_id, task.lease, turn_id, opening=body, message_ids={message_id}, unfolded=[])


def current_task(task: Task, *, before: int | None = None) -> ProtoTask:
    """The task as its executor finds it: before the message (a key) that it is handed, and those that wait."""
    return codec.read(snapshots.snapshot(task, before=before).text(), ProtoTask)


def related_tasks(task: Task, request: SendMessageRequest) -> list[ProtoTask]:
    """The tasks that the message refers to, in its order, as far as they are the same caller's."""
    ids = list(dict.fromkeys(request.message.reference_task_ids))[:100]
    if not ids:
        return []
    same = Task.objects.filter(agent=task.agent_id, tenant=task.tenant_id, owner=task.owner, visible=True)
    found = snapshots.snapshots(list(same.filter(pk__in=ids)))
    found.sort(key=lambda item: ids.index(item.task.pk))
    return [codec.read(item.text(), ProtoTask) for item in found]

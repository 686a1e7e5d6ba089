"""Claiming a turn: the lease of its task, and the RequestContext that its executor gets (DESIGN 5)."""

import os
import socket
from dataclasses import dataclass, field
from typing import Any

from a2a.auth.user import User
from a2a.server.context import ServerCallContext
from a2a.types import Message, SendMessageRequest
from a2a.types import Task as ProtoTask
from django.contrib.auth.base_user import AbstractBaseUser
from django.db import transaction
from django.db.models import Exists, F, OuterRef, Subquery
from django.db.models.functions import Now

from a2a_django import event_log, snapshots
from a2a_django.agents import leases
from a2a_django.event_log import Writer
from a2a_django.models import Task, Turn
from a2a_django.models.turn import ENDED, TurnState
from a2a_django.protocol import codec
from a2a_django.snapshots import Snapshot


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


def call_context(account: AbstractBaseUser | None, tenant: str, context: dict[str, Any]) -> ServerCallContext:
    """The a2a-sdk's view of a call, from what a Turn keeps of it."""
    return ServerCallContext(
        user=DjangoUser(account),
        tenant=tenant,
        requested_extensions=set(context.get("extensions", ())),
        state=dict(context.get("state", {})),
    )


@dataclass
class Claim:
    """A turn whose task this process has the lease of, with all that its executor is told."""

    turn_id: int
    executor: str
    writer: Writer
    request: SendMessageRequest
    call_context: ServerCallContext
    current_task: ProtoTask | None = None
    related_tasks: list[ProtoTask] = field(default_factory=list)


def running(*, first: bool = False) -> dict[str, Any]:
    """The columns of a Turn that this process starts now; `first` for one that is only being made."""
    attempt = 1 if first else F("attempt") + 1
    return {"state": TurnState.RUNNING, "worker": worker(), "started_at": Now(), "attempt": attempt}


def worker() -> str:
    """host:process, for staff."""
    return f"{socket.gethostname()}:{os.getpid()}"


def claim(turn_id: int) -> Claim | None:
    """Takes the lease for a queued turn; None where it is not its turn, or another copy of the job has it."""
    queued = Turn.objects.queued().filter(pk=turn_id)
    earlier = Turn.objects.filter(task=OuterRef("pk"), pk__lt=turn_id).exclude(state__in=ENDED)
    free = Task.objects.live().filter(~Exists(earlier), pk=Subquery(queued.values("task_id")), lease="")
    with transaction.atomic():
        if not free.update(lease=leases.token(), lease_expires=leases.expiry()):
            return None
        turn = Turn.objects.select_related("task__agent", "task__tenant", "message", "user").get(pk=turn_id)
        if not queued.update(**running(), start_sequence=turn.task.last_sequence):
            transaction.set_rollback(True)
            return None
    return _of(turn)


def _of(turn: Turn) -> Claim:
    task = turn.task
    request = codec.read(turn.request, SendMessageRequest)
    request.message.CopyFrom(codec.read(turn.message.body, Message))
    return Claim(
        turn_id=turn.pk,
        executor=task.agent.executor,
        writer=writer(task, turn),
        request=request,
        call_context=call_context(turn.user, task.tenant.slug if task.tenant else "", turn.context),
        current_task=current_task(snapshots.snapshot(task), request) if task.visible else None,
        related_tasks=related_tasks(task, request),
    )


def writer(task: Task, turn: Turn) -> Writer:
    """The log's writer for a claimed turn."""
    if task.last_sequence:
        return event_log.writer(task)
    return Writer(
        task.pk,
        task.context_id,
        task.lease,
        opening=turn.message.body,
        message_ids={turn.message.message_id},
        unfolded=[],
    )


def current_task(snapshot: Snapshot, request: SendMessageRequest | None = None) -> ProtoTask:
    """The task as the executor finds it: its history ends before the message that it is handed."""
    task = codec.read(snapshot.text(), ProtoTask)
    if request is not None and task.history and task.history[-1].message_id == request.message.message_id:
        del task.history[-1]
    return task


def related_tasks(task: Task, request: SendMessageRequest) -> list[ProtoTask]:
    """The tasks that the message refers to, as far as they are the same caller's."""
    ids = list(request.message.reference_task_ids)
    if not ids:
        return []
    same = Task.objects.filter(agent=task.agent_id, tenant=task.tenant_id, owner=task.owner, visible=True)
    return [codec.read(item.text(), ProtoTask) for item in snapshots.snapshots(list(same.filter(pk__in=ids[:100])))]

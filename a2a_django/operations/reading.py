"""GetTask and ListTasks (A2A 3.1.3, 3.1.4)."""

from datetime import UTC
from typing import Any, cast

from a2a.types import GetTaskRequest, ListTasksRequest, SendMessageConfiguration, TaskState
from django.core import signing
from django.db.models import Q
from django.utils.dateparse import parse_datetime

from a2a_django import snapshots
from a2a_django.agents import recovery
from a2a_django.models import Caller, Scope, Task
from a2a_django.models.task import TaskQuerySet
from a2a_django.protocol import codec, errors

DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE = 50, 100


def get_task(caller: Caller, request: GetTaskRequest) -> str:
    """The task as it is, as Task JSON; TaskNotFoundError."""
    caller.need(Scope.READ)
    length = history_length(request)
    return snapshots.snapshot(visible_task(caller, request.id)).text(length)


def visible_task(caller: Caller, task_id: str) -> Task:
    """The task that `caller` may see; not found and not theirs are the same TaskNotFoundError.

    One whose process has died meanwhile is recovered first, whatever is asked of it (DESIGN 5.4).
    """
    try:
        task: Any = Task.objects.visible_to(caller).annotate(expired=recovery.EXPIRED).get(pk=task_id)
    except Task.DoesNotExist:
        raise errors.TaskNotFoundError(data={"taskId": task_id[:100]}) from None
    if task.expired and recovery.recover_task(task.pk):
        task.refresh_from_db()
    return cast("Task", task)


def history_length(request: GetTaskRequest | ListTasksRequest | SendMessageConfiguration) -> int | None:
    """How many messages of history are wanted, None for all (A2A 3.2.4)."""
    if not request.HasField("history_length"):
        return None
    if request.history_length < 0:
        raise errors.invalid_params(("historyLength", "must not be negative"))
    return request.history_length


def list_tasks(caller: Caller, request: ListTasksRequest) -> str:
    """A page of the caller's tasks, newest status first, as ListTasksResponse JSON."""
    caller.need(Scope.READ)
    length, size = history_length(request), _page_size(request)
    tasks = _filtered(caller, request)
    total = tasks.count()
    seal = _seal(caller, request)
    # The tenant is one for all rows; without it PostgreSQL doesn't see that the index gives the order where it is null.
    ordered = _after(tasks, request.page_token, seal).order_by("-tenant_id", "-status_timestamp", "-pk")
    found: list[Any] = list(ordered.annotate(expired=recovery.EXPIRED)[: size + 1])
    recovered = [recovery.recover_task(task.pk) for task in found if task.expired]
    if any(recovered):
        found = list(ordered[: size + 1])
    token = (
        signing.dumps([found[size - 1].status_timestamp.isoformat(), found[size - 1].pk], salt=seal)
        if len(found) > size
        else ""
    )
    page = snapshots.snapshots(found[:size], artifacts=request.include_artifacts, history=length != 0)
    texts = ",".join(item.text(length, artifacts=request.include_artifacts) for item in page)
    return f'{{"tasks":[{texts}],"nextPageToken":{codec.dumps(token)},"pageSize":{size},"totalSize":{total}}}'


def _page_size(request: ListTasksRequest) -> int:
    size = request.page_size if request.HasField("page_size") else DEFAULT_PAGE_SIZE
    if not 1 <= size <= MAX_PAGE_SIZE:
        raise errors.invalid_params(("pageSize", f"must be between 1 and {MAX_PAGE_SIZE}, got {size}"))
    return size


def _filtered(caller: Caller, request: ListTasksRequest) -> TaskQuerySet:
    tasks = Task.objects.listed_for(caller)
    if request.context_id:
        tasks = tasks.filter(context_id=request.context_id)
    if request.status:
        tasks = tasks.filter(state=TaskState.Name(request.status))
    if request.HasField("status_timestamp_after"):
        tasks = tasks.filter(status_timestamp__gte=request.status_timestamp_after.ToDatetime(UTC))
    return tasks


def _seal(caller: Caller, request: ListTasksRequest) -> str:
    """What a page token is bound to: the caller and the filters; size and what is shown may differ between pages."""
    filters = [request.context_id, request.status, request.status_timestamp_after.ToJsonString()]
    return codec.dumps(["a2a.list", caller.agent.pk, caller.tenant and caller.tenant.pk, caller.owner, filters])


def _after(tasks: TaskQuerySet, token: str, seal: str) -> TaskQuerySet:
    """What comes after the last task of the page that gave out `token`."""
    if not token:
        return tasks
    try:
        last: list[Any] = signing.loads(token, salt=seal)
    except signing.BadSignature as error:
        raise errors.invalid_params(
            ("pageToken", "is not a nextPageToken of this list; send it with the same filters, or none")
        ) from error
    moment = parse_datetime(last[0])
    # The first condition is implied by the second; it is what databases can search the index by.
    return tasks.filter(
        Q(status_timestamp__lt=moment) | Q(status_timestamp=moment, pk__lt=last[1]), status_timestamp__lte=moment
    )

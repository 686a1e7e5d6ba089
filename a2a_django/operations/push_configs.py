"""The four push notification config operations, and the config inside a send (A2A 3.1.7 to 3.1.10)."""

from urllib.parse import urlsplit
from uuid import uuid4

from a2a.types import (
    DeleteTaskPushNotificationConfigRequest,
    GetTaskPushNotificationConfigRequest,
    ListTaskPushNotificationConfigsRequest,
    SendMessageRequest,
    TaskPushNotificationConfig,
)

from a2a_django.models import Caller, PushConfig, Scope, Task
from a2a_django.operations.reading import visible_task
from a2a_django.protocol import codec, errors, versions


def create_push_config(caller: Caller, request: TaskPushNotificationConfig) -> str:
    """The stored config as JSON, without credentials; an id given again replaces."""
    caller.need(Scope.PUSH)
    _check_supported(caller)
    _check_url(request)
    return _text(_store(caller, visible_task(caller, request.task_id), request))


def get_push_config(caller: Caller, request: GetTaskPushNotificationConfigRequest) -> str:
    """One config as JSON; TaskNotFoundError where the task has none of that id."""
    caller.need(Scope.PUSH)
    _check_supported(caller)
    configs = PushConfig.objects.filter(task=visible_task(caller, request.task_id))
    if request.id or caller.version != versions.LEGACY:  # in 0.3 the id may be left out
        configs = configs.filter(config_id=request.id)
    config = configs.first()
    if config is None:
        raise errors.TaskNotFoundError("The task has no such push notification config", {"taskId": request.task_id})
    return _text(config)


def list_push_configs(caller: Caller, request: ListTaskPushNotificationConfigsRequest) -> str:
    """All configs of a task as ListTaskPushNotificationConfigsResponse JSON."""
    caller.need(Scope.PUSH)
    _check_supported(caller)
    configs = PushConfig.objects.filter(task=visible_task(caller, request.task_id))
    return f'{{"configs":[{",".join(map(_text, configs))}],"nextPageToken":""}}'


def delete_push_config(caller: Caller, request: DeleteTaskPushNotificationConfigRequest) -> str:
    """Deletes a config; doing it again is no error."""
    caller.need(Scope.PUSH)
    _check_supported(caller)
    if PushConfig.objects.filter(task=visible_task(caller, request.task_id), config_id=request.id).delete()[0]:
        caller.note("push_config.deleted", task=request.task_id, config=request.id)
    return "{}"


def check_inline(caller: Caller, request: SendMessageRequest) -> None:
    """Refuses a send whose push config could never be served."""
    if request.configuration.HasField("task_push_notification_config"):
        caller.need(Scope.PUSH)
        _check_supported(caller)
        _check_url(request.configuration.task_push_notification_config, "configuration.taskPushNotificationConfig.url")


def store_inline(caller: Caller, task: Task, request: SendMessageRequest) -> None:
    """Keeps the push config of a send."""
    if request.configuration.HasField("task_push_notification_config"):
        _store(caller, task, request.configuration.task_push_notification_config)


def _check_supported(caller: Caller) -> None:
    if not caller.agent.push_notifications:
        raise errors.PushNotificationNotSupportedError


def _check_url(config: TaskPushNotificationConfig, field: str = "url") -> None:
    """Where it points to is checked when it is used; here it must be a web address."""
    try:
        parts = urlsplit(config.url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        usable = False
    if not usable:
        raise errors.invalid_params((field, "must be an absolute http or https URL"))


def _store(caller: Caller, task: Task, config: TaskPushNotificationConfig) -> PushConfig:
    values = {
        "url": config.url,
        "token": config.token,
        "authentication_scheme": config.authentication.scheme,
        "credentials": config.authentication.credentials,
        "version": caller.version,
    }
    config_id = config.id or str(uuid4())
    stored, _ = PushConfig.objects.update_or_create(task=task, config_id=config_id, defaults=values)
    # The rest of a URL may hold a secret.
    caller.note("push_config.stored", task=task.pk, config=config_id, host=urlsplit(config.url).hostname)
    return stored


def _text(config: PushConfig) -> str:
    """The config as its owner may read it: the credentials stay here (DESIGN 6)."""
    shown = TaskPushNotificationConfig(id=config.config_id, task_id=config.task_id, url=config.url)
    shown.token = config.token.reveal()
    if config.authentication_scheme:
        shown.authentication.scheme = config.authentication_scheme
    return codec.to_text(shown)

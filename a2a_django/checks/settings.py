"""System checks: what is wrong in the settings, and what to do about it. None asks the database."""

import difflib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_type_hints
from urllib.parse import urlsplit

from django.apps import AppConfig
from django.conf import settings
from django.core import checks
from django.db import connections, router
from django.utils.module_loading import import_string

from a2a_django import encryption, keys
from a2a_django.agents import dispatch, signatures
from a2a_django.models import Task
from a2a_django.settings import A2ASettings, a2a_settings

HOOKS = ("CONTEXT_BUILDER", "OWNER_RESOLVER", "ID_GENERATOR", "REQUEST_CONTEXT_BUILDER", "CARD_MODIFIER")
EXECUTIONS = ("inprocess", "celery")
MAY_BE_ZERO = frozenset(
    {
        *("AGENT_CARD_MAX_AGE", "BLOCKING_TIMEOUT", "CANCEL_TIMEOUT", "IDEMPOTENCY_SECONDS", "IMMEDIATE_WAIT"),
        *("EVENT_RETENTION", "NUM_PROXIES", "SHUTDOWN_SECONDS", "TASK_RETENTION"),
    }
)
SECRETS = ("ENCRYPTION_KEYS", "SIGNING_KEYS")
_WORDS = {str: "a string", bool: "True or False", int: "a whole number", float: "a number", type(None): "None"}


@checks.register("a2a")
def check_settings(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[checks.CheckMessage]:
    """Everything that is wrong with the site's settings."""
    given = getattr(settings, "A2A", {})
    if not isinstance(given, dict):
        return [checks.Error("A2A must be a dict.", hint="Write A2A = {}: every key has a default.", id="a2a.E001")]
    found = [*unknown_keys(given), *wrong_types(given), *wrong_execution()]
    wrong = {message.obj for message in found}
    found += [] if "BASE_URL" in wrong else [*wrong_base_url()]
    found += [] if "ENCRYPTION_KEYS" in wrong else [*wrong_encryption_keys()]
    found += [] if "SIGNING_KEYS" in wrong else [*wrong_signing_keys()]
    found += [*wrong_imports(given, wrong), *deaf_readers(), *no_asgi(), *any_host(), *sqlite_that_locks()]
    found += [] if wrong & {"REQUEST_THREADS", "LOG_THREADS"} else [*small_pool()]
    return found + ([*eager_jobs(), *jobs_cut_short()] if a2a_settings.EXECUTION == "celery" else [])


def unknown_keys(given: dict[Any, Any]) -> Iterator[checks.CheckMessage]:
    """Keys that are no setting, with the one that was probably meant."""
    names = A2ASettings.names()
    for key in given:
        if key not in names:
            near = difflib.get_close_matches(str(key).upper(), names, n=1)
            hint = f'Did you mean "{near[0]}"?' if near else "Remove it; a2a_django/settings.py lists all settings."
            yield checks.Warning(f"A2A[{key!r}] is not a setting and has no effect.", hint=hint, id="a2a.W001")


def wrong_types(given: dict[Any, Any]) -> Iterator[checks.CheckMessage]:
    """Values of another type than the setting's annotation, and numbers out of range."""
    for name, hint in get_type_hints(A2ASettings).items():
        if name in given and (wanted := _fault(name, given[name], hint)):
            value = "not shown here" if name in SECRETS else repr(given[name])
            text = f"A2A[{name!r}] is {value}, but must be {wanted}."
            yield checks.Error(text, hint="Change it, or remove it to have the default.", obj=name, id="a2a.E004")


def _fault(name: str, value: Any, hint: Any) -> str:
    """What `value` should have been, or nothing."""
    if hint is Any:
        return ""
    if hint == Sequence[str]:
        return "" if isinstance(value, list | tuple) else "a list or tuple of strings"
    if hint == Mapping[str, str]:
        whole = isinstance(value, dict) and all(isinstance(text, str) for item in value.items() for text in item)
        return "" if whole else "a dict of strings"
    kinds = getattr(hint, "__args__", (hint,))
    if not any(_is(value, kind) for kind in kinds):
        return " or ".join(_WORDS[kind] for kind in kinds)
    return _out_of_range(name, value)


def _is(value: Any, kind: type) -> bool:
    """isinstance, where True is no number and every whole number is a number."""
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, int | float) if kind is float else isinstance(value, kind)


def _out_of_range(name: str, value: Any) -> str:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return ""
    if name in MAY_BE_ZERO:
        return "" if 0 <= value < math.inf else "0 or more"
    return "" if 0 < value < math.inf else "more than 0"


def wrong_execution() -> Iterator[checks.CheckMessage]:
    """EXECUTION that is neither of the two."""
    if a2a_settings.EXECUTION not in EXECUTIONS:
        yield checks.Error(
            f"A2A['EXECUTION'] is {a2a_settings.EXECUTION!r}.",
            hint='Write "inprocess" (executors run in the web process) or "celery" (in Celery workers).',
            obj="EXECUTION",
            id="a2a.E003",
        )


def wrong_base_url() -> Iterator[checks.CheckMessage]:
    """A BASE_URL that makes no URL when a path is put behind it, or the wrong one."""
    base, script_name = a2a_settings.BASE_URL, (settings.FORCE_SCRIPT_NAME or "").rstrip("/")
    if not base:
        return
    if not _is_address(base):
        yield checks.Error(
            f"A2A['BASE_URL'] is {base!r}, which is no address to put before a path.",
            hint='Write it like "https://agents.example.com", with a path only where the proxy takes that away.',
            obj="BASE_URL",
            id="a2a.E005",
        )
    elif script_name and base.rstrip("/").endswith(script_name):
        yield checks.Warning(
            f"Agent cards have {script_name!r} twice in their URLs: A2A['BASE_URL'] is put before paths that begin "
            "with FORCE_SCRIPT_NAME.",
            hint=f"Leave {script_name!r} out of BASE_URL.",
            obj="BASE_URL",
            id="a2a.W005",
        )


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and not (parts.query or parts.fragment)
    except ValueError:
        return False


def wrong_encryption_keys() -> Iterator[checks.CheckMessage]:
    """Keys that encrypt nothing."""
    for index, key in enumerate(a2a_settings.ENCRYPTION_KEYS):
        if not encryption.is_key(key):
            yield checks.Error(
                f"A2A['ENCRYPTION_KEYS'][{index}] is no Fernet key: these are 32 bytes in URL-safe base64.",
                hint="cryptography.fernet.Fernet.generate_key() makes one.",
                obj="ENCRYPTION_KEYS",
                id="a2a.E006",
            )


def wrong_signing_keys() -> Iterator[checks.CheckMessage]:
    """Keys that sign nothing."""
    for kid, pem in a2a_settings.SIGNING_KEYS.items():
        try:
            keys.load(pem)
        except ValueError as error:
            hint = "Give a PEM text or the path of a PEM file, of a private key without password or of a public key."
            text = f"A2A['SIGNING_KEYS'][{kid!r}] can't be used. {error}"
            yield checks.Error(text, hint=hint, obj="SIGNING_KEYS", id="a2a.E007")
    if a2a_settings.SIGNING_KEYS and not signatures.INSTALLED:
        yield checks.Error(signatures.NOT_INSTALLED, obj="SIGNING_KEYS", id="a2a.E008")


def wrong_imports(given: dict[Any, Any], skip: set[Any]) -> Iterator[checks.CheckMessage]:
    """Dotted paths that lead nowhere."""
    lists = [name for name in sorted(A2ASettings.names()) if name.endswith("_CLASSES")]
    for name in (*HOOKS, *lists, "EXECUTORS"):
        if name in given and name not in skip:
            value = given[name]
            for path in value if isinstance(value, list | tuple) else (value,):
                yield from _wrong_import(name, path)


def _wrong_import(name: str, path: Any) -> Iterator[checks.CheckMessage]:
    if not isinstance(path, str):
        if name == "EXECUTORS":  # the admin lists them by these names, and agents are saved with them
            yield _import_error(name, path, "it is not a string", "Write the class's dotted path.")
        return
    try:
        import_string(path)
    except Exception as error:  # the module may raise anything when it is imported
        reason = f"{type(error).__name__}: {error}"
        yield _import_error(name, path, reason, "Correct the dotted path, or what fails when it is imported.")


def _import_error(name: str, path: Any, reason: str, hint: str) -> checks.CheckMessage:
    return checks.Error(
        f"A2A[{name!r}] names {path!r}, which can't be imported: {reason}", hint=hint, obj=name, id="a2a.E002"
    )


def deaf_readers() -> Iterator[checks.CheckMessage]:
    """Celery workers whose events no web process hears of."""
    backend = str(getattr(settings, "CHANNEL_LAYERS", {}).get("default", {}).get("BACKEND", ""))
    if a2a_settings.EXECUTION == "celery" and (not backend or backend.endswith(".InMemoryChannelLayer")):
        yield checks.Warning(
            "Executors run in Celery workers, but no channel layer reaches from them to the web processes: "
            "streams and waiting calls see events only when they look by themselves, "
            f"every {a2a_settings.LOOK_SECONDS} s.",
            hint="Install channels_redis and set CHANNEL_LAYERS['default']['BACKEND'] to "
            "'channels_redis.pubsub.RedisPubSubChannelLayer'.",
            id="a2a.W002",
        )


def eager_jobs() -> Iterator[checks.CheckMessage]:
    """Celery jobs that run where they are sent."""
    if dispatch.run_turn.app.conf.task_always_eager:
        yield checks.Warning(
            "Celery's task_always_eager is on: each send runs its whole turn in the web process before it is answered, "
            "streams show nothing until then, and a Retry has no pause.",
            hint="Turn it off; A2A['EXECUTION'] = \"inprocess\" does without workers.",
            id="a2a.W007",
        )


def jobs_cut_short() -> Iterator[checks.CheckMessage]:
    """A time limit that was put on the jobs of turns; theirs is none, whatever task_time_limit says."""
    limits = [limit for limit in (dispatch.run_turn.soft_time_limit, dispatch.run_turn.time_limit) if limit]
    if limits and min(limits) < dispatch.NEVER:
        yield checks.Warning(
            f"Celery's task_annotations give {dispatch.run_turn.name} a time limit of {min(limits):g} s: a turn that "
            "takes longer is lost with its job, and its readers wait until somebody misses it.",
            hint="Leave this job without one; the agents' turn_timeout ends turns in good order.",
            id="a2a.W008",
        )


def no_asgi() -> Iterator[checks.CheckMessage]:
    """A site that promises streams and may be served by WSGI."""
    if a2a_settings.STREAMING and not getattr(settings, "ASGI_APPLICATION", None):
        yield checks.Warning(
            "A2A['STREAMING'] is on, but ASGI_APPLICATION is not set: under WSGI streams are refused, while the "
            "agent cards promise them.",
            hint="Serve the site by ASGI and set ASGI_APPLICATION to the application that with_streaming() made; "
            "or set A2A['STREAMING'] = False.",
            id="a2a.W003",
        )


def any_host() -> Iterator[checks.CheckMessage]:
    """A public site whose cards name whatever host a request claims to be for."""
    if "*" in settings.ALLOWED_HOSTS and not a2a_settings.BASE_URL and not settings.DEBUG:
        yield checks.Warning(
            "ALLOWED_HOSTS has “*”, and A2A['BASE_URL'] is empty: agent cards send clients to whatever host a request "
            "claims to be for.",
            hint="Set A2A['BASE_URL'] to the site's public address, or list its hosts in ALLOWED_HOSTS.",
            id="a2a.W006",
        )


def sqlite_that_locks() -> Iterator[checks.CheckMessage]:
    """SQLite transactions that begin with a read and then fail with "database is locked"."""
    alias = router.db_for_write(Task)
    connection = connections[alias]
    mode = str(connection.settings_dict.get("OPTIONS", {}).get("transaction_mode") or "")
    if connection.vendor == "sqlite" and mode.upper() not in ("IMMEDIATE", "EXCLUSIVE"):
        yield checks.Warning(
            f"The SQLite database {alias!r} opens transactions in {mode.upper() or 'DEFERRED'} mode: when several "
            "write at a time, some fail with “database is locked”.",
            hint=f"Set DATABASES[{alias!r}]['OPTIONS'] = {{'transaction_mode': 'IMMEDIATE', 'timeout': 20, "
            "'init_command': 'PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;'}.",
            id="a2a.W004",
        )


def small_pool() -> Iterator[checks.CheckMessage]:
    """A pool of psycopg's in which there is no connection for some of our threads, which keep theirs."""
    alias = router.db_for_write(Task)
    pool = connections[alias].settings_dict.get("OPTIONS", {}).get("pool")
    options = pool if isinstance(pool, dict) else {}
    size = options.get("max_size") or options.get("min_size", 4)  # psycopg's default
    kept = a2a_settings.REQUEST_THREADS + a2a_settings.LOG_THREADS + 1
    if pool and size <= kept:
        yield checks.Warning(
            f"The pool of database {alias!r} has {size} connections, but A2A's own threads keep {kept}: whatever comes "
            "too late waits for one in vain.",
            hint=f"Set DATABASES[{alias!r}]['OPTIONS']['pool'] = {{'min_size': 2, 'max_size': {kept + 11}, "
            "'timeout': 10, 'reconnect_timeout': 5}, or less A2A['REQUEST_THREADS'] and A2A['LOG_THREADS'].",
            id="a2a.W009",
        )

"""What is well on a developer's machine, and not in production: `manage.py check --deploy`."""

from collections.abc import Iterator, Sequence
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core import checks
from django.db import Error, connections, router

from a2a_django.agents import registry
from a2a_django.models import Agent, Task
from a2a_django.models.agent import AnonymousAccess
from a2a_django.settings import a2a_settings


@checks.register("a2a", deploy=True)
def check_deployment(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[checks.CheckMessage]:
    """What strangers could use, or what makes a public site slow."""
    if not isinstance(getattr(settings, "A2A", {}), dict):
        return []
    return [*debugging(), *borrowed_key(), *unsafe_address(), *kept_connections(), *agents_as_they_are()]


def debugging() -> Iterator[checks.CheckMessage]:
    """DEBUG, which does more harm to us than to other apps."""
    if settings.DEBUG:
        yield checks.Warning(
            "DEBUG is on: Django keeps the last 9,000 SQL statements of each connection, with the content of messages, "
            "and connections of A2A's threads live as long as the process.",
            hint="Set DEBUG = False.",
            id="a2a.W010",
        )


def borrowed_key() -> Iterator[checks.CheckMessage]:
    """Secrets that are encrypted by SECRET_KEY."""
    if not a2a_settings.ENCRYPTION_KEYS:
        yield checks.Warning(
            "A2A['ENCRYPTION_KEYS'] is empty: private keys and secrets of webhooks are encrypted by a key made from "
            "SECRET_KEY, whose loss or leak is theirs, too.",
            hint="Put a key there that cryptography.fernet.Fernet.generate_key() has made, then run "
            "`manage.py a2a_keys reencrypt`.",
            obj="ENCRYPTION_KEYS",
            id="a2a.W011",
        )


def unsafe_address() -> Iterator[checks.CheckMessage]:
    """Cards that lead to whatever address a request came by, or to one without TLS."""
    base = a2a_settings.BASE_URL
    if not base:
        text = "A2A['BASE_URL'] is empty: agent cards name whatever address a request came by, and caches keep them."
        hint = "Set it to the site's public address, like https://agents.example.com."
    elif isinstance(base, str) and base.lower().startswith("http:"):
        text = f"A2A['BASE_URL'] is {base!r}: clients send credentials and messages for all to read (A2A 7.1)."
        hint = "Serve the site by HTTPS, or behind a proxy that does, and name that address."
    else:
        return
    yield checks.Warning(text, hint=hint, obj="BASE_URL", id="a2a.W012")


def kept_connections() -> Iterator[checks.CheckMessage]:
    """Connections that requests to an ASGI server leave behind, without a bound."""
    alias = router.db_for_write(Task)
    database = connections[alias].settings_dict
    age, pool = database.get("CONN_MAX_AGE"), database.get("OPTIONS", {}).get("pool")
    if age != 0 and not pool and connections[alias].vendor != "sqlite" and getattr(settings, "ASGI_APPLICATION", None):
        yield checks.Warning(
            f"The database {alias!r} has CONN_MAX_AGE = {age!r}: under ASGI the site's own views run in a thread "
            "for each request, so that no connection is used again, and each stays open until Python's garbage "
            "collector comes by. A2A's threads keep theirs anyway.",
            hint=f"Set DATABASES[{alias!r}]['CONN_MAX_AGE'] = 0; with psycopg, ['OPTIONS']['pool'] instead saves the "
            "site's views from opening one each time.",
            id="a2a.W013",
        )


def agents_as_they_are() -> Iterator[checks.CheckMessage]:
    """Agents that strangers may call, and those that nobody can run."""
    try:
        agents = list(Agent.objects.filter(enabled=True).order_by("slug"))
    except Error:  # it is away, or has no tables yet: for others to say
        return
    shared = [agent.slug for agent in agents if agent.anonymous_access != AnonymousAccess.DENIED]
    if shared:
        yield checks.Warning(
            f"Whoever finds them may call these agents, without saying who they are: {', '.join(shared)}.",
            hint="Set their anonymous access to “denied”; or bound it by A2A['THROTTLE_RATE'] and "
            'A2A["RUNNING_TASKS"], and say that it is meant so: SILENCED_SYSTEM_CHECKS = ["a2a.W014"].',
            id="a2a.W014",
        )
    known = set(registry.names())
    for agent in agents:
        if agent.executor not in known:
            yield checks.Error(
                f"The agent {agent.slug!r} is on, but there is no executor {agent.executor!r}: its tasks fail.",
                hint=f"Register it in an agents.py, or choose one of: {', '.join(sorted(known)) or 'none'}.",
                id="a2a.E009",
            )

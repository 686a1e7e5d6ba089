"""Paths that the site and A2A both lay claim to: Django takes the first pattern that fits."""

from collections.abc import Iterator, Sequence
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core import checks
from django.urls import NoReverseMatch, Resolver404, URLResolver, get_resolver, resolve, reverse

from a2a_django.settings import a2a_settings

APP = "a2a_django"
AGENT = {"agent": "some-agent"}
PATHS: dict[str, dict[str, str]] = {"default-agent-card": {}, "agent-card": AGENT, "agent": AGENT, "jwks": {}}


@checks.register("a2a")
def check_urls(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[checks.CheckMessage]:
    """Whoever answers where somebody else was meant to."""
    if not getattr(settings, "ROOT_URLCONF", None):
        return []
    return [*taken_from_us(), *taken_by_us()]


def taken_from_us() -> Iterator[checks.CheckMessage]:
    """Paths of A2A that another pattern of the site answers."""
    for name, arguments in PATHS.items():
        try:
            path = reverse(f"{APP}:{name}", kwargs=arguments)
            match = resolve(path)
        except (NoReverseMatch, Resolver404):  # not included here, or below a script name that only the server knows
            continue
        if APP not in match.app_names:
            yield checks.Warning(
                f"{path} should be answered by a2a_django, but {match._func_path} does.",
                hint='Put include("a2a_django.urls") before that URL pattern, or change A2A["PATH"].',
                id="a2a.W015",
            )


def taken_by_us() -> Iterator[checks.CheckMessage]:
    """Patterns that are never asked: below A2A["PATH"] whatever is not ours gets a JSON 404."""
    patterns = get_resolver().url_patterns
    for place, pattern in enumerate(patterns):
        if isinstance(pattern, URLResolver) and pattern.app_name == APP and pattern.namespace == APP:
            ours = _text(pattern) + a2a_settings.PATH.lstrip("/")
            for later in patterns[place + 1 :]:
                if _text(later).startswith(ours):
                    yield checks.Warning(
                        f"The URL pattern {str(later.pattern)!r} is never asked: a2a_django answers whatever is below "
                        f"{ours!r}.",
                        hint='Put it before include("a2a_django.urls"), or set A2A["PATH"] to a path of its own.',
                        id="a2a.W016",
                    )


def _text(pattern: Any) -> str:
    return str(pattern.pattern).lstrip("^")

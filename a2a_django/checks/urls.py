"""Paths that the site and A2A both lay claim to: Django takes the first pattern that fits."""

from collections.abc import Iterator, Sequence
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core import checks
from django.urls import Resolver404, URLPattern, URLResolver, get_resolver, resolve
from django.utils.regex_helper import normalize

OURS = "a2a_django.bindings."


@checks.register("a2a")
def check_urls(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[checks.CheckMessage]:
    """Whoever answers where somebody else was meant to: an example of each path is resolved."""
    if not getattr(settings, "ROOT_URLCONF", None):
        return []
    taken: dict[str, list[str]] = {}
    hidden: list[str] = []
    begun = False
    for path, pattern in _examples(get_resolver()):
        ours = pattern.lookup_str.startswith(OURS)
        begun = begun or ours
        # What stands before ours is asked before; our pattern without a name answers 404 to what nobody else wants.
        if not begun or (ours and not pattern.name):
            continue
        try:
            view = resolve(path)._func_path
        except Resolver404:
            continue
        if ours and not view.startswith(OURS):
            taken.setdefault(view, []).append(path)
        elif not ours and view.startswith(OURS):
            hidden.append(path)
    return [*taken_from_us(taken), *taken_by_us(hidden)]


def taken_from_us(taken: dict[str, list[str]]) -> Iterator[checks.CheckMessage]:
    """Paths of A2A that another pattern of the site answers."""
    for view, paths in taken.items():
        yield checks.Warning(
            f"{_some(paths)} should be answered by a2a_django, but {view} does.",
            hint='Put include("a2a_django.urls") before that URL pattern, or change A2A["PATH"].',
            id="a2a.W015",
        )


def taken_by_us(hidden: list[str]) -> Iterator[checks.CheckMessage]:
    """Patterns that are never asked: below A2A["PATH"] whatever is not ours gets a JSON 404."""
    if hidden:
        yield checks.Warning(
            f"a2a_django answers {_some(hidden)}: the site's URL patterns for it stand behind, and are never asked.",
            hint='Put them before include("a2a_django.urls"), or set A2A["PATH"] to a path of its own.',
            id="a2a.W016",
        )


def _examples(resolver: URLResolver, before: str = "^/") -> Iterator[tuple[str, URLPattern]]:
    """All URL patterns in the order in which they are asked, each with the paths that it stands for."""
    for pattern in resolver.url_patterns:
        regex = before + pattern.pattern.regex.pattern
        if isinstance(pattern, URLResolver):
            yield from _examples(pattern, regex)
        else:
            for text, names in normalize(regex):  # as reverse() does
                yield text % {name: f"some-{name.replace('_', '-')}" for name in names}, pattern


def _some(paths: list[str]) -> str:
    return paths[0] if len(paths) == 1 else f"{paths[0]} (and {len(paths) - 1} more)"

"""System checks of what limits callers: rates that are none, and a cache that counts too little."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core import checks

from a2a_django.settings import a2a_settings

RATES = ("THROTTLE_RATE", "TENANT_THROTTLE_RATE", "FAILURE_THROTTLE_RATE")
_RATE = re.compile(r"[1-9][0-9]*/(s|sec|m|min|h|hour|d|day)")
ALONE = ("LocMemCache", "DummyCache")


@checks.register("a2a")
def check_limits(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[checks.CheckMessage]:
    """What is wrong with the settings, as far as their types are right."""
    return [*wrong_rates(), *wrong_cache()] if isinstance(getattr(settings, "A2A", {}), dict) else []


@checks.register("a2a", deploy=True)
def check_counting(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[checks.CheckMessage]:
    """What counts too little in production."""
    return [*lone_cache()] if isinstance(getattr(settings, "A2A", {}), dict) else []


def wrong_rates() -> Iterator[checks.CheckMessage]:
    """Rates that DRF can't read, or that allow nothing."""
    for name in RATES:
        rate = getattr(a2a_settings, name)
        if isinstance(rate, str) and not _RATE.fullmatch(rate):
            yield checks.Error(
                f"A2A[{name!r}] is {rate!r}, which is no rate.",
                hint='Write a whole number of calls and a time: "10/s", "120/min", "1000/hour" or "5000/day".',
                obj=name,
                id="a2a.E020",
            )


def wrong_cache() -> Iterator[checks.CheckMessage]:
    """A cache that there isn't."""
    alias = a2a_settings.THROTTLE_CACHE
    if isinstance(alias, str) and alias not in settings.CACHES:
        yield checks.Error(
            f"A2A['THROTTLE_CACHE'] is {alias!r}, which is none of CACHES.",
            hint=f"Name one of these: {', '.join(map(repr, settings.CACHES))}.",
            obj="THROTTLE_CACHE",
            id="a2a.E021",
        )


def lone_cache() -> Iterator[checks.CheckMessage]:
    """Throttles whose counters are each process's own."""
    alias = a2a_settings.THROTTLE_CACHE
    backend = next((str(each.get("BACKEND")) for name, each in settings.CACHES.items() if name == alias), "")
    throttled = a2a_settings.THROTTLE_RATE or a2a_settings.TENANT_THROTTLE_RATE
    if throttled and backend.endswith(ALONE):
        yield checks.Warning(
            f"Calls are throttled, but the cache {alias!r} ({backend}) counts those of one process, or none: with more "
            "processes callers have that many times the rate.",
            hint="Set A2A['THROTTLE_CACHE'] to a shared cache such as django.core.cache.backends.redis.RedisCache; or, "
            'where one process is all there is, SILENCED_SYSTEM_CHECKS = ["a2a.W020"].',
            obj="THROTTLE_CACHE",
            id="a2a.W020",
        )

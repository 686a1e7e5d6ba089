"""System checks of rates and of the cache that counts calls."""

import pytest
from django.core import checks

from a2a_django.checks.limits import check_counting, check_limits

LOCAL = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
REDIS = {"default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": "redis://"}}


def found(check):
    return {message.id: message for message in check(None)}


def test_the_checks_are_registered():
    registry = checks.registry.registry
    assert check_limits in registry.registered_checks
    assert check_counting in registry.deployment_checks
    assert check_limits(None) == []


@pytest.mark.parametrize("name", ["THROTTLE_RATE", "TENANT_THROTTLE_RATE", "FAILURE_THROTTLE_RATE"])
def test_rates_that_are_none(settings, name):
    for rate in ("", "60", "60/", "/min", "0/min", "-1/min", "1.5/s", "60/month", "60 / min", "60/5min"):
        settings.A2A = {name: rate}
        message = found(check_limits)["a2a.E020"]
        assert repr(rate) in message.msg
        assert '"120/min"' in message.hint
    for rate in ("10/s", "120/min", "1000/hour", "1/d", None, 60):  # the last is for the check of types
        settings.A2A = {name: rate}
        assert check_limits(None) == []


def test_a_cache_that_there_is_not(settings):
    settings.A2A = {"THROTTLE_CACHE": "calls"}
    assert "'default'" in found(check_limits)["a2a.E021"].hint


@pytest.mark.parametrize("a2a", [None, [], {"THROTTLE_CACHE": ["x"]}])
def test_what_other_checks_say_is_not_said_again(settings, a2a):
    settings.A2A = a2a
    assert "a2a.E020" not in found(check_limits)
    assert check_counting(None) == []


@pytest.mark.parametrize("name", ["THROTTLE_RATE", "TENANT_THROTTLE_RATE"])
def test_a_cache_that_counts_for_one_process(settings, name):
    settings.A2A, settings.CACHES = {name: "120/min"}, LOCAL
    assert "RedisCache" in found(check_counting)["a2a.W020"].hint
    settings.CACHES = REDIS
    assert check_counting(None) == []
    settings.A2A, settings.CACHES = {}, LOCAL
    assert check_counting(None) == []

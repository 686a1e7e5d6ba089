"""Counting calls: windows, threads, caches that fail, and whose address a call comes from."""

import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from uuid import uuid4

import pytest
from django.core.cache import caches
from django.core.cache.backends.locmem import LocMemCache
from django.test import RequestFactory
from rest_framework.request import Request

from a2a_django import throttling
from a2a_django.throttling import CredentialThrottle, TenantThrottle

HERE, THERE = "8.8.8.8", "9.9.9.9"


@pytest.fixture(autouse=True)
def fresh(settings):
    settings.CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
    caches["default"].clear()


@pytest.fixture
def a2a(settings):
    def put(**values):
        settings.A2A = values

    return put


def call_from(peer=HERE, forwarded=None, user=None, auth=None):
    headers = {} if forwarded is None else {"x-forwarded-for": forwarded}
    made = Request(RequestFactory().post("/", REMOTE_ADDR=peer, headers=headers))
    made.user, made.auth = user, auth
    return made


def somebody(key):
    return SimpleNamespace(pk=key, is_authenticated=True)


def allowed(*args, **kwargs):
    return CredentialThrottle().allow_request(call_from(*args, **kwargs), None)


# --- windows


def test_a_rate_holds_for_a_window(a2a, monkeypatch):
    a2a(THROTTLE_RATE="2/min")
    now = 600.0
    monkeypatch.setattr(CredentialThrottle, "timer", lambda self: now)
    assert [allowed() for _ in range(4)] == [True, True, False, False]

    now = 645.5
    throttle = CredentialThrottle()
    assert not throttle.allow_request(call_from(), None)
    assert throttle.wait() == 14.5
    now += throttle.wait()
    assert [allowed() for _ in range(3)] == [True, True, False]


def test_each_credential_has_its_own(a2a):
    a2a(THROTTLE_RATE="1/day")
    ann, bob = somebody(1), somebody("bob \x7f é" * 50)  # keys that no cache would take
    token = throttling.AccessToken(pk=1)
    calls = [{}, {"peer": THERE}, {"user": ann}, {"user": bob}, {"user": ann, "auth": token}]
    calls.append({"user": ann, "auth": throttling.AccessToken(pk=2)})
    assert [allowed(**call) for call in calls] == [True] * 6
    assert [allowed(**call) for call in calls] == [False] * 6
    assert not allowed(THERE, user=ann)  # wherever from
    assert not allowed(user=SimpleNamespace(is_authenticated=False))


def test_a_subclass_says_rate_and_scope_as_with_drf(a2a):
    class Few(CredentialThrottle):
        scope, rate = "few", "1/day"

    a2a(THROTTLE_RATE="1/day")
    assert allowed()
    assert [Few().allow_request(call_from(), None) for _ in range(2)] == [True, False]


@pytest.mark.parametrize(("own", "site", "expected"), [(None, None, None), (None, "3/s", "3/s"), (7, "3/s", "7/min")])
def test_a_tenants_own_rate_goes_before_the_sites(a2a, own, site, expected):
    a2a(TENANT_THROTTLE_RATE=site)
    assert TenantThrottle(SimpleNamespace(pk=1, requests_per_minute=own)).rate == expected


# --- the cache


@pytest.mark.parametrize("cache", ["memory", pytest.param("redis", marks=pytest.mark.redis)])
def test_of_calls_at_once_none_is_forgotten(a2a, settings, request, cache):
    """DRF's own throttle reads a list of times, and writes it back with one more."""
    a2a(THROTTLE_RATE="50/day")
    if cache == "redis":
        backend, url = "django.core.cache.backends.redis.RedisCache", request.getfixturevalue("service_url")("redis")
        settings.CACHES = {"default": {"BACKEND": backend, "LOCATION": url, "KEY_PREFIX": uuid4().hex}}
    barrier = threading.Barrier(8)

    def call(_):
        barrier.wait(20)
        return [allowed() for _ in range(25)].count(True)

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(call, range(8))) == 50


class Away(LocMemCache):
    """A cache of a server that is gone."""

    def incr(self, *args, **kwargs):
        raise ConnectionError("redis://:hunter2@10.0.0.1")


@pytest.mark.parametrize("backend", ["tests.unit.test_throttling.Away", "django.core.cache.backends.dummy.DummyCache"])
def test_a_cache_that_is_away_refuses_nobody(a2a, settings, backend, caplog):
    settings.CACHES = {"default": {"BACKEND": backend}}
    a2a(THROTTLE_RATE="1/day")
    assert [allowed() for _ in range(3)] == [True] * 3
    assert "not throttled" in caplog.text
    assert "hunter2" not in caplog.text


def test_calls_are_counted_in_the_cache_that_the_settings_name(a2a, settings):
    settings.CACHES |= {"calls": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache", "LOCATION": "calls"}}
    a2a(THROTTLE_RATE="1/day", THROTTLE_CACHE="calls")
    assert allowed()
    caches["default"].clear()
    assert not allowed()
    caches["calls"].clear()
    assert allowed()


# --- addresses


@pytest.mark.parametrize(
    ("proxies", "peer", "forwarded", "expected"),
    [
        # By themselves: proxies have private addresses.
        (None, HERE, None, HERE),
        (None, HERE, THERE, HERE),  # anybody may say so
        (None, "127.0.0.1", None, None),
        (None, "127.0.0.1", THERE, THERE),
        (None, "10.0.0.2", f"1.1.1.1, {THERE}, 192.168.1.1", THERE),
        (None, "10.0.0.2", "unknown", None),
        (None, "10.0.0.2", f"{THERE}, 8.8.8.8:4711", None),
        (None, "10.0.0.2", "10.1.1.1", None),
        (None, "", THERE, THERE),  # by a Unix socket
        (None, "", None, None),
        # As the settings say.
        (0, "127.0.0.1", THERE, "127.0.0.1"),
        (1, "127.0.0.1", f"1.1.1.1, {THERE}", THERE),
        (2, "127.0.0.1", f"1.1.1.1, {THERE}", "1.1.1.1"),
        (3, "127.0.0.1", f"1.1.1.1, {THERE}", "1.1.1.1"),
        (1, "10.0.0.7", None, "10.0.0.7"),
        (1, "127.0.0.1", "nonsense", None),
        # IPv6: one customer has a whole network.
        (None, "2001:4860:4860:1:2:3:4:5", None, "2001:4860:4860:1::/64"),
        (None, "::ffff:8.8.8.8", None, HERE),
        (None, "::1", "2001:4860::7", "2001:4860::/64"),
        (None, "fd00::1", None, None),
    ],
)
def test_the_address_of_a_call(a2a, proxies, peer, forwarded, expected):
    a2a(NUM_PROXIES=proxies)
    assert throttling.address(call_from(peer, forwarded)) == expected


def test_anonymous_callers_are_told_apart_as_far_as_can_be(a2a):
    a2a(THROTTLE_RATE="1/day")
    assert allowed("10.0.0.2", THERE)
    assert allowed("10.0.0.2", HERE)
    assert not allowed("10.0.0.2", HERE)
    assert allowed("10.0.0.2")
    assert not allowed("10.0.0.2")  # a proxy that tells nothing
    assert allowed("10.0.0.3")

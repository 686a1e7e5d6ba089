"""How often somebody may call: DRF throttles by credential, by tenant, and of failed authentications (A2A 13.4)."""

import hashlib
import ipaddress
import logging
from functools import lru_cache
from typing import Any

from django.core.cache import caches
from django.core.cache.backends.locmem import LocMemCache
from rest_framework.exceptions import Throttled
from rest_framework.request import Request
from rest_framework.throttling import SimpleRateThrottle

from a2a_django.models import AccessToken, Tenant
from a2a_django.protocol import errors
from a2a_django.settings import a2a_settings

log = logging.getLogger(__name__)

LOCAL = "127.0.0.1"  # who comes by a Unix socket
NETWORK = 64  # bits of an IPv6 address: whoever has one has all that begin so


class Throttle(SimpleRateThrottle):
    """DRF's throttle with a counter for each window of time instead of a list of times.

    Caches add to a counter in one step, so of calls that come at once none is forgotten. The windows of `duration`
    seconds are the same for all; within two of them that touch, a caller may have twice `num_requests` calls.
    """

    setting = "THROTTLE_RATE"
    num_requests: int | None
    duration: int | None

    def get_rate(self) -> str | None:
        """The rate that the settings tell, such as "120/min"."""
        rate: str | None = getattr(a2a_settings, self.setting)
        return rate

    def allow_request(self, request: Request, view: Any) -> bool:
        """Whether there are few enough calls in this window, of which this is one more."""
        if self.rate is None:
            return True
        ident = self.get_cache_key(request, view)
        return ident is None or self.count(ident)

    def count(self, ident: str) -> bool:
        """Counts one more for `ident`; whether it is one of those that are allowed. A cache that is away allows all."""
        self.now = self.timer()
        cache, key = self.get_cache(), self._key(ident)
        try:
            try:
                counted = cache.incr(key)
            except ValueError:  # there is none; of several that add it one does
                cache.add(key, 0, timeout=2 * (self.duration or 1))
                counted = cache.incr(key)
        except Exception as error:  # of whatever the cache is made of
            log.warning("Calls are not throttled: the cache failed (%s).", type(error).__name__)
            return True
        return bool(counted <= (self.num_requests or 0))

    def get_cache(self) -> Any:
        """Where the counters are."""
        return caches[a2a_settings.THROTTLE_CACHE]

    def _key(self, ident: str) -> str:
        """A name that every cache takes, whatever keys users have, and that tells nobody's address."""
        digest = hashlib.sha256(ident.encode()).hexdigest()
        return f"a2a:{self.scope}:{digest}:{int(self.now // (self.duration or 1))}"

    def wait(self) -> float | None:
        """Seconds until the next window."""
        return (self.duration or 1) - self.now % (self.duration or 1)


class CredentialThrottle(Throttle):
    """Calls by one credential: an access token, else a user, else an anonymous caller's address."""

    scope = "credential"

    def get_cache_key(self, request: Request, view: Any) -> str | None:
        """Who calls."""
        if isinstance(request.auth, AccessToken):
            return f"token {request.auth.pk}"
        if request.user and request.user.is_authenticated:
            return f"user {request.user.pk}"
        return f"address {address(request) or request.META.get('REMOTE_ADDR')}"


class TenantThrottle(Throttle):
    """Calls within a tenant, by whomever; its own `requests_per_minute` goes before the setting."""

    scope, setting = "tenant", "TENANT_THROTTLE_RATE"

    def __init__(self, tenant: Tenant) -> None:
        self.tenant = tenant
        super().__init__()

    def get_rate(self) -> str | None:
        own = self.tenant.requests_per_minute
        return super().get_rate() if own is None else f"{own}/min"

    def check(self) -> None:
        """Counts a call; Throttled."""
        if self.rate is not None and not self.count(str(self.tenant.pk)):
            raise Throttled(self.wait())


class FailureThrottle(Throttle):
    """Calls from one address whose credentials are wrong; of an address that isn't known none is counted.

    The counters are this process's own: every call asks for them, which must cost nothing.
    """

    scope, setting = "failure", "FAILURE_THROTTLE_RATE"
    own = LocMemCache("a2a_django.failures", {"OPTIONS": {"MAX_ENTRIES": 10_000}})
    last = 0.0  # of this process, so that where all is well nothing is looked up

    def get_cache(self) -> Any:
        return self.own

    def get_cache_key(self, request: Request, view: Any) -> str | None:
        """The address."""
        return address(request)

    def note(self, request: Request) -> None:
        """Counts a call that has failed so."""
        FailureThrottle.last = self.timer()
        self.allow_request(request, None)

    def check(self, request: Request) -> None:
        """TooManyRequestsError for an address that has failed too often in this window."""
        self.now = self.timer()
        quiet = self.rate is None or self.now - self.last > (self.duration or 0)
        found = None if quiet else address(request)
        if found and self.own.get(self._key(found), 0) >= (self.num_requests or 0):
            message = "Too many calls from this address had wrong credentials"
            raise errors.TooManyRequestsError(message, wait=self.wait())


def address(request: Request) -> str | None:
    """The network address that a call comes from, as far as it can be trusted; None if only a proxy's is known.

    NUM_PROXIES says how many have put the address before them into X-Forwarded-For. Without it, those are taken for
    proxies that have private addresses; the last one which is not is the caller's.
    """
    proxies, peer = a2a_settings.NUM_PROXIES, request.META.get("REMOTE_ADDR") or LOCAL
    passed = request.headers.get("X-Forwarded-For", "").split(",")
    if proxies is not None:
        trusted = passed[-proxies:] if proxies and passed != [""] else [peer]
        return _network(trusted[0])
    for each in (peer, *reversed(passed)):
        network = _network(each)
        if network is None or not _is_private(each):
            return network
    return None


@lru_cache(4096)
def _network(text: str) -> str | None:
    """The address, or for IPv6 the network, that stands for one caller; None for what is no address."""
    found = _ip(text)
    if isinstance(found, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((int(found), NETWORK), strict=False))
    return str(found) if found else None


@lru_cache(4096)
def _is_private(text: str) -> bool:
    found = _ip(text)
    return found is not None and not found.is_global


def _ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        found = ipaddress.ip_address(text.strip())
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found

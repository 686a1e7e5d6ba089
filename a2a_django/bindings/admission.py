"""Whether a call is let in: by its user, the agent's groups and the limits of its credentials (DESIGN 7).

Nothing here depends on a task, so that no refusal tells whether there is one.
"""

from typing import Any

from django.contrib.auth.models import AnonymousUser
from rest_framework.exceptions import AuthenticationFailed, NotAuthenticated
from rest_framework.request import Request

from a2a_django import throttling
from a2a_django.models import AccessToken, Agent, Caller
from a2a_django.models.agent import AnonymousAccess
from a2a_django.protocol import errors
from a2a_django.settings import a2a_settings


def user(request: Request, agent: Agent) -> Any:
    """Who calls, allowed to call `agent`; NotAuthenticated, AuthenticationFailed, PermissionDeniedError.

    Credentials that no authenticator takes are refused, too (A2A 3.3.2): a client whose token has expired would else
    go on among the anonymous ones.
    """
    found = request.user or AnonymousUser()
    if not found.is_authenticated:
        if request.successful_authenticator:
            raise errors.PermissionDeniedError("These credentials are of no user of this site, and agents need one")
        if request.headers.get("Authorization"):
            raise AuthenticationFailed("These credentials are not accepted here")
        if agent.anonymous_access == AnonymousAccess.DENIED or agent.restricted:
            raise NotAuthenticated
        return found
    if not getattr(found, "is_active", True):
        raise AuthenticationFailed("This user is disabled")
    if agent.restricted and not _in_group(found, agent):
        raise errors.PermissionDeniedError("This agent is for other groups of users")
    return found


def _in_group(found: Any, agent: Agent) -> bool:
    """Whether one of the agent's groups is the user's; users of a model without groups are in none."""
    if getattr(found, "is_superuser", False):
        return True
    return hasattr(found, "groups") and bool(found.groups.filter(a2a_agents=agent).exists())


def limit(request: Request, made: Caller) -> None:
    """Has `made` hold to the scopes of the credentials; PermissionDeniedError for another agent than theirs."""
    credentials = request.auth
    if isinstance(credentials, AccessToken):
        made.scopes = credentials.granted
        if credentials.agent_ids and made.agent.pk not in credentials.agent_ids:
            raise errors.PermissionDeniedError("The access token is for other agents")
    elif (scope := getattr(credentials, "scope", None)) is not None:  # as OAuth names it (RFC 6749), in text or a list
        names = scope.split() if isinstance(scope, str) else scope
        made.scopes, made.scope_prefix = frozenset(names), a2a_settings.OAUTH_SCOPE_PREFIX


def check_tenant(request: Request, made: Caller) -> None:
    """What an access token of a tenant is good for: another tenant is none, and none is not enough."""
    limited_to = request.auth.tenant_id if isinstance(request.auth, AccessToken) else None
    if limited_to is None or (made.tenant and made.tenant.pk == limited_to):
        return
    if made.tenant:
        raise errors.NotFoundError("There is no such tenant")
    raise errors.PermissionDeniedError("The access token is for a tenant, which the call has to name")


def check_limits(made: Caller, size: int) -> None:
    """Holds a call of `size` bytes to what its tenant may do; PayloadTooLargeError, Throttled."""
    if made.tenant is None:
        return
    if size > (limit := max_body(made)):
        raise too_large(limit)
    throttling.TenantThrottle(made.tenant).check()


def max_body(made: Caller | None) -> int:
    """How many bytes the body of a call may have, as far as is known of the caller yet."""
    site: int = a2a_settings.MAX_BODY_BYTES
    own = made.tenant.max_body_bytes if made and made.tenant else None
    return site if own is None else min(own, site)


def too_large(limit: int) -> errors.PayloadTooLargeError:
    """What a call with a larger body gets."""
    return errors.PayloadTooLargeError(f"The request body is larger than {limit} bytes")

"""Whether a call is let in: by its user, the agent's groups, the tenant and the limits of its credentials (DESIGN 7).

Nothing here depends on a task, so that no refusal tells whether there is one.
"""

from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import AnonymousUser, Group
from django.db import connections, router
from django.db.models import Exists, OuterRef, Q
from rest_framework.exceptions import AuthenticationFailed, NotAuthenticated
from rest_framework.request import Request

from a2a_django import throttling
from a2a_django.models import AccessToken, Agent, Caller, Tenant, TenantMembership
from a2a_django.models.agent import AnonymousAccess
from a2a_django.protocol import errors, values
from a2a_django.settings import a2a_settings
from a2a_django.statements import Select


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


def tenant(slug: str, agent: Agent, user: Any) -> Tenant:
    """The tenant called `slug`, where `user` may call `agent`; NotFoundError, whatever keeps the caller out."""
    rows = [] if values.flaw(slug) else _TENANTS.rows(slug, agent.pk, _key(user))
    for *columns, is_member in rows:
        found = Tenant.from_db(router.db_for_write(Tenant), _COLUMNS, columns)
        if found.public or is_member or getattr(user, "is_superuser", False):
            return found
    raise no_tenant()


def no_tenant() -> errors.NotFoundError:
    """What every tenant looks like that the caller has nothing to do with."""
    return errors.NotFoundError("There is no such tenant")


def _key(user: Any) -> Any:
    """The key of a user as the database knows it, None for callers who have no row."""
    key = user.pk if isinstance(user, get_user_model()) else None
    return get_user_model()._meta.pk.get_db_prep_value(key, connections[router.db_for_write(Tenant)])


def _members(user: Any) -> Q:
    """The memberships of a user; accounts of some sites are in no groups."""
    model: Any = get_user_model()
    if not hasattr(model, "groups"):
        return Q(user=user)
    groups = Group._base_manager.filter(**{model.groups.field.related_query_name(): user})
    return Q(user=user) | Q(group__in=groups)


_COLUMNS = [field.attname for field in Tenant._meta.concrete_fields]
_TENANTS = Select(
    Tenant,
    lambda slug, agent, user: (
        Tenant.objects.filter(Q(agents=None) | Q(agents=agent), slug=slug, enabled=True)
        .annotate(is_member=Exists(TenantMembership.objects.filter(_members(user), tenant=OuterRef("pk"))))
        .order_by()
        .values_list(*_COLUMNS, "is_member")
    ),
)


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
    """Refuses a call without a tenant to an agent that requires one, and one in another tenant than its token's."""
    if made.tenant is None and made.agent.requires_tenant:
        raise errors.invalid_params(("tenant", "must be named, by the path or the request: this agent requires one"))
    limited_to = request.auth.tenant_id if isinstance(request.auth, AccessToken) else None
    if limited_to is None or (made.tenant and made.tenant.pk == limited_to):
        return
    if made.tenant:
        raise no_tenant()
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

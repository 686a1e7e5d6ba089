"""Who calls: a request's agent, user, tenant, version and extensions as a Caller (DESIGN 7)."""

import inspect

from asgiref.sync import async_to_sync
from django.db import router
from django.db.models import Exists, OuterRef
from rest_framework.request import Request

from a2a_django.agents import activation, claims
from a2a_django.bindings import admission
from a2a_django.models import Agent, Caller
from a2a_django.protocol import errors, values, versions
from a2a_django.settings import a2a_settings
from a2a_django.statements import Select


def agent(slug: str) -> Agent:
    """The enabled agent called `slug`, with its extensions and whether it is for some groups only; NotFoundError."""
    rows = _AGENTS.rows(slug)
    if not rows:
        raise errors.NotFoundError("There is no such agent")
    found = Agent.from_db(router.db_for_write(Agent), _COLUMNS, rows[0][:-3])
    found.restricted = rows[0][-3]
    found.offers = {uri: required for *_, uri, required in rows if uri is not None}
    return found


_COLUMNS = [field.attname for field in Agent._meta.concrete_fields]
_AGENTS = Select(  # a row for each extension, or one without
    Agent,
    lambda slug: (
        Agent.objects.filter(slug=slug, enabled=True)
        .annotate(is_restricted=Exists(Agent.allowed_groups.through.objects.filter(agent=OuterRef("pk"))))
        .order_by("extensions__required")
        .values_list(*_COLUMNS, "is_restricted", "extensions__uri", "extensions__required")
    ),
)


def default_agent() -> Agent:
    """The enabled agent that stands for the whole site; NotFoundError."""
    found = Agent.objects.filter(is_default=True, enabled=True).first()
    if found is None:
        raise errors.NotFoundError("This site has no default agent; name one of its agents")
    return found


def version(request: Request, spoken: str | None) -> str:
    """The version that the call asks for by header or query (A2A 3.6.1); VersionNotSupportedError."""
    asked = request.headers.get("A2A-Version") or request.query_params.get("A2A-Version")
    return versions.negotiate(asked, spoken)


def caller(request: Request, found: Agent, tenant_slug: str, spoken: str | None = versions.CURRENT) -> Caller:
    """The caller of agent `found`, by a path or method of version `spoken`.

    Required extensions are every operation's: A2A 3.3.4 exempts none, and any may be what they change. Before anything
    is done for the caller, `within` must hear what tenant the request itself names.
    """
    user, asked = admission.user(request, found), version(request, spoken)
    made = Caller(agent=found, user=user, version=asked, extensions=_extensions(request, asked))
    admission.limit(request, made)
    versions.require(made.extensions, found.offers)
    made.owner = str(user.pk) if made.authenticated else ""
    in_header = request.headers.get(a2a_settings.TENANT_HEADER, "").split(",")  # one that came twice is joined so
    _enter(made, _agreed(tenant_slug, *in_header, *request.query_params.getlist("tenant")))
    return made


def within(request: Request, made: Caller, tenant_slug: str, size: int) -> Caller:
    """`made`, in the tenant that the body of `size` bytes names, as the site's hooks want it.

    It must be the tenant that the call has named already, if any. The call counts for its limits.
    """
    if tenant_slug:
        _enter(made, _agreed(made.tenant.slug if made.tenant else "", tenant_slug))
    admission.check_tenant(request, made)
    admission.check_limits(made, size)
    _build_context(request, made)
    return made


def _extensions(request: Request, asked: str) -> frozenset[str]:
    """The extensions that the call asks for; callers of A2A 0.3 know another header (A2A 3.2.6)."""
    names = ("A2A-Extensions", *(("X-A2A-Extensions",) if asked == versions.LEGACY else ()))
    return versions.extensions(request.headers.get(name, "") for name in names)


def _agreed(*slugs: str) -> str:
    named = {slug.strip() for slug in slugs} - {""}
    if len(named) > 1:
        raise errors.invalid_params(("tenant", "path, query, header and body name different tenants"))
    return named.pop() if named else ""


def _enter(made: Caller, slug: str) -> None:
    if slug and not (made.tenant and made.tenant.slug == slug):
        made.tenant = admission.tenant(slug, made.agent, made.user)


def _build_context(request: Request, made: Caller) -> None:
    """Lets the site's CONTEXT_BUILDER refuse or add to the state, and its OWNER_RESOLVER name the owner."""
    build, resolve = a2a_settings.load("CONTEXT_BUILDER"), a2a_settings.load("OWNER_RESOLVER")
    if build is None and resolve is None:
        return
    given = {"extensions": sorted(made.extensions)}
    context = claims.call_context(made.account, made.tenant.slug if made.tenant else "", given)
    if build is not None:
        run = async_to_sync(build) if inspect.iscoroutinefunction(build) else build
        context = run(request, context) or context
    if resolve is not None:
        made.owner = resolve(context)
    made.activated = activation.allowed(versions.activated(context.state), made.available, "A2A['CONTEXT_BUILDER']")
    made.state = {key: value for key, value in context.state.items() if values.is_fit(value)}  # others stay here
    made.state.pop(versions.ACTIVATED, None)

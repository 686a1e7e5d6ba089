"""Who calls which agent, as the querysets need to know it; `bindings.caller` makes one from a request."""

from dataclasses import dataclass, field
from typing import Any

from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.auth.models import AnonymousUser
from django.db.models import TextChoices

from a2a_django import audit
from a2a_django.models.agent import Agent
from a2a_django.models.tenant import Tenant
from a2a_django.protocol import errors


class Scope(TextChoices):
    """What credentials may be limited to; each operation wants one of them."""

    READ = "read", "read: tasks, their streams and the extended card"
    SEND = "send", "send: messages"
    CANCEL = "cancel", "cancel: tasks"
    PUSH = "push", "push: webhooks that are told of news"


@dataclass
class Caller:
    """One caller of one agent, within a tenant or none; `owner` is the scope that tasks are kept in.

    `extensions` are those that the call asks for; `activated` those that take part, which the answer tells. `scopes` is
    what the credentials are limited to, named as by whoever gave them out: with `scope_prefix` before it.
    """

    agent: Agent
    user: AbstractBaseUser | AnonymousUser
    tenant: Tenant | None = None
    owner: str = ""
    version: str = "1.0"
    extensions: frozenset[str] = frozenset()
    state: dict[str, Any] = field(default_factory=dict)
    activated: frozenset[str] = frozenset()
    scopes: frozenset[str] | None = None
    scope_prefix: str = ""

    def need(self, scope: Scope) -> None:
        """PermissionDeniedError where the credentials are limited to other things (A2A 3.3.2)."""
        name = f"{self.scope_prefix}{scope}"
        if self.scopes is not None and name not in self.scopes:
            raise errors.PermissionDeniedError(f"The credentials lack the scope {name}", {"scope": name})

    def note(self, event: str, **facts: Any) -> None:
        """An `audit.note` of what this caller has done."""
        tenant = self.tenant.slug if self.tenant else ""
        audit.note(event, agent=self.agent.slug, tenant=tenant, user=self.user.pk, **facts)

    @property
    def authenticated(self) -> bool:
        """Whether a user stands behind the call."""
        return bool(self.user.is_authenticated)

    @property
    def available(self) -> frozenset[str]:
        """The extensions that may take part: asked for by the call and offered by the agent (A2A 4.6)."""
        return self.extensions.intersection(self.agent.offers)

    @property
    def account(self) -> Any:
        """The user's row, or None for an anonymous caller."""
        return self.user if isinstance(self.user, AbstractBaseUser) else None

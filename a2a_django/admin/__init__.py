"""The Django admin: staff create agents, tenants, tokens and signing keys, and look into tasks and turns."""

from a2a_django.admin.access_token import AccessTokenAdmin
from a2a_django.admin.agent import AgentAdmin
from a2a_django.admin.card_version import AgentCardVersionAdmin
from a2a_django.admin.signing_key import SigningKeyAdmin
from a2a_django.admin.task import TaskAdmin
from a2a_django.admin.tenant import TenantAdmin
from a2a_django.admin.turn import TurnAdmin

__all__ = [
    "AccessTokenAdmin",
    "AgentAdmin",
    "AgentCardVersionAdmin",
    "SigningKeyAdmin",
    "TaskAdmin",
    "TenantAdmin",
    "TurnAdmin",
]

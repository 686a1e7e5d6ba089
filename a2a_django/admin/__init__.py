"""The Django admin: staff create agents and tenants, and look into tasks and turns."""

from a2a_django.admin.agent import AgentAdmin
from a2a_django.admin.task import TaskAdmin
from a2a_django.admin.tenant import TenantAdmin
from a2a_django.admin.turn import TurnAdmin

__all__ = ["AgentAdmin", "TaskAdmin", "TenantAdmin", "TurnAdmin"]

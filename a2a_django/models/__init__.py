"""The nouns of the protocol as rows, one file each; querysets carry the scoping."""

from a2a_django.models.access_token import AccessToken
from a2a_django.models.agent import Agent, AgentExtension, AgentInterface, AgentSkill
from a2a_django.models.agent_card_version import AgentCardVersion
from a2a_django.models.artifact import Artifact
from a2a_django.models.caller import Caller, Scope
from a2a_django.models.event import Event
from a2a_django.models.message import Message
from a2a_django.models.push_config import PushConfig
from a2a_django.models.signing_key import SigningKey
from a2a_django.models.task import Task
from a2a_django.models.tenant import Tenant, TenantMembership
from a2a_django.models.turn import Turn

__all__ = [
    "AccessToken",
    "Agent",
    "AgentCardVersion",
    "AgentExtension",
    "AgentInterface",
    "AgentSkill",
    "Artifact",
    "Caller",
    "Event",
    "Message",
    "PushConfig",
    "Scope",
    "SigningKey",
    "Task",
    "Tenant",
    "TenantMembership",
    "Turn",
]

"""An agent's card as a document: AgentCard as JSON, as versions keep it and as it can live in git (A2A 4.4.1).

It is what clients get but for two things that depend on the request. An interface of this site has no URL. A skill that
not everybody may see says in VISIBLE_TO who may: AUTHENTICATED, or the names of groups.
"""

from collections.abc import Mapping
from typing import Any

from django.db import models

from a2a_django.agents import declarations
from a2a_django.models import Agent, AgentSkill
from a2a_django.models.agent import Visibility
from a2a_django.protocol import codec

Document = dict[str, Any]

VISIBLE_TO = "visibleTo"
AUTHENTICATED = Visibility.AUTHENTICATED.value

# Columns, and what their values are called in a card.
TEXTS = {
    "name": "name",
    "description": "description",
    "version": "version",
    "documentation_url": "documentationUrl",
    "icon_url": "iconUrl",
}
PROVIDER = {"provider_organization": "organization", "provider_url": "url"}
CHECKED = {
    "default_input_modes": "defaultInputModes",
    "default_output_modes": "defaultOutputModes",
    "security_schemes": "securitySchemes",
    "security_requirements": "securityRequirements",
}
SWITCHES = {
    "streaming": "streaming",
    "push_notifications": "pushNotifications",
    "extended_card": "extendedAgentCard",
}
EXTENSION = {"uri": "uri", "description": "description", "required": "required", "params": "params"}
INTERFACE = {
    "url": "url",
    "protocol_binding": "protocolBinding",
    "protocol_version": "protocolVersion",
    "tenant": "tenant",
}
SKILL = {
    "skill_id": "id",
    "name": "name",
    "description": "description",
    "tags": "tags",
    "examples": "examples",
    "input_modes": "inputModes",
    "output_modes": "outputModes",
    "security_requirements": "securityRequirements",
}


def served(agent: Agent) -> Document:
    """The newest published version; as long as there is none, what the rows say."""
    if agent.published is None:
        return of(agent)
    content: Document = codec.loads(agent.published.content)
    return content | checked(agent)


def skills(agent: Agent) -> list[Document]:
    """The skills of what is served."""
    if agent.published is None:
        return _skills(agent)
    listed: list[Document] = codec.loads(agent.published.content)["skills"]
    return listed


def of(agent: Agent) -> Document:
    """What the rows and the code say: the draft."""
    provider = _said(agent, PROVIDER)
    return {
        **_said(agent, TEXTS),
        **({"provider": provider} if provider else {}),
        "supportedInterfaces": [_said(item, INTERFACE) for item in agent.interfaces.all()],
        **checked(agent),
        "skills": _skills(agent),
    }


def checked(agent: Agent) -> Document:
    """What calls are checked against. It acts when it is saved, so the card says it then, published or not."""
    capabilities: Document = {name: getattr(agent, column) for column, name in SWITCHES.items()}
    if extensions := [_said(item, EXTENSION) for item in agent.extensions.all()]:
        capabilities["extensions"] = extensions
    return {"capabilities": capabilities, **{name: getattr(agent, column) for column, name in CHECKED.items()}}


def skill(row: AgentSkill) -> Document:
    """A row as it stands in the document."""
    visible: Document = {}
    if row.visibility == Visibility.AUTHENTICATED:
        visible = {VISIBLE_TO: AUTHENTICATED}
    if row.visibility == Visibility.GROUPS:
        visible = {VISIBLE_TO: sorted(group.name for group in row.groups.all())}
    return _said(row, SKILL) | visible


def _skills(agent: Agent) -> list[Document]:
    rows = [skill(row) for row in agent.skills.all()]
    others = {row["id"] for row in rows} | set(agent.hidden_skills)
    return [*rows, *(item for name, item in declarations.of(agent.executor).items() if name not in others)]


def _said(row: models.Model, columns: Mapping[str, str]) -> Document:
    """The columns that say something."""
    return {name: value for column, name in columns.items() if (value := getattr(row, column))}

"""The agents that conformance tools look for, as rows."""

from typing import Any

from a2a_django.models import Agent, AgentExtension, AgentInterface, AgentSkill

REQUIRED = "urn:a2a:tck:required-extension"

# Slug and what sets the agent apart. The tools look for the one in question at the site's root, or at /a2a/v1/.
AGENTS: dict[str, dict[str, Any]] = {
    "v1": {"is_default": True},
    "required": {},  # an extension
    "bare": {"streaming": False, "push_notifications": False, "extended_card": False},
}


def make_agents() -> None:
    """The agents, as far as they are missing; `v1` becomes the site's default one."""
    for slug, fields in AGENTS.items():
        if not Agent.objects.filter(slug=slug).exists():
            _make(slug, fields)


def _make(slug: str, fields: dict[str, Any]) -> None:
    own = {"slug": slug, "name": f"TCK {slug}", "description": "Does what conformance tools expect.", "executor": "tck"}
    open_to_all = {"anonymous_access": "shared", "push_notifications": True, "extended_card": True}
    modes = {"default_output_modes": ["text/plain", "application/json"]}
    agent = Agent.objects.create(**{**own, **open_to_all, **modes, **fields})
    # Of one version only: the tools know no card that clients of 0.3 read, too.
    for position, binding in enumerate(("JSONRPC", "HTTP+JSON", "GRPC")):
        AgentInterface.objects.create(agent=agent, protocol_binding=binding, position=position)
    for skill_id, visibility in (("tck", "public"), ("tck-extended", "authenticated")):
        about = {"name": "Conformance", "description": "Answers by the prefix of the message id or of the text."}
        AgentSkill.objects.create(agent=agent, skill_id=skill_id, visibility=visibility, tags=["tck"], **about)
    if slug == "required":
        AgentExtension.objects.create(agent=agent, uri=REQUIRED, required=True)

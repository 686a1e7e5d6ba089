"""The agents that conformance tools look for, as rows."""

from a2a_django.models import Agent, AgentExtension, AgentSkill

# Of an agent that refuses who doesn't ask for this extension; the tools test that apart from all else.
REQUIRED = "urn:a2a:tck:required-extension"


def make_agents() -> None:
    """The agent `v1`, which becomes the site's default one, and `required`, as far as they are missing."""
    if not Agent.objects.filter(slug="v1").exists():  # one of the tools knows no other path than /a2a/v1/
        _make("v1", is_default=True)
    if not Agent.objects.filter(slug="required").exists():
        agent = _make("required")
        AgentExtension.objects.create(agent=agent, uri=REQUIRED, required=True)


def _make(slug: str, **fields: bool) -> Agent:
    agent = Agent.objects.create(
        slug=slug,
        name=f"TCK {slug}",
        description="Does what conformance tools expect of the agent under test.",
        executor="tck",
        anonymous_access="shared",
        push_notifications=True,
        extended_card=True,
        default_output_modes=["text/plain", "application/json"],
        **fields,
    )
    _skill(agent, "tck", "Conformance")
    _skill(agent, "tck-extended", "Conformance, for authenticated callers", visibility="authenticated")
    return agent


def _skill(agent: Agent, skill_id: str, name: str, **fields: str) -> None:
    about = "Answers by the prefix of the message id or of the text."
    AgentSkill.objects.create(agent=agent, skill_id=skill_id, name=name, description=about, tags=["tck"], **fields)

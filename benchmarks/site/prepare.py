"""Makes the tables and the agent: `python -m benchmarks.site.prepare`, with benchmarks.site.settings."""

import django
from django.core.management import call_command

django.setup()

from a2a_django.models import Agent, AgentSkill  # noqa: E402


def main() -> None:
    """An empty database becomes a site with one agent that everybody may call."""
    call_command("migrate", verbosity=0, interactive=False)
    agent = Agent.objects.create(
        slug="bench",
        name="Bench",
        description="The workload of the benchmark.",
        executor="bench",
        anonymous_access="shared",
        streaming=True,
    )
    AgentSkill.objects.create(agent=agent, skill_id="bench", name="Bench", description="The workload.", tags=["bench"])


if __name__ == "__main__":
    main()

"""The example's one page of its own."""

import json

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from a2a_django.models import Agent


@require_safe
def home(request: HttpRequest) -> HttpResponse:
    """Every agent of the site, with its addresses and a line that calls it."""
    agents = Agent.objects.filter(enabled=True).prefetch_related("skills").order_by("-is_default", "name")
    return render(request, "home.html", {"agents": [describe(agent, request) for agent in agents]})


def describe(agent: Agent, request: HttpRequest) -> dict[str, object]:
    """What the page shows of one agent."""
    site = settings.A2A_BASE_URL or f"{request.scheme}://{request.get_host()}"
    url = site + reverse("a2a_django:agent", kwargs={"agent": agent.slug})
    return {
        "agent": agent,
        "url": url,
        "card_url": f"{url}/.well-known/agent-card.json",
        "curl": curl_line(url, agent),
    }


def curl_line(url: str, agent: Agent) -> str:
    """A command that sends the agent the first example of its skills."""
    examples = [example for skill in agent.skills.all() for example in skill.examples]
    words = examples[0] if examples else "Hello"
    message = {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": words}]}
    # In a shell's single quotes everything but a single quote stands for itself.
    body = json.dumps({"message": message}).replace("'", r"'\''")
    method = "message:stream" if agent.streaming else "message:send"
    return f"curl -N -H 'A2A-Version: 1.0' -H 'Content-Type: application/a2a+json' -d '{body}' {url}/{method}"

"""GetExtendedAgentCard (A2A 3.1.11)."""

from a2a.types import GetExtendedAgentCardRequest

from a2a_django.agents import card
from a2a_django.models import Caller, Scope
from a2a_django.protocol import errors, versions


def get_extended_agent_card(caller: Caller, request: GetExtendedAgentCardRequest, urls: card.Urls) -> str:
    """The card for authenticated callers as JSON."""
    caller.need(Scope.READ)
    if not caller.agent.extended_card:
        raise errors.UnsupportedOperationError("The agent has no extended card")
    if not caller.authenticated:
        raise errors.UnauthenticatedError("The extended card is for authenticated callers")
    extended = card.extended(caller.agent, caller.user, urls, caller.tenant.slug if caller.tenant else "")
    if extended is None:
        raise errors.ExtendedAgentCardNotConfiguredError
    # What clients of 0.3 get is made of it, and no signature would hold.
    return card.render(extended, None if caller.version == versions.LEGACY else urls.keys).body.decode()

"""Signed cards from real processes, verified by the a2a-sdk's client with the keys that it finds by `jku`."""

import httpx
import pytest
from a2a.client import A2ACardResolver
from a2a.utils.signing import InvalidSignaturesError, create_signature_verifier
from jwt import PyJWKClient

from tests.acceptance.conftest import STREAMING
from tests.acceptance.sites import HEADERS

verify = create_signature_verifier(lambda kid, jku: PyJWKClient(jku).get_signing_key(kid), ["ES256"])


@pytest.mark.parametrize("place", STREAMING, indirect=True)
async def test_all_processes_serve_the_same_signed_card(place):
    """CASES 11: to who calls them by one name, as behind a proxy."""
    async with httpx.AsyncClient(headers=HEADERS) as http:
        card = await A2ACardResolver(http, f"{place.here.url}/a2a/echo").get_agent_card(signature_verifier=verify)
        answers = [
            await http.get(f"{web.url}/a2a/echo/.well-known/agent-card.json", headers={"Host": "127.0.0.1"})
            for web in (place.here, place.elsewhere)
        ]
    assert len(card.signatures) == 2
    assert answers[0].content == answers[1].content
    assert answers[0].headers["etag"] == answers[1].headers["etag"]
    card.name = "Somebody else"
    with pytest.raises(InvalidSignaturesError):
        verify(card)

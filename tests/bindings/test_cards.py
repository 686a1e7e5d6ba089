"""Agent cards: the public ones by HTTP (A2A 8), the extended one over every binding (A2A 3.1.11)."""

import json
from datetime import UTC, datetime

import pytest
from a2a.types import AgentCard
from django.contrib.auth.models import Group, User
from google.protobuf.json_format import ParseDict

from a2a_django.agents import publishing
from a2a_django.models import Agent, AgentCardVersion, AgentSkill
from tests.clients import Error, message

CARD = "/a2a/test/.well-known/agent-card.json"
DEFAULT = "/.well-known/agent-card.json"


@pytest.fixture
def agent(site, make_agent):
    made = make_agent(executor="tests.executors.Script")
    AgentSkill.objects.create(agent=made, skill_id="talk", name="Talk", description="Talks.", tags=["t"])
    AgentSkill.objects.create(
        agent=made, skill_id="more", name="More", description="More.", tags=["t"], visibility="authenticated"
    )
    return made


# --- the public card


def test_the_card_says_what_the_site_does(site, agent):
    response = site.get(CARD)
    card = response.json()

    assert (response.status, response.headers["content-type"]) == (200, "application/json")
    ParseDict(card, AgentCard(), ignore_unknown_fields=True)
    assert (card["name"], card["description"], card["version"]) == ("Test", "An agent for tests.", "1.0.0")
    assert card["capabilities"]["streaming"] is card["capabilities"]["pushNotifications"] is True
    assert [skill["id"] for skill in card["skills"]] == ["talk"]
    assert card["supportedInterfaces"] == [
        {"url": "http://testserver/a2a/test", "protocolBinding": binding, "protocolVersion": version}
        for version in ("1.0", "0.3")
        for binding in ("JSONRPC", "HTTP+JSON")
    ]
    assert {"bearer", "session"} == card["securitySchemes"].keys()


def test_required_arrays_are_there_when_they_are_empty(site, make_agent):
    make_agent()
    assert site.get(CARD).json()["skills"] == []


@pytest.mark.parametrize("path", [CARD, CARD + "/"])
def test_no_card_path_redirects(site, agent, path):
    assert site.get(path).status == 200


def test_the_default_agents_card(site, make_agent):
    assert site.get(DEFAULT).status == 404
    assert site.get(DEFAULT).json()["error"]["details"][0]["reason"] == "NOT_FOUND"
    make_agent(slug="one", is_default=True)
    make_agent(slug="two", is_default=True, name="Two")

    assert site.get(DEFAULT).json()["name"] == "Two"
    assert site.get(DEFAULT).body == site.get("/a2a/two/.well-known/agent-card.json").body


@pytest.mark.parametrize("slug", ["nobody", "off"])
def test_no_card(site, make_agent, slug):
    make_agent(slug="off", enabled=False, is_default=True)
    assert site.get(f"/a2a/{slug}/.well-known/agent-card.json").status == 404
    assert site.get(DEFAULT).status == 404


def test_every_interface_url_answers_post_without_redirect(site, agent):
    """CASES 1: byte for byte as the card says it."""
    (url,) = {interface["url"] for interface in site.get(CARD).json()["supportedInterfaces"]}
    path = url.removeprefix("http://testserver")
    headers = {"A2A-Version": "1.0", "Content-Type": "application/json"}
    rest = site.request("POST", path + "/message:send", json.dumps({"message": message()}).encode(), headers)
    call = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message()}}
    rpc = site.request("POST", path, json.dumps(call).encode(), headers)

    assert (rest.status, rpc.status) == (200, 200)
    assert "task" in rest.json()
    assert "task" in rpc.json()["result"]


# --- caching (CASES 11)


def test_a_card_that_is_known_is_not_sent_again(site, agent):
    first = site.get(CARD)
    etag = first.headers["etag"]
    assert "max-age=300" in first.headers["cache-control"]

    for known in (etag, f"W/{etag}", "*", f'"other", {etag}'):
        response = site.get(CARD, **{"If-None-Match": known})
        assert (response.status, response.body) == (304, b"")
        assert response.headers["etag"] == etag
        assert response.headers["cache-control"] == first.headers["cache-control"]
    assert site.get(CARD, **{"If-None-Match": '"other"'}).body == first.body


def test_a_card_changes_with_its_agent(site, agent):
    before = site.get(CARD)
    assert site.get(CARD).headers["etag"] == before.headers["etag"]
    AgentSkill.objects.filter(skill_id="talk").update(name="Speak")
    after = site.get(CARD, **{"If-None-Match": before.headers["etag"]})

    assert after.status == 200
    assert after.json()["skills"][0]["name"] == "Speak"
    assert after.headers["etag"] != before.headers["etag"]


def test_a_published_card_changes_when_it_is_published_again(site, agent):
    publishing.publish(agent)
    before = site.get(CARD)
    Agent.objects.update(name="Other")
    assert site.get(CARD).body == before.body
    publishing.publish(Agent.objects.get())
    after = site.get(CARD, **{"If-None-Match": before.headers["etag"]})
    assert (after.status, after.json()["name"]) == (200, "Other")
    assert [skill["id"] for skill in after.json()["skills"]] == ["talk"]
    assert b"visibleTo" not in after.body


@pytest.mark.parametrize("published", [True, False])
def test_a_card_says_when_it_was_changed(site, agent, published):
    Agent.objects.update(updated_at=datetime(2025, 7, 30, tzinfo=UTC))
    if published:
        publishing.publish(agent)
        AgentCardVersion.objects.update(published_at=datetime(2025, 7, 30, tzinfo=UTC))
        Agent.objects.update(updated_at=datetime(2025, 7, 29, tzinfo=UTC))
    response = site.get(CARD)
    modified = response.headers["last-modified"]
    assert modified == "Wed, 30 Jul 2025 00:00:00 GMT"
    assert site.request("HEAD", CARD).headers["last-modified"] == modified
    known = site.get(CARD, **{"If-None-Match": response.headers["etag"]})
    assert (known.status, known.headers["last-modified"]) == (304, modified)
    # What has no date may have changed it since.
    assert site.get(CARD, **{"If-Modified-Since": modified}).status == 200


def test_head(site, agent):
    """CASES 15."""
    got, head = site.get(CARD), site.request("HEAD", CARD)
    assert head.status == 200  # the body is left out by the server, as Django expects
    assert {name: head.headers[name] for name in ("etag", "content-type", "cache-control", "content-length")} == {
        name: got.headers[name] for name in ("etag", "content-type", "cache-control", "content-length")
    }


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_a_card_is_only_read(site, agent, method):
    response = site.request(method, CARD, b"{}")
    assert response.status == 405
    assert response.json()["error"]["details"][0]["reason"] == "METHOD_NOT_ALLOWED"


@pytest.mark.parametrize("accept", ["text/html", "application/xml", "*/*"])
def test_a_card_is_json_whatever_is_asked_for(site, agent, accept):
    """CASES 15."""
    response = site.get(CARD + "?format=api", Accept=accept)
    assert (response.status, response.headers["content-type"]) == (200, "application/json")


# --- settings


def test_the_modifier_has_the_last_word(site, agent, a2a):
    def modify(card):
        card.name = "Modified"
        return card

    before = site.get(CARD)
    a2a(CARD_MODIFIER=modify)
    assert site.get(CARD).json()["name"] == "Modified"
    assert site.get(CARD).headers["etag"] != before.headers["etag"]


def test_card_permissions(site, agent, make_user, a2a):
    make_user("alice")
    a2a(
        CARD_PERMISSION_CLASSES=["rest_framework.permissions.IsAuthenticated"],
        AUTHENTICATION_CLASSES=["tests.clients.BearerName"],
    )
    refused = site.get(CARD)
    assert (refused.status, refused.headers["cache-control"]) == (401, "no-store")
    shown = site.get(CARD, Authorization="Bearer alice")
    assert shown.status == 200
    assert "private" in shown.headers["cache-control"]  # no cache hands it to the next one
    assert "Authorization" in shown.headers["vary"]
    assert list(site.get(CARD, Authorization="Bearer alice").json()["securitySchemes"]) == ["bearer"]


@pytest.mark.parametrize("credentials", ["Bearer outdated", "Basic bm9ib2R5Ondyb25n", "Nonsense"])
def test_outdated_credentials_are_no_hindrance(site, agent, a2a, credentials):
    """CASES 81: the card is where a client learns how to get new ones."""
    a2a(AUTHENTICATION_CLASSES=["tests.clients.BearerName", "rest_framework.authentication.BasicAuthentication"])
    response = site.get(CARD, Authorization=credentials)
    assert (response.status, response.headers["cache-control"]) == (200, "public, max-age=300")
    assert response.body == site.get(CARD).body


@pytest.mark.parametrize("off", ["site", "agent"])
def test_a_card_says_that_nothing_streams(site, agent, a2a, off):
    a2a(STREAMING=off != "site")
    Agent.objects.update(streaming=off != "agent")
    assert site.get(CARD).json()["capabilities"].get("streaming", False) is False


# --- the extended card (CASES 78)


@pytest.fixture
def extended(client, make_user):
    """A client of an agent that has an extended card."""
    make_user("alice")
    Agent.objects.update(extended_card=True)
    agent = Agent.objects.get()
    AgentSkill.objects.create(agent=agent, skill_id="talk", name="Talk", description="Talks.")
    AgentSkill.objects.create(agent=agent, skill_id="more", name="More", description="M.", visibility="authenticated")
    return client


def refused(call):
    with pytest.raises(Error) as error:
        call()
    return error.value


@pytest.mark.http
def test_the_extended_card_has_more_skills(extended):
    card = extended.as_("alice").extended_card()

    assert [skill["id"] for skill in card["skills"]] == ["talk", "more"]
    public = extended.site.get(CARD).json()
    assert {**card, "skills": card["skills"][:1]} == public
    assert public["capabilities"]["extendedAgentCard"] is True


def known_by(client, **headers):
    """The response to a client that may know its extended card already; both versions of REST can ask so."""
    path = "/extendedAgentCard" if client.headers.get("A2A-Version") == "1.0" else "/v1/card"
    return client.site.get(f"/a2a/test{path}", **client.headers, **headers)


@pytest.mark.v0_3
@pytest.mark.parametrize("binding", ["rest", "rest 0.3"], indirect=True)
def test_the_extended_card_is_kept_by_its_reader_alone(extended, make_user):
    """CASES 11, 78."""
    make_user("bob")
    seen = Group.objects.create(name="partners")
    for_partners = AgentSkill.objects.get(skill_id="more")
    for_partners.visibility = "groups"
    for_partners.save()
    for_partners.groups.add(seen)
    User.objects.get(username="alice").groups.add(seen)
    alice, bob = extended.as_("alice"), extended.as_("bob")
    first = known_by(alice)

    assert (first.status, first.headers["cache-control"]) == (200, "private, no-cache")
    assert {"Authorization", "Cookie"} <= set(first.headers["vary"].split(", "))
    assert known_by(bob).headers["etag"] != first.headers["etag"]
    for known in (first.headers["etag"], f"W/{first.headers['etag']}", "*"):
        again = known_by(alice, **{"If-None-Match": known})
        assert (again.status, again.body, again.headers["etag"]) == (304, b"", first.headers["etag"])
        assert again.headers["vary"] == first.headers["vary"]
    User.objects.get(username="alice").groups.clear()
    assert known_by(alice, **{"If-None-Match": first.headers["etag"]}).status == 200


@pytest.mark.parametrize("binding", ["jsonrpc"], indirect=True)
def test_the_answer_to_a_post_is_kept_by_no_cache(extended):
    assert "no-store" in extended.as_("alice").call("GetExtendedAgentCard", {}).response().headers["cache-control"]


def test_each_caller_sees_the_skills_of_their_groups(extended, make_user):
    """CASES 78."""
    agent, partners, staff = Agent.objects.get(), *(Group.objects.create(name=name) for name in ("partners", "staff"))
    for skill_id, groups in (("partner", [partners]), ("inside", [partners, staff]), ("nobody", [])):
        skill = AgentSkill.objects.create(
            agent=agent, skill_id=skill_id, name=skill_id, description="d", visibility="groups"
        )
        skill.groups.set(groups)
    make_user("bob").groups.add(partners)
    make_user("eve").groups.add(staff)
    make_user("root", is_superuser=True)

    seen = {
        name: [skill["id"] for skill in extended.as_(name).extended_card()["skills"]]
        for name in ("alice", "bob", "eve", "root")
    }
    assert seen == {
        "alice": ["talk", "more"],
        "bob": ["talk", "more", "partner", "inside"],
        "eve": ["talk", "more", "inside"],
        "root": ["talk", "more", "partner", "inside", "nobody"],
    }
    assert [skill["id"] for skill in extended.site.get(CARD).json()["skills"]] == ["talk"]


def test_the_extended_card_is_for_authenticated_callers(extended):
    error = refused(extended.extended_card)
    assert (error.status, error.reason) == (401, "UNAUTHENTICATED")
    assert error.response.headers["www-authenticate"].startswith("Bearer")


def test_the_extended_card_is_not_for_those_without_permission(extended, a2a):
    a2a(PERMISSION_CLASSES=["rest_framework.permissions.IsAdminUser"])
    assert refused(extended.as_("alice").extended_card).status == 403


def test_an_agent_without_extended_card(client, make_user):
    make_user("alice")
    assert refused(client.as_("alice").extended_card).reason == "UNSUPPORTED_OPERATION"


def test_an_extended_card_that_has_nothing_to_show(client, make_user):
    make_user("alice")
    Agent.objects.update(extended_card=True)
    assert refused(client.as_("alice").extended_card).reason == "EXTENDED_AGENT_CARD_NOT_CONFIGURED"


@pytest.mark.http
def test_the_extended_card_of_a_tenant(extended, make_tenant):
    make_tenant("acme")
    card = extended.as_("alice").within("acme").extended_card()
    by_version = {(one["protocolVersion"], one["url"], one["tenant"]) for one in card["supportedInterfaces"]}
    # Clients of 1.0 put the tenant into the path or the body themselves, those of 0.3 know only URLs.
    assert by_version == {
        ("1.0", "http://testserver/a2a/test", "acme"),
        ("0.3", "http://testserver/a2a/test/acme", "acme"),
    }

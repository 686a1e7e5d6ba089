"""Tenants: who may enter which, with which agents; agents that require one; cards within a tenant (DESIGN 2, 7)."""

import pytest
from django.contrib.auth.models import AnonymousUser, Group, User
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction

from a2a_django.bindings import admission
from a2a_django.models import Agent, Task, Tenant, TenantMembership
from tests.bindings.test_access import ON_A_TASK, OTHERS, refusal
from tests.clients import state
from tests.clients_grpc import CLIENTS

CARD = "/a2a/test/{}/.well-known/agent-card.json"
CALLS = {name: call for name, call in ON_A_TASK.items() if name != "resume"} | {
    **{name: lambda client, task_id, call=call: call(client) for name, call in OTHERS.items()},
    "card": lambda client, task_id: client.extended_card(),
}


@pytest.fixture
def alice(make_user):
    return make_user("alice")


@pytest.fixture(params=["path", "body", "header"])
def within(request):
    """within(client, slug): however the tenant is named."""

    def enter(client, slug):
        if request.param == "header":
            return client.with_headers(X_A2A_Tenant=slug)
        return client.within(slug, tenant_in=request.param)

    return enter


# --- who may enter


def test_members_enter_by_themselves_and_by_their_groups(client, alice, make_user, make_tenant, within):
    partners = Group.objects.create(name="partners")
    make_user("bob").groups.add(partners)
    make_user("root", is_superuser=True)
    make_tenant("acme", members=[alice, partners])
    for who in ("alice", "bob", "root"):
        assert state(within(client.as_(who), "acme").task()) == "COMPLETED"
    assert set(Task.objects.values_list("tenant__slug", flat=True)) == {"acme"}
    assert len(within(client.as_("root"), "acme").list()["tasks"]) == 1  # superusers get in, to tasks of their own


def test_a_public_tenant_is_for_all_whom_the_agent_lets_in(client, alice, make_tenant):
    make_tenant("acme", public=True)
    for one in (client, client.as_("alice")):
        assert state(one.within("acme").task()) == "COMPLETED"
    Agent.objects.update(anonymous_access="denied")
    assert refusal(client.within("acme").send).status == 401
    assert state(client.as_("alice").within("acme").task()) == "COMPLETED"


OUT = {
    "unknown": lambda make, user, agent: None,
    "disabled": lambda make, user, agent: make(enabled=False, members=[user]),
    "without members": lambda make, user, agent: make(members=[]),
    "of other users": lambda make, user, agent: make(members=[User.objects.create_user("bob")]),
    "of other groups": lambda make, user, agent: make(members=[Group.objects.create(name="other")]),
    "for other agents": lambda make, user, agent: make(agents=[agent]),
    "of hers, for other agents": lambda make, user, agent: make(members=[user], agents=[agent]),
}


@pytest.mark.parametrize("why", sorted(OUT.keys() - {"unknown"}))
def test_whatever_keeps_out_looks_like_no_tenant(client, alice, make_tenant, make_agent, statements, within, why):
    """CASES 40, 41: the same answer after as many queries."""
    alice.groups.add(Group.objects.create(name="hers"))
    OUT[why](make_tenant, alice, make_agent(slug="other"))

    def tried(caller, slug):
        statements.begin()
        error = refusal(within(caller, slug).send)
        return error.reason, error.status, error.response, statements.of_requests

    for caller in (client, client.as_("alice")):
        assert tried(caller, "acme")[0] == "NOT_FOUND"
        assert tried(caller, "acme") == tried(caller, "nobody")
    assert not Task.objects.exists()


def test_who_is_no_member_any_more_is_out_at_once(client, alice, make_tenant):
    tenant, group = make_tenant("acme", members=[alice]), Group.objects.create(name="partners")
    member = client.as_("alice").within("acme")
    task = member.task()
    tenant.memberships.all().delete()
    assert refusal(lambda: member.get(task["id"])).reason == "NOT_FOUND"
    tenant.memberships.create(group=group)
    alice.groups.add(group)
    assert member.get(task["id"]) == task
    group.delete()  # the last member: it doesn't become everybody's
    assert refusal(lambda: member.get(task["id"])).reason == "NOT_FOUND"
    assert refusal(client.within("acme").send).reason == "NOT_FOUND"
    tenant.memberships.create(user=alice)
    assert member.get(task["id"]) == task


def test_a_token_is_good_for_no_more_than_its_user(site, binding, make_agent, make_token, make_tenant, alice):
    make_agent()
    tenant = make_tenant("acme", members=[])
    caller = CLIENTS[binding](site).as_(make_token(alice, tenant=tenant)).within("acme")
    assert refusal(caller.send).reason == "NOT_FOUND"
    tenant.memberships.create(user=alice)
    assert state(caller.task("x")) == "COMPLETED"


# --- its agents


def test_a_tenant_may_use_some_agents_only(client, make_client, alice, make_tenant, within):
    make_tenant("acme", members=[alice], agents=[Agent.objects.get()])
    make_tenant("all", members=[alice])
    other = make_client(slug="other")
    assert state(within(client.as_("alice"), "acme").task()) == "COMPLETED"
    assert refusal(within(other.as_("alice"), "acme").send).reason == "NOT_FOUND"
    for agent in (client, other):
        assert state(agent.as_("alice").task()) == state(within(agent.as_("alice"), "all").task()) == "COMPLETED"


@pytest.mark.parametrize("together", [True, False])
def test_a_tenant_whose_last_agent_is_deleted_is_not_for_all(client, make_agent, alice, make_tenant, together):
    make_tenant("acme", members=[alice], agents=[make_agent(slug="one"), make_agent(slug="two")])
    agents = Agent.objects.filter(slug__in=["one", "two"])
    if together:
        agents.delete()
    else:
        agents[0].delete()
        assert Tenant.objects.get().enabled
        agents.get().delete()
    assert not Tenant.objects.get().enabled
    assert refusal(client.as_("alice").within("acme").send).reason == "NOT_FOUND"


# --- agents that require one


@pytest.mark.parametrize("operation", sorted(CALLS))
def test_an_agent_that_requires_a_tenant(client, alice, make_tenant, operation):
    """Whoever calls, and whatever for: the answer says what is missing."""
    Agent.objects.update(requires_tenant=True, extended_card=True)
    for one in (client, client.as_("alice")):
        error = refusal(lambda one=one: CALLS[operation](one, "x"))
        assert (error.reason, error.fields) == ("INVALID_PARAMS", ["tenant"])
    assert not Task.objects.exists()


def test_a_tenant_that_is_required_may_be_named_anywhere(client, make_tenant, within):
    make_tenant("acme")
    Agent.objects.update(requires_tenant=True)
    assert state(within(client, "acme").task()) == "COMPLETED"
    assert refusal(within(client, "nobody").send).reason == "NOT_FOUND"


@pytest.mark.v0_3
def test_clients_of_0_3_name_it_by_their_url(client, make_tenant):
    make_tenant("acme"), make_tenant("hidden", members=[])
    Agent.objects.update(requires_tenant=True)
    assert refusal(client.send).reason == "INVALID_PARAMS"
    assert state(client.within("acme").task()) == "COMPLETED"
    assert refusal(client.within("hidden").send).reason == "NOT_FOUND"


# --- cards within a tenant


@pytest.fixture
def card(site, make_agent):
    """card(slug, **headers): the response with the agent's card within that tenant."""
    make_agent()
    return lambda slug, **headers: site.get(CARD.format(slug), **headers)


def test_the_card_within_a_public_tenant(card, site, make_tenant):
    make_tenant("acme"), make_tenant("globex")
    here = card("acme")
    assert here.status == 200
    plain = site.get("/a2a/test/.well-known/agent-card.json")
    shown, without = here.json(), plain.json()
    for interface, other in zip(shown.pop("supportedInterfaces"), without.pop("supportedInterfaces"), strict=True):
        assert interface.pop("tenant") == "acme"
        # Clients of 1.0 put the tenant in themselves, those of 0.3 know nothing but the URL.
        assert interface.pop("url") == other.pop("url") + ("" if other["protocolVersion"] == "1.0" else "/acme")
        assert interface == other
    assert shown.pop("url") == without.pop("url") + "/acme"
    for interface in shown["additionalInterfaces"]:
        interface["url"] = interface["url"].removesuffix("/acme")
    assert shown == without
    etags = {response.headers["etag"] for response in (here, plain, card("globex"))}
    assert len(etags) == 3
    assert card("acme", **{"If-None-Match": here.headers["etag"]}).status == 304
    assert card("acme", **{"If-None-Match": plain.headers["etag"]}).body == here.body
    assert here.headers["cache-control"] == plain.headers["cache-control"]


@pytest.mark.parametrize("why", sorted(OUT))
def test_no_card_within_other_tenants(card, make_tenant, make_agent, alice, why):
    """DESIGN 2: 404 unless it is public, and the same for any that there isn't."""
    OUT[why](make_tenant, alice, make_agent(slug="other"))
    response = card("acme")
    assert (response.status, response) == (404, card("nobody"))
    assert response.json()["error"]["details"][0]["reason"] == "NOT_FOUND"


def test_the_card_for_clients_of_0_2_within_a_tenant(card, site, make_tenant):
    make_tenant("acme"), make_tenant("hidden", members=[])
    old = "/a2a/test/{}/.well-known/agent.json"
    assert site.get(old.format("acme")).json() == card("acme").json()
    assert site.get(old.format("hidden")).status == 404


def test_an_agents_own_interfaces_name_the_tenant_of_the_card(card, make_tenant):
    """Whatever staff have written there; what is elsewhere stays as it is."""
    make_tenant("acme")
    agent = Agent.objects.get()
    agent.interfaces.create(protocol_binding="JSONRPC", tenant="globex")
    agent.interfaces.create(protocol_binding="JSONRPC", url="https://else.test/rpc", tenant="theirs")
    agent.interfaces.create(protocol_binding="HTTP+JSON", url="https://else.test/rest")
    shown = card("acme").json()["supportedInterfaces"]
    assert [interface.get("tenant") for interface in shown] == ["acme", "theirs", None]


def test_the_card_of_an_agent_that_requires_a_tenant(card, site, make_tenant):
    """Members of tenants that aren't public learn from it how to authenticate."""
    make_tenant("acme")
    before = card("acme").body
    Agent.objects.update(requires_tenant=True)
    assert site.get("/a2a/test/.well-known/agent-card.json").json()["securitySchemes"]
    assert card("acme").body == before


def test_the_extended_card_within_a_tenant(client, alice, make_user, make_tenant, within, a2a):
    """CASES 78: for members, public or not."""
    a2a(GRPC_URL="grpc.test:443")
    make_tenant("acme", members=[alice])
    make_user("bob")
    Agent.objects.update(extended_card=True)
    Agent.objects.get().skills.create(skill_id="more", name="More", description="M.", visibility="authenticated")
    shown = within(client.as_("alice"), "acme").extended_card()
    tenants = {one["tenant"].removeprefix("test/") for one in shown["supportedInterfaces"]}
    assert tenants == {"acme"}
    for outsider in (client, client.as_("bob")):
        assert refusal(within(outsider, "acme").extended_card).reason == "NOT_FOUND"


# --- what it rests on


def test_a_member_is_a_user_or_a_group(site, make_tenant, alice):
    tenant, group = make_tenant(members=[alice]), Group.objects.create(name="g")
    for wrong in ({}, {"user": alice, "group": group}, {"user": alice}):
        with pytest.raises(ValidationError):
            TenantMembership(tenant=tenant, **wrong).full_clean()
        with pytest.raises(IntegrityError), transaction.atomic():
            TenantMembership.objects.create(tenant=tenant, **wrong)


def test_one_query_decides(site, make_tenant, make_agent, alice, django_assert_num_queries):
    agent = make_agent()
    alice.groups.add(*(Group.objects.create(name=name) for name in "abc"))
    tenant = make_tenant("acme", members=[alice, *alice.groups.all()], agents=[agent, make_agent(slug="other")])
    with django_assert_num_queries(1):
        assert admission.tenant("acme", agent, alice) == tenant
    with django_assert_num_queries(1), pytest.raises(admission.errors.NotFoundError):
        admission.tenant("acme", agent, AnonymousUser())

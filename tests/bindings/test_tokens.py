"""Access tokens and groups: who may call which agent, and what for (DESIGN 7)."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import Group, User
from django.core import serializers
from django.utils import timezone

from a2a_django.models import AccessToken, Agent, Scope, Task, Turn
from tests.bindings.test_access import ON_A_TASK, OTHERS, URL, refusal
from tests.clients import message, state
from tests.clients_grpc import CLIENTS

SCOPES = {
    **dict.fromkeys(["send", "stream", "send new", "stream new"], Scope.SEND),
    **dict.fromkeys(["get", "list", "subscribe", "card"], Scope.READ),
    **dict.fromkeys(["create_push", "get_push", "list_push", "delete_push"], Scope.PUSH),
    "cancel": Scope.CANCEL,
}
CALLS = {name: call for name, call in ON_A_TASK.items() if name in SCOPES} | {
    **{name: lambda client, task_id, call=call: call(client) for name, call in OTHERS.items()},
    "card": lambda client, task_id: client.extended_card(),
}


@pytest.fixture
def alice(make_user):
    return make_user("alice")


@pytest.fixture
def agent(site, make_agent):
    return make_agent(executor="tests.executors.Script", anonymous_access="denied", extended_card=True)


@pytest.fixture
def client(site, binding, agent):
    """A client without credentials; the site has its default authenticators."""
    return CLIENTS[binding](site)


@pytest.fixture
def token(client, alice, make_token):
    """token(**fields): a client with a new access token of Alice's."""
    return lambda **fields: client.as_(make_token(alice, **fields))


@pytest.fixture
def task(token):
    """A task of Alice's that waits for input."""
    return token().task("task input:what?")


@pytest.fixture(params=sorted(CALLS))
def operation(request):
    """The name of an operation, of all that there are."""
    return request.param


# --- what a token is good for


def test_a_tokens_tasks_are_its_users(token, make_user, make_token, client, task):
    assert token().get(task["id"]) == task
    other = client.as_(make_token(make_user("bob")))
    assert refusal(lambda: other.get(task["id"])).reason == "TASK_NOT_FOUND"
    assert Task.objects.get().owner == str(User.objects.get(username="alice").pk)
    assert Turn.objects.get().user.username == "alice"


def test_each_operation_needs_its_scope(token, task, operation):
    """CASES 8: 403 names the missing scope, and comes before any look at the task."""
    others = token(scopes=[scope for scope in Scope if scope != SCOPES[operation]])
    for task_id in (task["id"], "0" * 36):
        error = refusal(lambda task_id=task_id: CALLS[operation](others, task_id))
        assert (error.status, error.reason) == (403, "PERMISSION_DENIED")
        assert error.metadata == {"scope": SCOPES[operation]}
        assert SCOPES[operation] in error.message
        challenge = f'Bearer error="insufficient_scope", scope="{SCOPES[operation]}"'
        assert error.response.headers["www-authenticate"] == challenge
    assert Task.objects.count() == 1


def test_each_scope_is_enough(token, task, operation):
    client = token(scopes=[SCOPES[operation]])
    if operation in ("get_push", "card"):  # let in, but nothing is there
        error = refusal(lambda: CALLS[operation](client, task["id"]))
        assert error.reason in ("TASK_NOT_FOUND", "EXTENDED_AGENT_CARD_NOT_CONFIGURED")
    elif operation in ("stream", "stream new"):
        assert CALLS[operation](client, task["id"]).all()
    elif operation == "subscribe":
        CALLS[operation](client, task["id"]).close()
    else:
        CALLS[operation](client, task["id"])


def test_a_webhook_within_a_send_needs_its_scope_too(token):
    for call in ("send", "stream"):
        sender = getattr(token(scopes=["send"]), call)
        error = refusal(lambda sender=sender: sender(message(), taskPushNotificationConfig={"url": URL}))
        assert error.metadata == {"scope": "push"}
    assert not Task.objects.exists()
    token(scopes=["send", "push"]).send(message(), taskPushNotificationConfig={"url": URL})


def test_a_token_for_other_agents(token, agent, make_agent, operation):
    other = make_agent(slug="other")
    error = refusal(lambda: CALLS[operation](token(agents=[other]), "x"))
    assert (error.status, error.reason) == (403, "PERMISSION_DENIED")
    assert not Task.objects.exists()
    assert state(token(agents=[other, agent]).task()) == "COMPLETED"


@pytest.mark.parametrize("tenant_in", ["path", "body"])
def test_a_token_of_a_tenant(token, make_tenant, tenant_in):
    acme = make_tenant("acme")
    make_tenant("globex")
    limited = token(tenant=acme)

    assert state(limited.within("acme", tenant_in=tenant_in).task()) == "COMPLETED"
    theirs, nobodys = [refusal(limited.within(slug, tenant_in=tenant_in).send) for slug in ("globex", "nobody")]
    assert (theirs.reason, theirs.response.body) == ("NOT_FOUND", nobodys.response.body)
    assert refusal(limited.send).status == 403
    assert Task.objects.get().tenant == acme


# --- how it ends


def test_tokens_that_are_over(token, operation):
    for text in ("expired", "revoked"):
        over = token(**{f"{text}_at".replace("expired", "expires"): timezone.now() - timedelta(seconds=5)})
        error = refusal(lambda over=over: CALLS[operation](over, "x"))
        assert (error.status, error.reason) == (401, "UNAUTHENTICATED")
        assert error.response.headers["www-authenticate"] == 'Bearer realm="a2a"'


def test_a_token_works_until_it_is_over(token):
    mine = token(expires_at=timezone.now() + timedelta(hours=1))
    assert state(mine.task()) == "COMPLETED"
    assert AccessToken.objects.all().revoke() == 1
    assert AccessToken.objects.all().revoke() == 0
    assert refusal(mine.send).status == 401


def test_the_secret_counts_not_the_prefix(client, alice, make_token):
    text = make_token(alice)
    for wrong in (text[:-1], text[:-1] + "~", f"{text}x", text.swapcase(), f"{text[:13]}{'x' * 43}"):
        assert refusal(client.as_(wrong).send).status == 401
    assert state(client.with_headers(Authorization=f"bearer {text}").task()) == "COMPLETED"


@pytest.mark.parametrize("credentials", [f"Bearer a2a_{'x' * 8}_{'x' * 43}", "Bearer x", "Basic YTpi", "Negotiate x"])
def test_wrong_credentials_are_never_taken_as_none(client, credentials):
    """A2A 3.3.2: a client whose token has expired would share its tasks with all anonymous ones."""
    Agent.objects.update(anonymous_access="shared")
    assert state(client.task()) == "COMPLETED"
    assert refusal(client.with_headers(Authorization=credentials).send).status == 401


def test_the_text_is_kept_nowhere(client, alice, make_token, caplog):
    with caplog.at_level("DEBUG"):
        text = make_token(alice)
        client.as_(text).task()
        refusal(client.as_(text[:-1]).send)
    secret = text.rpartition("_")[2][:-1]
    assert secret not in serializers.serialize("json", [*AccessToken.objects.all(), *Turn.objects.all()])
    assert secret not in caplog.text
    assert AccessToken.objects.get().prefix == text[:12]


def test_its_use_is_noted_once_a_minute(token, eventually):
    mine = token()
    mine.task()
    used = eventually(lambda: AccessToken.objects.get().last_used_at)
    mine.task()
    assert AccessToken.objects.get().last_used_at == used
    long_ago = used - timedelta(minutes=2)
    AccessToken.objects.update(last_used_at=long_ago)
    mine.list()
    eventually(lambda: AccessToken.objects.get().last_used_at >= used)


# --- an agent for some groups


@pytest.fixture
def sales(agent):
    """A group whose members alone may call the agent."""
    group = Group.objects.create(name="sales")
    agent.allowed_groups.add(group, Group.objects.create(name="board"))
    return group


def test_an_agent_for_some_groups(token, client, sales, alice, operation):
    error = refusal(lambda: CALLS[operation](token(), "x"))
    assert (error.status, error.reason) == (403, "PERMISSION_DENIED")
    assert refusal(lambda: CALLS[operation](client, "x")).status == 401
    assert not Task.objects.exists()


def test_members_and_superusers_pass(token, client, sales, alice, make_user, make_token):
    alice.groups.add(sales)
    boss = client.as_(make_token(make_user("boss", is_superuser=True)))
    for member in (token(), boss):
        assert state(member.task()) == "COMPLETED"


def test_groups_keep_anonymous_callers_out(client, sales):
    """Even where both were set in code; the admin's form refuses that."""
    Agent.objects.update(anonymous_access="shared")
    assert refusal(client.send).status == 401
    assert client.site.get("/a2a/test/.well-known/agent-card.json").json()["securityRequirements"]


def test_other_groups_are_not_enough(token, sales, alice):
    alice.groups.add(Group.objects.create(name="interns"))
    assert refusal(token().send).status == 403


def test_an_agent_whose_last_group_is_deleted_is_not_everybodys(token, sales, agent):
    sales.delete()
    assert refusal(token().send).status == 403
    Group.objects.get(name="board").delete()
    assert refusal(token().send).reason == "NOT_FOUND"


def test_nor_is_one_whose_groups_are_deleted_together(token, sales):
    Group.objects.all().delete()
    assert refusal(token().send).reason == "NOT_FOUND"


def test_a_token_whose_last_agent_is_deleted_is_not_for_all(token, make_agent):
    other, third = make_agent(slug="other"), make_agent(slug="third")
    limited = token(agents=[other, third])
    other.delete()
    assert refusal(limited.send).status == 403
    Agent.objects.filter(pk=third.pk).delete()
    assert refusal(limited.send).status == 401


def test_nor_is_one_whose_agents_are_deleted_together(token, make_agent):
    limited = token(agents=[make_agent(slug="other"), make_agent(slug="third")])
    Agent.objects.filter(slug__in=["other", "third"]).delete()
    assert refusal(limited.send).status == 401


# --- nothing tells whether a task is there (CASES 41)

STRANGERS = {
    "another user": {},
    "without the scope": {"scopes": ["x"]},
    "for another agent": {"agents": True},
    "of another tenant": {"tenant": True},
    "not in the group": {"groups": True},
    "anonymous": None,
}


@pytest.fixture(params=sorted(STRANGERS))
def stranger(request, client, make_user, make_token, make_agent, make_tenant, alice, agent):
    """A client that may not see Alice's tasks, for one reason or another."""
    fields = STRANGERS[request.param]
    if fields is None:
        return client
    if "agents" in fields:
        fields = {"agents": [make_agent(slug="other")]}
    if "tenant" in fields:
        fields = {"tenant": make_tenant("globex")}
    if "groups" in fields:
        fields = {}
        alice.groups.add(Group.objects.create(name="sales"))
        agent.allowed_groups.set(alice.groups.all())
    return client.as_(make_token(make_user("bob"), **fields))


@pytest.mark.parametrize("operation", sorted(ON_A_TASK.keys() - {"resume"}), indirect=True)
def test_a_refusal_does_not_tell_whether_there_is_a_task(token, task, stranger, operation):
    token().create_push(task["id"], id="mine", url=URL)
    theirs, nobodys = [refusal(lambda one=one: CALLS[operation](stranger, one)) for one in (task["id"], "0" * 36)]
    assert theirs.reason in ("UNAUTHENTICATED", "PERMISSION_DENIED", "TASK_NOT_FOUND")
    assert (theirs.status, theirs.response.headers) == (nobodys.status, nobodys.response.headers)
    assert theirs.response.body.replace(task["id"].encode(), b"0" * 36) == nobodys.response.body
    assert token().get(task["id"]) == task
    assert token().get_push(task["id"], "mine")["url"] == URL

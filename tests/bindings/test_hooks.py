"""The a2a-sdk's parameters as settings: what a site's own code may change of a call (DESIGN 2)."""

import pytest
from a2a.server.agent_execution import RequestContext, RequestContextBuilder
from a2a.server.id_generator import IDGenerator
from a2a.utils.errors import UnsupportedOperationError
from django.core.exceptions import PermissionDenied

from a2a_django.models import Task
from tests.clients import Error, message


def told(task):
    """What the Dump executor was told."""
    return task["artifacts"][0]["parts"][0]["data"]


def reason(call):
    with pytest.raises(Error) as error:
        call()
    return error.value.reason


# --- CONTEXT_BUILDER


def test_a_context_builder_adds_to_the_state(make_client, make_user, a2a):
    make_user("alice")
    client = make_client("Dump").as_("alice")

    def build(request, context):
        context.state["plan"] = {"name": f"gold for {context.user.user_name}"}
        context.state["connection"] = object()  # stays here: no JSON

    a2a(CONTEXT_BUILDER=build)
    assert told(client.task("x"))["state"] == {"plan": {"name": "gold for alice"}}


def test_a_context_builder_may_be_async(make_client, a2a):
    async def build(request, context):
        context.state["from"] = request.headers["X-From"]
        return context

    client = make_client("Dump").with_headers(X_From="here")
    a2a(CONTEXT_BUILDER=build)
    assert told(client.task("x"))["state"] == {"from": "here"}


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (PermissionDenied("not this one: secret"), "PERMISSION_DENIED"),
        (UnsupportedOperationError("the plan has no agents"), "UNSUPPORTED_OPERATION"),
        (RuntimeError("secret"), "INTERNAL_ERROR"),
    ],
)
def test_a_context_builder_may_refuse_before_anything_is_stored(client, a2a, raised, expected):
    def build(request, context):
        raise raised

    a2a(CONTEXT_BUILDER=build)
    for call in (client.send, client.stream, client.list, client.extended_card, lambda: client.subscribe("x")):
        assert reason(call) == expected
    assert not Task.objects.exists()


@pytest.mark.parametrize("tenant_in", ["path", "body"])
def test_a_context_builder_knows_the_tenant(client, a2a, make_tenant, tenant_in):
    """Also one that stands in the body: a builder that keeps callers out of a tenant must not be got round."""
    make_tenant("acme"), make_tenant("globex")

    def build(request, context):
        if context.tenant != "acme":
            raise PermissionDenied

    a2a(CONTEXT_BUILDER=build)
    assert client.within("acme", tenant_in=tenant_in).task()
    for call in (client.send, client.within("globex", tenant_in=tenant_in).send):
        assert reason(call) == "PERMISSION_DENIED"
    assert Task.objects.get().tenant.slug == "acme"


def test_what_a_context_builder_keeps_that_no_column_holds_stays_here(make_client, a2a):
    """CASES 18: a header is what a client likes."""

    def build(request, context):
        context.state |= {"nul": ["a\0"], "half": {"\ud800": 1}, "plain": "a\\u0000"}

    client = make_client("Dump")
    a2a(CONTEXT_BUILDER=build)
    assert told(client.task("x"))["state"] == {"plain": "a\\u0000"}


# --- OWNER_RESOLVER


def test_an_owner_resolver_makes_users_share(client, make_user, a2a):
    make_user("ann@example.com"), make_user("bob@example.com"), make_user("eve@evil.test")
    a2a(OWNER_RESOLVER=lambda context: context.user.user_name.partition("@")[2])
    ann, bob, eve = [client.as_(name) for name in ("ann@example.com", "bob@example.com", "eve@evil.test")]
    task = ann.task("task input:what?")

    assert bob.get(task["id"]) == task
    assert bob.list()["totalSize"] == 1
    assert reason(lambda: eve.get(task["id"])) == "TASK_NOT_FOUND"
    assert eve.list()["totalSize"] == 0
    assert Task.objects.get().user.username == "ann@example.com"


# --- ID_GENERATOR


class Numbers(IDGenerator):
    """`<prefix>-1`, `<prefix>-2` …"""

    def __init__(self, prefix="n"):
        self.prefix, self.last = prefix, 0

    def generate(self, context):
        self.last += 1
        return f"{self.prefix}-{self.last}"


@pytest.mark.parametrize("generator", [Numbers("own"), Numbers])
def test_an_id_generator_makes_task_and_context_ids(client, a2a, generator):
    a2a(ID_GENERATOR=generator)
    prefix = "own" if isinstance(generator, Numbers) else "n"
    start = getattr(generator, "last", 0)

    task = client.task()
    assert {task["id"], task["contextId"]} == {f"{prefix}-{start + 1}", f"{prefix}-{start + 2}"}
    assert client.get(task["id"]) == task


# --- REQUEST_CONTEXT_BUILDER


class Shouting(RequestContextBuilder):
    """The message in capitals."""

    async def build(self, context, params=None, task_id=None, context_id=None, task=None):
        params.message.parts[0].text = params.message.parts[0].text.upper()
        return RequestContext(context, params, task_id=task_id, context_id=context_id, task=task)


@pytest.mark.parametrize("builder", [Shouting, Shouting(), "tests.bindings.test_hooks.Shouting"])
def test_a_request_context_builder_makes_what_the_executor_gets(make_client, a2a, builder):
    a2a(REQUEST_CONTEXT_BUILDER=builder)
    client = make_client("Dump")
    task = client.task("hello")

    assert told(task)["message"]["parts"] == [{"text": "HELLO"}]
    assert client.get(task["id"])["history"][0]["parts"] == [{"text": "hello"}]


def test_a_request_context_builder_is_given_the_task_of_a_follow_up(client, a2a):
    task = client.task("task input:what?")
    a2a(REQUEST_CONTEXT_BUILDER="tests.bindings.test_hooks.Recording")
    client.follow(task, "completed")

    (given,) = Recording.given
    assert given["task"].id == given["task_id"] == task["id"]
    assert given["context_id"] == task["contextId"]
    Recording.given.clear()


class Recording(RequestContextBuilder):
    given = []

    async def build(self, context, params=None, task_id=None, context_id=None, task=None):
        self.given.append({"task": task, "task_id": task_id, "context_id": context_id})
        return RequestContext(context, params, task_id=task_id, context_id=context_id, task=task)


def test_a_request_context_builder_that_fails_is_an_error_of_the_server(client, a2a):
    a2a(REQUEST_CONTEXT_BUILDER="no.such.thing")
    assert reason(lambda: client.send(message("task completed"))) == "INTERNAL_ERROR"

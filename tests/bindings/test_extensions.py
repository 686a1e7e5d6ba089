"""Extensions: which a call must ask for, which take part, and how the answer tells (CASES 35; A2A 3.3.4, 4.6)."""

import logging

import pytest
from django.core.exceptions import PermissionDenied
from django.test import RequestFactory
from rest_framework.request import Request

from a2a_django.agents import dispatch
from a2a_django.bindings import caller as callers
from a2a_django.models import Agent, Task, Turn
from tests.clients import Error, kinds, message, state
from tests.clients_v0_3 import LEGACY

A, B, C = "https://example.com/ext/a/v1", "https://example.com/ext/b/v1", "urn:ext:c"
ALL = f"{C},{A} , {B}"

# Every operation but the public card's.
OPERATIONS = {
    "send": lambda client: client.send(),
    "stream": lambda client: client.stream().all(),
    "get": lambda client: client.get("x"),
    "list": lambda client: client.list(),
    "cancel": lambda client: client.cancel("x"),
    "subscribe": lambda client: client.subscribe("x"),
    "create_push": lambda client: client.create_push("x", url="https://hooks.example.com"),
    "get_push": lambda client: client.get_push("x", "mine"),
    "list_push": lambda client: client.list_push("x"),
    "delete_push": lambda client: client.delete_push("x", "mine"),
    "extended_card": lambda client: client.extended_card(),
}


@pytest.fixture
def offer(client):
    """offer(uri, …, required=False): the client's agent lists these extensions."""

    def add(*uris, required=False):
        for uri in uris:
            Agent.objects.get(slug=client.agent).extensions.create(uri=uri, required=required)
        return client

    return add


def asking(client, header):
    return client.with_headers(A2A_Extensions=header)


def sent(client, said="task completed", **configuration):
    """The extensions that a send's answer names, None without the header."""
    response = client.sending(said, **configuration).exchange.response()
    client.result(response)
    return response.headers.get("a2a-extensions")


def streamed(client, said="task completed"):
    """The same of a stream, which is read to its end."""
    stream = client.stream(said)
    assert stream.all()
    return stream.headers.get("a2a-extensions")


@pytest.fixture(params=[sent, streamed], ids=["send", "stream"])
def call(request):
    """call(client, words): what the header of the answer says, of a send or of a stream."""
    return request.param


def refusal(call):
    with pytest.raises(Error) as error:
        call()
    return error.value


# --- required extensions


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_needs_a_required_extension(offer, name, a2a):
    """CASES 35: 3.3.4 exempts none; nothing is stored, and the site's own code isn't asked."""
    client = offer(A, required=True)
    offer(B)

    def build(request, context):
        raise PermissionDenied

    a2a(CONTEXT_BUILDER=build)
    for one in (client, asking(client, B), asking(client, f"{B},{C}"), asking(client, f"{A}/")):
        error = refusal(lambda one=one: OPERATIONS[name](one))
        assert error.reason == "EXTENSION_SUPPORT_REQUIRED"
        expected = (200, -32008) if client.binding == "jsonrpc" else (400, "FAILED_PRECONDITION")
        assert (error.status, error.code) == expected
        assert error.metadata == {"requiredExtensions": A}
        assert A in error.message
    assert refusal(lambda: OPERATIONS[name](asking(client, A))).reason == "PERMISSION_DENIED"
    assert not Task.objects.exists()


@pytest.mark.parametrize("header", [A, f" {A} ", f"{A}, {B} ,{C}", f",{B},,{A},", f"{A},{A}"])
def test_a_header_that_asks_for_it(offer, header):
    """CASES 35: split and trimmed; what the agent doesn't have is ignored."""
    client = offer(A, required=True)
    assert state(asking(client, header).task()) == "COMPLETED"


def test_all_that_are_missing_are_named(offer):
    client = offer(B, A, C, required=True)
    assert refusal(asking(client, C).send).metadata == {"requiredExtensions": f"{A},{B}"}


def test_several_header_lines(offer):
    """CASES 35."""
    assert state(asking(offer(A, B, required=True), [A, f"{C}, {B}"]).task()) == "COMPLETED"


def test_the_public_card_can_be_read_without(offer):
    """It is where clients learn of them."""
    client = offer(A, required=True)
    card = client.site.get(f"{client.url}/.well-known/agent-card.json").json()
    assert card["capabilities"]["extensions"] == [{"uri": A, "required": True}]


def test_what_staff_change_holds_for_the_next_call(offer):
    client = offer(A)
    extensions = Agent.objects.get().extensions
    client.task()
    extensions.update(required=True)
    assert refusal(client.send).reason == "EXTENSION_SUPPORT_REQUIRED"
    extensions.update(uri=B)
    assert refusal(asking(client, A).send).reason == "EXTENSION_SUPPORT_REQUIRED"
    extensions.all().delete()
    client.task()


def test_one_that_is_listed_twice_is_required_if_it_is_once(offer):
    client = offer(A, required=True)
    offer(A)
    assert refusal(client.send).reason == "EXTENSION_SUPPORT_REQUIRED"
    assert Agent.objects.get().offers == {A: True}


def test_an_agent_comes_with_its_extensions_in_one_statement(offer, django_assert_num_queries):
    """No call pays for extensions, whether there are any or not."""
    client = offer()
    for expected in ({}, {A: False, B: False}):
        with django_assert_num_queries(1):
            found = callers.agent(client.agent)
            assert found.offers == expected
        assert found == Agent.objects.get()
        assert vars(found).keys() >= {field.attname for field in Agent._meta.concrete_fields}
        offer(A, B)


def test_credentials_come_first(make_client):
    client = make_client(anonymous_access="denied")
    Agent.objects.get().extensions.create(uri=A, required=True)
    assert refusal(client.send).reason == "UNAUTHENTICATED"


# --- what the executor is told


def test_the_executor_is_told_what_was_asked_for(make_client):
    """All of it, also what the agent doesn't list: so does the SDK."""
    task = asking(make_client("Dump"), ALL).task("x")
    assert task["artifacts"][0]["parts"][0]["data"]["extensions"] == sorted([A, B, C])


def test_the_header_of_0_3_counts_for_0_3_alone(offer):
    """CASES 35."""
    client = offer(A, required=True).with_headers(X_A2A_Extensions=A)
    assert refusal(client.send).reason == "EXTENSION_SUPPORT_REQUIRED"

    request = Request(RequestFactory().get("/", headers={"X-A2A-Extensions": A, "A2A-Extensions": B}))
    assert callers._extensions(request, "1.0") == {B}
    assert callers._extensions(request, "0.3") == {A, B}


def test_clients_of_0_3_ask_and_are_told_by_both_headers(offer):
    """CASES 35."""
    client = offer(A, required=True)
    Agent.objects.update(is_default=True)  # which is the one that 0.3 knows over gRPC
    legacy = LEGACY[client.binding](client.site)
    refused = refusal(legacy.send)
    assert (refused.status, A in refused.message) == (200 if client.binding == "jsonrpc" else 400, True)
    for header in ("A2A-Extensions", "X-A2A-Extensions"):
        one = legacy.with_headers(**{header: f"{A}, {C}"})
        response = one.sending(f"activate:{A} task completed").exchange.response()
        assert one.result(response)["task"]
        stream = one.stream(f"activate:{A} task completed")
        assert kinds(stream.all()) == ["task", "COMPLETED"]
        for headers in (response.headers, stream.headers):
            assert headers["a2a-extensions"] == headers["x-a2a-extensions"] == A


# --- activation


def test_the_answer_names_what_was_activated(offer, call):
    client = offer(B, A, C)
    assert call(asking(client, ALL), f"activate:{C} activate:{A} task completed") == f"{A},{C}"
    assert Turn.objects.get().activated == [A, C]


@pytest.mark.parametrize("header", [None, C, f"{A}/"])
def test_what_was_not_asked_for_is_not_activated(offer, call, header, caplog):
    client = asking(offer(A), header)
    assert call(client, f"activate:{A} task completed") is None
    assert Turn.objects.get().activated == []
    assert_warned(caplog, A, "Executor “tests.executors.Script”")


def assert_warned(caplog, uri, who):
    (record,) = [one for one in caplog.records if one.name == "a2a_django.agents.activation"]
    assert record.levelno == logging.WARNING
    assert uri in record.getMessage()
    assert who in record.getMessage()


def test_what_the_agent_does_not_list_is_not_activated(offer, call, caplog):
    client = asking(offer(A), f"{A},{C}")
    assert call(client, f"activate:{C} activate:{A} task completed") == A
    assert_warned(caplog, C, "Executor “tests.executors.Script”")


@pytest.mark.parametrize("given", [f"{A},{A}", A])
def test_any_collection_and_a_single_one_will_do(offer, given):
    assert sent(asking(offer(A), A), f"activated:{given} task completed") == A


def test_nonsense_is_ignored(offer, caplog):
    assert sent(asking(offer(A), A), "activated:5 task completed") is None
    assert_warned(caplog, "'5'", "Script")


def test_nothing_activated_is_no_header(offer, call):
    assert call(asking(offer(A), A)) is None


def test_a_message_tells_it_too(offer, call):
    assert call(asking(offer(A), A), f"activate:{A} message:hello") == A


def test_an_error_tells_nothing(offer, call):
    error = refusal(lambda: call(asking(offer(A), A), f"activate:{A} raise"))
    assert error.reason == "INTERNAL_ERROR"
    assert "a2a-extensions" not in error.response.headers


def test_a_later_one_is_in_the_answer_that_comes_later(offer, gate):
    """A unary answer waits for all; the header of a stream is sent with the first event."""
    client = asking(offer(A, B), ALL)
    assert sent(client, f"activate:{A} task activate:{B} completed") == f"{A},{B}"

    stream = client.stream(f"activate:{A} task wait:b activate:{B} working completed")
    assert stream.headers["a2a-extensions"] == A
    gate("b").open()
    stream.all()
    assert Turn.objects.latest("pk").activated == [A, B]


def test_return_immediately(offer, gate, a2a):
    client = asking(offer(A, B), ALL)
    assert sent(client, f"activate:{A} task wait:a completed", returnImmediately=True) == A
    a2a(IMMEDIATE_WAIT=0.01)
    assert sent(client, f"wait:a activate:{B} task completed", returnImmediately=True) is None


def test_a_follow_up_tells_its_own(offer, call):
    """Also where the stream has something to say before the executor has."""
    client = asking(offer(A, B), ALL)
    task = client.task(f"activate:{A} task input:what?")
    assert call(client, message(f"activate:{B} working input:more?", taskId=task["id"])) == B
    assert call(client, message("completed", taskId=task["id"])) is None


@pytest.mark.http
def test_a_follow_up_that_has_to_wait_for_its_turn(offer, gate):
    client = asking(offer(A, B), ALL)
    first = client.stream(f"activate:{A} task wait:a working input:what?")
    task = next(first).data["task"]
    second = client.call(*_streaming(client, message(f"activate:{B} completed", taskId=task["id"])))
    gate("a").open()
    status, headers = second.start()
    assert (status, headers["a2a-extensions"]) == (200, B)
    assert kinds(first.all()) == ["WORKING", "INPUT_REQUIRED"]


def _streaming(client, said):
    body = {"message": said}
    return ("POST", "/message:stream", body) if client.binding == "rest" else ("SendStreamingMessage", body)


@pytest.mark.http
def test_a_silent_stream_does_not_wait_for_ever(offer, gate, a2a):
    client = asking(offer(A), A)
    a2a(HEARTBEAT_SECONDS=0.02)
    stream = client.stream(f"wait:a activate:{A} task completed")
    assert "a2a-extensions" not in stream.headers
    gate("a").open()
    assert kinds(stream.all()) == ["task", "COMPLETED"]


def test_subscriptions_have_no_turn_to_tell_of(offer, gate):
    client = asking(offer(A), A)
    first = client.stream(f"activate:{A} task wait:a completed")
    subscription = client.subscribe(next(first).data["task"]["id"])
    assert "a2a-extensions" not in subscription.headers
    gate("a").open()
    assert kinds(subscription.all()) == ["task", "COMPLETED"]


def test_a_worker_activates_and_the_web_process_tells(offer, a2a, eventually):
    """With Celery both know the Turn alone."""
    client = asking(offer(A, B), f"{A},{B}")
    a2a(EXECUTION="celery")
    dispatch._broker_failed = float("inf")  # no broker is asked
    try:
        waiting = client.sending(f"activate:{B} activate:{C} task completed")
        turn = eventually(Turn.objects.filter(state="queued").first)
    finally:
        dispatch._broker_failed = -dispatch.BROKER_REST
    dispatch.run_turn(turn.pk)

    response = waiting.exchange.response()
    assert state(client.result(response)["task"]) == "COMPLETED"
    assert response.headers["a2a-extensions"] == B


# --- CONTEXT_BUILDER


def activates(*uris):
    def build(request, context):
        context.state["a2a_activated_extensions"] = {uri for uri in uris if uri in context.requested_extensions}

    return build


def test_a_context_builder_activates(offer, call, a2a):
    client = offer(A, B)
    a2a(CONTEXT_BUILDER=activates(A, B))
    assert call(client) is None
    assert call(asking(client, B)) == B
    assert Turn.objects.latest("pk").activated == [B]
    assert call(asking(client, ALL), f"activate:{B} task completed") == f"{A},{B}"


def test_what_a_context_builder_activates_for_other_operations(offer, a2a):
    client = asking(offer(A), A)
    a2a(CONTEXT_BUILDER=activates(A))
    subscription = client.subscribe(client.task("task input:what?")["id"])
    assert subscription.headers["a2a-extensions"] == A
    subscription.close()


def test_a_context_builder_can_activate_only_what_may_take_part(offer, a2a, caplog):
    client = asking(offer(A), f"{A},{C}")
    a2a(CONTEXT_BUILDER=activates(A, C))
    assert sent(client) == A
    assert_warned(caplog, C, "A2A['CONTEXT_BUILDER']")


def test_the_executor_sees_what_the_context_builder_has_activated(make_client, a2a):
    client = asking(make_client("Dump"), A)
    Agent.objects.get().extensions.create(uri=A)
    a2a(CONTEXT_BUILDER=activates(A))
    dump = client.task("x")["artifacts"][0]["parts"][0]["data"]
    assert dump["state"] == {"a2a_activated_extensions": [A]}

"""What is JSON-RPC's alone: envelopes and ids (CASES 29, 32)."""

import json

import pytest

from a2a_django.models import Task
from tests.clients import JsonRpc, message, state


@pytest.fixture
def rpc(site, make_agent):
    """rpc(envelope, **headers): the response to this JSON value."""
    client = JsonRpc(site, make_agent(executor="tests.executors.Script").slug)

    def call(envelope, **headers):
        return client.with_headers(**headers).post_raw(json.dumps(envelope).encode())

    return call


def envelope(method="SendMessage", **fields):
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"message": message()}} | fields


@pytest.mark.parametrize(
    "identifier", ["x", "", "ü\u2028", "a\0b", "5", "x" * 1000, 0, -7, 2**60, 10**307, -(10**306), None]
)
def test_the_id_comes_back_as_it_was(rpc, identifier):
    """CASES 29."""
    for call in (envelope(id=identifier), envelope("GetTask", id=identifier, params={"id": "x"})):
        data = rpc(call).json()
        assert (data["id"], type(data["id"])) == (identifier, type(identifier))
        assert ("result" in data) != ("error" in data)


@pytest.mark.parametrize("identifier", [1.5, 1.0, True, False, {}, [], "\ud800", "x" * 1001, float("nan"), 10**309])
def test_ids_that_are_none(rpc, identifier):
    """CASES 29; an id goes out with every event of a stream, so it has an end."""
    for call in (envelope(id=identifier), envelope("SendStreamingMessage", id=identifier), {"id": identifier}):
        data = rpc(call).json()
        assert (data["id"], data["error"]["code"]) == (None, -32600)
    assert not Task.objects.exists()


@pytest.mark.parametrize("fields", [{"jsonrpc": "1.0"}, {"method": 5}, {"method": "\ud800"}, {"params": 5}])
def test_an_error_has_the_id_where_it_could_be_told(rpc, fields):
    """JSON-RPC 2.0, 5: null only if there was an error in detecting it."""
    assert rpc(envelope(id="told") | fields).json()["id"] == "told"


def test_strict_input_is_answered_with_the_id(rpc):
    """CASES 16, 18: these are faults of the params, not of the envelope."""
    for said in ({"parts": [{"data": float("nan")}]}, {"parts": [{"text": "\ud800"}]}, {"parts": [{"text": "\0"}]}):
        data = rpc(envelope(id="told", params={"message": message(**said)})).json()
        assert (data["id"], data["error"]["code"]) == ("told", -32602)
        assert data["error"]["data"][1]["fieldViolations"][0]["field"].startswith("message.parts[0].")


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"method": "NoSuch"},
        {"method": "message/send"},
        {"params": None},
        {"params": []},
        {"params": {"message": {"parts": float("nan")}}},
        {"params": {"tenant": "nobody"}},
    ],
)
@pytest.mark.parametrize("version", ["1.0", "99.0", None])
def test_a_notification_is_not_executed(rpc, fields, version):
    """DESIGN 6: dropped before any other check."""
    call = envelope() | fields
    del call["id"]
    response = rpc(call, A2A_Version=version)
    assert (response.status, response.body) == (204, b"")
    assert not Task.objects.exists()


@pytest.mark.parametrize(
    "raw",
    [
        b'{"jsonrpc":"2.0","id":1,"id":2,"method":"ListTasks"}',
        b'{"jsonrpc":"2.0","id":1,"method":"ListTasks","method":"SendMessage"}',
    ],
)
def test_an_envelope_with_a_key_twice(site, make_agent, raw):
    data = JsonRpc(site, make_agent().slug).post_raw(raw).json()
    assert (data["id"], data["error"]["code"]) == (None, -32600)


@pytest.mark.parametrize("raw", [b"", b"{", b'{"jsonrpc":"2.0"', b"\xff", b"\xef\xbb\xbf{}", b"[" * 100_000, b"nul"])
def test_what_is_no_json(site, make_agent, raw):
    response = JsonRpc(site, make_agent().slug).post_raw(raw)
    data = response.json()
    assert (response.status, data["id"], data["error"]["code"]) == (200, None, -32700)
    assert data["error"]["message"] == "Invalid JSON payload"


@pytest.mark.parametrize(
    "call",
    [
        [],
        [envelope()],
        [envelope(), envelope("GetTask")],
        [1, 2],
        1,
        "x",
        None,
        {},
        envelope(jsonrpc="1.0"),
        envelope(jsonrpc=2.0),
        envelope(method=None),
        envelope(method=5),
    ],
)
def test_envelopes_that_are_none(rpc, call):
    response = rpc(call)
    data = response.json()
    assert (response.status, data["error"]["code"]) == (200, -32600)
    assert not Task.objects.exists()


@pytest.mark.parametrize("params", [[], "x", 5, True])
def test_params_that_are_no_object(rpc, params):
    error = rpc(envelope(params=params)).json()["error"]
    assert error["code"] == -32602
    assert error["data"][1]["fieldViolations"] == [{"field": "params", "description": "must be an object"}]


@pytest.mark.parametrize("params", [None, {}])
def test_params_may_be_missing_where_nothing_is_required(rpc, params):
    assert rpc(envelope("ListTasks", params=params)).json()["result"]["tasks"] == []


@pytest.mark.parametrize(
    "method", ["message/sent", "tasks/list", "sendMessage", "SendMessage ", "__class__", "", "x" * 100_000]
)
def test_unknown_methods(rpc, method):
    """Everything but the eleven of 1.0 and the ten of 0.3 (CASES 32)."""
    error = rpc(envelope(method)).json()["error"]
    assert error["code"] == -32601
    assert error["data"][0]["reason"] == "METHOD_NOT_FOUND"
    assert len(error["data"][0]["metadata"]["method"]) <= 100


@pytest.mark.parametrize(
    "method",
    ["message/send", "tasks/resubscribe", "tasks/pushNotificationConfig/set", "agent/getAuthenticatedExtendedCard"],
)
@pytest.mark.parametrize("version", [None, "0.3"])
def test_v0_3_calls_where_it_is_off(rpc, a2a, method, version):
    """CASES 32: no version means 0.3 (A2A 3.6.2)."""
    a2a(ENABLE_V0_3=False)
    part = {"kind": "text", "text": "hi"}
    said = {"kind": "message", "messageId": "m", "role": "user", "parts": [part]}
    params = {"message": said, "configuration": {"blocking": True}}
    error = rpc(envelope(method, params=params), A2A_Version=version).json()["error"]

    assert error["code"] == -32009
    assert error["data"][0]["metadata"] == {"supportedVersions": "1.0"}
    assert not Task.objects.exists()


def test_an_error_keeps_the_standard_message(rpc):
    """A2A 9.5."""
    error = rpc(envelope(params={})).json()["error"]
    assert error["message"] == "Invalid parameters"
    assert error["data"][1]["fieldViolations"] == [{"field": "message", "description": "is required"}]


def test_streams_are_answers_to_their_id(rpc):
    client_call = envelope("SendStreamingMessage", id="s")
    body = rpc(client_call).body.decode()
    answers = [json.loads(line.removeprefix("data: ")) for line in body.split("\n") if line.startswith("data: ")]

    assert [answer["id"] for answer in answers] == ["s", "s"]
    assert state(answers[1]["result"]["statusUpdate"]) == "COMPLETED"

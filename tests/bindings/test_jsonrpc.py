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


@pytest.mark.parametrize("identifier", ["x", "", "ü\u2028", 0, -7, 2**60, None])
def test_the_id_comes_back_as_it_was(rpc, identifier):
    """CASES 29."""
    for call in (envelope(id=identifier), envelope("GetTask", id=identifier, params={"id": "x"})):
        data = rpc(call).json()
        assert (data["id"], type(data["id"])) == (identifier, type(identifier))
        assert ("result" in data) != ("error" in data)


@pytest.mark.parametrize("identifier", [1.5, True, {}, []])
def test_ids_that_are_none(rpc, identifier):
    """CASES 29."""
    data = rpc(envelope(id=identifier)).json()
    assert (data["id"], data["error"]["code"]) == (None, -32600)
    assert not Task.objects.exists()


@pytest.mark.parametrize("method", ["SendMessage", "NoSuch"])
def test_a_notification_is_not_executed(rpc, method):
    """DESIGN 6."""
    call = envelope(method)
    del call["id"]
    response = rpc(call)
    assert (response.status, response.body) == (204, b"")
    assert not Task.objects.exists()


@pytest.mark.parametrize(
    "call",
    [
        [],
        [envelope()],
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
    assert rpc(envelope(params=params)).json()["error"]["code"] == -32602


@pytest.mark.parametrize("params", [None, {}])
def test_params_may_be_missing_where_nothing_is_required(rpc, params):
    assert rpc(envelope("ListTasks", params=params)).json()["result"]["tasks"] == []


@pytest.mark.parametrize("method", ["message/sent", "tasks/list", "sendMessage", "SendMessage ", "__class__", ""])
def test_unknown_methods(rpc, method):
    error = rpc(envelope(method)).json()["error"]
    assert error["code"] == -32601
    assert error["data"][0]["reason"] == "METHOD_NOT_FOUND"


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

"""Whatever is sent, to whichever path: no 5xx, no redirect, no traceback, and every error in its binding's shape."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from a2a_django.bindings.jsonrpc import METHODS
from a2a_django.models import PushConfig, Task
from tests import strategies
from tests.clients_v0_3 import HEADERS as LEGACY_HEADERS
from tests.strategies import examples

pytestmark = pytest.mark.http

PATHS = [
    "/message:send", "/message:stream", "/tasks", "/tasks/{}", "/tasks/{}:cancel", "/tasks/{}:subscribe",
    "/tasks/{}/pushNotificationConfigs", "/tasks/{}/pushNotificationConfigs/{}", "/extendedAgentCard",
    "/v1/message:send", "/v1/message:stream", "/v1/tasks/{}", "/v1/tasks/{}:cancel", "/v1/tasks/{}:subscribe",
    "/v1/tasks/{}/pushNotificationConfigs", "/v1/tasks/{}/pushNotificationConfigs/{}", "/v1/card",
    "/agent/authenticatedExtendedCard", "/.well-known/agent-card.json", "", "/", "/{}", "/{}/{}", "//", "/tasks/",
]  # fmt: skip
VERBS = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "FOO"]
SEGMENT = st.sampled_from(
    ["", ".", "..", "x", "v1", "tasks", ":", "x:cancel", "%", "%00", "\0", "é", "a b", "x" * 3000]
)
QUERY = st.dictionaries(
    st.sampled_from(["pageSize", "historyLength", "status", "contextId", "tenant", "A2A-Version", "format", "x", "\0"]),
    st.sampled_from(["", "1", "-1", "1e9", "abc", "%00", "%FF", "é", "%ED%A0%80", "TASK_STATE_WORKING", "acme", "1.0"]),
    max_size=3,
)
HEADER = st.text(st.characters(min_codepoint=32, max_codepoint=255), max_size=20) | st.sampled_from(
    [
        "1.0",
        "0.3",
        "1.0, 0.3",
        "application/json",
        "text/plain",
        "multipart/form-data; boundary=x",
        "*/*",
        "Basic !!!",
        "Bearer ÿ",
        "urn:a, urn:b",
        "5",
        "-1",
        "9" * 400,
        "acme",
        "a,b",
        "gzip",
        "chunked",
        "text/html; charset=x",
    ]
)
NAMES = ["A2A-Version", "A2A-Extensions", "Content-Type", "Accept", "Authorization", "Last-Event-ID", "X-A2A-Tenant"]
NAMES += ["Cookie", "Origin", "X-CSRFToken", "Accept-Encoding", "Accept-Language", "If-None-Match", "X-Forwarded-Host"]
STRANGE_HEADERS = st.dictionaries(st.sampled_from(NAMES), HEADER, max_size=4)
LEGACY_SEND = {
    "message": {
        "kind": "message",
        "messageId": "m",
        "role": "user",
        "parts": [{"kind": "text", "text": "hi"}, {"kind": "file", "file": {"bytes": "aGk=", "mimeType": "a/b"}}],
        "metadata": {"a": [1, {"b": None}]},
    },
    "configuration": {"blocking": True, "pushNotificationConfig": {"url": "https://x.example/"}},
}
LEGACY_REST_SEND = {
    "message": {"messageId": "m", "role": "ROLE_USER", "content": [{"text": "hi"}, {"data": {"data": {"a": 1}}}]},
    "configuration": {"blocking": True, "pushNotification": {"url": "https://x.example/"}},
}
PARAMS = [
    {"id": "x", "historyLength": 5},
    {"pageSize": 5, "status": "TASK_STATE_WORKING", "statusTimestampAfter": "2026-01-31T12:00:00Z", "contextId": "c"},
    {"taskId": "x", "id": "y", "url": "https://x.example/", "authentication": {"scheme": "Bearer", "credentials": "c"}},
    {"id": "x", "pushNotificationConfigId": "y", "metadata": {"a": 1}},
    {"taskId": "x", "pushNotificationConfig": {"url": "https://x.example/", "authentication": {"schemes": ["a"]}}},
    LEGACY_SEND,
]


@pytest.fixture
def talker(make_client):
    """A client of an agent that repeats what it is told."""
    return make_client("Echo")


@pytest.fixture
def proper():
    """proper(response): whether it is an answer, or else a refusal as it should be, with which nothing was stored."""
    counted = [0]

    def check(response):
        assert response.status not in range(300, 400)
        assert response.status < 500, response
        assert b"Traceback" not in response.body
        assert b"<html" not in response.body
        refused = response.status >= 400
        kind = response.headers.get("content-type", "")
        if kind.startswith("text/event-stream"):
            refused = b"event: error" in response.body
        elif response.body:
            assert kind in ("application/json", "application/a2a+json")
            refused = _refused(response.status, json.loads(response.body))
        stored = Task.objects.count() + PushConfig.objects.count()
        assert not refused or stored == counted[0]
        counted[0] = stored
        return not refused

    return check


def _refused(status, data):
    """Whether this is an error; if it is, it has the shape of its binding's."""
    if "error" not in data:
        assert status == 200
        return False
    error = data["error"]
    if "jsonrpc" in data:
        assert data["jsonrpc"] == "2.0"
        assert isinstance(error["code"], int)
        assert error["code"] not in (-32603, -32006), data
        details = error["data"]
    else:
        assert (error["code"], isinstance(error["status"], str)) == (status, True)
        details = error["details"]
    assert error["message"]
    assert details[0]["@type"].endswith("google.rpc.ErrorInfo")
    assert details[0]["domain"] == "a2a-protocol.org"
    assert details[0]["reason"] != "INVALID_PARAMS" or details[1]["fieldViolations"], data
    return True


def _both_seen(number, strategy, act):
    """Tries `act` with so many examples; some of them are fine and some aren't."""
    seen = set()

    @examples(number)
    @given(strategy)
    def check(example):
        seen.add(act(example))

    check()
    assert seen == {True, False}


@pytest.mark.parametrize("streaming", [False, True])
def test_sends_with_something_wrong(talker, proper, streaming):
    if talker.binding == "rest":
        bodies = strategies.SEND.flatmap(strategies.spoiled)
    else:
        method = "SendStreamingMessage" if streaming else "SendMessage"
        bodies = strategies.SEND.flatmap(
            lambda send: strategies.spoiled({"jsonrpc": "2.0", "id": 1, "method": method, "params": send})
        )
    _both_seen(250, bodies, lambda raw: proper(talker.post_raw(raw, streaming=streaming)))


def test_sends_of_any_bytes(talker, proper):
    request = json.loads(
        talker.send_body({"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": ""}]}})
    )
    bodies = strategies.broken(request) | st.binary(max_size=50)
    _both_seen(250, bodies, lambda raw: proper(talker.post_raw(raw)))


@pytest.mark.parametrize("binding", ["jsonrpc"], indirect=True)
def test_every_method_of_json_rpc(talker, proper):
    @examples(400)
    @given(
        st.sampled_from(sorted(METHODS)).flatmap(
            lambda method: st.sampled_from(PARAMS).flatmap(
                lambda params: strategies.spoiled({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
            )
        ),
        st.sampled_from([None, "1.0", "0.3"]),
    )
    def check(raw, version):
        proper(talker.post_raw(raw, {"A2A-Version": version}))

    check()


@pytest.mark.parametrize("binding", ["rest"], indirect=True)
def test_every_path_of_rest(talker, proper):
    bodies = st.sampled_from([*PARAMS, LEGACY_REST_SEND]).flatmap(strategies.spoiled) | st.just(b"")

    @examples(500)
    @given(st.sampled_from(PATHS), SEGMENT, SEGMENT, st.sampled_from(VERBS), QUERY, bodies, st.booleans())
    def check(path, first, second, verb, query, body, legacy):
        url = talker.url + path.replace("{}", first, 1).replace("{}", second, 1)
        url = url.replace("?", "") + "?" + "&".join(f"{name}={value}" for name, value in query.items())
        headers = LEGACY_HEADERS if legacy else talker.headers
        response = talker.site.request(verb, url, body if verb in ("POST", "PUT", "PATCH") else b"", headers)
        if not path.endswith("agent-card.json"):
            proper(response)
        assert response.status < 500

    check()


@pytest.mark.parametrize("binding", ["rest"], indirect=True)
def test_sends_of_0_3_over_rest(talker, proper):
    url = f"{talker.url}/v1/message:send"
    bodies = st.just(LEGACY_REST_SEND).flatmap(strategies.spoiled)
    _both_seen(250, bodies, lambda raw: proper(talker.site.request("POST", url, raw, LEGACY_HEADERS)))


@pytest.mark.parametrize("binding", ["jsonrpc"], indirect=True)
def test_sends_of_0_3_over_json_rpc(talker, proper):
    call = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": LEGACY_SEND}
    bodies = st.just(call).flatmap(strategies.spoiled)
    _both_seen(250, bodies, lambda raw: proper(talker.site.request("POST", talker.url, raw, LEGACY_HEADERS)))


def test_any_headers(talker, proper):
    body = talker.send_body({"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}})

    @examples(300)
    @given(STRANGE_HEADERS)
    def check(headers):
        proper(talker.post_raw(body, headers))

    check()

"""Clients of A2A 0.3 (CASES 32, 33)."""

import json
import logging

import pytest
from a2a.compat.v0_3 import types
from a2a.types import AgentCard
from google.protobuf.json_format import ParseDict

from a2a_django.bindings import cards
from a2a_django.models import Agent, AgentSkill, PushConfig, Task
from tests.clients import Error, artifact, folded, kinds, message, state, words
from tests.clients_v0_3 import LEGACY

CARD = "/a2a/test/.well-known/agent-card.json"


@pytest.fixture
def legacy(client):
    """A client of 0.3 by the same binding; over gRPC it knows the default agent only."""
    Agent.objects.update(is_default=True)
    return LEGACY[client.binding](client.site, client.agent)


@pytest.fixture
def rpc(site, make_agent):
    """rpc(method, params, **headers): the response to a JSON-RPC call as a client of 0.3 makes it."""
    make_agent(executor="tests.executors.Script")

    def call(method, params=None, **headers):
        body = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params or {}}
        headers = {"Content-Type": "application/json"} | {name.replace("_", "-"): it for name, it in headers.items()}
        return site.request("POST", "/a2a/test", json.dumps(body).encode(), headers)

    return call


def said(text, **fields):
    part = {"kind": "text", "text": text}
    return {"message": {"kind": "message", "messageId": "m", "role": "user", "parts": [part], **fields}}


# --- the operations


def test_a_task(legacy):
    task = legacy.task("task working artifact:a:hello completed:done")
    assert (state(task), artifact(task)) == ("COMPLETED", "hello")
    assert words(task)[0] == "task working artifact:a:hello completed:done"
    assert legacy.get(task["id"]) == task


def test_a_message(legacy):
    answer = legacy.send("message:hello")["message"]
    assert answer["parts"] == [{"text": "hello"}]
    assert answer["role"] == "ROLE_AGENT"


def test_every_kind_of_part(legacy):
    parts = [
        {"text": "a", "metadata": {"b": [1, None]}},
        {"data": {"n": 5}},
        {"data": [1, "x"]},
        {"raw": "AP8=", "mediaType": "image/png", "filename": "a.png"},
        {"url": "https://example.com/a.txt", "mediaType": "text/plain"},
    ]
    task = legacy.task(message(parts=[{"text": "task completed"}, *parts]))
    stored = Task.objects.get().messages.first()
    got = json.loads(stored.body)["parts"][1:]
    assert got[0] == parts[0]
    assert got[3:] == parts[3:]
    assert state(task) == "COMPLETED"


def test_a_stream(client, legacy):
    events = legacy.stream("task working chunks:3 completed").all()
    assert kinds(events) == ["task", "WORKING", *["artifactUpdate"] * 3, "COMPLETED"]
    assert client.get(events[0]["task"]["id"])["artifacts"] == folded(events)["artifacts"]


def test_follow_ups_and_versions_mix(client, legacy):
    task = legacy.task("task input:what?")
    assert state(task) == "INPUT_REQUIRED"
    assert state(client.follow(task, "input:and?")) == "INPUT_REQUIRED"
    done = legacy.follow(task, "completed")
    assert state(done) == "COMPLETED"
    assert {"task input:what?", "input:and?", "completed"} <= set(words(done))


def test_streams_end_at_interrupted_states(legacy, gate):
    """DESIGN 5 keeps a 1.0 stream open at AUTH_REQUIRED; in 0.3 the event is final."""
    stream = legacy.stream("task auth:log-in wait:a completed")
    assert kinds(stream.all()) == ["task", "AUTH_REQUIRED"]
    gate("a").open()


def test_resubscribe(legacy, gate):
    task = legacy.task("task working wait:a completed", returnImmediately=True)
    gate("a").reached()
    stream = legacy.subscribe(task["id"])
    assert state(next(stream).data["task"]) == "WORKING"
    gate("a").open()
    assert kinds(stream.all()) == ["COMPLETED"]


@pytest.mark.parametrize("text", ["task completed", "task input:what?"])
def test_resubscribe_to_a_task_that_has_stopped_returns_it(legacy, text):
    task = legacy.task(text)
    assert [event["task"] for event in legacy.subscribe(task["id"]).all()] == [task]


@pytest.mark.http
def test_resume(legacy):
    stream = legacy.stream("task working chunks:3 completed")
    first, second, *_ = list(stream)
    rest = list(legacy.subscribe(first.data["task"]["id"], last=second.id))
    assert [event.id for event in rest] == [3, 4, 5, 6]


def test_cancel(legacy):
    task = legacy.task("task input:what?")
    assert state(legacy.cancel(task["id"])) == "CANCELED"
    with pytest.raises(Error) as error:
        legacy.cancel(task["id"])
    assert error.value.reason == "TASK_NOT_CANCELABLE"


def test_push_configs(client, legacy):
    """A config remembers the version that made it."""
    task = client.task("task input:what?")
    theirs = client.create_push(task["id"], url="https://a.example.com/", id="new")
    made = legacy.create_push(task["id"], url="https://b.example.com/", token="t", id="old")
    assert made == legacy.get_push(task["id"], "old")
    assert {one["id"] for one in legacy.list_push(task["id"])["configs"]} == {"old", "new"}
    assert dict(PushConfig.objects.values_list("config_id", "version")) == {"old": "0.3", "new": "1.0"}
    legacy.delete_push(task["id"], "old")
    assert client.list_push(task["id"])["configs"] == [theirs]


def test_a_push_config_inside_a_send(legacy):
    legacy.task("task completed", taskPushNotificationConfig={"url": "https://b.example.com/"})
    assert PushConfig.objects.get().version == "0.3"


def test_history_length_0_meant_all(legacy):
    task = legacy.task("task working:a working:b completed")
    assert len(legacy.get(task["id"])["history"]) > 1
    if legacy.binding != "jsonrpc":
        assert legacy.get(task["id"], historyLength=0) == task
        assert len(legacy.get(task["id"], historyLength=1)["history"]) == 1


@pytest.mark.parametrize("version", [None, "0.3", "0.3.0"])
def test_version_headers(legacy, version):
    assert state(legacy.with_headers(A2A_Version=version).task()) == "COMPLETED"


def test_the_other_version_is_refused(client, legacy):
    for one in (client.with_headers(A2A_Version="0.3"), legacy.with_headers(A2A_Version="1.0")):
        for call in (one.send, one.stream, lambda one=one: one.get("x")):
            with pytest.raises(Error) as error:
                call()
            assert error.value.reason == "VERSION_NOT_SUPPORTED"
            assert error.value.metadata == {"supportedVersions": "1.0, 0.3"}
    assert not Task.objects.exists()


def test_errors(legacy):
    with pytest.raises(Error) as error:
        legacy.get("nobody")
    assert error.value.reason == "TASK_NOT_FOUND"
    assert error.value.code in ("NOT_FOUND", -32001)


@pytest.mark.http
def test_failures_of_executors(make_client, legacy):
    make_client("BoomFirst", slug="bad")
    with pytest.raises(Error) as error:
        legacy.copy(agent="bad").send("x")
    assert error.value.reason == "INTERNAL_ERROR"


@pytest.mark.http
def test_tenants(legacy, make_tenant):
    make_tenant("acme")
    legacy = legacy.within("acme")
    task = legacy.task("task completed")
    assert legacy.get(task["id"]) == task
    assert Task.objects.get().tenant.slug == "acme"


# --- on the wire


def test_json_rpc_shapes(rpc):
    """CASES 32: kinds, lower-case states."""
    answer = rpc("message/send", said("task artifact:a:b completed:ok") | {"configuration": {"blocking": True}}).json()
    assert answer.keys() == {"jsonrpc", "id", "result"}
    assert answer["id"] == 7
    task = types.Task.model_validate(answer["result"])
    assert (task.kind, task.status.state) == ("task", "completed")
    assert answer["result"]["status"]["timestamp"].endswith("Z")
    assert answer["result"]["history"][0]["parts"] == [{"kind": "text", "text": "task artifact:a:b completed:ok"}]
    assert answer["result"]["artifacts"][0]["artifactId"] == "a"


def test_json_rpc_streams(rpc):
    """CASES 32: `final` on the last event, also at an interrupted state."""
    for text, last in (("task working completed", "completed"), ("task working input:what?", "input-required")):
        body = rpc("message/stream", said(text)).body.decode()
        events = [json.loads(line[6:])["result"] for line in body.splitlines() if line.startswith("data: ")]
        assert [event["kind"] for event in events] == ["task", "status-update", "status-update"]
        assert [event.get("final") for event in events] == [None, False, True]
        assert events[-1]["status"]["state"] == last


def test_json_rpc_not_blocking(rpc, gate):
    answer = rpc("message/send", said("task wait:a completed") | {"configuration": {"blocking": False}}).json()
    assert answer["result"]["status"]["state"] == "submitted"
    gate("a").open()


def test_a_push_config_without_its_id(rpc):
    task = rpc("message/send", said("task input:what?")).json()["result"]
    config = {"taskId": task["id"], "pushNotificationConfig": {"url": "https://a.example.com/"}}
    made = rpc("tasks/pushNotificationConfig/set", config).json()["result"]
    assert rpc("tasks/pushNotificationConfig/get", {"id": task["id"]}).json()["result"] == made
    listed = rpc("tasks/pushNotificationConfig/list", {"id": task["id"]}).json()["result"]
    assert listed == [made]
    params = {"id": task["id"], "pushNotificationConfigId": made["pushNotificationConfig"]["id"]}
    assert rpc("tasks/pushNotificationConfig/delete", params).json()["result"] is None
    assert rpc("tasks/pushNotificationConfig/get", {"id": task["id"]}).json()["error"]["code"] == -32001


@pytest.mark.parametrize(("method", "params", "field"), [
    ("message/send", {}, "message"),
    ("message/send", {"message": {"kind": "message"}}, "message.messageId"),
    ("message/send", said("x", role="nobody"), "message.role"),
    ("message/send", said("x", parts=[]), "message.parts"),
    ("message/stream", said("x", parts=[{"kind": "file", "file": {"uri": "nowhere"}}]), "message.parts[0].url"),
    ("tasks/get", {"id": 5}, "id"),
    ("tasks/get", {"id": "x", "historyLength": 2**40}, "historyLength"),
    ("tasks/cancel", {}, "id"),
    ("tasks/pushNotificationConfig/get", {"id": "x", "pushNotificationConfigId": 5}, "pushNotificationConfigId"),
])  # fmt: skip
def test_bad_params(rpc, method, params, field):
    error = rpc(method, params).json()["error"]
    assert error["code"] == -32602
    violations = error["data"][1]["fieldViolations"]
    assert field in [item["field"] for item in violations]
    assert not Task.objects.exists()


@pytest.mark.parametrize("part", [
    {"kind": "file", "file": {"bytes": "!!!"}},
    {"kind": "data", "data": {}, "metadata": {"data_part_compat": True}},
])  # fmt: skip
def test_params_that_can_not_be_converted(rpc, part):
    error = rpc("message/send", said("x", parts=[part])).json()["error"]
    assert error["code"] == -32602
    assert error["data"][1]["fieldViolations"]
    assert "Error" not in error["message"]


@pytest.mark.parametrize(
    ("given", "standard"), [("-_-_8888", "+/+/8888"), ("//x", "//w="), ("aGk", "aGk="), ("-_8=", "+/8="), ("", "")]
)
def test_base64_of_either_alphabet_and_unpadded(rpc, given, standard):
    """CASES 23: the SDK's conversion would leave out what is not of the standard alphabet."""
    parts = [{"kind": "text", "text": "task completed"}, {"kind": "file", "file": {"bytes": given}}]
    task = rpc("message/send", said("x", parts=parts)).json()["result"]
    assert task["history"][0]["parts"][1]["file"]["bytes"] == standard


def test_rest_shapes(site, make_agent):
    """CASES 33: proto names, `TASK_STATE_CANCELLED`, no list."""
    make_agent(executor="tests.executors.Script")
    own = {"role": "ROLE_USER", "content": [{"text": "task input:what?"}], "messageId": "m"}
    headers = {"Content-Type": "application/json"}
    for body in ({"request": own}, {"message": own}, own):
        answer = site.request("POST", "/a2a/test/v1/message:send", json.dumps(body).encode(), headers)
        assert answer.headers["content-type"] == "application/json"
        task = answer.json()["task"]
        assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        assert task["history"][0]["content"] == own["content"]
    canceled = site.request("POST", f"/a2a/test/v1/tasks/{task['id']}:cancel", b"", headers).json()
    assert canceled["status"]["state"] == "TASK_STATE_CANCELLED"
    assert site.get("/a2a/test/v1/tasks").status == 404


def test_rest_bad_bodies(site, make_agent):
    make_agent(executor="tests.executors.Script")
    headers = {"Content-Type": "application/json"}
    own = {"role": "ROLE_USER", "content": [{"text": "x"}], "messageId": "m"}
    bodies = [b"", b"{}", b"[]", b'{"request":5}', json.dumps({"request": own | {"role": "x"}}).encode()]
    bodies += [json.dumps(own | {"content": []}).encode(), json.dumps(own | {"messageId": ""}).encode()]
    for body in bodies:
        answer = site.request("POST", "/a2a/test/v1/message:send", body, headers)
        assert (answer.status, answer.json()["type"]) == (400, "InvalidParamsError"), body
    assert not Task.objects.exists()


@pytest.mark.parametrize("body", [
    {},
    {"config": 5},
    {"config": {"pushNotificationConfig": 5}},
    {"config": {"pushNotificationConfig": {"url": "nowhere"}}},
    {"config": {"pushNotificationConfig": {"url": "https://a.example.com"}}, "configId": 5},
])  # fmt: skip
def test_rest_bad_push_configs(client, site, body):
    task = client.task("task input:what?")
    path, headers = f"/a2a/test/v1/tasks/{task['id']}/pushNotificationConfigs", {"Content-Type": "application/json"}
    answer = site.request("POST", path, json.dumps(body).encode(), headers)
    assert (answer.status, answer.json()["type"]) == (400, "InvalidParamsError")
    assert not PushConfig.objects.exists()


# --- cards


def test_one_card_for_both_generations(site, make_agent):
    AgentSkill.objects.create(agent=make_agent(), skill_id="talk", name="Talk", description="Talks.", tags=["t"])
    card = site.get(CARD).json()
    ParseDict(card, AgentCard(), ignore_unknown_fields=True)
    old = types.AgentCard.model_validate(card)
    assert (old.url, old.preferred_transport, old.protocol_version) == ("http://testserver/a2a/test", "JSONRPC", "0.3")
    assert [(one.url, one.transport) for one in old.additional_interfaces] == [(old.url, "HTTP+JSON")]
    assert old.security_schemes["bearer"].root.scheme == "Bearer"
    assert old.skills[0].id == "talk"


def test_cards_where_it_is_off(site, make_agent, a2a):
    make_agent()
    a2a(ENABLE_V0_3=False)
    card = site.get(CARD).json()
    assert not {"url", "preferredTransport", "protocolVersion"} & card.keys()
    assert {one["protocolVersion"] for one in card["supportedInterfaces"]} == {"1.0"}


def test_the_old_path_of_the_card(site, make_agent, caplog):
    cards._tell_of_old_clients.cache_clear()
    make_agent(is_default=True)
    with caplog.at_level(logging.WARNING, "a2a_django"):
        answers = [site.get(path) for path in ("/.well-known/agent.json", "/a2a/test/.well-known/agent.json")]
    for answer in answers:
        assert answer.body == site.get(CARD).body
        assert answer.headers["deprecation"].startswith("@")
    assert len(caplog.records) == 1


@pytest.mark.http
def test_the_extended_card(legacy, make_client, django_user_model):
    django_user_model.objects.create_user("ann")
    make_client("Script", slug="rich", extended_card=True)
    agent = Agent.objects.get(slug="rich")
    AgentSkill.objects.create(agent=agent, skill_id="secret", name="S", description="d", visibility="authenticated")
    rich = legacy.copy(agent="rich").as_("ann")
    paths = ["/v1/card", "/agent/authenticatedExtendedCard"]
    found = [rich.site.request("GET", f"/a2a/rich{path}", b"", rich.headers).json() for path in paths]
    if rich.binding == "jsonrpc":
        found = [rich.ask(method, {}) for method in ("GetExtendedAgentCard",)]
    for card in found:
        assert [skill.id for skill in types.AgentCard.model_validate(card).skills] == ["secret"]
    with pytest.raises(Error) as error:
        legacy.copy(agent="rich").extended_card() if rich.binding == "jsonrpc" else rich.as_("x").ask("GET", "/card")
    assert error.value.status in (200, 401)

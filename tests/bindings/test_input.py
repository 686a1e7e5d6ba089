"""What clients may say, how a refusal looks, and that whatever was accepted stays whole on every path."""

import json

import pytest

from a2a_django.agents import dispatch
from a2a_django.models import Task, Turn
from tests.clients import Error, message, state

ODD = "é\u2028\x85\x7f\x1f \U0001f600 \\u0000 </script> \ufeff\ufffe"
PARTS = [
    {"text": ODD, "mediaType": "text/plain", "filename": ODD, "metadata": {ODD: [ODD, None, {"": ""}]}},
    {"text": ""},
    {"raw": "+/8=", "mediaType": "application/octet-stream"},
    {"url": "https://müller.example/ä?b=c%20d#e"},
    *({"data": value} for value in (None, 5, -0.5, 1e300, 2**53, True, False, "", ODD, [], {}, [[], {}, None])),
    {"data": {"null": None, ODD: {"deep": [1, [2, {"three": None}]]}}},
]
METADATA = {"a": {"b": [1, None]}, "c": None, ODD: ODD, "": {}}


def rich(**fields):
    """A message with a bit of everything."""
    more = {"metadata": METADATA, "extensions": ["urn:x", ODD], "referenceTaskIds": ["nobody's"], "contextId": ODD[:3]}
    return message(**{"parts": PARTS} | more | fields)


def refused(client, request, **headers):
    with pytest.raises(Error) as error:
        client.with_headers(**headers).send_raw(request if isinstance(request, bytes) else json.dumps(request).encode())
    assert not Task.objects.exists()
    return error.value


def told(task):
    """What the Dump executor was told."""
    (artifact,) = task["artifacts"]
    return artifact["parts"][0]["data"]


# --- what was accepted


def test_a_message_is_the_same_on_every_path(make_client):
    """CASES 20, 21, 23: in the answer, GetTask, ListTasks and streams."""
    client, said = make_client("Dump"), rich()
    task = client.send(said)["task"]
    expected = said | {"taskId": task["id"]}

    (listed,) = client.list(includeArtifacts=True)["tasks"]
    opening = client.stream(said).all()[0]["task"]
    for found in (task, client.get(task["id"]), listed):
        assert found["history"] == [expected]
    assert opening["history"] == [said | {"taskId": opening["id"]}]


def test_a_follow_up_is_the_same_on_every_path(client):
    task = client.task("task input:what?")
    said = rich(taskId=task["id"], contextId=task["contextId"], parts=[{"text": "input:more?"}, *PARTS[1:]])
    opening = client.stream(said).all()[0]["task"]

    subscription = client.subscribe(task["id"])

    for found in (opening, client.get(task["id"]), next(subscription).data["task"]):
        assert found["history"][-1] == said
    subscription.close()


@pytest.mark.parametrize("stored", [False, True], ids=["in process", "through the database"])
def test_a_message_reaches_the_executor_whole(make_client, a2a, no_broker, stored):
    """CASES 20: plain data all the way down, also when a worker rebuilds the request from its rows."""
    client, said = make_client("Dump"), rich()
    configuration = {"acceptedOutputModes": ["text/plain", ODD], "historyLength": 7, "returnImmediately": True}
    if stored:
        a2a(EXECUTION="celery", IMMEDIATE_WAIT=0.01)
    task = client.send(said, METADATA, **configuration)["task"]
    if stored:
        dispatch.run_turn(Turn.objects.get().pk)
    dump = told(ended(client, task["id"]))

    assert dump["message"] == said | {"taskId": task["id"]}
    assert dump["metadata"] == METADATA
    assert dump["configuration"] == configuration


def ended(client, task_id):
    """The task once it has ended."""
    while state(task := client.get(task_id)) != "COMPLETED":
        client.subscribe(task_id).all()
    return task


@pytest.mark.http
def test_json_goes_out_as_raw_utf_8(make_client):
    client = make_client("Dump")
    response = client.post_raw(client.send_body({"message": rich()}))
    assert "é".encode() in response.body
    assert "\U0001f600".encode() in response.body
    for sent in (response.body, client.post_raw(b'{"a":"\xc3\xa9"').body):
        assert sent.decode()


@pytest.mark.parametrize("time", ["2026-01-31T12:00:00Z", "2026-01-31T13:00:00.000999+01:00"])
def test_times_go_out_in_utc_with_milliseconds(client, time):
    """A2A 5.6.1: also what executors say of theirs."""
    task = client.task(f"task at:{time}")
    events = client.stream(f"task at:{time}").all()
    expected = "2026-01-31T12:00:00.000Z"

    for said in (task, client.get(task["id"]), client.list()["tasks"][0], events[-1]["statusUpdate"]):
        assert said["status"]["timestamp"] == expected
    assert client.task()["status"]["timestamp"].endswith("Z")


@pytest.mark.parametrize(
    ("after", "number"),
    [
        ("2026-01-31T12:00:00Z", 1),
        ("2026-01-31T12:00:00.000Z", 1),
        ("2026-01-31T23:30:00+11:30", 1),
        ("2026-01-31T11:59:59.999999999Z", 1),
        ("2026-01-31T12:00:00.000001Z", 0),
        ("2026-01-31T12:00:00.001Z", 0),
        ("2026-01-31T12:00:00-00:01", 0),
        ("0001-01-01T00:00:00Z", 1),
        ("9999-12-31T23:59:59.999999999Z", 0),
    ],
)
def test_a_list_since_a_time_has_what_is_of_that_time(client, after, number):
    client.task("task at:2026-01-31T12:00:00Z")
    assert client.list(statusTimestampAfter=after)["totalSize"] == number


@pytest.mark.http
def test_an_offset_whose_plus_came_as_a_space_is_explained(client):
    with pytest.raises(Error) as error:
        client.list(statusTimestampAfter="2026-01-31T12:00:00 01:00")
    assert error.value.fields == ["statusTimestampAfter"]
    assert "%2B" in json.dumps(error.value.details)


# --- what is refused


@pytest.mark.http
def test_everything_that_is_wrong_is_named_at_once(client):
    """CASES 16, 18, 22 to 24: with the values that are allowed."""
    request = {
        "message": {
            "message_id": "a\0",
            "role": "user",
            "parts": [{}, {"text": "a", "data": None}, {"raw": "!"}, {"url": "x"}, {"data": {"n": float("nan")}}, None],
            "metadata": {"\ud800": 1},
            "extensions": None,
        },
        "configuration": {"historyLength": -1, "taskPushNotificationConfig": {"url": 5}},
    }
    error = refused(client, request)
    (bad_request,) = [item for item in error.details if "fieldViolations" in item]
    wrong = {item["field"]: item["description"] for item in bad_request["fieldViolations"]}

    assert error.reason == "INVALID_PARAMS"
    assert error.code == (-32602 if client.binding == "jsonrpc" else "INVALID_ARGUMENT")
    assert wrong.pop("message.metadata.?")
    assert wrong.keys() == {
        "message.messageId",
        "message.role",
        *(f"message.parts[{index}]" for index in (0, 1, 5)),
        "message.parts[2].raw",
        "message.parts[3].url",
        "message.parts[4].data.n",
        "configuration.historyLength",
        "configuration.taskPushNotificationConfig.url",
    }
    assert "ROLE_USER, ROLE_AGENT" in wrong["message.role"]
    assert "text, raw, url, data" in wrong["message.parts[0]"]


@pytest.mark.http
def test_a_hostile_body_is_answered_shortly(client):
    raw = client.send_body(
        {"message": message(parts=[{}] * 100_000), "configuration": {"acceptedOutputModes": [1] * 9}}
    )
    response = client.post_raw(raw)
    assert len(response.body) < 20_000
    with pytest.raises(Error):
        client.result(response)


def test_an_inline_push_config_that_is_refused_has_its_whole_path(client):
    error = refused(client, {"message": message(), "configuration": {"taskPushNotificationConfig": {"url": "ftp://x"}}})
    assert error.fields == ["configuration.taskPushNotificationConfig.url"]


@pytest.mark.parametrize("charset", ["latin-1", "utf-16", "utf-7", "hex", "unicode_escape", "no-such"])
def test_a_charset_changes_nothing(client, charset):
    """JSON is UTF-8 (RFC 8259); Django would read the query by any of Python's codecs."""
    client = client.with_headers(Content_Type=f"application/json; charset={charset}")
    task = client.task(message("task completed", contextId="é \\ud800 +2AA-"))
    assert task["contextId"] == "é \\ud800 +2AA-"
    assert client.list(contextId=task["contextId"])["totalSize"] == 1
    assert client.list(contextId="%41")["totalSize"] == 0


@pytest.mark.http
@pytest.mark.parametrize("last", ["9" * 5000, "²", "1\0", "-1", "1.0", "1e1", " ", "\xd9\xa3", "é"])
def test_a_last_event_id_that_is_none(client, last):
    task = client.task("task input:what?")
    with pytest.raises(Error) as error:
        client.subscribe(task["id"], last=last)
    assert (error.value.reason, error.value.fields) == ("INVALID_PARAMS", ["Last-Event-ID"])


@pytest.mark.http
@pytest.mark.parametrize("header", ["urn:a\0b", "urn:é", "\x01", ",,", "x" * 5000])
def test_a_header_that_is_stored_is_the_same_on_every_database(client, header):
    """CASES 18."""
    client = client.with_headers(A2A_Extensions=f"urn:x, {header}")
    assert state(client.task()) == "COMPLETED"
    assert "urn:x" in Turn.objects.get().context["extensions"]


@pytest.mark.parametrize(
    "credentials", [{"Authorization": "Basic YQBiOmM="}, {"Cookie": 'sessionid="aaaaaaaaaa\\000"'}]
)
def test_credentials_that_no_database_could_look_for(make_client, a2a, credentials):
    """CASES 18, 8: the same as wrong ones, on every database."""
    client = make_client(anonymous_access="denied")
    classes = ["BasicAuthentication", "SessionAuthentication"]
    a2a(AUTHENTICATION_CLASSES=[f"rest_framework.authentication.{name}" for name in classes])
    error = refused(client, {"message": message()}, **credentials)
    assert (error.reason, error.status) == ("UNAUTHENTICATED", 401)

"""What is HTTP's in both bindings: paths, methods, media types, sizes, the shape of every error."""

import json

import pytest

from a2a_django.models import Task
from tests.clients import Error, Rest, message, state

pytestmark = pytest.mark.http

STATUS = {  # reason: (HTTP status of REST, google.rpc.Code, JSON-RPC code, its HTTP status)
    "TASK_NOT_FOUND": (404, "NOT_FOUND", -32001, 200),
    "TASK_NOT_CANCELABLE": (400, "FAILED_PRECONDITION", -32002, 200),
    "PUSH_NOTIFICATION_NOT_SUPPORTED": (400, "FAILED_PRECONDITION", -32003, 200),
    "UNSUPPORTED_OPERATION": (400, "FAILED_PRECONDITION", -32004, 200),
    "CONTENT_TYPE_NOT_SUPPORTED": (400, "INVALID_ARGUMENT", -32005, 200),
    "INVALID_AGENT_RESPONSE": (500, "INTERNAL", -32006, 200),
    "EXTENDED_AGENT_CARD_NOT_CONFIGURED": (400, "FAILED_PRECONDITION", -32007, 200),
    "VERSION_NOT_SUPPORTED": (400, "FAILED_PRECONDITION", -32009, 200),
    "INVALID_PARAMS": (400, "INVALID_ARGUMENT", -32602, 200),
    "INTERNAL_ERROR": (500, "INTERNAL", -32603, 200),
    "UNAUTHENTICATED": (401, "UNAUTHENTICATED", -32000, 401),
    "NOT_FOUND": (404, "NOT_FOUND", -32000, 404),
}


@pytest.fixture
def failing(client, make_client):
    """For each reason a call that fails with it."""
    done = client.task()
    silent, off = [
        make_client(executor, slug=executor.lower(), **fields)
        for executor, fields in (("Silent", {}), ("Echo", {"push_notifications": False, "extended_card": True}))
    ]
    boom = make_client("BoomFirst", slug="boom")
    closed = make_client(slug="closed", anonymous_access="denied")
    return {
        "TASK_NOT_FOUND": lambda: client.get("nobody's"),
        "TASK_NOT_CANCELABLE": lambda: client.cancel(done["id"]),
        "PUSH_NOTIFICATION_NOT_SUPPORTED": lambda: off.list_push("x"),
        "UNSUPPORTED_OPERATION": lambda: client.subscribe(done["id"]),
        "CONTENT_TYPE_NOT_SUPPORTED": lambda: client.with_headers(Content_Type="text/plain").send(),
        "INVALID_AGENT_RESPONSE": silent.send,
        "EXTENDED_AGENT_CARD_NOT_CONFIGURED": lambda: off.as_("alice").extended_card(),
        "VERSION_NOT_SUPPORTED": lambda: client.with_headers(A2A_Version="99.0").send(),
        "INVALID_PARAMS": lambda: client.list(pageSize=0),
        "INTERNAL_ERROR": boom.send,
        "UNAUTHENTICATED": closed.send,
        "NOT_FOUND": lambda: client.copy(agent="nobody").send(),
    }


def test_the_shape_of_every_error(failing, binding, make_user):
    """CASES 6: one table, each binding's own codes."""
    make_user("alice")
    for reason, (status, name, code, rpc_status) in STATUS.items():
        with pytest.raises(Error) as error:
            failing[reason]()
        found = error.value
        expected = (status, name) if binding == "rest" else (rpc_status, code)
        assert (found.reason, found.status, found.code) == (reason, *expected)
        assert found.response.headers["content-type"] == "application/json"
        assert found.message


# --- media types (CASES 4)


@pytest.mark.parametrize(
    "content_type", ["application/a2a+json; charset=utf-8", "application/json", "Application/JSON", None, ""]
)
def test_json_by_any_of_its_names_is_taken(client, content_type):
    assert state(client.with_headers(Content_Type=content_type).task()) == "COMPLETED"


@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "nonsense"]
)
def test_other_media_types_are_refused_before_the_body_is_read(client, content_type):
    client = client.with_headers(Content_Type=content_type)
    response = client.post_raw(b"{no json")

    with pytest.raises(Error) as error:
        client.result(response)
    assert error.value.reason == "CONTENT_TYPE_NOT_SUPPORTED"


@pytest.mark.parametrize(
    "raw", [b"", b"{", b"nonsense", b"\xff\xfe", b'{"a":1}{', b"\xef\xbb\xbf{}", "{}".encode("utf-16"), b"[" * 99_999]
)
def test_a_body_that_is_no_json(client, raw):
    with pytest.raises(Error) as error:
        client.result(client.post_raw(raw))
    expected = "INVALID_PARAMS" if (client.binding, raw) == ("rest", b"") else "INVALID_JSON"
    assert error.value.reason == expected
    assert not Task.objects.exists()


# --- sizes (CASES 9)


def large(client, size, text="task completed", **kwargs):
    said = message(parts=[{"text": text}, {"raw": "A" * size}])
    return client.send_body({"message": said}, **kwargs)


def test_a_body_over_djangos_own_limit_is_taken(client):
    response = client.post_raw(large(client, 3 * 2**20))
    assert state(client.result(response)["task"]) == "COMPLETED"


def test_a_body_over_the_limit_is_refused(client, a2a):
    a2a(MAX_BODY_BYTES=1000)
    with pytest.raises(Error) as error:
        client.result(client.post_raw(large(client, 1000)))

    assert (error.value.reason, error.value.status) == ("PAYLOAD_TOO_LARGE", 413)
    assert error.value.code == (-32600 if client.binding == "jsonrpc" else "RESOURCE_EXHAUSTED")
    assert not Task.objects.exists()


def test_a_chunked_body_without_a_length(client, a2a):
    a2a(MAX_BODY_BYTES=100_000)
    raw = large(client, 80_000)
    parts = [raw[start : start + 1000] for start in range(0, len(raw), 1000)]
    assert state(client.result(client.post_raw(b"", parts=parts))["task"]) == "COMPLETED"

    with pytest.raises(Error) as error:
        client.result(client.post_raw(b"", parts=[*parts, b" " * 50_000]))
    assert error.value.reason == "PAYLOAD_TOO_LARGE"


# --- paths (CASES 1, 2)


def test_no_path_redirects(client):
    """With and without a slash, POST is answered alike."""
    for suffix in ("", "/"):
        path = client.url + ("/message:send" if client.binding == "rest" else "") + suffix
        response = client.site.request("POST", path, client.send_body({"message": message()}), client.headers)
        assert response.status == 200
        assert state(client.result(response)["task"]) == "COMPLETED"


@pytest.fixture
def rest(site, make_agent):
    """The REST client of one agent, for what REST alone has."""
    return Rest(site, make_agent(executor="tests.executors.Script").slug)


def error_of(response):
    body = json.loads(response.body)
    assert body.keys() == {"error"}
    assert body["error"]["code"] == response.status
    (info,) = body["error"]["details"]
    assert info["domain"] == "a2a-protocol.org"
    return response.status, info["reason"]


@pytest.mark.parametrize(
    "path",
    [
        "/a2a/",
        "/a2a/nobody/message:send",
        "/a2a/test/nothing/more",
        "/a2a/test/tasks/x:nosuch",
        "/a2a/test/tasks/a:b",
        "/a2a/test/tasks/x/nothing",
        "/a2a/test/message:nosuch",
        "/a2a/test/tasks//",
        "/a2a/test/no-tenant/tasks",
        "/a2a/test/tasks/x/pushNotificationConfigs/a/b",
        "/a2a/test/%00",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "PATCH"])
def test_paths_that_are_none(rest, path, method):
    """CASES 2, 6: a JSON 404, or 405 where another method has it."""
    response = rest.site.request(method, path, b"{}" if method == "POST" else b"", rest.headers)
    status, reason = error_of(response)
    assert (status, reason) in [(404, "NOT_FOUND"), (405, "METHOD_NOT_ALLOWED")]


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/message:send", "POST"),
        ("PUT", "/message:stream", "POST"),
        ("POST", "/tasks", "GET"),
        ("GET", "/tasks/x:cancel", "POST"),
        ("DELETE", "/tasks/x", "GET"),
        ("DELETE", "/tasks/x:subscribe", "GET, POST"),
        ("PATCH", "/tasks/x/pushNotificationConfigs", "GET, POST"),
        ("POST", "/tasks/x/pushNotificationConfigs/y", "GET, DELETE"),
        ("POST", "/extendedAgentCard", "GET"),
        ("GET", "", "POST"),
        ("OPTIONS", "/tasks", "GET"),
        ("HEAD", "/message:send", "POST"),
    ],
)
def test_methods_that_are_none(rest, method, path, allowed):
    response = rest.site.request(method, rest.url + path, headers=rest.headers)

    assert response.status == 405
    assert set(response.headers["allow"].split(", ")) >= set(allowed.split(", "))
    if method != "HEAD" and path:
        assert error_of(response) == (405, "METHOD_NOT_ALLOWED")


def test_verbs_are_not_part_of_ids(rest):
    """CASES 2: GET on `:cancel` cancels nothing."""
    task = rest.task("task input:what?")
    rest.site.request("GET", f"{rest.url}/tasks/{task['id']}:cancel", headers=rest.headers)
    assert state(rest.get(task["id"])) == "INPUT_REQUIRED"


@pytest.mark.parametrize("query", ["format=api", "format=xml", "format="])
def test_format_is_not_asked(rest, query):
    """CASES 15."""
    response = rest.site.request("GET", f"{rest.url}/tasks?{query}", headers=rest.headers | {"Accept": "text/html"})
    assert (response.status, response.headers["content-type"]) == (200, "application/a2a+json")


def test_a_suffix_is_part_of_the_id(rest):
    """CASES 15."""
    assert error_of(rest.site.request("GET", f"{rest.url}/tasks/x.json", headers=rest.headers)) == (
        404,
        "TASK_NOT_FOUND",
    )


def test_subscribe_by_get_and_post(rest):
    task = rest.task("task input:what?")
    for method in ("GET", "POST"):
        exchange = rest.site.open(method, f"{rest.url}/tasks/{task['id']}:subscribe", b"", rest.headers)
        status, headers = exchange.start()
        assert (status, headers["content-type"]) == (200, "text/event-stream")
        exchange.disconnect()


@pytest.mark.parametrize("body", ["", "{}", '{"id":"other","tenant":""}'])
def test_what_the_path_says_goes_before_the_body(rest, body):
    task = rest.task("task input:what?")
    response = rest.site.request("POST", f"{rest.url}/tasks/{task['id']}:cancel", body.encode(), rest.headers)
    assert state(rest.result(response)) == "CANCELED"


@pytest.mark.parametrize("body", ["[]", "1", '"x"', "null"])
def test_a_body_that_is_no_object(rest, body):
    with pytest.raises(Error) as error:
        rest.send_raw(body.encode())
    assert error.value.reason == "INVALID_PARAMS"


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("includeArtifacts=TRUE", "includeArtifacts"),
        ("includeArtifacts=1", "includeArtifacts"),
        ("includeArtifacts=", "includeArtifacts"),
        ("pageSize=1.5", "pageSize"),
        ("status=TASK_STATE_WORKING&status=TASK_STATE_FAILED", "status"),
    ],
)
def test_query_parameters_that_are_refused(rest, query, field):
    """CASES 26."""
    with pytest.raises(Error) as error:
        rest.result(rest.site.request("GET", f"{rest.url}/tasks?{query}", headers=rest.headers))
    assert error.value.fields == [field]


@pytest.mark.parametrize(
    "query", [b"contextId=%FF", b"contextId=\xff", b"contextId=%ED%A0%80", b"\xff", b"includeArtifacts=\xe9"]
)
def test_a_query_that_is_no_utf_8_is_refused(rest, query):
    """As in bodies: Django would take U+FFFD for it, and answer raw bytes with a page of its own."""
    path = f"{rest.url}/tasks?{query.decode(errors='surrogateescape')}"
    with pytest.raises(Error) as error:
        rest.result(rest.site.request("GET", path, headers=rest.headers))
    assert (error.value.reason, error.value.fields) == ("INVALID_PARAMS", ["query"])


def test_raw_utf_8_in_a_query_is_taken(rest):
    rest.task(message("task completed", contextId="é"))
    response = rest.site.request("GET", f"{rest.url}/tasks?contextId=é", headers=rest.headers)
    assert rest.result(response)["totalSize"] == 1


@pytest.mark.parametrize(
    "odd", ["\0", "a\0b", "\ufffd", "é", "x" * 5000, "..", "'", "%", "%00", "\u2028", "\n", " ", "*"]
)
def test_ids_in_paths_are_never_more_than_ids(rest, odd):
    """CASES 2, 18: whatever stands there, the answer is a JSON 404, on every database."""
    for path in (f"/tasks/{odd}", f"/tasks/{odd}/pushNotificationConfigs/{odd}", f"/{odd}/tasks"):
        status, reason = error_of(rest.site.request("GET", rest.url + path, headers=rest.headers))
        assert (status, reason) in [(404, "TASK_NOT_FOUND"), (404, "NOT_FOUND")]


def test_a_snake_case_body_below_a_path(rest):
    task = rest.task("task input:what?")
    body = json.dumps({"task_id": "other", "taskId": None, "url": "https://x.example"}).encode()
    path = f"{rest.url}/tasks/{task['id']}/pushNotificationConfigs"
    assert rest.result(rest.site.request("POST", path, body, rest.headers))["taskId"] == task["id"]


def test_snake_case_query_parameters_are_unknown(rest):
    """CASES 26."""
    response = rest.site.request("GET", f"{rest.url}/tasks?page_size=5", headers=rest.headers)
    assert rest.result(response)["pageSize"] == 50


def test_an_unexpected_error_shows_nothing(rest, a2a):
    """CASES 6: also one that comes before the operation."""

    def builder(request, context):
        raise RuntimeError("SELECT password=hunter2")

    a2a(CONTEXT_BUILDER=builder)
    response = rest.site.request("GET", f"{rest.url}/tasks", headers=rest.headers)
    assert error_of(response) == (500, "INTERNAL_ERROR")
    assert b"hunter2" not in response.body

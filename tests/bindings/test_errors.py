"""Whatever goes wrong, wherever: the client reads an A2A error, and nothing that is not for it (CASES 6, 8)."""

import json
from unittest.mock import Mock

import pytest
from django.core import exceptions as django
from django.db import OperationalError, ProgrammingError, connection
from django.http import Http404, HttpResponse, JsonResponse
from rest_framework import exceptions as drf
from rest_framework.authentication import BaseAuthentication

from a2a_django.models import Agent, Task
from a2a_django.operations import news
from tests.clients import Error, Site, message, state
from tests.executors import SECRET

ROWS = {  # reason: (HTTP status, google.rpc.Code, JSON-RPC code, its HTTP status)
    "INVALID_REQUEST": (400, "INVALID_ARGUMENT", -32600, 200),
    "UNAUTHENTICATED": (401, "UNAUTHENTICATED", -32000, 401),
    "PERMISSION_DENIED": (403, "PERMISSION_DENIED", -32000, 403),
    "NOT_FOUND": (404, "NOT_FOUND", -32000, 404),
    "METHOD_NOT_ALLOWED": (405, "UNIMPLEMENTED", -32600, 405),
    "PAYLOAD_TOO_LARGE": (413, "RESOURCE_EXHAUSTED", -32600, 413),
    "TOO_MANY_REQUESTS": (429, "RESOURCE_EXHAUSTED", -32000, 429),
    "UNAVAILABLE": (503, "UNAVAILABLE", -32603, 503),
    "INTERNAL_ERROR": (500, "INTERNAL", -32603, 200),
}


def refusal(call):
    with pytest.raises(Error) as error:
        call()
    return error.value


def assert_row(client, error, reason):
    http, name, code, rpc_http = ROWS[reason]
    rows = {"rest": (http, name), "jsonrpc": (rpc_http, code), "grpc": (error.status, name)}
    assert (error.reason, error.status, error.code) == (reason, *rows[client.binding])
    assert client.binding == "grpc" or error.response.headers["content-type"] == "application/json"
    assert b"hunter2" not in error.response.body


@pytest.fixture
def both(client):
    """Sends that wait and streams; each with the error that it gives."""
    return (client.send, client.stream)


# --- what the site's own code raises


class Raises(BaseAuthentication):
    """An authenticator that goes wrong."""

    error = None

    def authenticate(self, request):
        raise self.error


class Teapot(drf.APIException):
    status_code = 418


class Unavailable(drf.APIException):
    status_code = 503
    default_detail = "The directory is down"


RAISED = [
    (django.SuspiciousOperation(SECRET), "INVALID_REQUEST"),
    (django.DisallowedHost(SECRET), "INVALID_REQUEST"),
    (django.BadRequest(SECRET), "INVALID_REQUEST"),
    (django.RequestDataTooBig(SECRET), "PAYLOAD_TOO_LARGE"),
    (django.PermissionDenied(SECRET), "PERMISSION_DENIED"),
    (Http404(SECRET), "NOT_FOUND"),
    (OperationalError(SECRET), "UNAVAILABLE"),
    (ProgrammingError(SECRET), "INTERNAL_ERROR"),
    (drf.AuthenticationFailed(), "UNAUTHENTICATED"),
    (drf.NotAuthenticated(), "UNAUTHENTICATED"),
    (drf.PermissionDenied(), "PERMISSION_DENIED"),
    (drf.NotFound(), "NOT_FOUND"),
    (drf.ParseError(), "INVALID_REQUEST"),
    (drf.ValidationError({"x": ["y"]}), "INVALID_REQUEST"),
    (drf.MethodNotAllowed("GET"), "METHOD_NOT_ALLOWED"),
    (drf.Throttled(wait=7.2), "TOO_MANY_REQUESTS"),
    (Unavailable(), "UNAVAILABLE"),
    (Teapot("short and stout"), "INVALID_REQUEST"),
    (drf.APIException(), "INTERNAL_ERROR"),
]


@pytest.mark.parametrize(("raised", "reason"), RAISED, ids=lambda value: type(value).__name__)
def test_what_django_and_rest_framework_know_as_errors(client, both, a2a, monkeypatch, raised, reason, caplog):
    """CASES 6: a row of the one table for each; Django's texts stay here, DRF's are for clients."""
    a2a(AUTHENTICATION_CLASSES=["tests.bindings.test_errors.Raises"])
    monkeypatch.setattr(Raises, "error", raised)
    for call in both:
        error = refusal(call)
        assert_row(client, error, reason)
        assert "ErrorDetail" not in error.message
    assert SECRET not in caplog.text
    assert not Task.objects.exists()


def test_what_the_client_may_do_about_it(client, a2a, monkeypatch):
    a2a(AUTHENTICATION_CLASSES=["tests.bindings.test_errors.Raises"])
    monkeypatch.setattr(Raises, "error", drf.Throttled(wait=7.2))
    assert refusal(client.send).response.headers["retry-after"] == "8"
    monkeypatch.setattr(Raises, "error", Unavailable())
    error = refusal(client.send)
    shown = error.metadata.get("detail", error.message)
    assert shown == "The directory is down"


# --- an exception in the store


class Fails:
    """A CONTEXT_BUILDER after which the n-th SQL statement of the operation fails."""

    def __init__(self, number):
        self.left, self.wrappers = number, None

    def __call__(self, request, context):
        self.wrappers = connection.execute_wrappers
        self.wrappers.append(self.wrapper)

    def wrapper(self, execute, *args):
        self.left -= 1
        if self.left < 0:
            self.wrappers.remove(self.wrapper)
            raise ProgrammingError(f"INSERT INTO a2a_django_task: {SECRET}")
        return execute(*args)


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("name", ["send", "stream", "get", "list", "cancel", "subscribe", "list_push"])
def test_an_exception_in_the_store(client, a2a, name, number, caplog):
    """CASES 6, 49: neither the client nor the log learns more than that, and nothing is half done."""
    task = client.task("task input:what?") if name in ("get", "cancel", "subscribe", "list_push") else None
    fails = Fails(number)
    a2a(CONTEXT_BUILDER=fails)
    call = getattr(client, name)
    try:
        error = refusal((lambda: call(task["id"])) if task else call)
    except pytest.fail.Exception:
        assert fails.left >= 0, "the operation went well, though a statement of it failed"
        fails.wrappers.remove(fails.wrapper)
        return
    assert_row(client, error, "INTERNAL_ERROR")
    assert SECRET not in caplog.text
    if name in ("send", "stream"):
        assert not Task.objects.exists()


@pytest.mark.http
def test_an_accident_within_a_stream_is_one_error_event(client, gate, caplog, monkeypatch):
    """CASES 66; issue 3.2: one `event: error`, then the end, and the log says where it was."""
    stream = client.stream("task wait:a")
    assert "task" in next(stream).data
    gate("a").reached()
    monkeypatch.setattr(news, "look", Mock(side_effect=ValueError(SECRET)))
    gate("a").open()

    error = refusal(lambda: next(stream))
    assert error.reason == "INTERNAL_ERROR"
    with pytest.raises(StopIteration):
        next(stream)
    assert stream.raw.count(b"event: error\n") == 1
    assert stream.raw.endswith(b"}\n\n")
    assert "A stream failed" in caplog.text
    assert SECRET not in caplog.text


# --- JSON-RPC's own errors (A2A 9.5)


@pytest.mark.parametrize(
    ("raw", "code", "text"),
    [
        (b"{", -32700, "Invalid JSON payload"),
        (b"[]", -32600, "Request payload validation error"),
        (b'{"jsonrpc":"2.0","id":1}', -32600, "Request payload validation error"),
        (b'{"jsonrpc":"2.0","id":1,"method":"tasks/nothing"}', -32601, "Method not found"),
        (b'{"jsonrpc":"2.0","id":1,"method":"GetTask"}', -32602, "Invalid parameters"),
        (b'{"jsonrpc":"2.0","id":1,"method":"GetTask","params":[]}', -32602, "Invalid parameters"),
    ],
)
@pytest.mark.parametrize("binding", ["jsonrpc"], indirect=True)
def test_standard_messages(client, raw, code, text):
    """CASES 6: `data` is an array of objects with a type, an ErrorInfo first."""
    response = client.post_raw(raw)
    error = response.json()["error"]
    assert (response.status, error["code"], error["message"]) == (200, code, text)
    assert error["data"][0]["@type"] == "type.googleapis.com/google.rpc.ErrorInfo"
    assert all("@type" in item for item in error["data"])


@pytest.mark.parametrize("binding", ["jsonrpc"], indirect=True)
def test_the_standard_message_of_an_internal_error(make_client):
    error = refusal(lambda: make_client("BoomFirst").send("x"))
    assert (error.code, error.message) == (-32603, "Internal error")


# --- what comes before a view is asked


@pytest.fixture
def middleware(settings, client):
    """middleware(function): the client of a site that has it, outermost."""

    def use(function):
        settings.MIDDLEWARE = [f"{__name__}.{function.__name__}", *settings.MIDDLEWARE]
        client.site._application = None
        return client

    return use


@pytest.mark.http
@pytest.mark.parametrize("debug", [False, True])
def test_a_forged_host(client, settings, debug):
    """CASES 6: Django refuses it in a middleware, with a page."""
    settings.ALLOWED_HOSTS, settings.DEBUG = ["testserver"], debug
    assert state(client.task()) == "COMPLETED"
    forged = client.with_headers(Host="evil.test")
    for call in (forged.send, forged.stream, forged.list):
        error = refusal(call)
        assert (error.reason, error.status) == ("INVALID_REQUEST", 400)
        assert error.response.headers["content-type"] == "application/json"
        assert b"evil.test" not in error.response.body
    card = client.site.request("GET", f"{client.url}/.well-known/agent-card.json", headers={"host": "evil.test"})
    assert card.json()["error"]["details"][0]["reason"] == "INVALID_REQUEST"


def answers(get_response):
    """Refuses what the header X-Answer says, as a page."""

    def middleware(request):
        status = int(request.headers["X-Answer"])
        headers = {"Retry-After": "9", "WWW-Authenticate": "Bearer", "ETag": '"x"'}
        return HttpResponse(f"<h1>{SECRET}</h1>", status=status, headers=headers)

    return middleware


def answers_in_json(get_response):
    return lambda request: JsonResponse({"our": "own"}, status=403)


def raises(get_response):
    def middleware(request):
        raise RuntimeError(SECRET)

    return middleware


@pytest.mark.http
@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (401, "UNAUTHENTICATED"),
        (403, "PERMISSION_DENIED"),
        (404, "NOT_FOUND"),
        (413, "PAYLOAD_TOO_LARGE"),
        (429, "TOO_MANY_REQUESTS"),
        (503, "UNAVAILABLE"),
    ],
)
def test_a_page_that_a_middleware_answers_with(middleware, status, reason):
    """CASES 6: a firewall, a login wall, a maintenance page."""
    client = middleware(answers).with_headers(X_Answer=str(status))
    for call in (client.send, client.stream):
        error = refusal(call)
        assert_row(client, error, reason)
        assert error.response.headers["retry-after"] == "9"
        assert error.response.headers["www-authenticate"] == "Bearer"
        assert int(error.response.headers["content-length"]) == len(error.response.body)
        assert "etag" not in error.response.headers


@pytest.mark.http
@pytest.mark.parametrize("status", [200, 204, 302])
def test_answers_that_are_no_errors_are_a_middlewares_own(middleware, status):
    client = middleware(answers).with_headers(X_Answer=str(status))
    assert SECRET.encode() in client.post_raw(b"{}").body


@pytest.mark.http
def test_json_that_a_middleware_answers_with_is_its_own(middleware):
    assert middleware(answers_in_json).post_raw(b"{}").json() == {"our": "own"}


@pytest.mark.http
def test_an_accident_in_a_middleware(middleware):
    error = refusal(middleware(raises).send)
    assert (error.reason, error.status) == ("INTERNAL_ERROR", 500)
    assert b"hunter2" not in error.response.body


@pytest.mark.http
def test_pages_of_the_rest_of_the_site_stay_pages(client, middleware):
    """Also where a path looks like one of ours."""
    for path in ("/no-such-page", "/no/a2a/test/tasks"):
        response = client.site.get(path)
        assert (response.status, response.headers["content-type"]) == (404, "text/html; charset=utf-8")
    client = middleware(answers)
    assert b"<h1>" in client.site.get("/no/a2a/test", X_Answer="503").body


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "HEAD", "OPTIONS"])
@pytest.mark.parametrize("path", ["/a2a", "/a2a/", "/a2a//", "/a2a/nobody/x/y/z", "/a2a/test/tasks/x/y"])
def test_there_is_no_page_below_our_path(site, make_agent, method, path):
    """CASES 1, 6: nor a redirect to one with a slash."""
    make_agent()
    response = site.request(method, path, headers={"A2A-Version": "1.0"})
    assert (response.status, response.headers["content-type"]) == (404, "application/json")
    if method != "HEAD":
        assert json.loads(response.body)["error"]["details"][0]["reason"] == "NOT_FOUND"


@pytest.mark.http
def test_without_with_streaming_errors_of_views_are_the_same(server, client):
    client.site = Site(server, served="asgi-bare")
    for call in (lambda: client.send(message(parts=[])), lambda: client.get("x")):
        assert refusal(call).reason in ("INVALID_PARAMS", "TASK_NOT_FOUND")


# --- the challenge of a 401 (CASES 8)


class Silent(BaseAuthentication):
    """One that has no challenge of its own."""

    def authenticate(self, request):
        return None


BASIC = "rest_framework.authentication.BasicAuthentication"
SESSION = "rest_framework.authentication.SessionAuthentication"
TOKEN = "rest_framework.authentication.TokenAuthentication"
BEARER = "tests.clients.BearerName"
SILENT = "tests.bindings.test_errors.Silent"


@pytest.mark.parametrize(
    ("authenticators", "challenge"),
    [
        ([BASIC, SESSION], 'Basic realm="api"'),
        ([SESSION, BASIC], 'Basic realm="api"'),
        ([SESSION], "session"),
        ([BEARER], "Bearer"),
        ([BEARER, BASIC], 'Bearer, Basic realm="api"'),
        ([TOKEN], "Token"),
        ([SILENT], "Bearer"),
    ],
)
def test_the_challenge_names_what_the_authenticators_take(make_client, a2a, authenticators, challenge):
    client = make_client(anonymous_access="denied")
    a2a(AUTHENTICATION_CLASSES=authenticators)
    assert challenged(client) == challenge
    card = client.site.get(f"{client.url}/.well-known/agent-card.json").json()
    names = [scheme.split()[0].lower() for scheme in challenge.split(", ")]
    assert set(names) <= set(card["securitySchemes"])


def challenged(client):
    error = refusal(client.send)
    assert (error.status, error.reason) == (401, "UNAUTHENTICATED")
    return error.response.headers["www-authenticate"]


OAUTH = {"flows": {"clientCredentials": {"tokenUrl": "https://id.example.com/token", "scopes": {}}}}


@pytest.mark.parametrize(
    ("schemes", "challenge"),
    [
        ({"corp": {"oauth2SecurityScheme": OAUTH}}, "Bearer"),
        ({"corp": {"openIdConnectSecurityScheme": {"openIdConnectUrl": "https://id.example.com"}}}, "Bearer"),
        ({"basic": {"httpAuthSecurityScheme": {"scheme": "basic"}}}, 'Basic realm="api"'),
        ({"corp": {"http_auth_security_scheme": {"scheme": "Negotiate"}}}, "Negotiate"),
        ({"a key\nof ours": {"apiKeySecurityScheme": {"location": "header", "name": "X-Key"}}}, "a-key-of-ours"),
    ],
)
@pytest.mark.parametrize("wrong", [False, True])
def test_the_challenge_is_one_that_a_card_declares_which_staff_wrote(make_client, a2a, schemes, challenge, wrong):
    """CASES 8: no credentials and wrong ones alike."""
    client = make_client(anonymous_access="denied", security_schemes=schemes)
    a2a(AUTHENTICATION_CLASSES=[BEARER, BASIC])
    assert challenged(client.as_("nobody") if wrong else client) == challenge
    assert Agent.objects.get().security_schemes == schemes


def test_the_challenge_of_an_agent_that_there_is_not(client, a2a):
    a2a(AUTHENTICATION_CLASSES=[BASIC])
    error = refusal(client.copy(agent="nobody").basic("alice", "wrong").send)
    assert error.response.headers["www-authenticate"] == 'Basic realm="api"'

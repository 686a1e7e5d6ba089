"""The site's middleware holds for plain answers, waiting ones and streams alike (DESIGN 2)."""

import json
import threading

import pytest
from django.db import connection
from django.http import HttpResponse, StreamingHttpResponse

from a2a_django.models import Task, Turn
from tests.clients import Error, Site, kinds, message, state

pytestmark = pytest.mark.http


def marks(get_response):
    """Leaves a header and a cookie on every response."""

    def middleware(request):
        response = get_response(request)
        response["X-Seen"] = request.path
        response.set_cookie("seen", "1")
        response.set_cookie("twice", "2")
        return response

    return middleware


def uses_the_session(get_response):
    def middleware(request):
        response = get_response(request)
        request.session["visits"] = request.session.get("visits", 0) + 1
        return response

    return middleware


def shares(get_response):
    """What django-cors-headers does: it answers a preflight itself and leaves headers on all other answers."""

    def middleware(request):
        preflight = request.method == "OPTIONS" and "Access-Control-Request-Method" in request.headers
        response = HttpResponse() if preflight else get_response(request)
        if request.headers.get("Origin") == "https://app.example":
            response["Access-Control-Allow-Origin"] = "https://app.example"
            response["Access-Control-Expose-Headers"] = "A2A-Extensions"
            if preflight:
                response["Access-Control-Allow-Headers"] = request.headers["Access-Control-Request-Headers"]
        return response

    return middleware


def refuses_after(get_response):
    """Overrules what the view has answered."""

    def middleware(request):
        get_response(request)
        return HttpResponse("closed", status=503)

    return middleware


def answers_after(get_response):
    """Overrules it with a page that looks as if all were well."""

    def middleware(request):
        get_response(request)
        return HttpResponse("log in first")

    return middleware


def forbids_after(get_response):
    """Makes a refusal of what the view has answered."""

    def middleware(request):
        response = get_response(request)
        response.status_code = 403
        return response

    return middleware


def refuses_before(get_response):
    return lambda request: HttpResponse("maintenance", status=200)


def raises_after(get_response):
    def middleware(request):
        get_response(request)
        raise RuntimeError("password=hunter2")

    return middleware


def async_only(get_response):
    async def middleware(request):
        response = await get_response(request)
        response["X-Seen"] = request.path
        return response

    return middleware


async_only.sync_capable, async_only.async_capable = False, True


def notes_its_thread(get_response):
    def middleware(request):
        notes_its_thread.seen.append((threading.current_thread().name, id(connection.connection)))
        return get_response(request)

    return middleware


def streams_instead(get_response):
    async def pieces(whole):
        yield whole
        yield b", and more"

    def middleware(request):
        response = StreamingHttpResponse(pieces(get_response(request).content))
        response._resource_closers.append(lambda: streams_instead.closed.append(request.path))
        return response

    return middleware


@pytest.fixture
def middleware(settings, client):
    """middleware(function, …): the client of a site that has these, too, outermost first."""

    def use(*functions):
        settings.MIDDLEWARE = [*(f"{__name__}.{one.__name__}" for one in functions), *settings.MIDDLEWARE]
        client.site._application = None
        return client

    return use


@pytest.fixture(params=["plain", "waiting", "stream"])
def call(request):
    """call(client): the headers of a plain answer, of one that was waited for, and of a stream."""

    def make(client):
        if request.param == "stream":
            stream = client.stream()
            stream.all()
            return stream.headers
        body = client.send_body({"message": message()}) if request.param == "waiting" else b"{"
        return client.post_raw(body).headers

    return make


def test_headers_and_cookies_of_the_middleware(middleware, call):
    client = middleware(marks)
    headers = call(client)

    assert headers["x-seen"].startswith(client.url)
    assert headers["x-frame-options"] == "DENY"
    assert headers["x-content-type-options"] == "nosniff"
    assert "seen=1" in headers["set-cookie"]
    assert "twice=2" in headers["set-cookie"]
    assert headers["content-type"] in ("text/event-stream", "application/json", "application/a2a+json")
    assert "no-store" in headers["cache-control"]


CORS = ("access-control-allow-origin", "access-control-expose-headers", "access-control-allow-headers")


def test_a_preflight_needs_no_credentials(make_client, middleware):
    """CASES 12: on every path, also where the agent talks to users only."""
    client = middleware(shares)
    closed = make_client(slug="closed", anonymous_access="denied")
    closed.site._application = None
    asked = {"Origin": "https://app.example", "Access-Control-Request-Method": "POST"}
    asked["Access-Control-Request-Headers"] = "a2a-version,a2a-extensions,authorization,content-type,last-event-id"
    for url in (client.url, closed.url, f"{closed.url}/message:stream", f"{closed.url}/tasks/x:subscribe"):
        response = client.site.request("OPTIONS", url, headers=asked)
        assert response.status == 200
        assert response.headers["access-control-allow-headers"] == asked["Access-Control-Request-Headers"]
        other = client.site.request("OPTIONS", url, headers=asked | {"Origin": "https://evil.test"})
        assert not set(CORS) & other.headers.keys()


def test_answers_to_a_browser_can_be_read_by_it(middleware, call):
    """CASES 12: plain ones, waiting ones, errors and streams."""
    client = middleware(shares)
    headers = call(client.with_headers(Origin="https://app.example"))
    assert headers["access-control-allow-origin"] == "https://app.example"
    assert headers["access-control-expose-headers"] == "A2A-Extensions"
    assert not set(CORS) & call(client.with_headers(Origin="https://evil.test")).keys()


def test_without_such_a_middleware_there_are_no_cors_headers(client, call):
    """CASES 12."""
    assert not set(CORS) & call(client.with_headers(Origin="https://app.example")).keys()


def test_session_cookies(settings, middleware, call):
    client = middleware()
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, f"{__name__}.uses_the_session"]
    headers = call(client)

    assert "sessionid=" in headers["set-cookie"]
    assert "Cookie" in headers["vary"]


@pytest.mark.parametrize(
    ("what", "status"), [(refuses_after, 503), (answers_after, 200), (forbids_after, 403), (raises_after, 500)]
)
def test_a_middleware_that_overrules_the_view(middleware, what, status):
    client = middleware(what)
    for streaming in (False, True):
        response = client.post_raw(client.send_body({"message": message()}, streaming=streaming), streaming=streaming)
        assert response.status == status
        assert not response.headers["content-type"].startswith("text/event-stream")
        assert b"TASK_STATE" not in response.body


def test_a_middleware_that_answers_itself(middleware):
    client = middleware(refuses_before)
    response = client.post_raw(client.send_body({"message": message()}, streaming=True), streaming=True)
    assert response.body == b"maintenance"
    assert not Task.objects.exists()


def test_compression_leaves_streams_alone(settings, middleware):
    client = middleware().with_headers(Accept_Encoding="gzip")
    settings.MIDDLEWARE = ["django.middleware.gzip.GZipMiddleware", *settings.MIDDLEWARE]

    stream = client.stream("task chunks:20 completed")
    assert "content-encoding" not in stream.headers
    assert kinds(stream.all())[-1] == "COMPLETED"
    assert state(client.task("task chunks:20 completed")) == "COMPLETED"


def test_conditional_get_leaves_streams_alone(settings, middleware):
    client = middleware()
    settings.MIDDLEWARE = ["django.middleware.http.ConditionalGetMiddleware", *settings.MIDDLEWARE]
    task = client.task("task input:what?")

    stream = client.subscribe(task["id"])
    assert "etag" not in stream.headers
    assert "content-length" not in stream.headers
    next(stream)
    stream.close()


def test_a_middleware_that_is_only_async(middleware, call):
    client = middleware(async_only, marks)
    assert call(client)["x-seen"].startswith(client.url)


def test_a_request_goes_to_a_thread_once_and_finds_its_connection_there(a2a, middleware):
    """DESIGN 4: hops between threads and new connections are what a request costs."""
    a2a(REQUEST_THREADS=1)
    client, notes_its_thread.seen = middleware(notes_its_thread, marks, notes_its_thread), []
    for _ in range(3):
        client.task()
    assert len(notes_its_thread.seen) == 6
    assert {name.rsplit("_", 1)[0] for name, _ in notes_its_thread.seen} == {"a2a-request"}
    by_thread = dict(notes_its_thread.seen)
    assert set(notes_its_thread.seen[-2:]) <= set(by_thread.items())


def test_a_middleware_that_answers_in_pieces(middleware):
    client, streams_instead.closed = middleware(streams_instead), []
    response = client.post_raw(b"{")
    assert response.body.endswith(b", and more")
    assert len(streams_instead.closed) == 1


# --- the site around it


def test_atomic_requests(client, monkeypatch):
    """CASES 56: what a turn needs is committed before it starts."""
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
    client.site._application = None
    assert state(client.task("task dump completed")) == "COMPLETED"
    asked = client.task("task input:what?")
    assert kinds(client.stream(message("completed", taskId=asked["id"])).all())[-1] == "COMPLETED"
    with pytest.raises(Error):
        client.send(message(parts=[]))
    assert Turn.objects.count() == 3


@pytest.fixture
def languages(settings):
    """A site in several languages, each below its prefix."""
    settings.MIDDLEWARE = ["django.middleware.locale.LocaleMiddleware", *settings.MIDDLEWARE]


@pytest.mark.urls("tests.bindings.urls_prefixed")
def test_agents_below_a_language_prefix(languages, client):
    card = client.site.get("/de/a2a/test/.well-known/agent-card.json").json()
    assert {one["url"] for one in card["supportedInterfaces"]} == {"http://testserver/de/a2a/test"}

    path = f"/de{client.url}" + ("/message:stream" if client.binding == "rest" else "")
    body = client.send_body({"message": message()}, streaming=True)
    response = client.site.request("POST", path, body, client.headers)
    assert response.headers["content-type"] == "text/event-stream"
    assert response.headers["content-language"] == "de"
    assert b"COMPLETED" in response.body


@pytest.mark.urls("tests.bindings.urls_prefixed")
def test_the_default_card_beside_a_language_prefix(languages, site, make_agent):
    make_agent(is_default=True)
    card = site.get("/.well-known/agent-card.json").json()
    assert {one["url"] for one in card["supportedInterfaces"]} == {"http://testserver/en/a2a/test"}


def test_other_views_of_the_site_are_as_they_were(site):
    response = site.get("/admin/login/")
    assert (response.status, response.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert site.get("/no-such-page").status == 404
    assert site.get("/admin").headers["location"] == "/admin/"


def test_without_with_streaming(server, client):
    """Calls wait within Django, streams are refused with a clear error, and nothing is stored."""
    client.site = Site(server, served="asgi-bare")
    task = client.task("task input:what?")

    for call in (client.stream, lambda: client.subscribe(task["id"])):
        with pytest.raises(Error, match="with_streaming") as error:
            call()
        assert error.value.reason == "UNSUPPORTED_OPERATION"
    assert state(client.follow(task, "completed")) == "COMPLETED"
    assert Task.objects.count() == 1


def test_within_a_protocol_router(server, client):
    """DESIGN 2: a site's own ProtocolTypeRouter may hold `with_streaming`."""
    from channels.routing import ProtocolTypeRouter, URLRouter
    from django.core.handlers.asgi import ASGIHandler

    from a2a_django.routing import with_streaming

    application = ProtocolTypeRouter({"http": with_streaming(ASGIHandler()), "websocket": URLRouter([])})
    client.site = Site(server, _application=application)
    assert kinds(client.stream().all()) == ["task", "COMPLETED"]
    assert json.dumps(client.task())

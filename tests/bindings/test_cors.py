"""Clients in browsers: the site has django-cors-headers, set as the README says (CASES 12)."""

import pytest

from a2a_django.models import Task
from tests.clients import kinds, message

pytestmark = pytest.mark.http

ORIGIN = {"Origin": "https://app.example.com"}
NEEDED = "a2a-version,a2a-extensions,authorization,content-type,last-event-id,x-a2a-tenant"
CARD = "/a2a/test/.well-known/agent-card.json"


@pytest.fixture
def cors(settings, client):
    """The client of a site that lets one origin in; nobody gets at its agent without credentials."""
    settings.INSTALLED_APPS = [*settings.INSTALLED_APPS, "corsheaders"]
    settings.MIDDLEWARE = ["corsheaders.middleware.CorsMiddleware", *settings.MIDDLEWARE]
    settings.CORS_ALLOWED_ORIGINS = ["https://app.example.com"]
    settings.CORS_URLS_REGEX = r"^/(a2a/|\.well-known/agent)"
    settings.CORS_ALLOW_HEADERS = NEEDED.split(",")
    settings.CORS_EXPOSE_HEADERS = ["A2A-Extensions"]
    return client


def preflight(site, path, method="POST", **headers):
    asks = {"Access-Control-Request-Method": method, "Access-Control-Request-Headers": NEEDED}
    return site.request("OPTIONS", path, headers={**ORIGIN, **asks, **headers})


def paths(client):
    task = f"{client.url}/tasks/some-task"
    rest = [f"{client.url}/message:send", f"{client.url}/message:stream", f"{client.url}/tasks"]
    rest += [task, f"{task}:cancel", f"{task}:subscribe", f"{task}/pushNotificationConfigs/one"]
    return {"rest": rest, "jsonrpc": [client.url]}[client.binding] + [
        CARD,
        "/.well-known/agent-card.json",
        "/a2a/jwks.json",
    ]


def is_open(headers):
    assert headers["access-control-allow-origin"] == ORIGIN["Origin"]
    assert "access-control-allow-credentials" not in headers
    assert "origin" in headers["vary"].lower()
    return True


def test_the_preflight_passes_without_authentication(cors, a2a, make_agent):
    """CASES 12: a browser sends no credentials with it."""
    make_agent(slug="private", anonymous_access="denied")
    a2a(PERMISSION_CLASSES=["rest_framework.permissions.IsAuthenticated"])
    for path in (*paths(cors), *paths(cors.copy(agent="private"))):
        response = preflight(cors.site, path)
        assert (response.status, response.body) == (200, b"")
        assert is_open(response.headers)
        allowed = response.headers["access-control-allow-headers"].replace(" ", "")
        assert set(NEEDED.split(",")) <= set(allowed.lower().split(","))
        assert {"GET", "POST", "DELETE"} <= set(response.headers["access-control-allow-methods"].split(", "))


def test_plain_answers_waiting_ones_and_streams(cors):
    """CASES 12: each kind of answer may be read, with the extensions that were activated."""
    cors = cors.with_headers(**ORIGIN)
    waiting = cors.post_raw(cors.send_body({"message": message()}))
    stream = cors.stream()
    assert kinds(stream.all())[-1] == "COMPLETED"
    plain, card = cors.post_raw(b"{"), cors.site.get(CARD, **ORIGIN)
    assert (waiting.status, card.status) == (200, 200)
    for headers in (waiting.headers, stream.headers, plain.headers, card.headers):
        assert is_open(headers)
        assert headers["access-control-expose-headers"] == "A2A-Extensions"


def test_a_stream_is_resumed_from_a_browser(cors, gate):
    cors = cors.with_headers(**ORIGIN)
    first = cors.stream("task working wait:a completed")
    seen = [next(first), next(first)]
    first.close()
    again = cors.subscribe(seen[0].data["task"]["id"], last=seen[-1].id)
    assert is_open(again.headers)
    gate("a").open()
    assert kinds(again.all()) == ["COMPLETED"]


def test_refusals_may_be_read_too(cors, make_agent):
    """The browser's client must see that it is unauthenticated, or that there is no such path."""
    make_agent(slug="private", anonymous_access="denied")
    private = cors.copy(agent="private").with_headers(**ORIGIN)
    refused = private.post_raw(private.send_body({"message": message()}))
    assert refused.status == 401
    assert is_open(refused.headers)
    assert is_open(cors.site.get("/a2a/no/such/path", **ORIGIN).headers)


def test_a_card_that_is_known(cors):
    etag = cors.site.get(CARD, **ORIGIN).headers["etag"]
    known = cors.site.get(CARD, **ORIGIN, **{"If-None-Match": etag})
    assert known.status == 304
    assert is_open(known.headers)


@pytest.mark.parametrize("origin", ["https://evil.test", "https://app.example.com.evil.test", "null"])
def test_other_origins_get_no_cors_headers(cors, origin):
    """CASES 12; the answers are the same else."""
    other = cors.with_headers(Origin=origin)
    responses = [
        preflight(cors.site, paths(cors)[0], Origin=origin),
        other.post_raw(other.send_body({"message": message()})),
        cors.site.get(CARD, Origin=origin),
    ]
    for response in responses:
        assert not [name for name in response.headers if name.startswith("access-control-")]
    assert Task.objects.count() == 1


def test_a_site_without_cors(client):
    """CASES 12: without the middleware there are no CORS headers, and OPTIONS does nothing."""
    for path in paths(client)[:-3]:
        response = preflight(client.site, path)
        assert response.status == 405
        assert response.headers["allow"]
        assert not [name for name in response.headers if name.startswith("access-control-")]
    assert not Task.objects.exists()


def test_credentials_and_every_origin_do_not_go_together(cors, settings):
    """CASES 12: never `*` with credentials."""
    del settings.CORS_ALLOWED_ORIGINS
    settings.CORS_ALLOW_ALL_ORIGINS = True
    assert cors.site.get(CARD, **ORIGIN).headers["access-control-allow-origin"] == "*"
    settings.CORS_ALLOW_CREDENTIALS = True
    assert cors.site.get(CARD, **ORIGIN).headers["access-control-allow-origin"] == ORIGIN["Origin"]

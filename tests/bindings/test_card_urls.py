"""Where cards say the agents are: the very URLs that answer, whatever stands before the site (A2A 8; CASES 10)."""

import importlib
import json
from dataclasses import dataclass, field

import pytest
from django.urls import include
from django.urls import path as django_path

from a2a_django import urls
from tests.clients import Site, message

CARD = "/a2a/test/.well-known/agent-card.json"
DEFAULT = "/.well-known/agent-card.json"
VERSION = {"A2A-Version": "1.0"}
FORWARDED = {"X-Forwarded-Host": "api.example.com", "X-Forwarded-Proto": "https"}


@pytest.fixture
def agent(site, make_agent):
    return make_agent(is_default=True)


@pytest.fixture(autouse=True)
def _urls_as_they_were():
    yield
    importlib.reload(urls)


def interfaces(response):
    return response.json()["supportedInterfaces"]


def addresses(response):
    return {interface["url"] for interface in interfaces(response)}


@dataclass
class Place:
    """What a client calls the site, and what the site sees of its requests: `root` is the script name."""

    public: str = "http://testserver"
    headers: dict = field(default_factory=dict)
    root: str = ""
    inside: str = ""  # the path where the site includes a2a_django.urls


PLACES = {
    "plain": Place(),
    "port": Place("http://testserver:8000", {"Host": "testserver:8000"}),
    "ipv6": Place("http://[2001:db8::1]:8000", {"Host": "[2001:db8::1]:8000"}),
    "script-name": Place("http://testserver/agents", root="/agents"),
    "forced-script-name": Place("http://testserver/agents"),
    "tls-proxy": Place("https://api.example.com", {"Host": "10.0.0.5:8000", **FORWARDED}),
    "tls-proxy-and-script-name": Place("https://api.example.com/agents", FORWARDED, root="/agents"),
    "base-url": Place("https://api.example.com", {"Host": "10.0.0.5:8000"}),
    "base-url-and-script-name": Place("https://api.example.com/agents", root="/agents"),
    "base-url-with-a-path": Place("https://api.example.com/ai"),
    "mounted": Place(inside="/agents"),
    "mounted-and-script-name": Place("http://testserver/site", root="/site", inside="/agents"),
    "language": Place(inside="/de"),
}


@pytest.fixture(params=PLACES)
def place(request, settings, a2a):
    """A place with the settings that such a site has."""
    name = request.param
    if name == "forced-script-name":
        settings.FORCE_SCRIPT_NAME = "/agents"
    if name.startswith("tls-proxy"):
        settings.USE_X_FORWARDED_HOST = True
        settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
        settings.SECURE_SSL_REDIRECT = True  # what had come without TLS would be sent away
    if name.startswith("base-url"):
        a2a(BASE_URL=PLACES[name].public.removesuffix("/agents") + "/")
    if name.startswith("mounted"):
        settings.ROOT_URLCONF = "tests.bindings.urls_mounted"
    if name == "language":
        settings.MIDDLEWARE = ["django.middleware.locale.LocaleMiddleware", *settings.MIDDLEWARE]
        settings.ROOT_URLCONF = "tests.bindings.urls_prefixed"
    return PLACES[name]


def test_every_url_is_the_one_that_answers(server, agent, place):
    """CASES 1, 10: byte for byte, by POST, without a redirect."""
    site = Site(server, root=place.root)
    card = site.get(place.inside + CARD, **place.headers)
    assert addresses(card) == {f"{place.public}{place.inside}/a2a/test"}

    headers = {"A2A-Version": "1.0", "Content-Type": "application/json", **place.headers}
    call = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message()}}
    for interface in interfaces(card):
        path = interface["url"].removeprefix(place.public)
        rest = site.request("POST", f"{path}/message:send", json.dumps({"message": message()}).encode(), headers)
        rpc = site.request("POST", path, json.dumps(call).encode(), headers)
        assert (rest.status, rpc.status) == (200, 200)
        assert "task" in rest.json()
        assert "task" in rpc.json()["result"]


def test_the_default_agents_card_names_the_same_urls(server, agent, place):
    site = Site(server, root=place.root)
    default = site.get(DEFAULT, **place.headers, **{"Accept-Language": place.inside.strip("/")})
    assert addresses(default) == addresses(site.get(place.inside + CARD, **place.headers))


# --- what is not trusted


@pytest.mark.parametrize("forged", ["X-Forwarded-Host", "X-Forwarded-Server", "X-Host", "X-Original-Host", "Forwarded"])
def test_a_forged_host_never_appears(site, agent, forged):
    """CASES 10: nor does it change what a cache would keep."""
    honest = site.get(CARD)
    response = site.get(CARD, **{forged: "host=evil.test" if forged == "Forwarded" else "evil.test"})
    assert response.body == honest.body
    assert response.headers["etag"] == honest.headers["etag"]


@pytest.mark.parametrize("header", ["X-Forwarded-Proto", "X-Forwarded-Port", "X-Forwarded-Prefix", "X-Script-Name"])
def test_headers_that_the_site_does_not_trust(site, agent, header):
    assert site.get(CARD, **{header: "https"}).body == site.get(CARD).body


def test_a_host_that_is_not_the_sites(site, agent, settings):
    """CASES 6, 10."""
    settings.ALLOWED_HOSTS = ["testserver"]
    settings.USE_X_FORWARDED_HOST = True
    for headers in ({"Host": "evil.test"}, {"X-Forwarded-Host": "evil.test"}):
        response = site.get(CARD, **headers)
        assert response.status == 400
        assert b"evil.test/a2a" not in response.body
        assert "public" not in response.headers.get("cache-control", "")


def test_the_base_url_is_what_any_host_gets(site, agent, a2a, settings):
    settings.USE_X_FORWARDED_HOST = True
    a2a(BASE_URL="https://agents.example.com")
    one, two = site.get(CARD, Host="10.0.0.5"), site.get(CARD, **{"X-Forwarded-Host": "evil.test"})
    assert one.body == two.body
    assert "vary" not in one.headers


# --- caches before the site


def test_caches_are_told_which_headers_count(site, agent, settings):
    """CASES 10: a card for one host is not handed to those who call the site by another."""
    assert "vary" not in site.get(CARD).headers
    settings.USE_X_FORWARDED_HOST = True
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    wanted = "X-Forwarded-Host, X-Forwarded-Proto"
    first = site.get(CARD)
    assert first.headers["vary"] == wanted
    again = site.get(CARD, **{"If-None-Match": first.headers["etag"]})
    assert (again.status, again.headers["vary"]) == (304, wanted)


def test_another_host_is_another_card(site, agent):
    one, two = site.get(CARD), site.get(CARD, Host="other.example.com")
    assert one.headers["etag"] != two.headers["etag"]
    assert site.get(CARD, Host="other.example.com", **{"If-None-Match": one.headers["etag"]}).status == 200


@pytest.mark.urls("tests.bindings.urls_prefixed")
def test_caches_are_told_that_the_language_counts(site, agent, settings):
    settings.MIDDLEWARE = ["django.middleware.locale.LocaleMiddleware", *settings.MIDDLEWARE]
    response = site.get(DEFAULT, **{"Accept-Language": "de"})
    assert addresses(response) == {"http://testserver/de/a2a/test"}
    assert "Accept-Language" in response.headers["vary"]


# --- which interfaces


def test_every_binding_that_is_on_at_every_version(site, agent, a2a):
    def listed():
        return [(one["protocolBinding"], one["protocolVersion"]) for one in interfaces(site.get(CARD))]

    current, legacy = [("JSONRPC", "1.0"), ("HTTP+JSON", "1.0")], [("JSONRPC", "0.3"), ("HTTP+JSON", "0.3")]
    assert listed() == current + legacy
    a2a(ENABLE_V0_3=False)
    assert listed() == current
    a2a(ENABLE_JSONRPC=False)
    assert listed() == current[1:]
    a2a(ENABLE_JSONRPC=True, ENABLE_HTTP_JSON=False)
    assert listed() == current[:1]


def test_the_order_that_staff_chose(site, agent):
    agent.interfaces.create(protocol_binding="HTTP+JSON", position=3, tenant="acme")
    agent.interfaces.create(protocol_binding="GRPC", url="https://grpc.example.com", position=1)
    agent.interfaces.create(protocol_binding="HTTP+JSON", position=2, protocol_version="1.0.1")
    agent.interfaces.create(protocol_binding="JSONRPC", position=4, protocol_version="0.3.0", tenant="acme")
    agent.interfaces.create(protocol_binding="urn:other", position=5)  # of which this site knows no URL

    def interface(url, binding, version="1.0", **tenant):
        return {"url": url, "protocolBinding": binding, "protocolVersion": version, **tenant}

    assert interfaces(site.get(CARD)) == [
        interface("https://grpc.example.com", "GRPC"),
        interface("http://testserver/a2a/test", "HTTP+JSON"),
        interface("http://testserver/a2a/test", "HTTP+JSON", tenant="acme"),
        interface("http://testserver/a2a/test/acme", "JSONRPC", "0.3", tenant="acme"),
    ]


# --- beside what the site has already (CASES 81)


@pytest.mark.urls("tests.bindings.urls_mounted")
def test_the_sites_own_well_known_pages(site, agent):
    """CASES 81: of the folder only the card's path is ours."""
    assert site.get("/.well-known/security.txt").body.startswith(b"Contact:")
    assert site.get("/.well-known/openid-configuration").body == b"openid-configuration"
    assert site.get(DEFAULT).json()["name"] == "Test"


@pytest.mark.parametrize(
    ("path", "inside"), [("", "/agents"), ("/", "/agents"), ("ai/agents/", ""), ("/ai.v1", ""), ("ai/", "/agents")]
)
def test_the_path_of_agents_is_a_setting(site, agent, a2a, settings, path, inside):
    """CASES 81; the URLs are made once, when the site starts."""
    a2a(PATH=path)
    fresh = importlib.reload(urls)
    settings.ROOT_URLCONF = (django_path(f"{inside}/".lstrip("/"), include((fresh.urlpatterns, "a2a_django"))),)
    below = "/".join(filter(None, (inside, path.strip("/"))))
    below = below if below.startswith("/") else f"/{below}"
    (url,) = addresses(site.get(f"{below}/test/.well-known/agent-card.json"))
    assert url == f"http://testserver{below}/test"
    answer = site.request("POST", f"{below}/test/message:send", json.dumps({"message": message()}).encode(), VERSION)
    assert answer.status == 200
    assert site.get(f"{below}/nowhere/at/all").json()["error"]["code"] == 404


def test_the_path_of_cards_is_a_setting(a2a):
    """CASES 81; the URLs are made once, when the site starts."""
    a2a(AGENT_CARD_PATH="agents/card.json")
    card, old = urls._cards("^", "card")
    assert card.resolve("agents/card.json")
    assert not card.resolve(DEFAULT.strip("/"))
    assert old.resolve(".well-known/agent.json")


def test_a_site_behind_a_login(site, agent, make_agent, settings):
    """CASES 81: cards are read without one, calls are refused in our own words, and nobody is sent to a login page."""
    make_agent(slug="private", anonymous_access="denied")
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, "django.contrib.auth.middleware.LoginRequiredMiddleware"]
    for path in (DEFAULT, CARD, "/a2a/private/.well-known/agent-card.json"):
        assert site.get(path).status == 200
    headers = {"A2A-Version": "1.0", "Content-Type": "application/json"}
    assert site.request("POST", "/a2a/private/message:send", b"{}", headers).status == 401
    assert site.get("/a2a/nowhere/at/all").json()["error"]["code"] == 404

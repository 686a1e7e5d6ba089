"""Authenticators that a site configures: what they let in, and how cards declare them (A2A 4.5, 7)."""

import base64
import hashlib
from datetime import timedelta
from types import SimpleNamespace
from urllib.parse import parse_qs, urlsplit

import pytest
from a2a.types import AgentCard
from django.contrib.auth.models import Group, User
from django.test import Client as DjangoClient
from django.utils import timezone
from google.protobuf.json_format import ParseDict
from oauth2_provider.models import get_access_token_model, get_application_model
from rest_framework.authentication import BaseAuthentication, TokenAuthentication
from rest_framework.authtoken.models import Token
from rest_framework.exceptions import AuthenticationFailed

from a2a_django.agents import schemes
from a2a_django.authentication import Scheme, security_scheme
from a2a_django.models import Agent, Task, Turn
from tests.bindings.test_access import refusal
from tests.clients import state
from tests.clients_grpc import CLIENTS

CARD = "/a2a/test/.well-known/agent-card.json"
OURS = "a2a_django.authentication.AccessTokenAuthentication"
OAUTH = "oauth2_provider.contrib.rest_framework.OAuth2Authentication"
TOKEN = "rest_framework.authentication.TokenAuthentication"


@pytest.fixture
def client(site, binding, make_agent, make_user):
    """A client without credentials of an agent for users only; there is a user Alice."""
    make_user("alice", password="secret")
    make_agent(executor="tests.executors.Script", anonymous_access="denied")
    return CLIENTS[binding](site)


def alice():
    return User.objects.get(username="alice")


def card(site):
    """The card, which must be one."""
    found = site.get(CARD).json()
    ParseDict(found, AgentCard(), ignore_unknown_fields=True)
    return found


# --- DRF's tokens


def test_drf_tokens(client, a2a):
    a2a(AUTHENTICATION_CLASSES=[TOKEN])
    key = Token.objects.create(user=alice()).key
    assert state(client.with_headers(Authorization=f"Token {key}").task()) == "COMPLETED"
    assert Turn.objects.get().user == alice()

    for wrong in (f"Token {key[:-1]}", f"Bearer {key}", "Token"):
        error = refusal(client.with_headers(Authorization=wrong).send)
        assert (error.status, error.response.headers["www-authenticate"]) == (401, "Token")
    scheme = card(client.site)["securitySchemes"]["token"]["apiKeySecurityScheme"]
    assert (scheme["location"], scheme["name"]) == ("header", "Authorization")


# --- django-oauth-toolkit


@pytest.fixture
def oauth(a2a, settings):
    """A site that takes our tokens and OAuth's, and gives out the latter itself."""
    settings.ROOT_URLCONF = "tests.bindings.urls_oauth"
    settings.OAUTH2_PROVIDER = {
        "SCOPES": {"openid": "Who you are", "a2a:read": "Read tasks", "a2a:send": "Send messages"},
        "ALLOWED_REDIRECT_URI_SCHEMES": ["https"],
    }
    a2a(AUTHENTICATION_CLASSES=[OURS, OAUTH])


def application(**fields):
    kinds = {"client_type": "public", "authorization_grant_type": "authorization-code"}
    return get_application_model().objects.create(
        **{"name": "App", "redirect_uris": "https://app.example.com/", **kinds} | fields
    )


def oauth_token(user, scope, seconds=60, text="opaque"):
    expires = timezone.now() + timedelta(seconds=seconds)
    get_access_token_model().objects.create(
        user=user, token=text, scope=scope, expires=expires, application=application()
    )
    return text


def test_an_oauth_client_finds_its_way_by_the_card(client, oauth):
    """From the card to the user's consent, to a token, to a task."""
    found = card(client.site)
    flow = found["securitySchemes"]["oauth2"]["oauth2SecurityScheme"]["flows"]["authorizationCode"]
    assert flow["pkceRequired"]
    assert flow["scopes"] == {"a2a:read": "Read tasks", "a2a:send": "Send messages"}
    assert {"schemes": {"oauth2": {"list": ["a2a:read", "a2a:send"]}}} in found["securityRequirements"]

    app, browser, verifier = application(), DjangoClient(), "v" * 50
    browser.force_login(alice())
    challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")
    asked = {
        "client_id": app.client_id,
        "response_type": "code",
        "redirect_uri": "https://app.example.com/",
        "scope": " ".join(flow["scopes"]),
        "code_challenge": challenge,
        "code_challenge_method": "S256",
    }
    back = browser.post(flow["authorizationUrl"].removeprefix("http://testserver"), asked | {"allow": "yes"})
    code = parse_qs(urlsplit(back["Location"]).query)["code"][0]
    proof = {
        "grant_type": "authorization_code",
        "code": code,
        "client_id": app.client_id,
        "redirect_uri": "https://app.example.com/",
        "code_verifier": verifier,
    }
    answer = DjangoClient().post(flow["tokenUrl"].removeprefix("http://testserver"), proof).json()

    mine = client.as_(answer["access_token"])
    task = mine.task("task input:what?")
    assert mine.get(task["id"]) == task
    assert mine.stream().all()
    assert Task.objects.filter(user=alice(), owner=str(alice().pk)).count() == 2


def test_an_oauth_token_without_the_scope(client, oauth):
    """CASES 8: 403 names it as the provider does."""
    reader = client.as_(oauth_token(alice(), "openid a2a:read"))
    assert reader.list()["tasks"] == []
    error = refusal(reader.send)
    assert (error.status, error.reason, error.metadata) == (403, "PERMISSION_DENIED", {"scope": "a2a:send"})
    assert error.response.headers["www-authenticate"] == 'Bearer error="insufficient_scope", scope="a2a:send"'
    assert not Task.objects.exists()


def test_the_scopes_may_have_other_names(client, oauth, a2a):
    a2a(AUTHENTICATION_CLASSES=[OAUTH], OAUTH_SCOPE_PREFIX="")
    sender = client.as_(oauth_token(alice(), "read send"))
    assert state(sender.task()) == "COMPLETED"
    assert refusal(client.as_(oauth_token(alice(), "a2a:send", text="b")).send).metadata == {"scope": "send"}


@pytest.mark.parametrize("why", ["unknown", "expired", "disabled"])
def test_wrong_oauth_tokens(client, oauth, why):
    text = oauth_token(alice(), "a2a:send", seconds=-60 if why == "expired" else 60)
    User.objects.update(is_active=why != "disabled")
    error = refusal(client.as_("x" if why == "unknown" else text).send)
    assert (error.status, error.reason) == (401, "UNAUTHENTICATED")
    assert error.response.headers["www-authenticate"].startswith('Bearer realm="a2a", Bearer realm="api"')
    assert not Task.objects.exists()


def test_an_oauth_token_of_no_user(client, oauth):
    """That of a client itself: taken as anonymous, it would share its tasks with all who are."""
    Agent.objects.update(anonymous_access="shared")
    error = refusal(client.as_(oauth_token(None, "a2a:send")).send)
    assert (error.status, error.reason) == (403, "PERMISSION_DENIED")
    assert not Task.objects.exists()


def test_oauth_users_are_in_groups(client, oauth):
    client_of_alice = client.as_(oauth_token(alice(), "a2a:send a2a:read"))
    group = Group.objects.create(name="sales")
    group.a2a_agents.add(Agent.objects.get())
    assert refusal(client_of_alice.send).status == 403
    alice().groups.add(group)
    assert state(client_of_alice.task()) == "COMPLETED"


def test_our_tokens_beside_oauths(client, oauth, make_token):
    assert state(client.as_(make_token(alice())).task()) == "COMPLETED"
    assert set(card(client.site)["securitySchemes"]) == {"bearer", "oauth2"}


def test_oauth_tokens_that_another_site_gives_out(client, a2a):
    """The card can't know where: it says what the tokens are sent as."""
    a2a(AUTHENTICATION_CLASSES=[OAUTH])
    found = card(client.site)["securitySchemes"]
    assert [list(found), found["bearer"]["httpAuthSecurityScheme"]] == [["bearer"], {"scheme": "Bearer"}]
    assert state(client.as_(oauth_token(alice(), "a2a:send a2a:read")).task()) == "COMPLETED"


# --- a site's own


class KeyAuthentication(BaseAuthentication):
    """`X-Key: <username>`, which is not in Authorization."""

    def authenticate(self, request):
        name = request.headers.get("X-Key")
        if not name:
            return None
        user = User.objects.filter(username=name).first()
        if user is None:
            raise AuthenticationFailed("No such key")
        return user, None

    def authenticate_header(self, request):
        return "Key"


class Negotiate(BaseAuthentication):
    """One with a challenge that reads the request, and no words about itself."""

    def authenticate_header(self, request):
        return f'Negotiate realm="{request.method}"'

    def authenticate(self, request):
        return None


class Ours(TokenAuthentication):
    """Derived from one that is known."""

    keyword = "Ours"


@pytest.fixture
def registered(monkeypatch):
    """The makers, as they are again after the test."""
    monkeypatch.setattr(schemes, "_makers", dict(schemes._makers))


def test_an_authenticator_of_the_sites_own(client, a2a, registered):
    a2a(AUTHENTICATION_CLASSES=[KeyAuthentication])

    @security_scheme(KeyAuthentication)
    def key(authenticator, site):
        assert authenticator is KeyAuthentication
        return Scheme("key", {"apiKeySecurityScheme": {"location": "header", "name": "X-Key"}})

    assert state(client.with_headers(X_Key="alice").task()) == "COMPLETED"
    for headers in ({}, {"X_Key": "bob"}):
        error = refusal(client.with_headers(**headers).send)
        assert (error.status, error.response.headers["www-authenticate"]) == (401, "Key")
    found = card(client.site)
    assert found["securitySchemes"]["key"]["apiKeySecurityScheme"]["name"] == "X-Key"
    assert [set(each["schemes"]) for each in found["securityRequirements"]] == [{"key"}]


@pytest.mark.parametrize("path", ["tests.bindings.test_authenticators.KeyAuthentication"])
def test_one_that_is_registered_by_its_path(client, a2a, registered, path):
    a2a(AUTHENTICATION_CLASSES=[path])
    security_scheme(path)(lambda authenticator, site: Scheme("mtls", {"mtlsSecurityScheme": {"description": "d"}}))
    assert list(card(client.site)["securitySchemes"]) == ["mtls"]


def test_one_that_nobody_has_registered(client, a2a):
    a2a(AUTHENTICATION_CLASSES=[Negotiate])
    assert list(card(client.site)["securitySchemes"]) == ["negotiate"]
    error = refusal(client.send)
    assert error.response.headers["www-authenticate"].startswith("Negotiate realm=")


class Curious(KeyAuthentication):
    """Its challenge names the host, and its credentials have scopes in a list."""

    def authenticate(self, request):
        return alice(), SimpleNamespace(scope=["openid", "a2a:read"])

    def authenticate_header(self, request):
        return f'Bearer realm="{request.get_host()}"'


def test_one_whose_challenge_depends_on_the_request(client, a2a):
    a2a(AUTHENTICATION_CLASSES=[Curious])
    assert list(card(client.site)["securitySchemes"]) == ["bearer"]


def test_scopes_in_a_list_are_held_to(client, a2a):
    a2a(AUTHENTICATION_CLASSES=[Curious])
    assert refusal(client.send).metadata == {"scope": "a2a:send"}
    assert client.list()["tasks"] == []


def test_what_is_derived_counts_as_what_it_is_from(client, a2a):
    a2a(AUTHENTICATION_CLASSES=[Ours])
    assert "Ours <token>" in str(card(client.site)["securitySchemes"]["token"])


def test_a_site_without_authenticators(client, a2a):
    a2a(AUTHENTICATION_CLASSES=[])
    assert "securitySchemes" not in card(client.site)
    assert refusal(client.send).status == 401


class Forbids:
    """A permission without words."""

    def has_permission(self, request, view):
        return False


class Explains(Forbids):
    """A permission that says what is missing."""

    message = "You lack shop.use_agents"


@pytest.mark.parametrize(
    ("permission", "named"),
    [(Forbids, "Forbids"), (Explains, "shop.use_agents"), ("rest_framework.permissions.IsAdminUser", "IsAdminUser")],
)
def test_the_permission_that_is_missing_is_named(client, make_token, a2a, permission, named):
    """CASES 8."""
    a2a(PERMISSION_CLASSES=[permission])
    error = refusal(client.as_(make_token(alice())).send)
    assert (error.status, error.reason) == (403, "PERMISSION_DENIED")
    assert named in error.message

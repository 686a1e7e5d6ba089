"""What the site's authenticators are in agent cards: security schemes and requirements (A2A 4.5, 7)."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from django.conf import settings
from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse
from django.utils.module_loading import import_string
from rest_framework.authentication import (
    BaseAuthentication,
    BasicAuthentication,
    SessionAuthentication,
    TokenAuthentication,
)
from rest_framework.request import Request

from a2a_django.models import Scope
from a2a_django.settings import a2a_settings


class Scheme(NamedTuple):
    """A SecurityScheme as JSON, by what name the card has it, and which OAuth scopes clients should ask for."""

    name: str
    body: dict[str, Any]
    scopes: Sequence[str] = ()


Authenticator = type[BaseAuthentication]
Maker = Callable[[Authenticator, str], Scheme]

_makers: dict[str, Maker] = {}


def security_scheme(authenticator: Authenticator | str) -> Callable[[Maker], Maker]:
    """Registers a function that tells what clients do for `authenticator`, a class or its dotted path.

    It is called with the class, or what is derived from it, and the site's address, empty where that isn't known.
    """

    def register(maker: Maker) -> Maker:
        _makers[authenticator if isinstance(authenticator, str) else _path(authenticator)] = maker
        return maker

    return register


def configured(site: str = "") -> Iterator[Scheme]:
    """What each of A2A["AUTHENTICATION_CLASSES"] is in a card."""
    for authenticator in a2a_settings.load("AUTHENTICATION_CLASSES"):
        makers = (_makers.get(_path(kind)) for kind in authenticator.__mro__)
        yield next(filter(None, makers), _of_header)(authenticator, site)


def _path(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


# --- the authenticators of Django REST Framework and django-oauth-toolkit


def _http(name: str, scheme: str) -> Scheme:
    return Scheme(name, {"httpAuthSecurityScheme": {"scheme": scheme}})


def _of_header(authenticator: Authenticator, site: str) -> Scheme:
    """What is not registered, by the first word of its own challenge."""
    try:
        challenge = authenticator().authenticate_header(Request(HttpRequest()))
    except Exception:  # it depends on the request, and a card is for all
        challenge = None
    scheme = (challenge or "Bearer").split()[0]
    return _http(scheme.lower(), scheme)


@security_scheme(SessionAuthentication)
def _session(authenticator: Authenticator, site: str) -> Scheme:
    cookie = {"location": "cookie", "name": settings.SESSION_COOKIE_NAME, "description": "A session of this site"}
    return Scheme("session", {"apiKeySecurityScheme": cookie})


@security_scheme(BasicAuthentication)
def _basic(authenticator: Authenticator, site: str) -> Scheme:
    return _http("basic", "Basic")


@security_scheme(TokenAuthentication)
def _token(authenticator: Any, site: str) -> Scheme:
    if authenticator.keyword.lower() == "bearer":
        return _http("bearer", "Bearer")
    header = {"location": "header", "name": "Authorization", "description": f"{authenticator.keyword} <token>"}
    return Scheme("token", {"apiKeySecurityScheme": header})


@security_scheme("oauth2_provider.contrib.rest_framework.authentication.OAuth2Authentication")
def _oauth2(authenticator: Authenticator, site: str) -> Scheme:
    """The authorization code flow: tokens of the client credentials flow stand for no user."""
    try:
        authorize, token = [site + reverse(f"oauth2_provider:{name}") for name in ("authorize", "token")]
    except NoReverseMatch:  # another site gives the tokens out
        site = ""
    if not site:
        return _http("bearer", "Bearer")
    known = import_string("oauth2_provider.scopes.get_scopes_backend")().get_all_scopes()
    names = [f"{a2a_settings.OAUTH_SCOPE_PREFIX}{scope}" for scope in Scope]
    scopes = {name: str(known[name]) for name in names if name in known}
    pkce = import_string("oauth2_provider.settings.oauth2_settings").PKCE_REQUIRED is not False  # may be a function
    urls = {"authorizationUrl": authorize, "tokenUrl": token, "refreshUrl": token}
    flows = {"authorizationCode": urls | {"scopes": scopes, "pkceRequired": pkce}}
    return Scheme("oauth2", {"oauth2SecurityScheme": {"flows": flows}}, list(scopes))

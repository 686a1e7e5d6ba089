"""Access tokens as DRF authenticates by them, in every binding (DESIGN 7)."""

from functools import partial
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.base_user import AbstractBaseUser
from django.db import router
from django.db.models import BooleanField, ExpressionWrapper
from django.db.models.functions import Now
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from a2a_django import audit, database
from a2a_django.agents.schemes import Scheme, security_scheme
from a2a_django.models import AccessToken
from a2a_django.models.access_token import FORMAT, UNUSED
from a2a_django.statements import Select

__all__ = ["AccessTokenAuthentication", "Scheme", "security_scheme"]


class AccessTokenAuthentication(BaseAuthentication):
    """`Authorization: Bearer a2a_…`; bearer tokens of other kinds are left to the authenticators that come after it."""

    def authenticate(self, request: Request) -> tuple[AbstractBaseUser, AccessToken] | None:
        """The token's user, and the token; AuthenticationFailed."""
        scheme, _, text = request.headers.get("Authorization", "").partition(" ")
        text = text.strip()
        if scheme.lower() != "bearer" or not text.startswith("a2a_"):
            return None
        token = _find(text)
        if token is None or not token.user.is_active:
            raise AuthenticationFailed("The access token is unknown, has expired or was revoked")
        return token.user, token

    def authenticate_header(self, request: Request) -> str:
        """The challenge (RFC 6750)."""
        return 'Bearer realm="a2a"'


@security_scheme(AccessTokenAuthentication)
def _scheme(authenticator: type[BaseAuthentication], site: str) -> Scheme:
    bearer = {"scheme": "Bearer", "bearerFormat": "a2a_…", "description": "An access token of this site"}
    return Scheme("bearer", {"httpAuthSecurityScheme": bearer})


_OWN = [field.attname for field in AccessToken._meta.concrete_fields]
_USERS = [field.attname for field in get_user_model()._meta.concrete_fields]
_TOKENS = Select(  # a row for each agent that the token is limited to, or one without
    AccessToken,
    lambda prefix: (
        AccessToken.objects.usable()
        .filter(prefix=prefix)
        .annotate(unused=ExpressionWrapper(UNUSED, BooleanField()))
        .values_list(*_OWN, *(f"user__{name}" for name in _USERS), "unused", "agents")
    ),
)


def _find(text: str) -> AccessToken | None:
    """The usable token that `text` is, with its user and its agents."""
    form = FORMAT.fullmatch(text)
    rows: list[Any] = _TOKENS.rows(form[1]) if form else []
    if not rows:
        return None
    user, unused = rows[0][len(_OWN) : -2], rows[0][-2]
    token = AccessToken.from_db(router.db_for_write(AccessToken), _OWN, rows[0][: len(_OWN)])
    if not token.is_that_of(text):
        return None
    token.user = get_user_model().from_db(router.db_for_write(get_user_model()), _USERS, user)
    token.agent_ids = frozenset(row[-1] for row in rows if row[-1] is not None)
    if unused:  # in another thread: the call doesn't wait for it
        database.log.submit(partial(_note_use, token))
    return token


def _note_use(token: AccessToken) -> None:
    if AccessToken.objects.filter(UNUSED, pk=token.pk).update(last_used_at=Now()):
        audit.note("token.used", token=token.prefix, user=token.user_id)

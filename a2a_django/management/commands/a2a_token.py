"""`manage.py a2a_token`: makes, lists and revokes access tokens."""

import argparse
import re
from datetime import timedelta
from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction
from django.utils import timezone

from a2a_django.models import AccessToken, Agent, Scope, Tenant

_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def lasting(text: str) -> timedelta:
    """`30d` and the like."""
    form = re.fullmatch(r"([1-9][0-9]{0,4})([mhdw])", text)
    if form is None:
        raise argparse.ArgumentTypeError("write a number and m, h, d or w, such as 30d")
    return timedelta(**{_UNITS[form[2]]: int(form[1])})


class Command(BaseCommand):
    """Prints the text of a new token, and nothing else, to where a program can read it."""

    help = "Makes access tokens, with which programs call agents in the name of a user; lists and revokes them."

    def add_arguments(self, parser: CommandParser) -> None:
        """create, list, revoke"""
        commands = parser.add_subparsers(dest="command", required=True)
        create = commands.add_parser("create", help="make a token and print it, this once")
        create.add_argument("--user", required=True, help="whose calls they are, by login name")
        create.add_argument("--name", required=True, help="what it is for")
        create.add_argument(
            "--agent", action="append", default=[], metavar="SLUG", help="good for this one only; again"
        )
        create.add_argument("--tenant", metavar="SLUG", help="good within it only")
        create.add_argument("--scope", action="append", default=[], choices=Scope.values, help="limits it; again")
        create.add_argument("--expires", type=lasting, metavar="30d", help="after so many m, h, d or w; else never")
        commands.add_parser("list", help="show what there is").add_argument("--user", help="of this user only")
        revoke = commands.add_parser("revoke", help="make tokens worthless at once")
        revoke.add_argument("prefix", nargs="+", help="what the token begins with: a2a_ and 8 letters")

    def handle(self, *args: Any, command: str, **options: Any) -> None:
        """Does the one that was asked for."""
        getattr(self, f"_{command}")(**options)

    @transaction.atomic
    def _create(self, *, user: str, name: str, agent: list[str], tenant: str | None, **options: Any) -> None:
        token = AccessToken(user=_account(user), name=name, scopes=sorted(set(options["scope"])))
        token.tenant = _one(Tenant, tenant) if tenant else None
        token.expires_at = timezone.now() + options["expires"] if options["expires"] else None
        text = token.renew()
        token.save()
        token.agents.set([_one(Agent, slug) for slug in agent])
        self.stdout.write(text)

    def _list(self, *, user: str | None, **options: Any) -> None:
        tokens = AccessToken.objects.select_related("user", "tenant").prefetch_related("agents")
        for token in tokens.filter(user=_account(user)) if user else tokens:
            self.stdout.write("  ".join(_told(token)))

    def _revoke(self, *, prefix: list[str], **options: Any) -> None:
        found = AccessToken.objects.filter(prefix__in=prefix)
        if missing := sorted(set(prefix) - set(found.values_list("prefix", flat=True))):
            raise CommandError(f"There is no token {', '.join(missing)}; nothing was revoked.")
        self.stdout.write(f"{found.revoke()} revoked")


def _account(name: str) -> Any:
    account = get_user_model()._default_manager.filter(**{get_user_model().USERNAME_FIELD: name}).first()
    if account is None:
        raise CommandError(f"There is no user {name}.")
    return account


def _one(model: "type[Agent] | type[Tenant]", slug: str) -> Any:
    found = model._default_manager.filter(slug=slug).first()
    if found is None:
        raise CommandError(f"There is no {model._meta.verbose_name} {slug}.")
    return found


def _told(token: AccessToken) -> list[str]:
    """What one line says of a token."""
    used = f"used {token.last_used_at:%Y-%m-%d %H:%M}" if token.last_used_at else "never used"
    until = f"until {token.expires_at:%Y-%m-%d %H:%M}" if token.expires_at else "for ever"
    limits = [*(agent.slug for agent in token.agents.all()), *([f"in {token.tenant.slug}"] if token.tenant else [])]
    told = [token.prefix, token.state, token.user.get_username(), token.name, *token.scopes, *limits]
    return [*told, until, used]

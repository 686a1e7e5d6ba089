"""`manage.py a2a_keys`: the keys that sign agent cards, and the encryption of all secrets under a new key."""

from argparse import ArgumentParser
from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from a2a_django import keys, reencryption
from a2a_django.agents import signatures
from a2a_django.models import SigningKey
from a2a_django.models.signing_key import KEPT, Algorithm
from a2a_django.settings import a2a_settings


class Command(BaseCommand):
    """What is done stands in the first argument."""

    help = "Makes, lists and retires the keys that sign agent cards; encrypts all secrets with the newest key."

    def add_arguments(self, parser: ArgumentParser) -> None:
        what = parser.add_subparsers(dest="what", required=True)
        generate = what.add_parser("generate", help="make a key that signs from now on")
        generate.add_argument("--alg", choices=Algorithm.values, default=Algorithm.ES256.value)
        what.add_parser("list", help="show the keys, never their private halves")
        retire = what.add_parser("retire", help="let a key sign no more")
        retire.add_argument("kid", help="its id, as `list` shows it")
        retire.add_argument(
            "--keep",
            type=int,
            default=KEPT.days,
            metavar="DAYS",
            help="so long its signatures hold; 0 for a key that somebody else may have (%(default)s)",
        )
        what.add_parser("reencrypt", help="encrypt all secrets with the first of A2A['ENCRYPTION_KEYS']")

    def handle(self, *args: Any, what: str, **options: Any) -> None:
        getattr(self, what)(options)

    def generate(self, options: dict[str, Any]) -> None:
        """Says the new key's id."""
        if not signatures.INSTALLED:
            raise CommandError(signatures.NOT_INSTALLED)
        key = keys.generate(options["alg"])
        key.save()
        self.stdout.write(key.kid)

    def list(self, options: dict[str, Any]) -> None:
        """A line for each key."""
        for kid in a2a_settings.SIGNING_KEYS:
            self.stdout.write(f"{kid}  in A2A['SIGNING_KEYS']")
        for key in SigningKey.objects.all():
            self.stdout.write(f"{key.kid}  {key.algorithm}  {key.created_at:%Y-%m-%d}  {key.state}")

    def retire(self, options: dict[str, Any]) -> None:
        """Refuses an id that no key in the database has."""
        keep = timedelta(days=max(options["keep"], 0))
        if not SigningKey.objects.filter(kid=options["kid"]).retire(keep):
            raise CommandError(
                f"There is no key {options['kid']} in the database; `a2a_keys list` shows those there are."
            )
        self.stdout.write(f"{options['kid']} signs no more; its signatures hold for {keep.days} days")

    def reencrypt(self, options: dict[str, Any]) -> None:
        """Says of how many rows, and which secrets couldn't be read."""
        done, unreadable = reencryption.reencrypt()
        for place in unreadable:
            self.stderr.write(f"{place} was encrypted with a key that this site no longer has")
        self.stdout.write(f"{done} rows looked through")
        if unreadable:
            raise CommandError("Add the missing key to A2A['ENCRYPTION_KEYS'], last, and run this again.")

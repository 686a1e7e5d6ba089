"""`manage.py a2a_recover`: brings back the turns of processes that have died."""

import time
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from a2a_django import database
from a2a_django.agents import loop, recovery


class Command(BaseCommand):
    """Recovers once, or again and again."""

    help = "Brings back turns whose process has died or whose job was lost. Every A2A process does so by itself, too."

    def add_arguments(self, parser: CommandParser) -> None:
        """`--every SECONDS`"""
        parser.add_argument("--every", type=float, metavar="SECONDS", help="go on, with this pause in between")

    def handle(self, *args: Any, every: float | None = None, **options: Any) -> None:
        """Says how many tasks were recovered; one that goes on survives its database's absence."""
        if every is None:
            self._recover()
            return loop.join()  # where turns run in the process that recovers them, they need it until they end
        while True:
            try:
                self._recover()
            except database.AWAY as error:
                self.stderr.write(f"Recovery failed and is tried again: {type(error).__name__}")
            time.sleep(every)

    def _recover(self) -> None:
        # In a thread of ours, which drops connections that have broken.
        self.stdout.write(f"{database.log.submit(recovery.recover).result()} recovered")

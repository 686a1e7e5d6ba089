"""`manage.py a2a_recover`: brings back the turns of processes that have died."""

import time
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from a2a_django.agents import recovery


class Command(BaseCommand):
    """Recovers once, or again and again."""

    help = "Brings back turns whose process has died or whose job was lost. Every A2A process does so by itself, too."

    def add_arguments(self, parser: CommandParser) -> None:
        """`--every SECONDS`"""
        parser.add_argument("--every", type=float, metavar="SECONDS", help="go on, with this pause in between")

    def handle(self, *args: Any, every: float | None = None, **options: Any) -> None:
        """Says how many tasks were recovered."""
        while True:
            self.stdout.write(f"{recovery.recover()} recovered")
            if every is None:
                return
            time.sleep(every)

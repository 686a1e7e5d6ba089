"""`manage.py a2a_card`: agent cards as JSON files, so that they can live in git (docs/cards.md)."""

import json
import sys
from argparse import ArgumentParser
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand, CommandError

from a2a_django.agents import card_checks, card_import, documents, publishing
from a2a_django.agents.card_import import UnfitError
from a2a_django.models import Agent
from a2a_django.protocol import codec, errors
from a2a_django.protocol.values import Violation


class Command(BaseCommand):
    """What is done stands in the first argument."""

    help = "Exports, imports, validates and publishes agent cards as plain AgentCard JSON."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """The four things to do, each with an agent."""
        what = parser.add_subparsers(dest="what", required=True)
        export = what.add_parser("export", help="write the draft as JSON")
        export.add_argument("--published", action="store_true", help="the newest published version instead")
        export.add_argument("--output", metavar="FILE", help="instead of the standard output")
        load = what.add_parser("import", help="have the draft say what the file says; nothing is published")
        load.add_argument("--executor", help="makes the agent, if there is none, with this executor")
        validate = what.add_parser("validate", help="name what keeps the draft, or a file, from being published")
        publish = what.add_parser("publish", help="publish the draft")
        publish.add_argument("--note", default="", help="what has changed, and why")
        publish.add_argument("--user", help="the login name of who publishes it")
        for each in (export, load, validate, publish):
            each.add_argument("agent", help="its slug")
        load.add_argument("file", help="- is the standard input")
        validate.add_argument("file", nargs="?", help="- is the standard input")

    def handle(self, *args: Any, what: str, **options: Any) -> None:
        """Ends with an error that lists all problems by field."""
        try:
            getattr(self, f"do_{what}")(**options)
        except UnfitError as error:
            raise CommandError(_listed(error.problems)) from error

    def do_export(self, agent: str, published: bool, output: str | None, **options: Any) -> None:
        """The card as a document, indented for people and diffs."""
        found = _agent(agent)
        if published and found.published is None:
            raise CommandError(f"The card of {agent} was never published.")
        document = codec.loads(found.published.content) if published and found.published else documents.of(found)
        text = json.dumps(document, ensure_ascii=False, indent=2)
        if output:
            Path(output).write_text(f"{text}\n", encoding="utf-8")
        else:
            self.stdout.write(text)

    def do_import(self, agent: str, file: str, executor: str | None, **options: Any) -> None:
        """Says what of the file is not kept."""
        document = _read(file)
        found = Agent.objects.filter(slug=agent).first()
        if found is None and not executor:
            raise CommandError(f"No agent is called {agent}; --executor NAME makes it.")
        found = found or Agent(slug=agent)
        found.executor = executor or found.executor
        card_import.store(found, document)
        self._tell_unknown(document)
        self.stdout.write(f"The draft of {agent} is what {file} says; `a2a_card publish {agent}` has it served.")

    def do_validate(self, agent: str, file: str | None, **options: Any) -> None:
        """Says that nothing is wrong, or what is."""
        found = _agent(agent)
        document = _read(file) if file else documents.of(found)
        card_import.refuse(card_checks.faults(document) or card_checks.problems(found, document))
        self._tell_unknown(document)
        self.stdout.write(f"{file or f'The draft of {agent}'} can be published.")

    def do_publish(self, agent: str, note: str, user: str | None, **options: Any) -> None:
        """Says which version is served now."""
        users = get_user_model()
        publisher = users._default_manager.filter(**{users.USERNAME_FIELD: user}).first() if user else None
        if user and publisher is None:
            raise CommandError(f"No user is called {user}.")
        version = publishing.publish(_agent(agent), publisher, note)
        self.stdout.write(f"{agent}: version {version.number}, SHA-256 {version.digest}")

    def _tell_unknown(self, document: dict[str, Any]) -> None:
        for field in card_checks.unknown(document):
            self.stderr.write(f"{field} is not kept: no card of this site has it.")


def _agent(slug: str) -> Agent:
    found = Agent.objects.filter(slug=slug).first()
    if found is None:
        slugs = ", ".join(Agent.objects.values_list("slug", flat=True)) or "none"
        raise CommandError(f"No agent is called {slug}; there are: {slugs}.")
    return found


def _read(file: str) -> Any:
    try:
        return codec.parse_json(sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes())
    except OSError as error:
        raise CommandError(f"{file} can't be read: {error.strerror}") from error
    except errors.A2AError as error:
        raise CommandError(f"{file}: {error.message}") from error


def _listed(problems: Iterable[Violation]) -> str:
    return "\n".join(f"{field}: {what}" for field, what in problems)

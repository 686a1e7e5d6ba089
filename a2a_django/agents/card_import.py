"""A document into the rows of an agent, as far as rows can hold it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError
from django.db import models, transaction

from a2a_django.agents import card_checks, declarations, documents
from a2a_django.agents.documents import VISIBLE_TO, Document
from a2a_django.models import Agent, AgentExtension, AgentInterface, AgentSkill
from a2a_django.models.agent import AgentChild, Visibility
from a2a_django.protocol.values import Violation


class UnfitError(Exception):
    """A document that can't become rows, or no card; `problems` says why, by field."""

    def __init__(self, problems: Sequence[Violation]) -> None:
        super().__init__("; ".join(f"{field} {what}" for field, what in problems))
        self.problems = problems


def refuse(problems: Iterable[Violation]) -> None:
    """UnfitError if there are any."""
    if found := list(problems):
        raise UnfitError(found)


def store(agent: Agent, document: Any) -> None:
    """Has the rows of `agent` say what `document` says; UnfitError where they can't.

    A skill that the code declares just so stays there, others that it declares are hidden.
    """
    refuse(card_checks.faults(document))
    declared = declarations.of(agent.executor)
    listed = document.get("skills") or []
    agent.hidden_skills = sorted(declared.keys() - {item.get("id") for item in listed})
    extensions = (document.get("capabilities") or {}).get("extensions")
    rows = {
        "capabilities.extensions": _rows(AgentExtension, documents.EXTENSION, extensions),
        "supportedInterfaces": _rows(AgentInterface, documents.INTERFACE, document.get("supportedInterfaces")),
        "skills": _skills(_undeclared(listed, declared)),
    }
    _fill(agent, document)
    refuse([*_unclean(agent, rows), *_unknown_groups(listed)])
    _write(agent, rows, listed)


@transaction.atomic
def _write(agent: Agent, rows: Mapping[str, Sequence[Any]], listed: list[Document]) -> None:
    agent.save()
    related: tuple[Any, ...] = (agent.extensions, agent.interfaces, agent.skills)
    for children, new in zip(related, rows.values(), strict=True):
        children.all().delete()
        for row in new:
            row.agent = agent
            row.save()
    for item in listed:
        if isinstance(item.get(VISIBLE_TO), list):
            agent.skills.get(skill_id=item["id"]).groups.set(Group.objects.filter(name__in=item[VISIBLE_TO]))


def _undeclared(listed: list[Document], declared: Mapping[str, Document]) -> list[Document]:
    """The skills that need a row; all of them if the card's order would be another otherwise."""
    rows = [item for item in listed if item != declared.get(item.get("id", ""))]
    others = {item.get("id") for item in listed} - {item.get("id") for item in rows}
    return rows if [*rows, *(item for name, item in declared.items() if name in others)] == listed else listed


def _skills(listed: list[Document]) -> list[AgentSkill]:
    rows = _rows(AgentSkill, documents.SKILL, listed)
    for row, item in zip(rows, listed, strict=True):
        seers = item.get(VISIBLE_TO, Visibility.PUBLIC)
        row.visibility = Visibility.GROUPS if isinstance(seers, list) else seers
    return rows


def _fill(agent: Agent, document: Document) -> None:
    """The agent's own columns; what the document doesn't say is empty."""
    switches = document.get("capabilities") or {}
    for source, columns in (
        (document, documents.TEXTS | documents.CHECKED),
        (document.get("provider") or {}, documents.PROVIDER),
        (switches, documents.SWITCHES),
    ):
        for column, value in _values(Agent, columns, source).items():
            setattr(agent, column, value)


def _rows(model: type[AgentChild], columns: Mapping[str, str], listed: list[Document] | None) -> list[Any]:
    return [model(position=position, **_values(model, columns, item)) for position, item in enumerate(listed or [])]


def _values(model: type[models.Model], columns: Mapping[str, str], source: Document) -> dict[str, Any]:
    return {column: source.get(name) or _empty(model._meta.get_field(column)) for column, name in columns.items()}


def _empty(field: Any) -> Any:
    if isinstance(field, models.JSONField):
        return {} if field.default is dict else []
    return False if isinstance(field, models.BooleanField) else ""


def _unclean(agent: Agent, rows: Mapping[str, Sequence[models.Model]]) -> Iterator[Violation]:
    """What the columns refuse: what is too long, and what must not be empty."""
    names = {**documents.TEXTS, **documents.CHECKED, **documents.SWITCHES}
    names |= {column: f"provider.{name}" for column, name in documents.PROVIDER.items()}
    yield from _refused(agent, names, "")
    for where, (listed, columns) in zip(
        rows, zip(rows.values(), (documents.EXTENSION, documents.INTERFACE, documents.SKILL), strict=True), strict=True
    ):
        for index, row in enumerate(listed):
            yield from _refused(row, columns, f"{where}[{index}].")


def _refused(row: models.Model, names: Mapping[str, str], where: str) -> Iterator[Violation]:
    try:
        row.full_clean(exclude=["agent"], validate_unique=False, validate_constraints=False)
    except ValidationError as error:
        for column, messages in error.message_dict.items():
            yield f"{where}{names.get(column, column)}", " ".join(messages)


def _unknown_groups(listed: list[Document]) -> Iterator[Violation]:
    for index, item in enumerate(listed):
        if isinstance(seers := item.get(VISIBLE_TO), list):
            known = set(Group.objects.filter(name__in=seers).values_list("name", flat=True))
            if unknown := sorted(set(seers) - known):
                yield f"skills[{index}].{VISIBLE_TO}", f"names groups that there are not: {', '.join(unknown)}"

"""Skills that are declared in code: on an executor class, or by `@a2a_skill` on a view or function of the site."""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any, TypeVar

from a2a.types import AgentSkill
from django.core.exceptions import ImproperlyConfigured
from django.urls import get_resolver
from django.utils.text import capfirst, slugify

from a2a_django import accidents
from a2a_django.agents import registry
from a2a_django.protocol import codec, errors

Skill = dict[str, Any]  # AgentSkill as JSON, without what is empty
Anything = TypeVar("Anything")

log = logging.getLogger(__name__)

_decorated: dict[str, dict[str, tuple[str, Skill]]] = {}  # by executor and id: where it stands, what it says


def a2a_skill(
    executor: str,
    *,
    tags: Sequence[str],
    id: str = "",  # noqa: A002  the protocol's word
    name: str = "",
    description: str = "",
    examples: Sequence[str] = (),
    input_modes: Sequence[str] = (),
    output_modes: Sequence[str] = (),
) -> Callable[[Anything], Anything]:
    """Declares that agents with this executor can do what the view or function below does.

    Id and name are made from its name, and the description is its docstring, unless they are given. What is decorated
    stays as it is.
    """

    def declare(what: Anything) -> Anything:
        own: Any = what
        words = own.__name__.replace("_", " ")
        said = {
            "id": id or slugify(words),
            "name": name or capfirst(words),
            "description": description or (own.__doc__ or "").strip(),
            "tags": list(tags),
            "examples": list(examples),
            "inputModes": list(input_modes),
            "outputModes": list(output_modes),
        }
        _remember(executor, f"{own.__module__}.{own.__qualname__}", said)
        return what

    return declare


def _remember(executor: str, where: str, said: Skill) -> None:
    try:
        skill = _skill(said)
    except ValueError as error:
        raise ImproperlyConfigured(f"The skill of {where} is not one: {error}") from error
    known, _ = _decorated.setdefault(executor, {}).setdefault(skill["id"], (where, skill))
    if known != where:
        raise ImproperlyConfigured(f"The skill id “{skill['id']}” is taken by {known}; choose another for {where}.")
    _decorated[executor][skill["id"]] = where, skill


def of(executor: str) -> dict[str, Skill]:
    """The skills that code declares for agents with this executor, by id; those of its class go first."""
    _ = get_resolver().url_patterns  # imports the site's views, which may declare some
    found: dict[str, Skill] = {}
    for skill in (*_of_class(executor), *(skill for _, skill in _decorated.get(executor, {}).values())):
        found.setdefault(skill["id"], skill)
    return found


def _of_class(executor: str) -> Iterator[Skill]:
    """What `skills` of the class lists; what is none of ours is left out, and the log says so."""
    try:
        skills: Any = getattr(registry.registration(executor).make, "skills", ())
        listed: Iterable[Any] = list(skills() if callable(skills) else skills)
    except LookupError:  # whoever runs it will say so
        return
    except Exception as error:  # a framework's registry may fail in any way; the card must not
        _tell(executor, f"they can't be listed: {accidents.place(error)}")
        return
    for index, item in enumerate(listed):
        try:
            yield _skill(item)
        except ValueError as error:
            _tell(executor, f"[{index}] is none: {error}")


def _skill(given: Any) -> Skill:
    """`given`, an AgentSkill or its JSON, as JSON; ValueError says what is wrong with it."""
    try:
        data = codec.to_data(given) if isinstance(given, AgentSkill) else given
        return codec.to_data(codec.to_proto(data, AgentSkill))
    except errors.InvalidParamsError as error:
        found = (error.data or {}).get("errors") or []
        raise ValueError("; ".join(f"{item['field']} {item['message']}" for item in found) or error.message) from error


@cache
def _tell(executor: str, what: str) -> None:
    log.error("The skills that executor “%s” declares are not all in agent cards: %s", executor, what)

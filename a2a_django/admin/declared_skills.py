"""Skills that are declared in code, as staff see them: listed, hidden, or taken over as rows."""

from collections.abc import Iterable, Iterator

from django.db.models import Max

from a2a_django.agents import declarations, documents
from a2a_django.models import Agent, AgentSkill


def choices(agent: Agent) -> list[tuple[str, str]]:
    """Id and name of each; hidden ones, too, that no code declares any more."""
    declared = declarations.of(agent.executor)
    gone = [(name, f"{name} (no longer declared)") for name in agent.hidden_skills if name not in declared]
    return [*((name, skill["name"]) for name, skill in declared.items()), *gone]


def listed(agent: Agent) -> bool:
    """Whether the card lists any."""
    return not set(agent.hidden_skills).issuperset(declarations.of(agent.executor))


def described(agent: Agent) -> Iterator[tuple[str, str]]:
    """Name of each, and what becomes of it."""
    rows = {row.skill_id: documents.skill(row) for row in agent.skills.all()}
    for name, skill in declarations.of(agent.executor).items():
        if name in rows:
            differing = ", ".join(_differing(skill, rows[name]))
            what = f"taken over; code and row differ in {differing}" if differing else "taken over, unchanged"
        else:
            what = "hidden" if name in agent.hidden_skills else "in the card"
        yield skill["name"], f"{what}. {skill['description']}"


def _differing(declared: documents.Document, row: documents.Document) -> Iterable[str]:
    names = [name for name in documents.SKILL.values() if name in declared or name in row]
    return (name for name in names if declared.get(name) != row.get(name))


def take_over(agent: Agent, names: Iterable[str]) -> None:
    """Has rows say what the code says of these; new ones come last, and who sees the others stays."""
    declared, last = declarations.of(agent.executor), agent.skills.aggregate(last=Max("position"))["last"] or 0
    for name in names:
        if skill := declared.get(name):
            columns = {column: skill.get(said, []) for column, said in documents.SKILL.items()}
            new = columns | {"position": last + 1}
            AgentSkill.objects.update_or_create(agent=agent, skill_id=name, defaults=columns, create_defaults=new)

"""What the database says when all is over, task by task."""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.acceptance.databases import Postgres


class Change(NamedTuple):
    """A watched column that got another value; `at` and `until` are seconds since the epoch."""

    at: float
    process: str
    what: str
    key: str
    before: str
    after: str
    until: float | None  # when the lease, as it was before, was to expire


class Event(NamedTuple):
    """A row of the log."""

    sequence: int
    kind: str
    state: str
    body: str
    at: float  # seconds since the epoch


class Turn(NamedTuple):
    """A turn, with the id of the client's message that made it."""

    id: int
    state: str
    attempt: int
    end_sequence: int | None
    answer: object
    error: str
    message: str


@dataclass
class Record:
    """A task and all that belongs to it."""

    task: str
    state: str
    status: str
    visible: bool
    lease: str
    restartable: bool
    blocking: bool  # its executor holds its thread, whatever is asked of it
    last_sequence: int
    events: list[Event] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)

    def states(self, turn: Turn) -> list[tuple[str, str]]:
        """The steps that a turn took from state to state."""
        found = (change for change in self.changes if (change.what, change.key) == ("turn state", str(turn.id)))
        return [(change.before, change.after) for change in found]

    def claims(self, turn: Turn) -> int:
        """How often a turn was claimed to be run."""
        return sum(after == "running" for _, after in self.states(turn))


TASKS = """SELECT t.id, t.state, t.status, t.visible, t.lease, a.restartable, a.slug = 'blocking', t.last_sequence
    FROM a2a_django_task t JOIN a2a_django_agent a ON a.id = t.agent_id ORDER BY t.created_at"""
EVENTS = """SELECT task_id, sequence, kind, state, body, extract(epoch FROM created_at)::float
    FROM a2a_django_event ORDER BY task_id, sequence"""
TURNS = """SELECT u.task_id, u.id, u.state, u.attempt, u.end_sequence, u.answer, u.error, m.message_id
    FROM a2a_django_turn u JOIN a2a_django_message m ON m.id = u.message_id ORDER BY u.id"""
CHANGES = "SELECT at, process, what, key, before, after, until FROM chaos_history ORDER BY id"


def read(database: Postgres) -> dict[str, Record]:
    """All tasks by their ids."""
    records = {row[0]: Record(*row) for row in database.rows(TASKS)}
    task_of: dict[str, str] = defaultdict(str)
    for task, *event in database.rows(EVENTS):
        records[task].events.append(Event(*event))
    for task, *turn in database.rows(TURNS):
        records[task].turns.append(Turn(*turn))
        task_of[f"turn {turn[0]}"] = task
    for row in database.rows(CHANGES):
        change = Change(*row)
        table = change.what.split()[0]
        records[change.key if table == "task" else task_of[f"turn {change.key}"]].changes.append(change)
    return records

"""On PostgreSQL, what is most of a stream, batches of events and nothing else, takes one statement (DESIGN 4)."""

from collections.abc import Iterator, Sequence
from functools import cache

from django.db import connections, router
from django.db.backends.base.base import BaseDatabaseWrapper

from a2a_django.batches import Batch
from a2a_django.models import Event, Task
from a2a_django.protocol.states import TERMINAL
from a2a_django.statements import FEW

STEP, EVENT = 4, 5  # parameters of each


def only(batch: Batch) -> bool:
    """Whether `write` can write it: a few events, that change nothing but the number of the last."""
    return batch.bare and len(batch.entries) <= (FEW - STEP) // EVENT and _connection().vendor == "postgresql"


def write(planned: Sequence[Batch]) -> set[Batch]:
    """Writes each batch whose task still is its writer's, in few statements that each are a transaction; which."""
    written = {task_id for some in _portions(planned) for task_id in _write(some)}
    return {batch for batch in planned if batch.writer.task_id in written}


def _portions(planned: Sequence[Batch]) -> Iterator[list[Batch]]:
    """The batches of one statement each: no more than psycopg remembers, see `statements.FEW`."""
    portion: list[Batch] = []
    left = FEW
    for batch in planned:
        size = STEP + EVENT * len(batch.entries)
        if size > left:
            yield portion
            portion, left = [], FEW
        portion.append(batch)
        left -= size
    if portion:
        yield portion


def _write(planned: Sequence[Batch]) -> list[str]:
    steps = [(batch.writer.task_id, batch.writer.lease, batch.writer.sequence, batch.sequence) for batch in planned]
    events = [
        (batch.writer.task_id, sequence, said.kind.value, said.state, said.text)
        for batch in planned
        for sequence, said in batch.entries
    ]
    with _connection().cursor() as cursor:
        cursor.execute(_sql(len(steps), len(events)), [value for row in (*steps, *events) for value in row])
        return [task_id for (task_id,) in cursor.fetchall()]


@cache
def _sql(steps: int, events: int) -> str:
    """Moves tasks on and inserts the events of those that it could move: they still are their writers'."""
    step, event = "(%s::text, %s::text, %s::int, %s::int)", "(%s::text, %s::int, %s::text, %s::text, %s::text)"
    over = ", ".join(f"'{state.value}'" for state in sorted(TERMINAL))
    return f"""
        WITH step (task_id, lease, before, after) AS (VALUES {", ".join([step] * steps)}),
        event (task_id, sequence, kind, state, body) AS (VALUES {", ".join([event] * events)}),
        moved AS (
            UPDATE "{Task._meta.db_table}" AS task SET last_sequence = step.after FROM step
            WHERE task.id = step.task_id AND task.lease = step.lease AND task.last_sequence = step.before
            AND task.state NOT IN ({over}) RETURNING task.id
        )
        INSERT INTO "{Event._meta.db_table}" (task_id, sequence, kind, state, body, created_at)
        SELECT event.*, now() FROM event JOIN moved ON moved.id = event.task_id RETURNING task_id
    """  # noqa: S608  names of ours alone


def _connection() -> BaseDatabaseWrapper:
    return connections[router.db_for_write(Event)]

"""On PostgreSQL, what is most of a stream, batches of events and nothing else, takes one statement (DESIGN 4)."""

from collections.abc import Sequence
from functools import cache

from django.db import connections, router
from django.db.backends.base.base import BaseDatabaseWrapper

from a2a_django.batches import Batch
from a2a_django.models import Event, Task
from a2a_django.protocol.states import TERMINAL


def only(batch: Batch) -> bool:
    """Whether `write` can write it."""
    return batch.bare and _connection().vendor == "postgresql"


def write(planned: Sequence[Batch]) -> set[Batch]:
    """Writes each batch whose task still is its writer's, in a statement that is a transaction; which those were."""
    written = _write(planned) if planned else set()
    return {batch for batch in planned if batch.writer.task_id in written}


def _write(planned: Sequence[Batch]) -> set[str]:
    steps = [(batch.writer.task_id, batch.writer.lease, batch.writer.sequence, batch.sequence) for batch in planned]
    events = [
        (batch.writer.task_id, sequence, said.kind.value, said.state, said.text)
        for batch in planned
        for sequence, said in batch.entries
    ]
    with _connection().cursor() as cursor:
        # Arrays, so that the server knows the statement, however many there are.
        cursor.execute(_sql(), [list(column) for rows in (steps, events) for column in zip(*rows, strict=True)])
        return {task_id for (task_id,) in cursor.fetchall()}


@cache
def _sql() -> str:
    """Moves tasks on and inserts the events of those that it could move: they still are their writers'."""
    over = ", ".join(f"'{state.value}'" for state in sorted(TERMINAL))
    return f"""
        WITH step AS (
            SELECT * FROM unnest(%s::text[], %s::text[], %s::int[], %s::int[]) AS step (task_id, lease, before, after)
        ),
        moved AS (
            UPDATE "{Task._meta.db_table}" AS task SET last_sequence = step.after FROM step
            WHERE task.id = step.task_id AND task.lease = step.lease AND task.last_sequence = step.before
            AND task.state NOT IN ({over}) RETURNING task.id
        ),
        written AS (
            INSERT INTO "{Event._meta.db_table}" (task_id, sequence, kind, state, body, created_at)
            SELECT event.*, now() FROM moved JOIN unnest(%s::text[], %s::int[], %s::text[], %s::text[], %s::text[])
            AS event (task_id, sequence, kind, state, body) ON moved.id = event.task_id
        )
        SELECT id FROM moved
    """  # noqa: S608  names of ours alone


def _connection() -> BaseDatabaseWrapper:
    return connections[router.db_for_write(Event)]

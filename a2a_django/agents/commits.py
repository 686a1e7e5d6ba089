"""Group commit: what the turns of a process have to append while a commit is under way is the next one (DESIGN 4)."""

from collections.abc import Sequence
from functools import partial

from a2a_django import database, event_log
from a2a_django.batches import End, Writer
from a2a_django.database import Gathered
from a2a_django.entries import Entry
from a2a_django.event_log import Append

_appends = Gathered(database.commits, event_log.append_together)


async def append(writer: Writer, said: Sequence[Entry], end: End | None) -> None:
    """`event_log.append`, in one transaction with what other turns append at the same time."""
    item = Append(writer, said, end)
    await _appends.run(item)
    if item.error is not None:
        raise item.error
    if end is not None and writer.unfolded is None:
        await database.patiently(partial(database.log.run, event_log.fold, writer.task_id))

"""What executors note of themselves, in a file of each process: it outlives the process, and no lease guards it."""

import json
import os
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any
from uuid import uuid4

from a2a.server.agent_execution import RequestContext
from a2a.types import Task

FOLDER = "CHAOS_NOTES"
"""Environment variable: the directory of the notes."""


@cache
def _file(pid: int) -> int:
    return os.open(Path(os.environ[FOLDER]) / f"{pid}.notes", os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def count(name: str) -> int:
    """How often this was called for `name`, by all processes."""
    file = os.open(Path(os.environ[FOLDER]) / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        os.write(file, b".")
        return os.fstat(file).st_size
    finally:
        os.close(file)


class Run:
    """One call of an executor: notes when it starts, what it says and how it ends."""

    def __init__(self, context: RequestContext) -> None:
        self.id, self._said = uuid4().hex, 0
        self._who = {"run": self.id, "task": context.task_id, "message": context.message.message_id}

    def __enter__(self) -> "Run":
        self._note("start", process=os.environ["PGAPPNAME"].split()[0], **self._who)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._note("end", run=self.id, how=kind.__name__ if kind else "returned", said=self._said)

    def sign(self, event: Any) -> dict[str, Any]:
        """The metadata that name run and number of what is said; a Task, of which only the first is sent, has none."""
        number = 0 if isinstance(event, Task) else self._said + 1
        self._said = max(self._said, number)
        self._note("say", run=self.id, number=number)
        return {"run": self.id, "number": number}

    def _note(self, what: str, **more: Any) -> None:
        line = json.dumps({"at": time.monotonic(), "what": what, **more}) + "\n"
        os.write(_file(os.getpid()), line.encode())


@dataclass
class Noted:
    """What is known of a run: times are those of the machine's monotonic clock."""

    run: str
    task: str
    message: str
    process: str
    started: float
    ended: float | None = None  # None for one that was killed
    how: str = ""
    said: int = 0
    last_said: float = 0


@dataclass
class Notes:
    """All runs, and those of each task in the order of their starts."""

    runs: dict[str, Noted] = field(default_factory=dict)
    of_task: dict[str, list[Noted]] = field(default_factory=lambda: defaultdict(list))


def read(folder: Path) -> Notes:
    """What all executors have noted."""
    notes = Notes()
    for line in sorted(_lines(folder), key=lambda line: line["at"]):
        if line["what"] == "start":
            run = Noted(line["run"], line["task"], line["message"], line["process"], line["at"])
            notes.runs[run.run] = run
            notes.of_task[run.task].append(run)
            continue
        run = notes.runs[line["run"]]
        if line["what"] == "say":
            run.said, run.last_said = max(run.said, int(line["number"])), line["at"]
        else:
            run.ended, run.how = line["at"], line["how"]
    return notes


def _lines(folder: Path) -> Iterator[dict[str, Any]]:
    for file in folder.glob("*.notes"):
        for line in file.read_text().splitlines():
            yield json.loads(line)

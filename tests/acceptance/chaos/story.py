"""The whole story of a task, from all who have noted something of it."""

from collections.abc import Iterator
from math import inf
from pathlib import Path

from tests.acceptance.chaos.evidence import Evidence, Violation

LINES = 40  # of the processes' logs
BEFORE = 15  # seconds for which a fault may be felt


def tell(violation: Violation, evidence: Evidence, folder: Path) -> str:
    """What does not hold, and all that happened, in the order of time."""
    moments = sorted(_moments(violation, evidence))
    since, until = (moments[0][0] - BEFORE, moments[-1][0]) if moments else (-inf, inf)
    faults = ((hit.began, f"{'FAULT':12} {hit.fault} {hit.victim}, until {hit.ended:.3f}") for hit in evidence.hits)
    moments = sorted([*moments, *(fault for fault in faults if since <= fault[0] <= until)])
    lines = [f"VIOLATION: {violation.what}"]
    if violation.conversation:
        lines.append(f"  {violation.conversation.talk}, agent {violation.conversation.talk.agent}")
    if record := evidence.records.get(violation.task):
        lines += [f"  task {record.task} {record.state} lease={record.lease!r} last_sequence={record.last_sequence}"]
        lines += [f"  {turn}" for turn in record.turns]
    lines += [f"  {at:10.3f}  {what}" for at, what in moments]
    lines += [f"  {line}" for line in _logged(violation, evidence, folder)]
    return "\n".join(lines)


def _moments(violation: Violation, evidence: Evidence) -> Iterator[tuple[float, str]]:
    record = evidence.records.get(violation.task)
    if record:
        for change in record.changes:
            what = f"{change.process:12} {change.what} {change.key}: {change.before!r} -> {change.after!r}"
            yield evidence.monotonic(change.at), what
        for event in record.events:
            yield evidence.monotonic(event.at), f"{'log':12} {event.sequence} {event.body[:400]}"
    for run in evidence.notes.of_task[violation.task]:
        yield run.started, f"{'executor':12} run {run.run} starts in {run.process}, for message {run.message}"
        if run.said:
            yield run.last_said, f"{'executor':12} run {run.run} says its last words, number {run.said}"
        if run.ended is not None:
            yield run.ended, f"{'executor':12} run {run.run} ends: {run.how}"
    for conversation in evidence.conversations:
        if conversation is violation.conversation or (violation.task and conversation.task == violation.task):
            yield from ((at, f"{'client':12} {what}") for at, what in conversation.diary)


def _logged(violation: Violation, evidence: Evidence, folder: Path) -> Iterator[str]:
    """What the processes' logs say of the task and its turns."""
    record = evidence.records.get(violation.task)
    if record is None:
        return
    words = [record.task, *(f"urn {turn.id} " for turn in record.turns), *(f"urn {turn.id}:" for turn in record.turns)]
    for file in sorted(folder.glob("*.log")):
        lines = [line for line in file.read_text(errors="replace").splitlines() if any(word in line for word in words)]
        yield from (f"{file.name}: {line[:400]}" for line in lines[-LINES:])

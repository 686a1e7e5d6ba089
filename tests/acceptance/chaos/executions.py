"""What must hold of the executors' runs: what they noted themselves against what the log has of them."""

import json
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise

from tests.acceptance.chaos.evidence import Evidence
from tests.acceptance.chaos.notes import Noted
from tests.acceptance.chaos.plan import LEASE_SECONDS
from tests.acceptance.chaos.records import Change, Event, Record
from tests.acceptance.chaos.talks import CANCELED

MAX_ATTEMPTS = 3
SOON = 2 * LEASE_SECONDS + 3  # seconds in which a loss is noticed by whom it concerns, on a busy machine
HURTS = ("death", "kill", "kill_web", "freeze", "drop_connections", "lose_database")


def check(record: Record, evidence: Evidence) -> Iterator[str]:
    """What does not hold of the runs of one task."""
    runs = evidence.notes.of_task[record.task]
    yield from check_starts(record, runs)
    yield from check_speech(record, evidence)
    taken = list(takeovers(record, evidence))
    yield from check_overlaps(runs, [at for at, _, _ in taken], evidence)
    yield from check_takeovers(taken, evidence)


def check_starts(record: Record, runs: Sequence[Noted]) -> Iterator[str]:
    """A turn is started no more often than it is claimed, and than its agent allows."""
    for turn in record.turns:
        starts = len([run for run in runs if run.message == turn.message])
        if starts > min(turn.attempt, MAX_ATTEMPTS if record.restartable else 1):
            yield f"turn {turn.id} was started {starts} times, and claimed {turn.attempt} times"


# --- what was said


def check_speech(record: Record, evidence: Evidence) -> Iterator[str]:
    """What a run said stands in the log in order and without holes, and never after what a later run said."""
    signed = list(_signatures(record.events))
    blocks = [evidence.notes.runs[run] for run, _ in groupby(signed, key=lambda signature: signature[0])]
    for earlier, later in pairwise(blocks):
        if earlier.started >= later.started:
            yield f"a late write landed: the log has run {later.run} after run {earlier.run}, which began later"
    for run in blocks:
        heard = [number for name, number in signed if name == run.run and number]
        if heard != list(range(1, len(heard) + 1)):
            yield f"the log has {heard} of run {run.run}"
        if run.task != record.task:
            yield f"the log has run {run.run}, which is of task {run.task}"
    for turn in record.turns if record.state != CANCELED else ():
        runs = [run for run in evidence.notes.of_task[record.task] if run.message == turn.message]
        if turn.state == "done" and runs and not any(_is_whole(run, signed) for run in runs):
            yield f"turn {turn.id} is done, but the log has no run of it whole: {runs}"


def _is_whole(run: Noted, signed: Sequence[tuple[str, int]]) -> bool:
    """Whether a run came to its end, and all that it said is there."""
    return run.how == "returned" and run.said == max((number for name, number in signed if name == run.run), default=0)


def _signatures(events: Sequence[Event]) -> Iterator[tuple[str, int]]:
    """Run and number of all that executors said; a Task has the number 0, the server's own events have none."""
    for event in events:
        ((_, data),) = json.loads(event.body).items()
        if "run" in (signature := data.get("metadata", {})):
            yield signature["run"], int(signature["number"])


# --- who may run


def takeovers(record: Record, evidence: Evidence) -> Iterator[tuple[float, Change, Change]]:
    """When a lease was taken from whom had let it expire, how the other one had got it, and how it was taken."""
    leases = [change for change in record.changes if change.what == "task lease"]
    for before, change in pairwise(leases):
        if change.before and change.after:
            yield evidence.monotonic(change.at), before, change


def check_overlaps(runs: Sequence[Noted], taken: Sequence[float], evidence: Evidence) -> Iterator[str]:
    """A run goes on beside a later one only where it has lost the lease, and then not for long."""
    for earlier, later in pairwise(runs):
        if earlier.ended is None or earlier.ended <= later.started:
            continue
        lost = [at for at in taken if earlier.started <= at <= later.started]
        if not lost:
            yield f"run {later.run} began while run {earlier.run} had the lease"
            continue
        thawed = [hit.ended for hit in evidence.hits if hit.fault == "freeze" and hit.began <= lost[0] <= hit.ended]
        if earlier.ended > max([lost[0], *thawed]) + SOON:
            yield f"run {earlier.run} went on for {earlier.ended - lost[0]:.1f} s after it had lost the lease"


def check_takeovers(taken: Sequence[tuple[float, Change, Change]], evidence: Evidence) -> Iterator[str]:
    """Only what a fault has come over is taken away (CASES 55)."""
    for at, before, change in taken:
        victims = ("all", "database", before.process, "web" if before.process.startswith(("daphne", "uvicorn")) else "")
        hurt = [hit for hit in evidence.hits if hit.fault in HURTS and hit.victim in victims]
        if not any(hit.began <= at <= hit.ended + SOON for hit in hurt):
            yield f"{change.process} took the lease {change.before} of {before.process}, which was not hurt"

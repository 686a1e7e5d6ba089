"""What must hold of the executors' runs: what they noted themselves against what the log has of them."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from typing import Any, NamedTuple

from tests.acceptance.chaos.bystander import STALL
from tests.acceptance.chaos.evidence import Evidence
from tests.acceptance.chaos.faults import DEATH
from tests.acceptance.chaos.notes import Noted
from tests.acceptance.chaos.plan import BUSY, LEASE_SECONDS
from tests.acceptance.chaos.records import Event, Record, Turn
from tests.acceptance.chaos.talks import CANCELED

MAX_ATTEMPTS = 3
SOON = 2 * LEASE_SECONDS + 3  # seconds in which a loss is noticed by whom it concerns, on a busy machine
HURTS = (DEATH, STALL, "kill", "kill_web", "freeze", "drop_connections", "lose_database")
RETRY = "Retry"  # how a run ended that asked for another
WHOLE = ("returned", RETRY, "RuntimeError")  # how runs end that nobody has stopped
FAILED = "TASK_STATE_FAILED"


class Takeover(NamedTuple):
    """A lease that was taken from who had it; times are those of the machine's monotonic clock."""

    at: float
    expiry: float
    lease: str
    owner: str  # processes
    taker: str


def check(record: Record, evidence: Evidence) -> Iterator[str]:
    """What does not hold of the runs of one task."""
    runs = evidence.notes.of_task[record.task]
    taken = list(takeovers(record, evidence))
    for turn in record.turns:
        own = [run for run in runs if run.message == turn.message]
        yield from check_starts(turn, own, record)
        yield from check_retries(turn, own, record, taken)
    yield from check_returned(record, evidence)
    yield from check_speech(record, evidence, taken)
    yield from check_overlaps(runs, taken, evidence)
    yield from check_takeovers(record, taken, evidence)


# --- attempts


def check_starts(turn: Turn, own: Sequence[Noted], record: Record) -> Iterator[str]:
    """A turn is started no more often than it is claimed; a loss or a Retry spends an attempt, nothing else does."""
    if len(own) > (claims := record.claims(turn)):
        yield f"turn {turn.id} was started {len(own)} times, and claimed {claims} times"
    asked = sum(run.how == RETRY for run in own)
    lost = _losses(record)[str(turn.id)] if record.restartable else 0
    if turn.attempt > min(1 + asked + lost, MAX_ATTEMPTS):
        yield f"turn {turn.id} has had {turn.attempt} attempts, with {asked} retries and {lost} losses"


def _losses(record: Record) -> Counter[str]:
    """How often each turn ran when its task's lease was taken away."""
    running, losses = set(), Counter[str]()
    for change in record.changes:
        if change.what == "turn state":
            (running.add if change.after == "running" else running.discard)(change.key)
        elif change.what == "task lease" and change.before and change.after:
            losses.update(running)
    return losses


def check_returned(record: Record, evidence: Evidence) -> Iterator[str]:
    """Only a process that ends in order gives an attempt back: one that is asked to, or whose Celery has given up."""
    for change in record.changes:
        if change.what == "turn attempt" and int(change.after) < int(change.before):
            at = evidence.monotonic(change.at)
            ends = [hit for hit in evidence.hits if hit.fault in ("stop", DEATH) and hit.victim == change.process]
            if not any(hit.began - (SOON if hit.fault == DEATH else 0) <= at <= hit.ended for hit in ends):
                yield f"{change.process} gave back an attempt at turn {change.key}, and was not to end"


def check_retries(turn: Turn, own: Sequence[Noted], record: Record, taken: Sequence[Takeover]) -> Iterator[str]:
    """A turn whose executor asked for another attempt had it, or had no more; then the client is told."""
    told = _told(turn, record)
    out_of_attempts = turn.attempt == MAX_ATTEMPTS and own and own[-1].how == RETRY
    if told.get("retryable") and not (out_of_attempts and told["reason"] == BUSY):
        yield f"turn {turn.id} ended with {told} after {turn.attempt} attempts: {own}"
    ended_it = own and own[-1].how == RETRY and record.state != CANCELED
    if ended_it and not told.get("retryable") and not any(one.at >= own[-1].started for one in taken):
        yield f"turn {turn.id} asked for another attempt, and ended {turn.state} after {turn.attempt}: {told}"


def _told(turn: Turn, record: Record) -> dict[str, Any]:
    """What the end of a turn says besides."""
    if turn.answer:
        return turn.answer["data"] or {}
    last = record.events[-1] if record.events else None
    if last is None or last.state != FAILED:
        return {}
    return json.loads(last.body)["statusUpdate"]["status"].get("message", {}).get("metadata", {})


# --- what was said


def check_speech(record: Record, evidence: Evidence, taken: Sequence[Takeover]) -> Iterator[str]:
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
    if record.state != CANCELED:
        yield from check_whole(record, evidence.notes.of_task[record.task], signed, taken)


def check_whole(
    record: Record, runs: Sequence[Noted], signed: Sequence[tuple[str, int]], taken: Sequence[Takeover]
) -> Iterator[str]:
    """A turn is done when all that one run of it said is there; so is what a run said that ended and lost nothing."""
    whole = [run for run in runs if run.said == max((number for name, number in signed if name == run.run), default=0)]
    for turn in record.turns:
        own = [run for run in runs if run.message == turn.message]
        if turn.state == "done" and own and not any(run.how == "returned" for run in own if run in whole):
            yield f"turn {turn.id} is done, but the log has no run of it whole: {own}"
    for run, following in zip(runs, [*runs[1:], None], strict=True):
        until = following.started if following else float("inf")
        lost = any(run.started <= one.at <= until for one in taken)
        if run.how in WHOLE and run not in whole and not lost:
            yield f"run {run.run} ended by itself ({run.how}), and not all {run.said} that it said is in the log"


def _signatures(events: Sequence[Event]) -> Iterator[tuple[str, int]]:
    """Run and number of all that executors said; a Task has the number 0, the server's own events have none."""
    for event in events:
        ((_, data),) = json.loads(event.body).items()
        # A Message that comes when a waiting call has made the task visible stands in the status that completes it.
        for said in (data, data.get("status", {}).get("message", {})):
            if "run" in (signature := said.get("metadata", {})):
                yield signature["run"], int(signature["number"])


# --- who may run


def takeovers(record: Record, evidence: Evidence) -> Iterator[Takeover]:
    """The leases that were taken from whom had let them expire."""
    leases = [change for change in record.changes if change.what == "task lease"]
    for before, change in pairwise(leases):
        if change.before and change.after and change.until is not None:
            at, expiry = evidence.monotonic(change.at), evidence.monotonic(change.until)
            yield Takeover(at, expiry, change.before, before.process, change.process)


def check_overlaps(runs: Sequence[Noted], taken: Sequence[Takeover], evidence: Evidence) -> Iterator[str]:
    """A run goes on beside a later one only where it has lost the lease, and then not for long."""
    for earlier, later in pairwise(runs):
        if earlier.ended is None or earlier.ended <= later.started:
            continue
        lost = next((one for one in taken if earlier.started <= one.at <= later.started), None)
        if lost is None:
            yield f"run {later.run} began while run {earlier.run} had the lease"
            continue
        rests = [hit for hit in evidence.hits if hit.fault in ("freeze", STALL) and hit.victim in ("all", lost.owner)]
        woke = max([lost.at, *(hit.ended for hit in rests if hit.began <= lost.at + SOON)])
        if earlier.ended > woke + SOON:
            yield f"run {earlier.run} went on for {earlier.ended - lost.at:.1f} s after it had lost the lease"


def check_takeovers(record: Record, taken: Sequence[Takeover], evidence: Evidence) -> Iterator[str]:
    """Only what a fault has kept from renewing its lease is taken away, and not before it has expired (CASES 55)."""
    hurts = (*HURTS, "stop") if record.blocking else HURTS  # an executor that can't be stopped keeps its lease
    for one in taken:
        if one.at < one.expiry:
            yield f"{one.taker} took the lease {one.lease} of {one.owner} {one.expiry - one.at:.2f} s too early"
        victims = ("all", "database", one.owner, "web" if one.owner.startswith(("daphne", "uvicorn")) else "")
        hurt = [hit for hit in evidence.hits if hit.fault in hurts and hit.victim in victims]
        if not any(hit.began <= one.expiry and hit.ended >= one.expiry - LEASE_SECONDS for hit in hurt):
            yield f"{one.taker} took the lease {one.lease} of {one.owner}, which was not hurt"

"""What must hold of the executors' runs: what they noted themselves against what the log has of them."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any

from tests.acceptance.chaos import tenures
from tests.acceptance.chaos.bystander import STALL
from tests.acceptance.chaos.evidence import Evidence
from tests.acceptance.chaos.faults import COLLAPSE
from tests.acceptance.chaos.notes import Noted
from tests.acceptance.chaos.plan import BUSY, LEASE_SECONDS
from tests.acceptance.chaos.records import Event, Record, Turn
from tests.acceptance.chaos.talks import CANCELED
from tests.acceptance.chaos.tenures import Tenure

MAX_ATTEMPTS = 3
SOON = 2 * LEASE_SECONDS + 3  # seconds in which a loss is noticed by whom it concerns, on a busy machine
RETURNED, RETRY, RAISED, BROKEN_OFF = "returned", "Retry", "RuntimeError", "CancelledError"  # how a run ended
FAILED = "TASK_STATE_FAILED"


@dataclass
class Runs:
    """The runs of one task, in the order of their starts, and the leases that they had."""

    record: Record
    evidence: Evidence
    all: Sequence[Noted]
    tenures: Sequence[Tenure]

    def of(self, turn: Turn) -> list[Noted]:
        """Those of one turn."""
        return [run for run in self.all if run.message == turn.message]

    def lost(self, run: Noted) -> Tenure | None:
        """The lease that a run has lost."""
        tenure = tenures.tenure_of(run, self.tenures)
        return tenure if tenure and tenure.lost else None

    def ends(self, process: str, at: float) -> bool:
        """Whether a process was about to end in order: it was asked to, or its Celery had given up."""
        hits = (hit for hit in self.evidence.hits if hit.fault in ("stop", COLLAPSE) and hit.victim == process)
        return any(hit.began <= at <= hit.ended for hit in hits)


def check(record: Record, evidence: Evidence) -> Iterator[str]:
    """What does not hold of the runs of one task."""
    runs = Runs(record, evidence, evidence.notes.of_task[record.task], tenures.tenures(record, evidence))
    for turn in record.turns:
        yield from check_attempts(turn, runs)
        yield from check_retries(turn, runs)
        if record.state != CANCELED:
            yield from check_outcome(turn, runs)
    yield from check_returned(runs)
    yield from check_speech(runs)
    yield from check_overlaps(runs)
    yield from tenures.check(record, runs.tenures, evidence)


# --- attempts


def check_attempts(turn: Turn, runs: Runs) -> Iterator[str]:
    """A turn is started once for a claim, and a loss or a Retry is what spends an attempt, nothing else."""
    starts, claims = len(runs.of(turn)), runs.record.claims(turn)
    asked = sum(run.how == RETRY for run in runs.of(turn))
    lost = _losses(runs.record)[str(turn.id)] if runs.record.restartable else 0
    back = sum(change.key == str(turn.id) for change in runs.record.changes if _gives_back(change))
    if starts > claims or claims != turn.attempt + back or (starts > 1 + asked and not runs.record.restartable):
        yield f"turn {turn.id} was started {starts} times, claimed {claims} times, and {back} attempts were given back"
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


def _gives_back(change: Any) -> bool:
    return change.what == "turn attempt" and int(change.after) < int(change.before)


def check_returned(runs: Runs) -> Iterator[str]:
    """Only a process that ends in order gives an attempt back."""
    for change in filter(_gives_back, runs.record.changes):
        if not runs.ends(change.process, runs.evidence.monotonic(change.at)):
            yield f"{change.process} gave back an attempt at turn {change.key}, and was not to end"


def check_retries(turn: Turn, runs: Runs) -> Iterator[str]:
    """A turn that has no more attempts for its executor's Retry tells the client so."""
    told, own = _told(turn, runs.record), runs.of(turn)
    spent = turn.attempt == MAX_ATTEMPTS and own and own[-1].how == RETRY
    if told.get("retryable") and not (spent and told["reason"] == BUSY):
        yield f"turn {turn.id} ended with {told} after {turn.attempt} attempts: {own}"
    if spent and runs.record.state != CANCELED and not runs.lost(own[-1]) and not told.get("retryable"):
        yield f"turn {turn.id} had no more attempts, and ended with {told}"


def _told(turn: Turn, record: Record) -> dict[str, Any]:
    """What the end of a turn that failed says besides."""
    if turn.answer:
        return turn.answer["data"] or {}
    last = record.events[-1] if record.events else None
    if last is None or last.state != FAILED:
        return {}
    return json.loads(last.body)["statusUpdate"]["status"].get("message", {}).get("metadata", {})


def check_outcome(turn: Turn, runs: Runs) -> Iterator[str]:
    """A turn fails only if its executor does, its process does, or it has no more attempts."""
    own = runs.of(turn)
    if turn.state != "failed" or not own or runs.lost(own[-1]):
        return
    last, again = own[-1], turn.attempt < MAX_ATTEMPTS
    stopped = last.how == BROKEN_OFF and not runs.record.restartable and runs.ends(last.process, last.ended or 0)
    if not (last.how == RAISED or (last.how == RETRY and not again) or stopped):
        yield f"turn {turn.id} failed after {turn.attempt} attempts: {last}"


# --- what was said


def check_speech(runs: Runs) -> Iterator[str]:
    """What a run said stands in the log in order and without holes, and never after what a later run said."""
    signed, known = list(_signatures(runs.record.events)), runs.evidence.notes.runs
    blocks = [known[run] for run, _ in groupby(signed, key=lambda signature: signature[0])]
    for earlier, later in pairwise(blocks):
        if earlier.started >= later.started:
            yield f"a late write landed: the log has run {later.run} after run {earlier.run}, which began later"
    for run in blocks:
        heard = [number for name, number in signed if name == run.run and number]
        if heard != list(range(1, len(heard) + 1)):
            yield f"the log has {heard} of run {run.run}"
        if run.task != runs.record.task:
            yield f"the log has run {run.run}, which is of task {run.task}"
    if runs.record.state != CANCELED:
        yield from check_whole(runs, dict(signed))


def check_whole(runs: Runs, heard: dict[str, int]) -> Iterator[str]:
    """All is there that a run said which came to its end and lost nothing; a turn that is done has such a one."""
    whole = [run for run in runs.all if run.said == heard.get(run.run, 0)]
    for turn in runs.record.turns:
        own = runs.of(turn)
        if turn.state == "done" and own and not any(run.how == RETURNED for run in own if run in whole):
            yield f"turn {turn.id} is done, but the log has no run of it whole: {own}"
    for run in runs.all:
        if run.how in (RETURNED, RETRY, RAISED) and run not in whole and not runs.lost(run):
            yield f"run {run.run} came to its end, but not all {run.said} that it said are in the log"


def _signatures(events: Sequence[Event]) -> Iterator[tuple[str, int]]:
    """Run and number of all that executors said; a Task has the number 0, the server's own events have none."""
    for event in events:
        ((_, data),) = json.loads(event.body).items()
        # A Message that comes when a waiting call has made the task visible stands in the status that completes it.
        for said in (data, data.get("status", {}).get("message", {})):
            if "run" in (signature := said.get("metadata", {})):
                yield signature["run"], int(signature["number"])


# --- who may run


def check_overlaps(runs: Runs) -> Iterator[str]:
    """Two runs go on at once only where one has lost the lease, and that one not for long."""
    for earlier, later in pairwise(runs.all):
        lost = [tenure for tenure in map(runs.lost, (earlier, later)) if tenure and tenure.ended <= later.started]
        if (earlier.ended or earlier.last_said) > later.started and not lost:
            yield f"run {later.run} began while run {earlier.run} had the lease"
    for run in runs.all:
        tenure, ended = runs.lost(run), run.ended or 0
        if tenure and ended > _woke(tenure, runs.evidence) + SOON:
            yield f"run {run.run} went on for {ended - tenure.ended:.1f} s after it had lost the lease"


def _woke(lost: Tenure, evidence: Evidence) -> float:
    """When a process could notice at last that it had lost a lease."""
    rests = [hit for hit in evidence.hits if hit.fault in ("freeze", STALL) and hit.victim in ("all", lost.owner)]
    return max([lost.ended, *(hit.ended for hit in rests if hit.began <= lost.ended + SOON)])

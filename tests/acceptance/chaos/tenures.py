"""Who had a task's lease from when to when, and how it came to an end; times are those of the monotonic clock."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from tests.acceptance.chaos.bystander import STALL
from tests.acceptance.chaos.evidence import Evidence
from tests.acceptance.chaos.faults import COLLAPSE, DEATH
from tests.acceptance.chaos.notes import Noted
from tests.acceptance.chaos.plan import LEASE_SECONDS
from tests.acceptance.chaos.records import Record

HURTS = (DEATH, COLLAPSE, STALL, "kill", "kill_web", "freeze", "drop_connections", "lose_database")


class Tenure(NamedTuple):
    """The time for which a process had a lease."""

    lease: str
    owner: str
    began: float
    ended: float
    expiry: float  # when it would have expired, as it was at its end
    taker: str = ""  # who has taken it away; empty where it was given up

    @property
    def lost(self) -> bool:
        """Whether it was taken away."""
        return bool(self.taker)


def tenures(record: Record, evidence: Evidence) -> list[Tenure]:
    """Those that have come to an end, in order."""
    found = []
    for got, end in pairwise(change for change in record.changes if change.what == "task lease"):
        if end.before and end.until is not None:
            times = map(evidence.monotonic, (got.at, end.at, end.until))
            found.append(Tenure(end.before, got.process, *times, taker=end.process if end.after else ""))
    return found


def tenure_of(run: Noted, known: Sequence[Tenure]) -> Tenure | None:
    """The one in which a run was started."""
    own = [one for one in known if one.owner == run.process and one.began <= run.started]
    return own[-1] if own else None


def check(record: Record, known: Sequence[Tenure], evidence: Evidence) -> Iterator[str]:
    """Only what a fault has kept from renewing its lease is taken away, and not before it has expired (CASES 55)."""
    hurts = (*HURTS, "stop") if record.blocking else HURTS  # an executor that can't be stopped keeps its lease
    for one in (one for one in known if one.lost):
        if one.ended < one.expiry:
            yield f"{one.taker} took the lease {one.lease} of {one.owner} {one.expiry - one.ended:.2f} s too early"
        renewed = one.expiry - LEASE_SECONDS
        victims = ("all", "database", one.owner, "web" if one.owner.startswith(("daphne", "uvicorn")) else "")
        hurt = [hit for hit in evidence.hits if hit.fault in hurts and hit.victim in victims]
        # Whoever waits for the database gives up after the time of a lease, and it may have come back meanwhile.
        patience = {"lose_database": LEASE_SECONDS}
        if not any(hit.began <= one.expiry and hit.ended + patience.get(hit.fault, 0) >= renewed for hit in hurt):
            yield f"{one.taker} took the lease {one.lease} of {one.owner}, which was not hurt"

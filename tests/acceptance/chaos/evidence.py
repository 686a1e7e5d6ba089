"""What is known of a run, and what is found wrong with it."""

from bisect import bisect
from collections.abc import Sequence
from dataclasses import dataclass

from tests.acceptance.chaos.faults import Hit
from tests.acceptance.chaos.notes import Notes
from tests.acceptance.chaos.records import Record
from tests.acceptance.chaos.talks import Cancel, Conversation


@dataclass(frozen=True)
class Evidence:
    """The rows, by the wall clock, and what executors, clients and faults noted, by the machine's monotonic one."""

    records: dict[str, Record]
    notes: Notes
    conversations: Sequence[Conversation]
    cancels: Sequence[Cancel]
    hits: list[Hit]
    clock: Sequence[tuple[float, float]]  # what both said, again and again: the wall clock is set now and then

    def monotonic(self, at: float) -> float:
        """What the monotonic clock said when the wall clock said `at`."""
        wall, monotonic = self.clock[max(bisect(self.clock, (at,)) - 1, 0)]
        return at - wall + monotonic


@dataclass(frozen=True)
class Violation:
    """What does not hold, and of which task or conversation."""

    what: str
    task: str = ""
    conversation: Conversation | None = None

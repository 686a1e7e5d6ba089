"""What is known of a run, and what is found wrong with it."""

from collections.abc import Sequence
from dataclasses import dataclass

from tests.acceptance.chaos.faults import Hit
from tests.acceptance.chaos.notes import Notes
from tests.acceptance.chaos.records import Record
from tests.acceptance.chaos.talks import Cancel, Conversation


@dataclass(frozen=True)
class Evidence:
    """The rows, what executors, clients and faults have noted, and the wall clock when the monotonic one says 0."""

    records: dict[str, Record]
    notes: Notes
    conversations: Sequence[Conversation]
    cancels: Sequence[Cancel]
    hits: Sequence[Hit]
    epoch: float


@dataclass(frozen=True)
class Violation:
    """What does not hold, and of which task or conversation."""

    what: str
    task: str = ""
    conversation: Conversation | None = None

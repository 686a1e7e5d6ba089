"""What a run will do, all of it made from one seed: the conversations, and the faults that come over them."""

from dataclasses import dataclass
from random import Random
from typing import NamedTuple

INPUT, AUTH = "TASK_STATE_INPUT_REQUIRED", "TASK_STATE_AUTH_REQUIRED"
BUSY = "The model is busy."  # why an executor asks to be run again
TALKS_PER_SECOND = 4.5
LEASE_SECONDS = 2.5
STREAM_SECONDS, STREAM_BYTES = 5, 2**15  # after which streams are closed, and clients resume them
REST = 1000  # milliseconds after which PostgreSQL ends a session that rests in a transaction; well below the lease


class Kind(NamedTuple):
    """A kind of conversation: what the client says, to whom, and what next when it hears of the state `after`."""

    weight: int
    script: str
    agents: tuple[str, ...] = ("sturdy", "sturdy", "fragile")
    answer: str = ""
    after: str = ""  # empty: as soon as the task is known


KINDS = {
    "message": Kind(4, "say Hello."),
    "quick": Kind(4, "work; chunks 25; complete"),
    "long": Kind(2, "work; chunks 300; complete"),
    "slow": Kind(6, "work; drip 25; complete"),
    "silent": Kind(4, "work; silence 5; chunks 1; complete"),
    "asking": Kind(4, "work; chunks 3; ask Which one?", answer="chunks 4; complete", after=INPUT),
    "parked": Kind(2, "work; chunks 2; ask Which one?"),
    "hasty": Kind(3, "work; drip 10; ask Which one?", answer="chunks 4; complete"),
    "login": Kind(3, "work; login; chunks 2; complete", answer="chunks 1; complete", after=AUTH),
    "blocking": Kind(4, "work; chunks 2; block 1.5; chunks 2; complete", agents=("blocking",)),
    "failing": Kind(2, "work; chunks 2; silence 0.5; raise"),
    "broken": Kind(1, "raise"),
    "retrying": Kind(3, "work; chunks 2; retry 2; chunks 2; complete"),
    "tireless": Kind(2, "work; chunks 2; retry 9"),
    "busy": Kind(1, "retry 9"),
}


@dataclass(frozen=True)
class Talk:
    """One conversation; `listeners` come so many seconds after the task is known."""

    number: int
    at: float
    kind: str
    user: str
    agent: str
    binding: str
    way: str
    listeners: tuple[float, ...]

    def __str__(self) -> str:
        return f"talk {self.number} ({self.kind}, {self.way} to {self.agent} by {self.binding})"


class Rate(NamedTuple):
    """How often a fault comes, in a minute, at whom it is aimed, and how long it lasts."""

    per_minute: float
    victims: tuple[str, ...] = ("",)
    seconds: tuple[float, float] = (0, 0)


WORKERS = ("worker-1", "worker-2")
FAULTS = {
    "kill": Rate(7, (*WORKERS, *WORKERS, "recovery"), (0.1, 1)),
    "kill_web": Rate(3, ("web",), (0.1, 1)),
    "stop": Rate(6, WORKERS, (0.1, 1)),
    "stop_web": Rate(3, ("web",), (0.1, 1)),
    "freeze": Rate(7, (*WORKERS, *WORKERS, "web"), (1.2 * LEASE_SECONDS, 2 * LEASE_SECONDS)),
    "restart_redis": Rate(3, ("redis",), (0, 1.5)),
    "drop_connections": Rate(10, ("all", "web", *WORKERS)),
    "lose_database": Rate(2, ("database",), (0.2, LEASE_SECONDS)),
    "lock_row": Rate(4),
    "duplicate_jobs": Rate(20),
    "cancel": Rate(40),
}


class Strike(NamedTuple):
    """One fault; `choice`, from 0 to 1, picks what it hits among what there is."""

    at: float
    fault: str
    victim: str
    seconds: float
    choice: float


@dataclass(frozen=True)
class Plan:
    """All that will happen within `seconds`."""

    seed: int
    seconds: float
    talks: tuple[Talk, ...]
    strikes: tuple[Strike, ...]


def make(seed: int, seconds: float) -> Plan:
    """The plan of a seed, always the same."""
    random = Random(seed)
    talks = [_talk(random, number, seconds) for number in range(int(seconds * TALKS_PER_SECOND))]
    strikes = [
        _strike(random, fault, rate, seconds)
        for fault, rate in FAULTS.items()
        for _ in range(max(1, round(rate.per_minute * seconds / 60)))
    ]
    return Plan(seed, seconds, tuple(sorted(talks, key=lambda talk: talk.at)), tuple(sorted(strikes)))


def _talk(random: Random, number: int, seconds: float) -> Talk:
    (kind,) = random.choices(list(KINDS), [kind.weight for kind in KINDS.values()])
    return Talk(
        number,
        at=random.uniform(0, seconds),
        kind=kind,
        user=random.choice(("ann", "bob")),
        agent=random.choice(KINDS[kind].agents),
        binding=random.choice(("REST", "JSON-RPC")),
        way=random.choice(("stream", "stream", "block", "poll")),
        listeners=tuple(random.uniform(0, 4) for _ in range(random.choice((0, 0, 1, 1, 2)))),
    )


def _strike(random: Random, fault: str, rate: Rate, seconds: float) -> Strike:
    at = random.uniform(0.05, 0.95) * seconds
    return Strike(at, fault, random.choice(rate.victims), random.uniform(*rate.seconds), random.random())

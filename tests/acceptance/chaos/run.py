"""Runs a site under faults and says what did not hold: `python -m tests.acceptance.chaos.run --minutes 5 --seed 1`."""

import argparse
import asyncio
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random, SystemRandom
from typing import Any

from tests.acceptance import folding, processes, sites
from tests.acceptance.chaos import checks, doors, notes, plan, records, story
from tests.acceptance.chaos.doors import Door
from tests.acceptance.chaos.evidence import Evidence, Violation
from tests.acceptance.chaos.faults import Faults
from tests.acceptance.chaos.notes import FOLDER
from tests.acceptance.chaos.plan import LEASE_SECONDS, Plan
from tests.acceptance.chaos.talks import Cancel, Conversation
from tests.acceptance.databases import Postgres
from tests.acceptance.processes import Process, Redis, python, until
from tests.acceptance.sites import Site

SETTINGS: dict[str, Any] = {
    "LEASE_SECONDS": LEASE_SECONDS,
    "RECOVERY_SECONDS": 1,
    "REDISPATCH_SECONDS": 2,
    "CANCEL_TIMEOUT": 0.5,
    "LOOK_SECONDS": 1,
    "HEARTBEAT_SECONDS": 2,
}
RECENT = 25  # tasks of which one may be canceled
LASTING = (
    "SELECT id, state, status, last_sequence, visible, metadata FROM a2a_django_task",
    "SELECT task_id, id, state, attempt, end_sequence, error, ended_at FROM a2a_django_turn",
    "SELECT task_id, id, sequence, body FROM a2a_django_event",
    "SELECT task_id, id, message_id, body FROM a2a_django_message",
)
SETTLING = 90.0  # seconds in which all must have settled when the faults are over


@dataclass
class Report:
    """What happened."""

    plan: Plan
    counts: dict[str, Counter[str]]
    violations: list[str]

    def __str__(self) -> str:
        lines = [f"chaos: seed {self.plan.seed}, {self.plan.seconds / 60:g} minutes"]
        for name, counter in self.counts.items():
            lines.append(
                f"  {name}: {counter.total()} ({', '.join(f'{key} {n}' for key, n in sorted(counter.items()))})"
            )
        return "\n".join([*lines, f"  violations: {len(self.violations)}"])


def run(folder: Path, seed: int, seconds: float, server: str = "daphne") -> Report:
    """Does what the plan of `seed` says to a site of its own; TEST_POSTGRES_URL says where its database is made."""
    made = plan.make(seed, seconds)
    with _site(folder, server) as (site, database, redis, recovery):
        return asyncio.run(Chaos(made, site, database, redis, recovery).run())


@contextmanager
def _site(folder: Path, server: str) -> Iterator[tuple[Site, Postgres, Redis, Process]]:
    """A web process, two workers, a Redis for jobs and rings, and `a2a_recover` besides."""
    database = Postgres(os.environ["TEST_POSTGRES_URL"], f"a2a_chaos_{os.getpid()}")
    database.create()
    database.rows("SELECT 1")  # connected for good: at times nobody can
    try:
        with processes.redis(folder, "redis") as redis, sites.full(folder, database, redis, redis, **SETTINGS) as site:
            (folder / "notes").mkdir()
            site.set(DJANGO_SETTINGS_MODULE="tests.acceptance.chaos.settings", **{FOLDER: str(folder / "notes")})
            site.prepare("tests.acceptance.chaos.seed")
            site.serve(server)
            site.work()
            site.work()
            command = python("manage.py", "a2a_recover", "--every", "0.5")
            recovery = Process("recovery", command, folder / "recovery.log", site.environment("recovery"))
            site.stack.callback(recovery.stop)
            recovery.start(lambda process: process.said("recovered"))
            yield site, database, redis, recovery
    finally:
        database.drop()


class Chaos:
    """One run on a site that is up."""

    def __init__(self, made: Plan, site: Site, database: Postgres, redis: Redis, recovery: Process) -> None:
        self.plan, self.site = made, site
        self.processes = {"web": site.web[0], **{worker.name: worker for worker in site.workers}, "recovery": recovery}
        self.faults = Faults(site, database, redis, self.processes, self._cancel)
        self.calm = asyncio.Event()
        self.began = time.monotonic()
        self.conversations: list[Conversation] = []
        self.canceling: list[asyncio.Task[Cancel]] = []
        self.violations: list[Violation] = []
        self.clock: list[tuple[float, float]] = []

    async def run(self) -> Report:
        """The load under faults, then calm, then the checks."""
        async with AsyncExitStack() as stack:
            people = {name: await stack.enter_async_context(doors.client(name)) for name in ("ann", "bob")}
            talks = [asyncio.create_task(self._talk(talk, people[talk.user])) for talk in self.plan.talks]
            watching = [asyncio.create_task(self.faults.supervise()), asyncio.create_task(self._compare_clocks())]
            await asyncio.gather(*map(self._strike, self.plan.strikes))
            await self._settle(talks)
            await self._repeat_jobs()
            for watch in watching:
                watch.cancel()
        return await asyncio.to_thread(self._report)

    async def _at(self, seconds: float) -> None:
        await asyncio.sleep(self.began + seconds - time.monotonic())

    async def _talk(self, talk: plan.Talk, http: Any) -> None:
        await self._at(talk.at)
        door = Door(http, f"{self.site.web[0].url}/a2a/{talk.agent}", talk.binding)
        conversation = Conversation(talk, door, Random(self.plan.seed + talk.number), self.calm)
        self.conversations.append(conversation)
        await conversation.hold()

    async def _strike(self, strike: plan.Strike) -> None:
        await self._at(strike.at)
        await self.faults.strike(strike)

    async def _compare_clocks(self) -> None:
        while True:
            self.clock.append((time.time(), time.monotonic()))
            await asyncio.sleep(0.1)

    def _cancel(self, choice: float) -> bool:
        """Cancels one of the newest tasks."""
        known = [conversation for conversation in self.conversations if conversation.task][-RECENT:]
        if known:
            self.canceling.append(asyncio.create_task(known[int(len(known) * choice)].cancel()))
        return bool(known)

    # --- calm

    async def _settle(self, talks: list[asyncio.Task[None]]) -> None:
        """Waits until everybody has an answer and nothing goes on; what doesn't settle shows in the checks."""
        self.calm.set()
        try:
            async with asyncio.timeout(SETTLING):
                await asyncio.gather(*talks, *self.canceling)
                while not await asyncio.to_thread(self._settled):  # noqa: ASYNC110 (rows have no Event)
                    await asyncio.sleep(0.1)
        except TimeoutError:
            self.violations.append(Violation(f"it has not settled within {SETTLING:g} s"))
        for conversation in self.conversations:
            await conversation.leave()

    def _settled(self) -> bool:
        held = self.site.database.rows("SELECT id FROM a2a_django_task WHERE lease <> ''")
        going = self.site.database.rows("SELECT id FROM a2a_django_turn WHERE state IN ('queued', 'running')")
        newest = dict(self.site.database.rows("SELECT id, last_sequence FROM a2a_django_task"))
        reading = [one for one in self.conversations if one.task in newest and not one.all_read(newest[one.task])]
        return not (held or going or reading)

    async def _repeat_jobs(self) -> None:
        """Once more a job for every turn, and a recovery: nothing may come of it."""
        before = await asyncio.to_thread(self._lasting)
        turns = [turn for (turn,) in self.site.database.rows("SELECT id FROM a2a_django_turn")]
        jobs = await asyncio.to_thread(self.faults.publish, turns)
        await asyncio.to_thread(until, lambda: self._done(jobs), "all jobs are done", SETTLING)
        after = await asyncio.to_thread(self._lasting)
        changed = {task for task, *_ in before ^ after}
        self.violations += [
            Violation("a job for a turn that had ended has changed something", task) for task in changed
        ]

    def _done(self, jobs: list[str]) -> bool:
        logs = "".join(worker.log.read_text(errors="replace") for worker in self.site.workers)
        return all(f"[{job}] succeeded" in logs for job in jobs)

    def _lasting(self) -> set[tuple[Any, ...]]:
        """What nothing may change any more; a fold may still be under way."""
        return {row for query in LASTING for row in self.site.database.rows(query)}

    # --- what came of it

    def _report(self) -> Report:
        found = Evidence(
            records=records.read(self.site.database),
            notes=notes.read(self.site.folder / "notes"),
            conversations=self.conversations,
            cancels=[task.result() for task in self.canceling if task.done()],
            hits=self.faults.hits,
            clock=self.clock,
        )
        deaths = [Violation(f"{name} has died") for name in self.faults.deaths]
        violations = [*self.violations, *deaths, *checks.check(found), *self._folds(found)]
        counts = {
            "turns": Counter(turn.state for record in found.records.values() for turn in record.turns),
            "tasks": Counter(record.state.removeprefix("TASK_STATE_") for record in found.records.values()),
            "talks": Counter(conversation.talk.kind for conversation in self.conversations),
            "faults": self.faults.counts,
            "clients came back": Counter({one.talk.way: 0 for one in self.conversations}),
        }
        for conversation in self.conversations:
            counts["clients came back"][conversation.talk.way] += conversation.came_back
        return Report(self.plan, counts, [story.tell(one, found, self.site.folder) for one in violations])

    def _folds(self, found: Evidence) -> Iterator[Violation]:
        """The fold of the log is what the rows and GetTask say."""
        for task in found.records:
            try:
                folding.check(self.site, task)
            except AssertionError as error:
                yield Violation(f"the fold of the log: {error}", task)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/chaos", description="Does faults to a site and says what went wrong."
    )
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--seed", type=int, default=SystemRandom().randrange(10**6), help="reproduces a run")
    parser.add_argument("--server", choices=("daphne", "uvicorn"), default="daphne")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that nothing is left behind
    folder = Path(tempfile.mkdtemp(prefix="a2a-chaos-"))
    print(f"seed {asked.seed}, the logs are in {folder}", flush=True)
    report = run(folder, asked.seed, asked.minutes * 60, asked.server)
    print(*report.violations, report, sep="\n")
    return 1 if report.violations else 0


if __name__ == "__main__":
    sys.exit(main())

"""Runs a site under faults and says what did not hold: `python -m tests.acceptance.chaos.run --minutes 5 --seed 1`."""

import argparse
import asyncio
import os
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random, SystemRandom
from typing import Any, TypeVar

from tests.acceptance import folding, processes, sites
from tests.acceptance.chaos import checks, doors, notes, plan, records, story
from tests.acceptance.chaos.bystander import Bystander
from tests.acceptance.chaos.doors import Door
from tests.acceptance.chaos.evidence import Evidence, Violation
from tests.acceptance.chaos.faults import Faults
from tests.acceptance.chaos.notes import FOLDER, Notes
from tests.acceptance.chaos.plan import LEASE_SECONDS, STREAM_BYTES, STREAM_SECONDS, Plan
from tests.acceptance.chaos.talks import Cancel, Conversation
from tests.acceptance.databases import Postgres
from tests.acceptance.processes import Process, Redis, python, until
from tests.acceptance.sites import Site

SETTINGS: dict[str, Any] = {
    "LEASE_SECONDS": LEASE_SECONDS,
    "RECOVERY_SECONDS": 1,
    "REDISPATCH_SECONDS": 2,
    "IDEMPOTENCY_SECONDS": 86_400,  # some clients come again with their first message for as long as the faults last
    "CANCEL_TIMEOUT": 0.5,
    "LOOK_SECONDS": 1,
    "HEARTBEAT_SECONDS": 2,
    "SHUTDOWN_SECONDS": 1,
    "STREAM_MAX_SECONDS": STREAM_SECONDS,
    "STREAM_MAX_BYTES": STREAM_BYTES,
}
RECENT = 25  # tasks of which one may be canceled
LASTING = (
    "SELECT id, state, status, last_sequence, visible, metadata FROM a2a_django_task",
    "SELECT task_id, id, state, attempt, end_sequence, error, ended_at FROM a2a_django_turn",
    "SELECT task_id, id, sequence, body FROM a2a_django_event",
    "SELECT task_id, id, message_id, body FROM a2a_django_message",
)
THREADS = 32  # for faults that take their time
SETTLING = 90.0  # seconds in which all must have settled when the faults are over

T = TypeVar("T")


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
    report = None
    try:
        with _site(folder, server) as (site, database, redis, recovery):
            report = asyncio.run(Chaos(made, site, database, redis, recovery).run())
    except Exception as error:
        if report is None:
            raise
        report.violations.append(f"VIOLATION: the site did not end in order: {error!r}")
    return report


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
        self.bystander = Bystander(database.url)
        self.calm, self.over = asyncio.Event(), asyncio.Event()
        self.began = time.monotonic()
        self.conversations: list[Conversation] = []
        self.canceling: list[asyncio.Task[None]] = []
        self.cancels: list[Cancel] = []
        self.violations: list[Violation] = []

    async def run(self) -> Report:
        """The load under faults, then calm, then the checks; whatever goes wrong stands in the report."""
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS))
        watching = [asyncio.create_task(work) for work in (self._watch(), self._supervise())]
        async with AsyncExitStack() as stack:
            people = {name: await stack.enter_async_context(doors.client(name)) for name in ("ann", "bob")}
            talks = [asyncio.create_task(self._talk(talk, people[talk.user])) for talk in self.plan.talks]
            await asyncio.gather(*map(self._strike, self.plan.strikes))
            with self._reporting("The end"):
                await self._settle(talks)
            with self._reporting("The repetition of all jobs"):
                await self._repeat_jobs()
        self.over.set()
        self.bystander.leave()
        await asyncio.gather(*watching)
        return await asyncio.to_thread(self._report)

    @contextmanager
    def _reporting(self, what: str) -> Iterator[None]:
        """What is raised within it is one of the violations."""
        try:
            yield
        except Exception as error:
            self.violations.append(Violation(f"{what} failed: {error!r}\n{traceback.format_exc(limit=-3)}"))

    async def _at(self, seconds: float) -> None:
        await asyncio.sleep(self.began + seconds - time.monotonic())

    async def _talk(self, talk: plan.Talk, http: Any) -> None:
        await self._at(talk.at)
        door = Door(http, f"{self.site.web[0].url}/a2a/{talk.agent}", talk.binding)
        conversation = Conversation(talk, door, Random(self.plan.seed + talk.number), self.calm)
        self.conversations.append(conversation)
        with self._reporting(str(talk)):
            await conversation.hold()

    async def _strike(self, strike: plan.Strike) -> None:
        await self._at(strike.at)
        with self._reporting(str(strike)):
            await self.faults.strike(strike)

    async def _watch(self) -> None:
        with self._reporting("The bystander"):
            await asyncio.to_thread(self.bystander.watch)

    async def _supervise(self) -> None:
        while not self.over.is_set():
            await asyncio.sleep(0.5)
            with self._reporting("The supervisor"):
                await self.faults.supervise()

    def _cancel(self, choice: float) -> bool:
        """Cancels one of the newest tasks."""
        known = [conversation for conversation in self.conversations if conversation.task][-RECENT:]
        if known:
            self.canceling.append(asyncio.create_task(self._have_canceled(known[int(len(known) * choice)])))
        return bool(known)

    async def _have_canceled(self, conversation: Conversation) -> None:
        with self._reporting(f"A cancel of {conversation.task}"):
            self.cancels.append(await conversation.cancel())

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
        turns = await asyncio.to_thread(self.site.database.rows, "SELECT id FROM a2a_django_turn")
        jobs = await asyncio.to_thread(self.faults.publish, [turn for (turn,) in turns])
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
            records=self._or("The rows", partial(records.read, self.site.database), {}),
            notes=self._or("The notes", partial(notes.read, self.site.folder / "notes"), Notes()),
            conversations=self.conversations,
            cancels=self.cancels,
            hits=[*self.faults.hits, *self.bystander.stalls],
            clock=self.bystander.clock,
        )
        with self._reporting("The workers' logs"):
            found.hits.extend(self.faults.collapses(found.monotonic))
        self.violations += map(Violation, self.faults.wrong)
        for check in (checks.check, self._folds):
            with self._reporting("A check"):
                for violation in check(found):
                    self.violations.append(violation)
        told = [
            self._or("A story", partial(story.tell, one, found, self.site.folder), one.what)
            for one in list(self.violations)
        ]
        return Report(self.plan, self._counts(found), told)

    def _or(self, what: str, call: Callable[[], T], otherwise: T) -> T:
        """What `call()` returns, or `otherwise`."""
        with self._reporting(what):
            return call()
        return otherwise

    def _counts(self, found: Evidence) -> dict[str, Counter[str]]:
        counts = {
            "turns": Counter(turn.state for record in found.records.values() for turn in record.turns),
            "tasks": Counter(record.state.removeprefix("TASK_STATE_") for record in found.records.values()),
            "talks": Counter(conversation.talk.kind for conversation in self.conversations),
            "faults": Counter(hit.fault for hit in found.hits),
            "clients came back": Counter({one.talk.way: 0 for one in self.conversations}),
        }
        for conversation in self.conversations:
            counts["clients came back"][conversation.talk.way] += conversation.came_back
        return counts

    def _folds(self, found: Evidence) -> Iterator[Violation]:
        """The fold of the log is what the rows and GetTask say."""
        for task in found.records:
            try:
                folding.check(self.site, task)
            except Exception as error:
                yield Violation(f"the fold of the log: {error!r}", task)


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

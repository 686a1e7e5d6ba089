"""The faults, done to the processes and services of a site as the plan says; and what was done, for the story."""

import asyncio
import re
import signal
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from datetime import UTC, datetime
from random import Random
from typing import NamedTuple

import psycopg
from celery import Celery
from kombu.exceptions import OperationalError

from tests.acceptance.chaos.plan import REST, Strike
from tests.acceptance.databases import Postgres
from tests.acceptance.processes import Process, Redis
from tests.acceptance.sites import Site

DUPLICATES = 10  # jobs of one strike
RECENT = 50  # turns of which they are
DEATH = "death"  # of a process that nobody has killed
ENDING = 15.0  # seconds within which a process ends that is asked to
COLLAPSE = "collapse"  # of a worker whose kombu has lost its Redis at a bad moment: it ends, in order
UNRECOVERABLE = r"\[(.+),(\d+): CRITICAL/MainProcess\] Unrecoverable error: .*hostname"


class Hit(NamedTuple):
    """A fault that was done; by the machine's monotonic clock."""

    began: float
    ended: float
    fault: str
    victim: str


class Faults:
    """Does what the plan says to a site."""

    def __init__(
        self,
        site: Site,
        database: Postgres,
        redis: Redis,
        processes: dict[str, Process],
        cancel: Callable[[float], bool],
    ) -> None:
        self._site, self._database, self._redis = site, database, redis
        self._processes, self._cancel_one = processes, cancel
        self._bearing: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._broker = Celery("chaos", broker=redis.url, set_as_current=False)
        self.hits: list[Hit] = []
        self.wrong: list[str] = []  # processes that ended by themselves for no known reason, or didn't when asked to

    async def strike(self, strike: Strike) -> None:
        """Does one fault; one that lasts waits until its victim has borne another."""
        async with self._bearing[strike.victim] if strike.seconds else nullcontext():
            if strike.seconds and strike.victim in self._processes:
                await self._revive(strike.victim)
            began, done = time.monotonic(), True
            try:
                done = await getattr(self, f"_{strike.fault}")(strike)
            finally:
                if done is not False:
                    self.hits.append(Hit(began, time.monotonic(), strike.fault, strike.victim))

    async def supervise(self) -> None:
        """Starts what has ended by itself, as every site's supervisor does; to be called again and again."""
        for name in self._processes:
            if not self._bearing[name].locked():
                async with self._bearing[name]:
                    await self._revive(name)

    async def _revive(self, name: str) -> None:
        process, began = self._processes[name], time.monotonic()
        if process.alive:
            return
        if not process.said(UNRECOVERABLE):
            self.wrong.append(f"{name} has died")
            self.hits.append(Hit(began, began, DEATH, name))
        await asyncio.to_thread(process.restart)

    def collapses(self, monotonic: Callable[[float], float]) -> Iterator[Hit]:
        """Those that the workers' logs tell of; `monotonic` is the evidence's."""
        for worker in self._site.workers:
            for moment, milliseconds in re.findall(UNRECOVERABLE, worker.log.read_text(errors="replace")):
                at = datetime.fromisoformat(moment).replace(tzinfo=UTC).timestamp() + int(milliseconds) / 1000
                yield Hit(monotonic(at), monotonic(at) + ENDING, COLLAPSE, worker.name)

    async def _kill(self, strike: Strike) -> None:
        process = self._processes[strike.victim]
        await asyncio.to_thread(process.stop, signal.SIGKILL)
        await asyncio.sleep(strike.seconds)
        await asyncio.to_thread(process.restart)

    _kill_web = _kill

    async def _stop(self, strike: Strike) -> None:
        """Asks a process to end, as whoever deploys a new version does."""
        process = self._processes[strike.victim]
        process.kill(signal.SIGTERM)
        try:
            await asyncio.to_thread(process.wait, ENDING)
        except subprocess.TimeoutExpired:
            self.wrong.append(f"{strike.victim} has not ended within {ENDING:g} s of SIGTERM")
        await self._kill(strike)

    _stop_web = _stop

    async def _freeze(self, strike: Strike) -> None:
        process = self._processes[strike.victim]
        process.kill(signal.SIGSTOP)
        try:
            await asyncio.sleep(strike.seconds)
        finally:
            process.kill(signal.SIGCONT)

    async def _restart_redis(self, strike: Strike) -> None:
        """What it held is lost: jobs and subscriptions."""
        await asyncio.to_thread(self._redis.stop, signal.SIGKILL)
        await asyncio.sleep(strike.seconds)
        await asyncio.to_thread(self._redis.start)

    async def _drop_connections(self, strike: Strike) -> None:
        victims = [process for name, process in self._processes.items() if strike.victim in (name, "all")]
        applications = [self._site.application(process.name) for process in victims]
        await asyncio.to_thread(self._database.end_sessions, applications)

    async def _lose_database(self, strike: Strike) -> None:
        """Nobody gets in for a while, as when the server is started again."""
        await asyncio.to_thread(self._database.close_to_all)
        try:
            await self._drop_connections(strike._replace(victim="all"))
            await asyncio.sleep(strike.seconds)
        finally:
            await asyncio.to_thread(self._database.open_to_all)

    async def _lock_row(self, _: Strike) -> bool:
        """A machine is lost in a transaction that has touched a task which another one runs."""
        return await asyncio.to_thread(self._hold_row)

    def _hold_row(self) -> bool:
        running = "SELECT id FROM a2a_django_task WHERE lease <> '' LIMIT 1"
        options = f"-c idle_in_transaction_session_timeout={REST}"
        held = False
        with suppress(psycopg.Error), psycopg.connect(self._database.url, options=options) as connection:
            row = connection.execute(f"UPDATE a2a_django_task SET crowded = true WHERE id = ({running}) RETURNING id")
            if held := row.fetchone() is not None:
                time.sleep(2 * REST / 1000)
            connection.rollback()
        return held

    async def _duplicate_jobs(self, strike: Strike) -> bool:
        """More jobs for turns of any state."""
        rows = await asyncio.to_thread(self._database.rows, "SELECT id FROM a2a_django_turn ORDER BY id")
        if not rows:
            return False
        random = Random(strike.choice)
        with suppress(OperationalError):  # the broker is away
            await asyncio.to_thread(self.publish, [random.choice(rows[-RECENT:])[0] for _ in range(DUPLICATES)])
        return True

    def publish(self, turns: list[int]) -> list[str]:
        """Publishes jobs for these turns; their ids."""
        with self._broker.connection_for_write(transport_options={"max_retries": 1}) as connection:
            return [
                self._broker.send_task("a2a_django.run_turn", (turn,), connection=connection, retry=False).id
                for turn in turns
            ]

    async def _cancel(self, strike: Strike) -> bool:
        return self._cancel_one(strike.choice)

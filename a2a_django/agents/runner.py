"""Runs the executor of a claimed turn and appends what it says (DESIGN 5)."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from asgiref.sync import ThreadSensitiveContext

from a2a_django import accidents, database, doorbell
from a2a_django.agents import commits, connections, contexts, inbox, loop, registry
from a2a_django.agents.activation import Activation
from a2a_django.agents.claims import Claim
from a2a_django.agents.commits import Voice
from a2a_django.agents.contract import Contract
from a2a_django.agents.leases import Held
from a2a_django.agents.mailbox import Mailbox
from a2a_django.agents.outcomes import Outcomes
from a2a_django.agents.speech import Speech
from a2a_django.batches import Again, End
from a2a_django.entries import Entry
from a2a_django.event_log import FencedError
from a2a_django.models import Task
from a2a_django.models.task import Cancel
from a2a_django.protocol import errors
from a2a_django.settings import a2a_settings

log = logging.getLogger(__name__)

REFUSALS = (errors.UnsupportedOperationError, errors.TaskNotCancelableError)


class TurnTimeoutError(Exception):
    """An executor has not come to an end in time."""


class TurnInterruptedError(Exception):
    """The process ends."""


async def run(claim: Claim) -> Again | None:
    """Runs a claimed turn to its end; whatever goes wrong, the turn ends and its readers hear of it.

    Returns how it is to be run again if it was queued once more.
    """
    async with ThreadSensitiveContext() as context:
        try:
            return await _Run(claim, context).run()
        finally:
            await connections.close(context)


class _Run:
    """One turn on its way: the executor speaks, its voice appends, the lease is watched."""

    def __init__(self, claim: Claim, thread: ThreadSensitiveContext) -> None:
        task = claim.current_task
        self.claim, self.writer, self.thread = claim, claim.writer, thread
        self.contract = Contract(
            self.writer.task_id,
            self.writer.context_id,
            follow_up=claim.spoken,
            artifact_ids={artifact.artifact_id for artifact in task.artifacts} if task else set(),
        )
        self.wake = asyncio.Event()
        self.home = asyncio.get_running_loop()
        self.blocking = registry.blocks(claim.executor)
        self.voice = Voice(self.writer, self._take, self._has_ended, self.wake.set)
        self.speech = Speech(self.contract, self.voice.said, self._wake_from_any_thread)
        self.mailbox = Mailbox(claim.turn_id, self.writer)
        self.outcomes = Outcomes(claim, self.speech, self.mailbox)
        self.held = Held(self.writer.task_id, self.writer.lease, claim.timeout)
        self.activation = Activation(claim)
        self.executing: asyncio.Task[None]
        self.canceling: asyncio.Task[None] | None = None
        self.canceled = False
        self.rested = 0
        self.again: Again | None = None

    async def run(self) -> Again | None:
        with self.held.listening():
            watching = asyncio.create_task(self._watch())
            self.executing = self._start(self._execute())
            try:
                await self._attend()
            except FencedError:
                log.info("Turn %s was fenced off: its task was ended or taken over.", self.claim.turn_id)
            except TurnInterruptedError as error:
                await self._stop(self.canceling, self.executing)
                await self._append(*self._interrupted(error, await self._unsaid()))
            except Exception as error:
                log.error("Turn %s could not be run: %s", self.claim.turn_id, accidents.place(error))
                await self._append(*self.outcomes.failed(error, await self._unsaid()))
            finally:
                self.speech.close()
                await self._stop(watching, self.canceling, self.executing)
        return self.again

    def _wake_from_any_thread(self) -> None:
        self.home.call_soon_threadsafe(self.wake.set)

    def _start(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.create_task(work)
        task.add_done_callback(lambda _: task.cancelled() or task.exception())  # else asyncio logs its text
        task.add_done_callback(lambda _: self.wake.set())
        return task

    async def _execute(self) -> None:
        executor = registry.get(self.claim.executor)
        context = await contexts.of_turn(self.claim)
        inbox.provide(context, self.mailbox.messages)
        await self._in_its_loop(executor.execute(context, self.speech))

    async def _in_its_loop(self, work: Coroutine[Any, Any, None]) -> None:
        """Awaits `work` here, or in a thread of its own if it blocks: what was said is appended meanwhile."""
        await (asyncio.wrap_future(loop.in_own_thread(work)) if self.blocking else work)

    async def _watch(self) -> None:
        while True:
            await self.held.news()
            self.wake.set()

    # --- what was said goes to the log by itself, in as few commits as come about, until something happens

    async def _attend(self) -> None:
        while True:
            await self.wake.wait()
            self.wake.clear()
            await self._heed()
            if self._over():
                return await self._append(*self._outcome(await self._unsaid()))
            if self.voice.failed is not None:
                await self._append(await self._unsaid(), None)
                self.voice.go_on()

    def _has_ended(self) -> bool:
        return self.executing.done()

    def _over(self) -> bool:
        ended = self.executing.done() and (self.canceling is None or self.canceling.done())
        return ended or self.speech.breach is not None

    def _take(self) -> list[Entry]:
        self.writer.activated = self.activation.news()
        return self.speech.take()

    async def _unsaid(self) -> list[Entry]:
        """What was said and isn't in the log, once nothing is on its way there; raises what has kept it out."""
        while not self.voice.silence():
            await self.wake.wait()
            self.wake.clear()
        failed, self.voice.failed = self.voice.failed, None
        if failed is None or failed.error is None:
            return self._take()
        if not isinstance(failed.error, database.AWAY):
            self.speech.close()  # what follows would stand behind a hole
            raise failed.error
        self._broken_off(failed.error)
        return [*failed.said, *self._take()]

    async def _append(self, said: list[Entry], end: End | None) -> None:
        """Appends; while the database is away it tries again for as long as the lease lasts, then it is fenced off."""
        try:
            async with asyncio.timeout(a2a_settings.LEASE_SECONDS):
                await self._append_patiently(said, end)
        except TimeoutError:
            log.warning("The database was away for too long, turn %s is left to recovery.", self.claim.turn_id)
            raise FencedError from None
        except Exception:
            self.speech.close()  # what follows would stand behind a hole
            raise
        self.again = end.again if end else None

    async def _append_patiently(self, said: list[Entry], end: End | None) -> None:
        pause = 0.05
        while True:
            try:
                return await commits.append(self.writer, said, end)
            except database.AWAY as error:
                self._broken_off(error)
                await asyncio.sleep(pause)
                pause = min(pause * 2, 2)

    def _broken_off(self, error: Exception) -> None:
        """An append that may have succeeded or not, the next one has to look."""
        log.warning("Could not append to the log, trying again: %s", type(error).__name__)
        self.writer.unsure = True

    async def _heed(self) -> None:
        """Looks at what the lease's watch has found."""
        if self.held.lost:
            raise FencedError
        if self.held.interrupted:
            raise TurnInterruptedError("The worker that ran this turn was stopped.")
        if self.held.timed_out:
            raise TurnTimeoutError(f"The turn ran longer than its agent's turn_timeout, {self.claim.timeout:g} s")
        if self.held.cancel_requested and self.canceling is None:
            self.canceling = self._start(self._cancel())
        if self.held.renewed != self.rested:
            self.rested = self.held.renewed
            connections.rest(self.thread)

    # --- cancelling

    async def _cancel(self) -> None:
        """Asks the executor; it obeys, refuses, or is stopped (DESIGN 5.6)."""
        try:
            async with asyncio.timeout(a2a_settings.CANCEL_TIMEOUT):
                context = await contexts.of_cancel(self.claim)
                await self._in_its_loop(registry.get(self.claim.executor).cancel(context, self.speech))
        except REFUSALS:
            await database.log.run(_refuse, self.writer.task_id, self.writer.lease)
            self.held.cancel_requested, self.canceling = False, None
            return
        except Exception as error:
            log.warning("cancel() of executor “%s” failed: %s", self.claim.executor, accidents.place(error))
        self.canceled = True
        self.executing.cancel()
        await asyncio.wait({self.executing}, timeout=a2a_settings.CANCEL_TIMEOUT)

    # --- the end

    def _outcome(self, said: list[Entry]) -> tuple[list[Entry], End]:
        return self.outcomes.canceled(said) if self.canceled else self.outcomes.finished(self.executing, said)

    def _interrupted(self, error: TurnInterruptedError, said: list[Entry]) -> tuple[list[Entry], End | None]:
        self.canceled = self.canceling is not None
        if self.canceled or (self.executing.done() and not self.executing.cancelled()):
            return self._outcome(said)
        return self.outcomes.interrupted(error, said, clings=self.blocking or not self.executing.done())

    async def _stop(self, *tasks: "asyncio.Task[None] | None") -> None:
        """Cancels what still runs; an executor that clings on is left behind, unheard."""
        running = {task for task in tasks if task is not None and not task.done()}
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running, timeout=a2a_settings.CANCEL_TIMEOUT)


def _refuse(task_id: str, lease: str) -> None:
    Task.objects.filter(pk=task_id, lease=lease).update(cancel=Cancel.REFUSED)
    doorbell.ring(task_id)

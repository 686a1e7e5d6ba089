"""Runs the executor of a claimed turn and appends what it says (DESIGN 5)."""

import asyncio
import inspect
import logging
from collections.abc import Coroutine
from typing import Any

from a2a.server.agent_execution import RequestContext
from a2a.types import Task as ProtoTask
from asgiref.sync import ThreadSensitiveContext

from a2a_django import accidents, database, doorbell, entries
from a2a_django.agents import claims, commits, connections, inbox, loop, registry
from a2a_django.agents.activation import Activation
from a2a_django.agents.claims import Claim
from a2a_django.agents.contract import Contract, breach
from a2a_django.agents.leases import Held
from a2a_django.agents.mailbox import Mailbox
from a2a_django.agents.speech import Speech
from a2a_django.batches import End
from a2a_django.entries import Entry
from a2a_django.event_log import FencedError
from a2a_django.models import Task
from a2a_django.models.task import Cancel
from a2a_django.protocol import errors
from a2a_django.protocol.states import TERMINAL, TaskState
from a2a_django.settings import a2a_settings

log = logging.getLogger(__name__)

REFUSALS = (errors.UnsupportedOperationError, errors.TaskNotCancelableError)
NEUTRAL = "The agent could not complete the task."


class TurnTimeoutError(Exception):
    """An executor has not come to an end in time."""


async def run(claim: Claim) -> None:
    """Runs a claimed turn to its end; whatever goes wrong, the turn ends and its readers hear of it."""
    async with ThreadSensitiveContext() as context:
        try:
            await _Run(claim, context).run()
        finally:
            await connections.close(context)


class _Run:
    """One turn on its way: the executor speaks, the pump appends, the lease is watched."""

    def __init__(self, claim: Claim, thread: ThreadSensitiveContext) -> None:
        task = claim.current_task
        self.claim, self.writer, self.thread = claim, claim.writer, thread
        self.contract = Contract(
            self.writer.task_id,
            self.writer.context_id,
            follow_up=task is not None,
            artifact_ids={artifact.artifact_id for artifact in task.artifacts} if task else set(),
        )
        self.wake = asyncio.Event()
        self.home = asyncio.get_running_loop()
        self.blocking = registry.blocks(claim.executor)
        self.speech = Speech(self.contract, self._wake_from_any_thread if self.blocking else self.wake.set)
        self.mailbox = Mailbox(claim.turn_id, self.writer)
        self.held = Held(self.writer.task_id, self.writer.lease, claim.timeout)
        self.activation = Activation(claim)
        self.executing: asyncio.Task[None]
        self.canceling: asyncio.Task[None] | None = None
        self.canceled = False
        self.rested = 0

    async def run(self) -> None:
        with self.held.listening():
            watching = asyncio.create_task(self._watch())
            self.executing = self._start(self._execute())
            try:
                await self._pump()
            except FencedError:
                log.info("Turn %s was fenced off: its task was ended or taken over.", self.claim.turn_id)
            except Exception as error:
                log.error("Turn %s could not be run: %s", self.claim.turn_id, accidents.place(error))
                await self._append(*self._failing(error, self.speech.take()))
            finally:
                self.speech.close()
                await self._stop(watching, self.canceling, self.executing)

    def _wake_from_any_thread(self) -> None:
        self.home.call_soon_threadsafe(self.wake.set)

    def _start(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.create_task(work)
        task.add_done_callback(lambda _: task.cancelled() or task.exception())  # else asyncio logs its text
        task.add_done_callback(lambda _: self.wake.set())
        return task

    async def _execute(self) -> None:
        executor = registry.get(self.claim.executor)
        context = await self._request_context()
        inbox.provide(context, self.mailbox.messages)
        await self._in_its_loop(executor.execute(context, self.speech))

    async def _in_its_loop(self, work: Coroutine[Any, Any, None]) -> None:
        """Awaits `work` here, or in a thread of its own if it blocks: what was said is appended meanwhile."""
        await (asyncio.wrap_future(loop.in_own_thread(work)) if self.blocking else work)

    async def _watch(self) -> None:
        while True:
            await self.held.news()
            self.wake.set()

    # --- the pump: what was said goes to the log, in as few commits as come about

    async def _pump(self) -> None:
        while True:
            await self.wake.wait()
            self.wake.clear()
            await self._heed()
            over = self.executing.done() and (self.canceling is None or self.canceling.done())
            over = over or self.speech.breach is not None
            said = self.speech.take()
            if over:
                return await self._append(*self._ending(said))
            if said:
                await self._append(said, None)

    async def _append(self, said: list[Entry], end: End | None) -> None:
        """Appends; while the database is away it tries again for as long as the lease lasts, then it is fenced off."""
        self.writer.activated = self.activation.news()
        try:
            async with asyncio.timeout(a2a_settings.LEASE_SECONDS):
                await self._append_patiently(said, end)
        except TimeoutError:
            log.warning("The database was away for too long, turn %s is left to recovery.", self.claim.turn_id)
            raise FencedError from None
        except Exception:
            self.speech.close()  # what follows would stand behind a hole
            raise

    async def _append_patiently(self, said: list[Entry], end: End | None) -> None:
        pause = 0.05
        while True:
            try:
                return await commits.append(self.writer, said, end)
            except database.AWAY as error:
                log.warning("Could not append to the log, trying again: %s", type(error).__name__)
                self.writer.unsure = True
                await asyncio.sleep(pause)
                pause = min(pause * 2, 2)

    async def _heed(self) -> None:
        """Looks at what the lease's watch has found."""
        if self.held.lost:
            raise FencedError
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
                context = await self._cancel_context()
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

    async def _cancel_context(self) -> RequestContext:
        task = await database.log.run(_current, self.writer.task_id)
        writer = self.writer
        return RequestContext(self.claim.call_context, task_id=writer.task_id, context_id=writer.context_id, task=task)

    async def _request_context(self) -> RequestContext:
        claim, writer = self.claim, self.writer
        builder: Any = a2a_settings.load("REQUEST_CONTEXT_BUILDER")
        if builder is not None:
            builder = builder() if inspect.isclass(builder) else builder
            built: RequestContext = await builder.build(
                context=claim.call_context,
                params=claim.request,
                task_id=writer.task_id,
                context_id=writer.context_id,
                task=claim.current_task,
            )
            return built
        return RequestContext(
            claim.call_context,
            claim.request,
            task_id=writer.task_id,
            context_id=writer.context_id,
            task=claim.current_task,
            related_tasks=claim.related_tasks,
        )

    # --- the end

    def _ending(self, said: list[Entry]) -> tuple[list[Entry], End]:
        """The last entries and how the turn ends."""
        error, ended = self._failure(), self._ends(said)
        if self.canceled:
            return said + ([] if ended else [self._canceled()]), self._end()
        if error is None:
            return said + self.speech.answer(), self._end()
        if ended:
            return said, self._end(error)
        return self._failing(error, said)

    def _failing(self, error: BaseException, said: list[Entry]) -> tuple[list[Entry], End]:
        """The last entries and how the turn ends when it has failed and the task goes with it."""
        public = error if isinstance(error, errors.A2AError) else errors.InternalError()
        answer = None if self.writer.visible or said else errors.store(public)
        return (said if self._ends(said) else [*said, self._failed(public)]), self._end(error, answer)

    def _ends(self, said: list[Entry]) -> bool:
        """Whether the task has ended with what was said."""
        return self.writer.terminal or any(entry.state in TERMINAL for entry in said)

    def _end(self, error: BaseException | None = None, answer: dict[str, Any] | None = None) -> End:
        """The end of this turn and of those whose messages it has read."""
        report = accidents.report(error) if error else ""
        return End(self.claim.turn_id, error is not None, report, answer, absorbed=tuple(self.mailbox.read))

    def _failure(self) -> BaseException | None:
        """Why the turn failed, None if it didn't."""
        if self.canceled:
            return None
        if self.speech.breach is not None:
            log.warning("Executor “%s”: %s", self.claim.executor, self.speech.breach.__notes__[0])
            return self.speech.breach
        error = asyncio.CancelledError() if self.executing.cancelled() else self.executing.exception()
        if error is not None and not isinstance(error, errors.A2AError):
            log.error("Executor “%s” failed: %s", self.claim.executor, accidents.place(error))
        if error is None and not self.speech.spoken and self.claim.current_task is None:
            return breach("nothing at all was said")
        return error

    def _failed(self, public: errors.A2AError) -> Entry:
        meant = not isinstance(public, errors.InternalError | errors.InvalidAgentResponseError)
        text = accidents.clean(public.message) if meant else NEUTRAL
        return entries.failed(self.writer.task_id, self.writer.context_id, f"{self.claim.turn_id}-failed", text)

    def _canceled(self) -> Entry:
        return entries.status(self.writer.task_id, self.writer.context_id, TaskState.CANCELED)

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


def _current(task_id: str) -> ProtoTask:
    return claims.current_task(Task.objects.get(pk=task_id))

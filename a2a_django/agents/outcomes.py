"""What comes of a turn: the last entries of its task's log, and how it ends (DESIGN 5.5)."""

import asyncio
import logging
from typing import Any

from a2a_django import accidents, entries
from a2a_django.agents.claims import Claim
from a2a_django.agents.contract import breach
from a2a_django.agents.mailbox import Mailbox
from a2a_django.agents.retries import Retry
from a2a_django.agents.speech import Speech
from a2a_django.batches import Again, End
from a2a_django.entries import Entry
from a2a_django.protocol import errors
from a2a_django.protocol.states import TERMINAL, TaskState
from a2a_django.settings import a2a_settings

log = logging.getLogger(__name__)

NEUTRAL = "The agent could not complete the task."


class Outcomes:
    """Those of one turn; each is told what its executor has said and the log doesn't have yet."""

    def __init__(self, claim: Claim, speech: Speech, mailbox: Mailbox) -> None:
        self._claim, self._writer, self._speech, self._mailbox = claim, claim.writer, speech, mailbox

    def finished(self, executing: "asyncio.Task[None]", said: list[Entry]) -> tuple[list[Entry], End]:
        """When the executor has come to its end, or has broken the contract."""
        error = self._failure(executing)
        if error is None:
            return said + self._speech.answer(), self._end()
        if self._has_ended(said):
            return said, self._end(error)
        if isinstance(error, Retry) and self._claim.attempt < a2a_settings.MAX_ATTEMPTS:
            return said, self._end(error, again=Again(error.pause(self._claim.attempt)))
        return self.failed(error, said)

    def failed(self, error: BaseException, said: list[Entry]) -> tuple[list[Entry], End]:
        """When the turn has failed and the task goes with it."""
        public = _public(error)
        answer = None if self._writer.visible or said else errors.store(public)
        return (said if self._has_ended(said) else [*said, self._failed(public)]), self._end(error, answer)

    def canceled(self, said: list[Entry]) -> tuple[list[Entry], End]:
        """When the executor has obeyed a cancel, or was stopped."""
        last = entries.status(self._writer.task_id, self._writer.context_id, TaskState.CANCELED)
        return said if self._has_ended(said) else [*said, last], self._end()

    def interrupted(self, error: Exception, said: list[Entry], *, clings: bool) -> tuple[list[Entry], End | None]:
        """When the process ends before the executor. One that `clings` to it may do so for as long as the process.

        Then a restartable turn keeps its lease: when that has expired, its executor surely doesn't run any more.
        """
        if self._has_ended(said):
            return said, self._end(error)
        if not self._claim.restartable:
            last = entries.interrupted(self._writer.task_id, self._writer.context_id, self._claim.turn_id)
            return [*said, last], self._end(error)
        return said, None if clings else self._end(error, again=Again(0, counts=False))

    def _has_ended(self, said: list[Entry]) -> bool:
        """Whether nothing can follow what was said."""
        return self._writer.terminal or any(entry.state in TERMINAL for entry in said)

    def _failure(self, executing: "asyncio.Task[None]") -> BaseException | None:
        """Why the turn failed, None if it didn't."""
        executor = self._claim.executor
        if self._speech.breach is not None:
            log.warning("Executor “%s”: %s", executor, self._speech.breach.__notes__[0])
            return self._speech.breach
        error = asyncio.CancelledError() if executing.cancelled() else executing.exception()
        if isinstance(error, Retry):
            log.info("Executor “%s” asks for another attempt at turn %s.", executor, self._claim.turn_id)
        elif error is not None and not isinstance(error, errors.A2AError):
            log.error("Executor “%s” failed: %s", executor, accidents.place(error))
        if error is None and not self._speech.spoken and self._claim.current_task is None:
            return breach("nothing at all was said")
        return error

    def _failed(self, public: errors.A2AError) -> Entry:
        meant = not isinstance(public, errors.InternalError | errors.InvalidAgentResponseError)
        text = accidents.clean(public.message) if meant else NEUTRAL
        metadata = public.data if isinstance(public, errors.UnavailableError) else None
        ids = (self._writer.task_id, self._writer.context_id, f"{self._claim.turn_id}-failed")
        return entries.failed(*ids, text, metadata)

    def _end(
        self,
        error: BaseException | None = None,
        answer: dict[str, Any] | None = None,
        again: Again | None = None,
    ) -> End:
        """The end of this turn and of those whose messages it has read."""
        report = accidents.report(error) if error else ""
        return End(self._claim.turn_id, error is not None, report, answer, tuple(self._mailbox.read), again)


def _public(error: BaseException) -> errors.A2AError:
    """What the client is told of `error`."""
    if isinstance(error, Retry):
        reason = accidents.clean(error.reason)
        return errors.UnavailableError(reason or NEUTRAL, {"retryable": True, "reason": reason})
    return error if isinstance(error, errors.A2AError) else errors.InternalError()

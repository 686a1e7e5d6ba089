"""Takes the turns that wait for a running one into it, message by message (DESIGN 5; `inbox`)."""

import logging
from collections.abc import AsyncIterator
from typing import NamedTuple

from a2a.types import Message
from django.db import transaction

from a2a_django import database
from a2a_django.agents import claims
from a2a_django.batches import Writer
from a2a_django.doorbell import Ear
from a2a_django.event_log import FencedError
from a2a_django.models import Task, Turn
from a2a_django.models.turn import ENDED, TurnState
from a2a_django.protocol import codec
from a2a_django.settings import a2a_settings

log = logging.getLogger(__name__)


class Letter(NamedTuple):
    """A queued turn's message, and whether the turn has been taken already."""

    turn_id: int
    state: str
    message_id: str
    body: str


class Mailbox:
    """What comes for a running turn; `read` lists the turns whose messages its executor has been given."""

    def __init__(self, turn_id: int, writer: Writer) -> None:
        self._turn_id, self._writer = turn_id, writer
        self.read: list[int] = []

    def messages(self) -> AsyncIterator[Message]:
        """The messages as they come."""
        return _Messages(self, self._writer.task_id)

    def take(self) -> Letter | None:
        """Makes the oldest waiting turn part of this one; FencedError when the task isn't this one's any more."""
        mine = Task.objects.live().filter(pk=self._writer.task_id, lease=self._writer.lease)
        crowded = mine.values_list("crowded", flat=True).first()
        if crowded is None:
            raise FencedError
        letter = self._oldest() if crowded else None
        # One that runs was taken by a call whose answer was lost or not waited for.
        if letter is not None and letter.state == TurnState.QUEUED:
            with transaction.atomic():
                # The row's lock: this turn can't end in between, and leave that one behind.
                if not mine.update(lease=self._writer.lease):
                    raise FencedError
                sequence = mine.values_list("last_sequence", flat=True).get()
                if not claims.start(letter.turn_id, sequence):
                    return None
        return letter

    def _oldest(self) -> Letter | None:
        waiting = Turn.objects.filter(task=self._writer.task_id, pk__gt=self._turn_id).exclude(state__in=ENDED)
        rows = waiting.exclude(pk__in=self.read).order_by("pk")
        found = rows.values_list("pk", "state", "message__message_id", "message__body").first()
        return Letter(*found) if found else None

    def open(self, letter: Letter) -> Message | None:
        """The message of a turn that was taken; None if it has been given to the executor before."""
        if letter.turn_id in self.read:
            return None
        self.read.append(letter.turn_id)
        self._writer.message_ids.add(letter.message_id)  # a Task event may repeat it
        return codec.read(letter.body, Message)


class _Messages(AsyncIterator[Message]):
    """Waits for the next message, in the executor's loop. Who gives up waiting can ask again, nothing is lost."""

    def __init__(self, mailbox: Mailbox, task_id: str) -> None:
        self._mailbox, self._ear = mailbox, Ear()
        self._ear.listen(task_id)

    async def __anext__(self) -> Message:
        while True:
            try:
                letter = await database.log.run(self._mailbox.take)
            except FencedError:
                self._ear.close()
                raise StopAsyncIteration from None
            except database.AWAY as error:
                log.warning("Could not look for messages, trying again: %s", type(error).__name__)
                letter = None
            if letter is None:
                await self._ear.wait(a2a_settings.LOOK_SECONDS)
            elif message := self._mailbox.open(letter):
                return message

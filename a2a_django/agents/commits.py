"""Group commit: what the turns of a process have to append while a commit is under way is the next one (DESIGN 4)."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Sequence
from functools import partial

from a2a_django import database, event_log
from a2a_django.batches import End, Writer
from a2a_django.database import Gathered
from a2a_django.entries import Entry
from a2a_django.event_log import Append


class Voice:
    """One turn's way to the log: the thread that commits takes what was said, and no task is woken for it.

    `take` gives what was said since it was last called; `ended` tells that the executor is done, so that the rest goes
    with the end of the turn. `wake` is called in the loop that made it: `failed` is set, or `silence` can succeed.
    """

    def __init__(
        self, writer: Writer, take: Callable[[], list[Entry]], ended: Callable[[], bool], wake: Callable[[], None]
    ) -> None:
        self.failed: Append | None = None
        self._writer, self._take, self._ended, self._wake = writer, take, ended, wake
        self._home = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._due = self._speaking = self._awaited = self._silent = False

    def said(self) -> None:
        """Something was said, in any event loop; what follows before the runner's comes round goes with it."""
        if not self._due:
            self._due = True
            here = asyncio.get_running_loop() is self._home
            (self._home.call_soon if here else self._home.call_soon_threadsafe)(self._speak)

    def _speak(self) -> None:
        if not self._ended():
            _appends.add(self)

    def silence(self) -> bool:
        """From now on nothing is taken; False while something is still being appended: `wake` tells when it is not."""
        with self._lock:
            self._silent, self._awaited = True, self._speaking
            return not self._speaking

    def go_on(self) -> None:
        """Speaks again after `silence`."""
        self._silent, self._due, self.failed = False, False, None
        self.said()

    def append(self) -> Append:
        """What there is to append now; for the thread that commits."""
        append = Append(self._writer, [])
        with self._lock:
            self._speaking = not self._silent
        try:
            self._due = False  # before it takes: what is said from now on is for the next commit
            append.said = self._take() if self._speaking else []
        except Exception as error:
            append.error = error
        return append

    def appended(self, append: Append) -> None:
        """Hears how that went."""
        with self._lock:
            self._speaking = False
            if append.error is not None:
                self._silent, self.failed = True, append
            wanted = self._awaited or self.failed is not None
        if wanted:
            with contextlib.suppress(RuntimeError):  # the loop has closed
                self._home.call_soon_threadsafe(self._wake)


def _append(asked: Sequence[Append | Voice]) -> None:
    spoken = [(one, one.append()) for one in asked if isinstance(one, Voice)]
    ends = [one for one in asked if isinstance(one, Append)]
    event_log.append_together([*ends, *(append for _, append in spoken if append.said)])
    for voice, append in spoken:
        voice.appended(append)


_appends: Gathered[Append | Voice] = Gathered(database.commits, _append)


async def append(writer: Writer, said: Sequence[Entry], end: End | None) -> None:
    """`event_log.append`, in one transaction with what other turns append at the same time."""
    item = Append(writer, said, end)
    await _appends.run(item)
    if item.error is not None:
        raise item.error
    if end is not None and writer.unfolded is None:
        await database.patiently(partial(database.log.run, event_log.fold, writer.task_id))

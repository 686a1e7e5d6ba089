"""A bystander, who renews something as keepers renew leases and whom no fault hits: when it is late, the machine is."""

import threading
import time

import psycopg

from tests.acceptance.chaos.faults import Hit
from tests.acceptance.chaos.plan import LEASE_SECONDS

EVERY = 0.1  # seconds
LATE = LEASE_SECONDS / 4  # processes that have more to do are later than the bystander
STALL = "stall"


class Bystander:
    """What it noted: what both clocks said, again and again, and when it was late."""

    def __init__(self, url: str) -> None:
        self.clock = [(time.time(), time.monotonic())]
        self.stalls: list[Hit] = []
        self._url, self._over = url, threading.Event()

    def watch(self) -> None:
        """Watches the machine, its PostgreSQL and its clocks until `leave`, in a thread of its own."""
        with psycopg.connect(self._url, autocommit=True) as connection:
            while not self._over.wait(EVERY):
                connection.execute("UPDATE chaos_bystander SET at = clock_timestamp()")
                self._note()

    def leave(self) -> None:
        """Has `watch` return."""
        self._over.set()

    def _note(self) -> None:
        wall, began = self.clock[-1]
        self.clock.append((time.time(), time.monotonic()))
        now, ended = self.clock[-1]
        if max(now - wall, ended - began) > EVERY + LATE:  # leases expire by the wall clock, which may be set
            self.stalls.append(Hit(began, ended, STALL, "all"))

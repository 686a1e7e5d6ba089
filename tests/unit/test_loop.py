"""Where executors run: one shared loop that a watchdog watches, or a thread of their own (DESIGN 5.3)."""

import asyncio
import contextvars
import os
import subprocess
import sys
import threading
import time

import pytest

from a2a_django.agents import loop

PATIENCE = 20

variable = contextvars.ContextVar("variable", default="unset")
blocking_or_not = pytest.mark.parametrize("blocking", [False, True])


def result(function, *, blocking=False):
    """What `function()` returns where executors run."""
    found = []

    async def work():
        found.append(function())

    loop.submit(in_own_thread(work()) if blocking else work()).result(PATIENCE)
    return found[0]


async def in_own_thread(work):
    """As a turn of an executor that blocks has it."""
    await asyncio.wrap_future(loop.in_own_thread(work))


@blocking_or_not
def test_nothing_of_the_caller_s_context_leaks_in(blocking):
    token = variable.set("a request's")
    try:
        assert result(variable.get, blocking=blocking) == "unset"
    finally:
        variable.reset(token)


@blocking_or_not
def test_nothing_leaks_from_turn_to_turn(blocking):
    result(lambda: variable.set("a turn's"), blocking=blocking)
    assert result(variable.get, blocking=blocking) == "unset"
    assert variable.get() == "unset"


def test_turns_share_one_loop():
    """Module-level async clients of executors keep working."""
    loops = {result(asyncio.get_running_loop) for _ in range(3)}
    assert len(loops) == 1
    assert result(threading.current_thread).name == "a2a-executors"


def test_turns_run_side_by_side():
    meet = asyncio.Barrier(50)

    async def work():
        await meet.wait()

    for future in [loop.submit(work()) for _ in range(50)]:
        future.result(PATIENCE)


def test_an_executor_that_blocks_has_thread_and_loop_of_its_own():
    meet = threading.Barrier(3, timeout=PATIENCE)
    found = []

    async def work():
        meet.wait()
        found.append((threading.current_thread(), asyncio.get_running_loop()))

    for future in [loop.submit(in_own_thread(work())) for _ in range(3)]:
        future.result(PATIENCE)
    threads, loops = zip(*found, strict=True)
    assert len(set(threads)) == len(set(loops)) == 3
    assert result(asyncio.get_running_loop) not in loops


def test_a_thread_of_its_own_ends_with_its_work_also_when_that_is_cancelled():
    begun, ended = threading.Event(), []

    async def work():
        begun.set()
        try:
            await asyncio.sleep(PATIENCE)
        finally:
            ended.append(threading.current_thread())

    future = loop.submit(in_own_thread(work()))
    assert begun.wait(PATIENCE)
    future.cancel()
    deadline = time.monotonic() + PATIENCE
    while not ended and time.monotonic() < deadline:
        time.sleep(0.01)
    ended[0].join(PATIENCE)
    assert not ended[0].is_alive()


@blocking_or_not
def test_an_error_goes_to_who_waits(blocking):
    with pytest.raises(ZeroDivisionError):
        result(lambda: 1 / 0, blocking=blocking)


# --- the watchdog


def hold(released):
    """An executor that isn't async."""
    assert released.wait(PATIENCE)


@pytest.fixture
def held(caplog, eventually):
    """held(blocking): holds an executor's thread until the watchdog had the time to speak, and what it said."""

    def hold_until_said(*, blocking):
        released = threading.Event()

        async def work():
            hold(released)

        future = loop.submit(in_own_thread(work()) if blocking else work())
        try:
            if not blocking:
                eventually(said)
            time.sleep(loop.HELD_TOO_LONG * 1.6)  # time to speak (again)
        finally:
            released.set()
        future.result(PATIENCE)
        return said()

    def said():
        return [record for record in caplog.records if "in hold" in record.getMessage()]

    result(lambda: None)  # the loop breathes
    return hold_until_said


def test_the_watchdog_tells_who_holds_the_shared_loop_ever_less_often(held):
    record, *again = held(blocking=False)
    assert len(again) < 10
    assert record.levelname == "WARNING"
    assert "test_loop.py" in record.getMessage()
    assert "blocking=True" in record.getMessage()


def test_the_watchdog_has_nothing_against_a_thread_of_one_s_own(held):
    assert held(blocking=True) == []


# --- after a fork


FORK = """
import asyncio, os, threading
import django
django.setup()
from a2a_django import database, doorbell
from a2a_django.agents import commits, leases, loop

async def nothing():
    pass

async def ear():
    made = doorbell.Ear()
    made.listen("t")
    return made

def work():
    loop.submit(nothing()).result(20)
    for pool in (database.log, database.requests, database.commits):
        assert asyncio.run(pool.run(threading.get_ident)) != threading.get_ident()
    kept = asyncio.run(ear())
    doorbell.ring("t")
    done = threading.Event()
    doorbell.keeper().loop.call_soon_threadsafe(done.set)
    assert done.wait(20)
    leases._held["x"] = None
    commits._appends._next = object()
    return kept

kept = work()
child = os.fork()
if not child:
    status = 1
    try:
        assert not (doorbell._ears or leases._held or commits._appends._next)
        work()
        status = 0
    finally:
        os._exit(status)
assert os.waitpid(child, 0)[1] == 0
work()
"""


def test_all_that_has_threads_starts_afresh_after_a_fork():
    """Celery's prefork pool and gunicorn --preload fork a process that has worked already."""
    subprocess.run([sys.executable, "-W", "ignore", "-c", FORK], check=True, env=os.environ, timeout=120)

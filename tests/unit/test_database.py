"""Our threads for database work: few, and each keeps its connection (DESIGN 4)."""

import asyncio
import contextvars
import threading

import pytest
from django.db import OperationalError, connection, connections, transaction

from a2a_django import database
from a2a_django.database import Pool

variable = contextvars.ContextVar("variable", default="unset")


@pytest.fixture
def pool(settings):
    """A pool of one thread; its connection is closed with the test."""
    settings.A2A = {**settings.A2A, "LOG_THREADS": 1}
    made = Pool("test-pool", "LOG_THREADS")
    yield made
    made.executor.submit(connections.close_all).result()
    made.executor.shutdown()


def opened():
    """The driver's connection that this thread has, opened if need be."""
    connection.ensure_connection()
    return connection.connection


async def test_what_is_called_runs_elsewhere_and_its_result_or_error_comes_back(pool):
    assert await pool.run(lambda a, b: (a, b), 1, b=2) == (1, 2)
    assert (await pool.run(threading.current_thread)).name.startswith("test-pool")
    with pytest.raises(ZeroDivisionError):
        await pool.run(lambda: 1 / 0)


async def test_context_variables_go_along_but_not_back(pool):
    variable.set("request")
    assert await pool.run(variable.get) == "request"
    await pool.run(variable.set, "pool")
    assert variable.get() == "request"
    assert await contextvars.Context().run(asyncio.create_task, pool.run(variable.get)) == "unset"


async def test_the_threads_are_as_many_as_the_setting_says(settings):
    """CASES 58"""
    settings.A2A = {**settings.A2A, "LOG_THREADS": 3}
    made = Pool("test-pool", "LOG_THREADS")
    meet = threading.Barrier(3, timeout=20)

    def work():
        meet.wait()
        return threading.get_ident()

    assert len(set(await asyncio.gather(*(made.run(work) for _ in range(9))))) == 3
    made.executor.shutdown()


def test_requests_and_the_log_have_threads_of_their_own():
    """A slow authenticator can't keep a turn from writing."""
    assert database.requests.executor is not database.log.executor


@pytest.mark.django_db(transaction=True)
class TestConnections:
    async def test_a_thread_keeps_its_connection(self, pool, settings):
        """CASES 58: opening one costs more than most requests."""
        first = await pool.run(opened)
        assert await pool.run(opened) is first

    async def test_an_error_of_ours_costs_no_connection(self, pool):
        first = await pool.run(opened)
        with pytest.raises(ZeroDivisionError):
            await pool.run(_fail_in_transaction)
        assert await pool.run(opened) is first
        assert await pool.run(_one) == 1

    async def test_a_connection_that_rested_long_is_opened_anew(self, pool, monkeypatch):
        first = await pool.run(opened)
        monkeypatch.setattr(database, "IDLE_SECONDS", 0)
        assert await pool.run(opened) is not first

    @pytest.mark.vendor("postgresql")
    async def test_a_connection_that_broke_is_opened_anew(self, pool):
        first = await pool.run(opened)
        with pytest.raises(OperationalError):
            await pool.run(_terminate)
        assert await pool.run(_one) == 1
        assert await pool.run(opened) is not first


def _fail_in_transaction():
    with transaction.atomic():
        _one()
        return 1 / 0


def _one():
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
        return cursor.fetchone()[0]


def _terminate():
    """What a restart of the server does to a connection."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")


async def test_gathered_calls_go_on_after_a_thread_that_could_not_begin(monkeypatch):
    """A connection that can't be tidied fails those who wait, and nobody after them."""
    seen = []
    gathered = database.Gathered(database.Pool("test-gathered", 1), seen.extend)
    with monkeypatch.context() as patch:
        patch.setattr(database, "_tidily", _refuse)
        with pytest.raises(ConnectionError):
            await asyncio.wait_for(gathered.run(1), 20)
    await asyncio.wait_for(gathered.run(2), 20)
    assert seen == [2]


async def test_gathered_calls_survive_one_who_gives_up():
    seen, go_on = [], threading.Event()
    gathered = database.Gathered(database.Pool("test-gathered", 1), lambda items: (go_on.wait(20), seen.extend(items)))
    calls = [asyncio.create_task(gathered.run(number)) for number in range(3)]
    await asyncio.sleep(0)
    calls[1].cancel()
    go_on.set()
    await asyncio.wait_for(asyncio.gather(calls[0], calls[2]), 20)
    assert sorted(seen) == [0, 1, 2]


def _refuse(function, *args):
    raise ConnectionError

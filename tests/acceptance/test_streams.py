"""Streams whose readers are slow, or very many."""

import asyncio
import resource
import socket
from contextlib import ExitStack, contextmanager

import pytest

from tests.acceptance.clients import COMPLETED, connect, raw, read, send, written
from tests.acceptance.conftest import listen
from tests.acceptance.test_failures import eventually, services
from tests.acceptance.test_load import CONNECTIONS

READERS, CHUNKS = 20, 300
WHOLE = 100_000 * CHUNKS * READERS / 2**20  # MB of what all readers together don't read


@contextmanager
def stalled(web, path, payload, **headers):
    """A client that asks and never reads."""
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", web.port))
        connection.sendall(written(web, path, payload, **headers))
        yield


@pytest.mark.parametrize(("server", "limit"), [("daphne", 4 * 2**20), ("uvicorn", None)])
async def test_readers_that_do_not_read_are_bounded_in_memory(make_embedded, server, limit):
    """CASES 62: Daphne keeps all that it is given, so a stream ends after STREAM_MAX_BYTES; uvicorn makes it wait."""
    site = make_embedded(STREAM_MAX_BYTES=limit)
    web = site.serve(server)
    async with raw(web) as http:
        task = (await http.send(f"work; fill {CHUNKS}; complete"))["id"]
        before = web.memory
        with ExitStack() as stack:
            for _ in range(READERS):
                stack.enter_context(stalled(web, f"tasks/{task}:subscribe", {"id": task}, **{"Last-Event-ID": "0"}))
            if limit:
                await eventually(lambda: web.log.read_text().count(':subscribe" 200') == READERS)
            seen, connections = [], 0
            while len(seen) < CHUNKS + 3:
                async with http.subscribe(task, after=len(seen)) as events:
                    seen += await read(events)
                connections += 1
            assert web.memory - before < WHOLE / 3
    assert [event.sequence for event in seen] == list(range(1, CHUNKS + 4))
    assert connections == (8 if limit else 1)


SUBSCRIBERS, TASKS = 2000, 20


@pytest.fixture
def many_files():
    """As many open files as the system allows, here and in the processes that are started here."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert hard >= 2 * SUBSCRIBERS, "ulimit -Hn is too low for this test"
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class Subscriber:
    """One connection with one stream, as cheap as can be."""

    async def open(self, web, task):
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", web.port)
        self.writer.write(written(web, f"tasks/{task}:subscribe", {"id": task}))
        await self.reader.readuntil(b"data: ")
        return self

    async def rest(self):
        """All that comes until the stream has ended."""
        rest = await self.reader.readuntil(b"\r\n0\r\n\r\n")
        self.writer.close()
        return rest


@services
async def test_thousands_of_idle_subscribers(make_full, layer, many_files):
    """CASES 61: they hold neither a thread nor a connection of the database, and an event reaches each of them."""
    site = make_full(layer)
    web = site.serve("daphne")
    site.work()
    listen(web, layer)
    async with connect(web, streaming=False) as client:
        tasks = [(await send(client, "work; ask Which one?")).task.id for _ in range(TASKS)]
        warm = [await Subscriber().open(web, task) for task in tasks]
        memory = web.memory
        opening = asyncio.Semaphore(50)

        async def subscribe(task):
            async with opening:
                return await Subscriber().open(web, task)

        async with asyncio.timeout(120):
            subscribers = await asyncio.gather(*(subscribe(task) for task in tasks * (SUBSCRIBERS // TASKS)))
        await eventually(lambda: site.idle_seconds(web) > 1, "nobody asks the database")
        print(f"{(web.memory - memory) * 1024 / SUBSCRIBERS:.0f} kB for each of {SUBSCRIBERS} streams")
        assert web.sockets >= SUBSCRIBERS
        assert web.threads < 20  # of our pools 9, the keeper, and the server's own
        assert len(site.connections(web)) <= CONNECTIONS

        subscribers.pop().writer.close()
        answers = await asyncio.gather(*(send(client, "work; complete", task=task) for task in tasks))
        assert {answer.task.status.state for answer in answers} == {COMPLETED}
        async with asyncio.timeout(60):
            rests = await asyncio.gather(*(subscriber.rest() for subscriber in warm + subscribers))
        assert all(b"TASK_STATE_WORKING" in rest and b"TASK_STATE_COMPLETED" in rest for rest in rests)

"""How much one process bears, and what it holds meanwhile."""

import asyncio
import re
from contextlib import AsyncExitStack

import pytest

from tests.acceptance.clients import COMPLETED, body, connect, raw, read, send, written
from tests.acceptance.conftest import SERVICES, listen
from tests.acceptance.test_failures import eventually, services

IN_CELERY = tuple(pytest.param(name, marks=SERVICES) for name in ("daphne", "uvicorn"))
THREADS = 48  # of our pools 8, the server's own, the keeper, 32 that sync middleware has used; not one for each call
CONNECTIONS = 10  # 8 of our pools and the site's own


@pytest.mark.parametrize("place", IN_CELERY, indirect=True)
async def test_idle_streams_and_waiting_calls_hold_nothing(place):
    """CASES 58: 60 of each beside 200 GetTasks."""
    web, site = place.here, place.site
    async with connect(web, streaming=False) as client:
        parked = (await send(client, "work; ask Which one?")).task
    async with raw(web) as http, AsyncExitStack() as stack:
        for _ in range(60):
            await read(await stack.enter_async_context(http.subscribe(parked.id)), 1)
        calls = [asyncio.create_task(http.send("work; wait door; complete")) for _ in range(60)]
        await eventually(lambda: site.waiting("door") == 60)
        reads = [http.http.get(f"{http.base}/tasks/{parked.id}") for _ in range(200)]
        assert {response.status_code for response in await asyncio.gather(*reads)} == {200}
        assert web.sockets >= 120
        await eventually(lambda: web.threads <= THREADS, f"{web.threads} threads become {THREADS}")
        states = site.connections(web)
        assert len(states) <= CONNECTIONS
        assert "idle in transaction" not in states
        site.open("door")
        assert {task["status"]["state"] for task in await asyncio.gather(*calls)} == {"TASK_STATE_COMPLETED"}


@pytest.mark.parametrize("place", IN_CELERY[:1], indirect=True)
async def test_a_hundred_executors_wait_in_one_worker(place):
    site, (worker,) = place.site, place.site.workers
    async with raw(place.here) as http:
        sends = [http.send("work; chunks 1; wait door; chunks 1; complete", immediately=True) for _ in range(100)]
        tasks = [task["id"] for task in await asyncio.gather(*sends)]
        await eventually(lambda: site.waiting("door") == 100)
        assert len(site.connections(worker)) <= CONNECTIONS
        site.open("door")
        await eventually(lambda: all(site.turns(task) == ["done"] for task in tasks))
    assert len(set(tasks)) == 100


@services
async def test_turns_that_wait_give_their_connections_back(make_full, layer):
    """30 turns that asked the ORM once get by with a pool of 8."""
    site = make_full(layer, LEASE_SECONDS=3)
    web = site.serve()
    worker = site.work(variables={"DATABASE_POOL_SIZE": "8"})
    listen(web, layer)
    async with raw(web) as http:
        sends = [http.send("work; query; wait door; query; complete", immediately=True) for _ in range(30)]
        tasks = [task["id"] for task in await asyncio.gather(*sends)]
        await eventually(lambda: site.waiting("door") == 30)
        assert len(site.connections(worker)) <= 8
        site.open("door")
        await eventually(lambda: all(site.turns(task) == ["done"] for task in tasks))


async def test_heartbeats_on_a_silent_stream(make_embedded):
    """CASES 14: comments between events, never before the headers or inside an event; a drop is no cancel."""
    site = make_embedded(HEARTBEAT_SECONDS=0.2)
    for server in ("daphne", "uvicorn"):
        web = site.serve(server)
        seen = await bytes_until(web, "work; chunks 1; wait door; complete", rb"(: still here\n\n[^:]*){3}$")
        events = seen.partition(b"\r\n\r\n")[2]
        assert re.fullmatch(rb"(id: \d+\ndata: [^\n]+\n\n){3}(: [^\n]*\n\n){3}", without_chunks(events)), events
        task = site.tasks()[-1]
        assert site.turns(task) == ["running"]  # the client has gone, the turn goes on
        silent = await bytes_until(web, "wait door; work; complete", rb"(: still here\n\n[^:]*){2}$")
        assert re.match(rb"HTTP/1.1 200 OK\r\n([^\r]+: [^\r]+\r\n)+\r\n", silent)
        site.open("door")
        await eventually(lambda task=task: site.turns(task) == ["done"])
        async with connect(web) as client:
            assert (await send(client, "work; complete")).status_update.status.state == COMPLETED
        await eventually(lambda: not site.unfinished())
        site.close_gates()


async def bytes_until(web, text, pattern):
    """The raw bytes of a stream until they match `pattern`; then the connection is dropped."""
    reader, writer = await asyncio.open_connection("127.0.0.1", web.port)
    try:
        writer.write(written(web, "message:stream", body(text)))
        seen = b""
        async with asyncio.timeout(20):
            while not re.search(pattern, without_chunks(seen)):
                piece = await reader.read(65536)
                assert piece, seen
                seen += piece
        return seen
    finally:
        writer.close()
        await writer.wait_closed()


def without_chunks(seen):
    """`seen` without the framing of chunked transfer."""
    return re.sub(rb"\r\n([0-9a-f]+\r\n)?|^[0-9a-f]+\r\n", b"", seen)

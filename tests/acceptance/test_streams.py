"""Streams whose readers are slow, or very many."""

import socket
from contextlib import ExitStack, contextmanager

import pytest

from tests.acceptance.clients import raw, read, written
from tests.acceptance.test_failures import eventually

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

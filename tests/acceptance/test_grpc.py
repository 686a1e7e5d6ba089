"""`manage.py a2a_grpc` as a process: where it listens and how it stops."""

import asyncio
import signal

import pytest
from a2a.client.errors import A2AClientError
from a2a.types import SubscribeToTaskRequest

from tests.acceptance.clients import COMPLETED, connect, send
from tests.acceptance.processes import free_port, until

PATIENCE = 20


@pytest.fixture
def serve(make_embedded):
    """serve(*options): a site, its web process and its gRPC server."""

    def start(*options):
        port = free_port()
        site = make_embedded(GRPC_URL=f"127.0.0.1:{port}")
        return site, site.serve(), site.serve_grpc(port, *options)

    return start


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_call_that_runs_ends_before_the_server(serve, number):
    site, web, server = serve("--grace", str(PATIENCE))
    async with connect(web, binding="GRPC", streaming=False) as client:
        waiting = asyncio.create_task(send(client, "work; wait door; complete"))
        await asyncio.to_thread(until, lambda: site.waiting("door") == 1)
        server.kill(number)
        await asyncio.to_thread(until, lambda: server.said("Stopping"))
        site.open("door")
        assert (await waiting).task.status.state == COMPLETED
        assert await asyncio.to_thread(server.wait, PATIENCE) == 0
    assert not server.said("Traceback")


async def test_a_stream_that_lasts_longer_is_told(serve):
    """And its client goes on where else the agents are served."""
    _, web, server = serve("--grace", "0.1")
    async with connect(web, binding="GRPC") as client:
        task = (await send(client, "work; ask Which one?")).status_update.task_id
        events = client.subscribe(SubscribeToTaskRequest(id=task))
        assert (await anext(events)).HasField("task")
        server.kill(signal.SIGTERM)
        with pytest.raises(A2AClientError, match="UNAVAILABLE: The server is stopping"):
            await anext(events)
        assert await asyncio.to_thread(server.wait, PATIENCE) == 0
    assert not server.said("Traceback")
    async with connect(web, streaming=False) as client:
        assert (await send(client, "work; complete", task=task)).task.status.state == COMPLETED


def test_a_port_of_the_systems_choice_is_printed(make_embedded):
    server = make_embedded().serve_grpc(0)
    assert server.said(r"Serving gRPC on 127\.0\.0\.1:[1-9]\d* \(without TLS\)")

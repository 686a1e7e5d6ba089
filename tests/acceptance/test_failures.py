"""What breaks in production: services that are away, clients that leave, processes that stop."""

import asyncio
import json
import signal
from contextlib import AsyncExitStack

import httpx
import pytest
from a2a.types import CancelTaskRequest, GetTaskRequest, ListTasksRequest, StreamResponse

from tests.acceptance.clients import (
    CANCELED,
    COMPLETED,
    FAILED,
    INPUT_REQUIRED,
    body,
    connect,
    numbers,
    raw,
    read,
    send,
    stream,
    text_of,
)
from tests.acceptance.conftest import SERVICES, STREAMING, listen, subscriptions
from tests.acceptance.processes import until


async def eventually(condition, what="", seconds=40.0):
    """`until`, while this loop goes on."""
    return await asyncio.to_thread(until, condition, what, seconds)


def services(test):
    """Marks a test that needs PostgreSQL and Redis."""
    for mark in SERVICES:
        test = mark(test)
    return test


# --- worker and broker


@services
async def test_turns_wait_for_a_worker_that_starts_late(make_full, layer):
    site = make_full(layer)
    web = site.serve()
    async with connect(web, streaming=False) as client, raw(web) as http:
        blocking = asyncio.create_task(send(client, "work; complete"))
        immediate = await http.send("work; chunks 2; complete", immediately=True)
        assert immediate["status"]["state"] == "TASK_STATE_SUBMITTED"
        assert site.turns(immediate["id"]) == ["queued"]
        site.work()
        assert (await blocking).task.status.state == COMPLETED
        await eventually(lambda: site.turns(immediate["id"]) == ["done"])


@services
async def test_a_broker_that_is_down_loses_nothing(make_full, layer, broker, stopwatch):
    """CASES 54: accepted all the same, the turn stays queued; it can be read, and is handed on again later."""
    site = make_full(layer, REDISPATCH_SECONDS=1, RECOVERY_SECONDS=0.5)
    web = site.serve()
    listen(web, layer)
    broker.stop()
    async with raw(web) as http, connect(web) as client:
        before = stopwatch()
        kept = await http.send("work; complete", immediately=True)
        assert stopwatch() - before < 5
        assert kept["status"]["state"] == "TASK_STATE_SUBMITTED"
        assert site.turns(kept["id"]) == ["queued"]
        assert "OperationalError" in web.log.read_text()
        broker.start()
        site.work()
        await eventually(lambda: site.turns(kept["id"]) == ["done"])
        assert (await client.get_task(GetTaskRequest(id=kept["id"]))).status.state == COMPLETED


@services
async def test_a_worker_that_is_killed(make_full, layer):
    """CASES 54: what was restartable is run again by another worker, all else fails; readers hear of both."""
    site = make_full(layer, LEASE_SECONDS=2, RECOVERY_SECONDS=0.5)
    web = site.serve()
    worker = site.work()
    async with connect(web, "sturdy") as sturdy, connect(web) as other, connect(web, streaming=False) as blocked:
        again = asyncio.create_task(stream(sturdy, "work; chunks 3; wait door; complete"))
        lost = asyncio.create_task(stream(other, "work; chunks 3; wait never; complete"))
        waits = asyncio.create_task(send(blocked, "wait never; complete"))
        await eventually(lambda: (site.waiting("door"), site.waiting("never")) == (1, 2))
        await eventually(lambda: sorted(map(site.last_sequence, site.tasks()[-3:])) == [0, 5, 5])
        worker.kill(signal.SIGKILL)
        site.open("door")
        site.work()
        events = await again
        assert events[-1].status_update.status.state == COMPLETED
        assert text_of(events) == numbers(1, 3) * 2  # the executor began anew
        assert (await lost)[-1].status_update.status.state == FAILED
        assert (await waits).task.status.state == FAILED
        task = await sturdy.get_task(GetTaskRequest(id=events[0].task.id))
        assert text_of([StreamResponse(task=task)]) == numbers(1, 3)


@services
async def test_a_broker_that_was_restarted_gets_the_next_turn(make_full, layer, broker):
    """The web process' connection to it has gone stale meanwhile."""
    site = make_full(layer)
    web = site.serve()
    worker = site.work()
    async with connect(web, streaming=False) as client:
        assert (await send(client, "work; complete")).task.status.state == COMPLETED
        await eventually(lambda: "cmd=brpop" in broker.command("CLIENT", "LIST"), "the worker waits for its next job")
        broker.stop()
        await eventually(lambda: worker.said("Connection to broker lost|consumer: Cannot connect"))
        broker.start()
        assert (await send(client, "work; complete")).task.status.state == COMPLETED


# --- the channel layer


@services
async def test_a_cancel_reaches_the_executor_within_a_second(make_full, layer, stopwatch):
    """CASES 51: by the doorbell, from another process than the executor's; nobody looks and no lease is renewed."""
    site = make_full(layer, CANCEL_TIMEOUT=60, LEASE_SECONDS=600)
    web = site.serve()
    site.work()
    listen(web, layer)
    times = []
    async with connect(web) as client, raw(web) as http:
        for _ in range(5):
            task = await http.send("work; wait never; complete", immediately=True)
            await eventually(lambda task=task: site.last_sequence(task["id"]) == 2)
            before = stopwatch()
            canceled = await client.cancel_task(CancelTaskRequest(id=task["id"]))
            times.append(stopwatch() - before)
            assert canceled.status.state == CANCELED
            await eventually(lambda task=task: site.turns(task["id"]) == ["done"])
    assert min(times) < 1


@services
async def test_streams_go_on_while_the_channel_layer_is_away(make_full, layer):
    """By looking; and rings are heard again when it is back."""
    site = make_full(layer, LOOK_SECONDS=0.5)
    web = site.serve()
    site.work()
    listen(web, layer)
    async with (
        raw(web) as http,
        http.stream("work; chunks 2; wait one; chunks 2; wait two; chunks 2; complete") as events,
    ):
        seen = await read(events, 4)
        heard = subscriptions(layer)
        layer.stop()
        site.open("one")
        seen += await read(events, 2)
        layer.start()
        await eventually(lambda: subscriptions(layer) == heard, "the processes join the group again")
        site.open("two")
        seen += await read(events)
    assert [event.sequence for event in seen] == list(range(1, 10))


@services
async def test_rings_that_the_channel_layer_drops(make_full, layer):
    """CASES 62: a channel that nobody reads from is soon full; what the lost rings were for is found by looking."""
    site = make_full(layer, LOOK_SECONDS=1)
    config = {"hosts": [layer.url], "capacity": 1}
    site.set(ACCEPTANCE_LAYER=json.dumps({"BACKEND": "channels_redis.core.RedisChannelLayer", "CONFIG": config}))
    web = site.serve()
    worker = site.work()
    gates = [f"gate{number}" for number in range(6)]  # one ring is on its way, one fills the channel, others are lost
    async with raw(web) as http, AsyncExitStack() as stack:
        script = "work; chunks 1; " + "".join(f"wait {gate}; chunks 3; " for gate in gates) + "complete"
        streams = [await stack.enter_async_context(http.stream(script)) for _ in range(5)]
        seen = [await read(events, 3) for events in streams]
        tasks = site.tasks()
        web.kill(signal.SIGSTOP)
        try:
            for gate in gates:
                await eventually(lambda gate=gate: site.waiting(gate) == 5)
                site.open(gate)
            await eventually(lambda: all(site.turns(task) == ["done"] for task in tasks))
            await eventually(lambda: worker.said("over capacity"))
        finally:
            web.kill(signal.SIGCONT)
        for before, events in zip(seen, streams, strict=True):
            assert [event.sequence for event in before + await read(events)] == list(range(1, 23))


@services
async def test_celery_without_a_channel_layer(make_full):
    """CASES 63: events arrive by looking, a cancel reaches the executor, and readers who leave look no more."""
    site = make_full(LOOK_SECONDS=0.2, LEASE_SECONDS=3)
    web = site.serve()
    site.work()
    async with connect(web) as client, connect(web, streaming=False) as other:
        events = await stream(client, "work; chunks 20; complete")
        assert text_of(events) == numbers(1, 20)
        assert (await send(other, "work; complete")).task.status.state == COMPLETED
        waiting = asyncio.create_task(send(other, "work; wait never; complete"))
        await eventually(lambda: site.waiting("never") == 1)
        task_id = site.tasks()[-1]
        await eventually(lambda: site.last_sequence(task_id) == 2)
        canceled = await client.cancel_task(CancelTaskRequest(id=task_id))
        assert canceled.status.state == CANCELED
        assert (await waiting).task.status.state == CANCELED
        await eventually(lambda: site.turns(task_id) == ["done"], "the executor has obeyed at a renewal of its lease")
    async with raw(web) as http, http.stream("work; wait door; complete") as events:
        await read(events, 2)
        call = asyncio.create_task(http.send("work; wait door; complete"))
        await eventually(lambda: site.waiting("door") == 2)
        call.cancel()
    # Daphne itself would end a call that doesn't notice after ten seconds.
    await eventually(lambda: site.idle_seconds(web) > 1, "nobody looks every 0.2 seconds any more", 8)


# --- the database


@services
async def test_a_database_that_is_restarted(make_fragile, layer, cluster):
    """Who has asked before waits for it, who asks meanwhile is told to come again; nothing is lost or doubled."""
    site = make_fragile(layer)
    web = site.serve()
    site.work()
    listen(web, layer)
    async with connect(web, streaming=False) as client, raw(web) as http, AsyncExitStack() as stack:
        parked = (await send(client, "work; ask Which one?")).task.id
        idle = await stack.enter_async_context(http.subscribe(parked))
        seen_idle = await read(idle, 1)
        streaming = await stack.enter_async_context(http.stream("work; chunks 3; wait door; chunks 3; complete"))
        seen = await read(streaming, 5)
        waiting = asyncio.create_task(send(client, "work; wait door; complete"))
        await eventually(lambda: site.waiting("door") == 2)
        site.database.close()
        cluster.stop()
        site.open("door")
        asking = [http.post(path, body("work; complete")) for path in ("message:send", "message:stream")]
        for response in await asyncio.gather(*asking):
            assert (response.status_code, response.headers["retry-after"]) == (503, "5")
        await eventually(lambda: site.workers[0].said("Could not append to the log"))
        cluster.start()
        seen += await read(streaming)
        assert [event.sequence for event in seen] == list(range(1, 10))
        assert (await waiting).task.status.state == COMPLETED
        async with asyncio.timeout(20):
            while (response := await http.post("message:send", body("work; complete"))).status_code == 503:
                pass
        assert response.status_code == 200
        assert (await send(client, "work; complete", task=parked)).task.status.state == COMPLETED
        assert [event.sequence for event in seen_idle + await read(idle)] == [3, 4, 5]


# --- clients


@pytest.mark.parametrize("place", STREAMING, indirect=True)
async def test_clients_that_go_away_leave_nothing_behind(place):
    """CASES 59, 64: no thread, connection or subscription stays, and what they asked for is done."""
    web, site = place.here, place.site

    async def round_(gate):
        async with raw(web) as http:
            calls = [asyncio.create_task(http.send(f"work; wait {gate}; complete")) for _ in range(15)]
            async with AsyncExitStack() as stack:
                for _ in range(15):
                    events = await stack.enter_async_context(http.stream(f"work; wait {gate}; complete"))
                    await read(events, 2)
                await eventually(lambda: site.waiting(gate) == 30)
                while_waiting = web.sockets
            for call in calls:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
        await eventually(lambda: web.sockets <= while_waiting - 30, f"{while_waiting} sockets are closed", 3)
        site.open(gate)
        await eventually(lambda: all(set(site.turns(task)) == {"done"} for task in site.tasks()[-30:]))
        return web.threads, web.sockets

    warm = await round_("one")
    again = await round_("two")
    assert again[0] <= warm[0]
    assert again[1] <= warm[1] + 1
    async with connect(web) as client:
        for task in site.tasks()[-30:]:
            assert (await client.get_task(GetTaskRequest(id=task))).status.state == COMPLETED
    assert not web.said("took too long to shut down")


# --- processes that stop


@services
async def test_a_web_process_that_is_killed(make_full, layer):
    """CASES 59: the turns in the workers don't notice, and readers come back to the next process."""
    site = make_full(layer)
    web = site.serve()
    site.work()
    async with raw(web) as http, http.stream("work; chunks 2; wait door; chunks 2; complete") as events:
        seen = await read(events, 4)
        web.kill(signal.SIGKILL)
        with pytest.raises(httpx.TransportError):
            await read(events)
    task = site.tasks()[-1]
    async with raw(site.serve()) as http, http.subscribe(task, after=seen[-1].sequence) as events:
        site.open("door")
        seen += await read(events)
    assert [event.sequence for event in seen] == list(range(1, 8))


@pytest.mark.parametrize("server", ["daphne", "uvicorn"])
async def test_a_web_process_stops_with_streams_and_waiting_calls(make_embedded, server):
    """Streams end between two events, as they would by themselves; calls are told to come again at the next one.

    Which recovers at its first request, whatever that is, what the executors of the first left behind.
    """
    site = make_embedded(LEASE_SECONDS=1, RECOVERY_SECONDS=0.5)
    web = site.serve(server)
    async with connect(web, streaming=False) as client, raw(web) as http, AsyncExitStack() as stack:
        task = (await send(client, "work; ask Which one?")).task
        assert task.status.state == INPUT_REQUIRED
        streams = [await stack.enter_async_context(http.subscribe(task.id)) for _ in range(10)]
        seen = [(await read(events, 1))[0].sequence for events in streams]
        spoken = await stack.enter_async_context(http.stream("work; chunks 3; wait never; complete"))
        await read(spoken, 5)
        waiting = [
            asyncio.create_task(http.post("message:send", body("work; wait never; complete"))),
            asyncio.create_task(http.post("message:stream", body("wait never; work; complete"))),
        ]
        await eventually(lambda: site.waiting("never") == 3)
        web.kill(signal.SIGTERM)
        assert [await read(events) for events in [*streams, spoken]] == [[]] * 11
        for response in await asyncio.gather(*waiting):
            assert (response.status_code, response.headers["retry-after"]) == (503, "5")
            assert response.json()["error"]["status"] == "UNAVAILABLE"
        assert await asyncio.to_thread(web.wait, 8) in (0, -signal.SIGTERM)
        assert not web.said("timeout graceful shutdown exceeded")
    successor = site.serve(server)
    async with connect(successor) as client:
        assert (await client.get_task(GetTaskRequest(id=task.id))).status.state == INPUT_REQUIRED
        await eventually(lambda: [site.turns(other) for other in site.tasks()[1:]] == [["failed"]] * 3)
    async with connect(successor) as client, raw(successor) as http, http.subscribe(task.id, after=seen[0]) as events:
        await stream(client, "work; complete", task=task.id)
        assert [event.sequence for event in await read(events)] == [seen[0] + 1, seen[0] + 2]
    assert "Traceback" not in web.log.read_text()


async def test_gunicorn_stops_with_waiting_calls(make_embedded):
    """It would wait for them for half a minute."""
    site = make_embedded(STREAMING=False, LEASE_SECONDS=1, RECOVERY_SECONDS=0.5)
    web = site.serve("gunicorn")
    async with raw(web) as http:
        waiting = asyncio.create_task(http.post("message:send", body("work; wait never; complete")))
        await eventually(lambda: site.waiting("never") == 1)
        web.kill(signal.SIGTERM)
        response = await waiting
        assert (response.status_code, response.headers["retry-after"]) == (503, "5")
        assert await asyncio.to_thread(web.wait, 8) == 0
    async with connect(site.serve("gunicorn"), streaming=False) as client:
        await client.list_tasks(ListTasksRequest())
        await eventually(lambda: site.turns(site.tasks()[0]) == ["failed"])

"""Celery workers that are stopped, and processes that look after what others held (CASES 54, 55)."""

import asyncio
import json
import os
import signal

import pytest

from tests.acceptance.clients import COMPLETED, FAILED, connect, numbers, raw, send, stream, text_of
from tests.acceptance.conftest import SERVICES
from tests.acceptance.processes import until

pytestmark = list(SERVICES)

HOSTILE = {"TASK_TIME_LIMIT": 1, "TASK_ACKS_LATE": True, "TASK_REJECT_ON_WORKER_LOST": True}


async def eventually(condition, what="", seconds=40.0):
    """`until`, while this loop goes on."""
    return await asyncio.to_thread(until, condition, what, seconds)


async def at_gates(site, **gates):
    """Waits until so many executors stand at each gate, and what they said before is in the log."""
    await eventually(lambda: {name: site.waiting(name) for name in gates} == gates, f"{gates} wait")


@pytest.mark.parametrize("pool", ["threads", "prefork"])
async def test_a_worker_that_is_stopped(make_full, layer, pool):
    """One turn ends in the time that it is left; of the others a restartable one goes to another worker at once."""
    site = make_full(layer, SHUTDOWN_SECONDS=2)
    web, first = site.serve(), site.work(pool=pool, slots=3)
    async with connect(web, "sturdy") as sturdy, connect(web) as other, connect(web, streaming=False) as blocked:
        again = asyncio.create_task(stream(sturdy, "work; chunks 3; wait door; complete"))
        ends = asyncio.create_task(send(blocked, "work; wait soon; complete"))
        fails = asyncio.create_task(stream(other, "work; chunks 3; wait never; complete"))
        await at_gates(site, door=1, soon=1, never=1)
        second = site.work()
        first.kill(signal.SIGTERM)
        await eventually(lambda: first.said("This worker ends"))
        site.open("soon")
        assert (await ends).task.status.state == COMPLETED
        await eventually(lambda: site.waiting("door") == 2, "the other worker has taken it", 2 + 2)
        assert (await fails)[-1].status_update.status.state == FAILED
        assert await asyncio.to_thread(first.wait, 5) == 0
        site.open("door")
        events = await again
        assert events[-1].status_update.status.state == COMPLETED
        assert text_of(events) == numbers(1, 3) * 2
        assert site.attempts(events[0].task.id) == [(1, str(second.pid))]  # being stopped is no attempt
    assert "Traceback" not in first.log.read_text()


@pytest.mark.parametrize(("pool", "how"), [("solo", signal.SIGTERM), ("threads", signal.SIGQUIT)])
async def test_other_ways_to_stop_a_worker(make_full, layer, pool, how):
    """One that runs jobs in its main thread, and one that gets no warm shutdown."""
    site = make_full(layer, SHUTDOWN_SECONDS=0)
    web, first = site.serve(), site.work(pool=pool)
    async with connect(web, "sturdy", streaming=False) as client:
        answer = asyncio.create_task(send(client, "work; wait door; complete"))
        await at_gates(site, door=1)
        site.work(pool=pool)
        first.kill(how)
        await eventually(lambda: site.waiting("door") == 2, "the other worker has taken it", 2)
        await asyncio.to_thread(first.wait, 5)
        site.open("door")
        assert (await answer).task.status.state == COMPLETED


async def test_jobs_that_a_stopped_worker_still_holds(make_full, layer):
    """They are left to others without an attempt being spent, and long before recovery would miss them."""
    site = make_full(layer, SHUTDOWN_SECONDS=1)
    web, first = site.serve(), site.work(slots=1)
    async with connect(web, "sturdy", streaming=False) as client, raw(web) as http:
        running = asyncio.create_task(send(client, "work; wait door; complete"))
        await at_gates(site, door=1)
        held = [asyncio.create_task(http.send("work; complete")) for _ in range(3)]
        await eventually(lambda: first.log.read_text().count("received") == 4)
        first.kill(signal.SIGTERM)
        await eventually(lambda: not first.alive, "the worker ends", 10)
        site.open("door")
        second = site.work()
        for task in [await answer for answer in held]:
            assert task["status"]["state"] == "TASK_STATE_COMPLETED"
            assert site.attempts(task["id"]) == [(1, str(second.pid))]
        assert (await running).task.status.state == COMPLETED


async def test_a_worker_recovers_before_its_first_turn(make_full, layer):
    """When all others that did are gone."""
    site = make_full(layer, LEASE_SECONDS=2, RECOVERY_SECONDS=0.5)
    web, first = site.serve(), site.work()
    async with raw(web) as http:
        task = await http.send("work; wait never; complete", immediately=True)
        await at_gates(site, never=1)
    for process in (web, first):
        process.kill(signal.SIGKILL)
        await asyncio.to_thread(process.wait, 5)
    site.work()
    await eventually(lambda: site.turns(task["id"]) == ["failed"], "", 15)


async def test_a_web_process_recovers_after_its_first_request(make_embedded):
    """Whatever that asks for."""
    site = make_embedded(LEASE_SECONDS=1, RECOVERY_SECONDS=0.2)
    web = site.serve()
    async with raw(web) as http:
        task = await http.send("work; wait never; complete", immediately=True)
        await at_gates(site, never=1)
    web.kill(signal.SIGKILL)
    successor = site.serve()
    async with raw(successor) as http:
        await http.http.get(f"{http.base}/tasks/none")
    await eventually(lambda: site.turns(task["id"]) == ["failed"], "", 15)


async def test_a_job_that_waits_for_its_time_in_a_worker_that_is_stopped(make_full, layer):
    """The pause of a Retry: another worker has the job then."""
    site = make_full(layer, SHUTDOWN_SECONDS=1)
    web, first = site.serve(), site.work()
    async with connect(web, streaming=False) as client:
        answer = asyncio.create_task(send(client, "work; retry door; complete"))
        await eventually(lambda: first.log.read_text().count("received") == 2, "the second attempt's job is there")
        first.kill(signal.SIGTERM)
        await eventually(lambda: not first.alive, "the worker ends", 10)
        site.open("door")
        second = site.work()
        task = (await answer).task
        assert task.status.state == COMPLETED
        assert site.attempts(task.id) == [(2, str(second.pid))]


async def test_turns_that_a_command_recovers(make_embedded):
    """It lives until they have ended, where turns run in the process that recovers them."""
    site = make_embedded(LEASE_SECONDS=1)
    web = site.serve()
    async with connect(web, "sturdy", streaming=False) as client:
        task = (await send(client, "work; wait door; complete", return_immediately=True)).task.id
        await at_gates(site, door=1)
    web.kill(signal.SIGKILL)
    await eventually(lambda: site.abandoned(task))
    command = site.recover()
    await at_gates(site, door=2)
    site.open("door")
    assert await asyncio.to_thread(command.wait, 20) == 0
    assert (site.turns(task), site.attempts(task)) == (["done"], [(2, str(command.pid))])


async def test_settings_that_would_end_jobs_or_repeat_them(make_full, layer):
    """CASES 53, 54: what the site says of its jobs is not said of ours. A lost one is recovery's, when it is due."""
    site = make_full(layer, LEASE_SECONDS=6, RECOVERY_SECONDS=0.5)
    site.set(ACCEPTANCE_CELERY=json.dumps(HOSTILE))
    web, _worker = site.serve(), site.work(pool="prefork", slots=2)
    async with connect(web, streaming=False) as client, connect(web, "sturdy", streaming=False) as sturdy:
        lasts = asyncio.create_task(send(client, "work; wait door; complete"))
        await at_gates(site, door=1)
        again = asyncio.create_task(send(sturdy, "work; wait door; complete"))
        await at_gates(site, door=2)
        await eventually(lambda: site.longest_turn() > 2 * HOSTILE["TASK_TIME_LIMIT"])
        [(_, child)] = site.attempts(site.tasks()[-1])
        os.kill(int(child), signal.SIGKILL)
        await at_gates(site, door=3)
        site.open("door")
        assert (await lasts).task.status.state == COMPLETED
        assert (await again).task.status.state == COMPLETED
        assert [site.attempts(task)[0][0] for task in site.tasks()[-2:]] == [1, 2]

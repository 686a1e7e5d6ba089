"""Sites that purge by themselves, without Celery and without cron (CASES 82)."""

import asyncio
from typing import Any

from a2a.types import GetTaskRequest, TaskState

from tests.acceptance.clients import COMPLETED, INPUT_REQUIRED, connect, numbers, raw, send
from tests.acceptance.processes import until
from tests.acceptance.sites import Site

AT_ONCE = {"PURGE_SECONDS": 0.2, "IDEMPOTENCY_SECONDS": 0}


def logged(site: Site) -> set[Any]:
    """The tasks that have events."""
    return {task for (task,) in site.database.rows("SELECT DISTINCT task_id FROM a2a_django_event")}


async def test_two_processes_purge_events_while_tasks_run(make_embedded):
    """Whatever is purged meanwhile: each call gets its answer, and GetTask says the same before and after."""
    site = make_embedded(EVENT_RETENTION=0, **AT_ONCE)
    site.serve()
    async with connect(site.serve(), streaming=False) as client:
        waiting = await send(client, "work; ask")
        answers = await asyncio.gather(*(send(client, "work; chunks 5; complete") for _ in range(20)))
        assert {answer.task.status.state for answer in answers} == {COMPLETED}
        await asyncio.to_thread(until, lambda: logged(site) == {waiting.task.id}, "all other logs are purged")
        for answer in answers:
            task = await client.get_task(GetTaskRequest(id=answer.task.id))
            assert task == answer.task
            assert "".join(part.text for part in task.artifacts[0].parts) == numbers(1, 5)
        assert waiting.task.status.state == INPUT_REQUIRED


async def test_tasks_go_after_their_time(make_embedded):
    site = make_embedded(TASK_RETENTION=0, **AT_ONCE)
    web = site.serve()
    async with raw(web) as http:
        waiting = await http.send("work; ask")
        ended = await http.send("work; chunks 2; complete")
        await asyncio.to_thread(until, lambda: site.tasks() == [waiting["id"]], "the ended task is purged")
        assert (await http.http.get(f"{http.base}/tasks/{ended['id']}")).status_code == 404
        assert waiting["status"]["state"] == TaskState.Name(INPUT_REQUIRED)

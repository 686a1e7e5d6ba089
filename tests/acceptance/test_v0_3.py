"""The a2a-sdk's client in its 0.3 mode on real processes (CASES 32, 33); for gRPC see test_grpc.py."""

import asyncio
from contextlib import aclosing

import pytest
from a2a.types import (
    CancelTaskRequest,
    GetTaskRequest,
    SubscribeToTaskRequest,
    TaskPushNotificationConfig,
)
from a2a.utils.errors import TaskNotCancelableError

from tests.acceptance.clients import (
    CANCELED,
    COMPLETED,
    INPUT_REQUIRED,
    WORKING,
    connect,
    numbers,
    request,
    send,
    stream,
    text_of,
    until_event,
)
from tests.acceptance.conftest import SERVICES
from tests.acceptance.processes import until

pytestmark = [
    pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"]),
    pytest.mark.parametrize("place", ["embedded", pytest.param("daphne", marks=SERVICES)], indirect=True),
]


def client(place, binding, agent="script", **config):
    return connect(place.here, agent, binding, version="0.3", **config)


async def test_blocking_send_and_follow_up(place, binding):
    async with client(place, binding, streaming=False) as old:
        asked = (await send(old, "work; chunks 2; ask Which one?")).task
        assert asked.status.state == INPUT_REQUIRED
        assert asked.status.message.parts[0].text == "Which one?"
        done = (await send(old, "work; complete", task=asked.id)).task
        assert done.status.state == COMPLETED
        assert (await old.get_task(GetTaskRequest(id=asked.id))) == done


async def test_a_message_without_a_task(place, binding):
    async with client(place, binding, streaming=False) as old:
        assert (await send(old, "say Good morning")).message.parts[0].text == "Good morning"


async def test_streaming(place, binding):
    async with client(place, binding) as old:
        events = await stream(old, "work; chunks 20; complete")
        assert events[0].HasField("task")
        assert text_of(events) == numbers(1, 20)
        assert events[-1].status_update.status.state == COMPLETED


async def test_both_generations_at_one_task(place, binding):
    async with client(place, binding) as old, connect(place.elsewhere, binding=binding) as new:
        sent = request("work; chunks 3; wait door; chunks 3; complete")
        async with aclosing(new.send_message(sent)) as events:
            begun = await until_event(events, "artifact_update", 3)
            async with aclosing(old.subscribe(SubscribeToTaskRequest(id=begun[0].task.id))) as subscribed:
                snapshot = await anext(subscribed)
                assert snapshot.task.status.state == WORKING
                place.site.open("door")
                rest = [event async for event in subscribed]
            assert text_of([snapshot, *rest]) == numbers(1, 6)
            assert rest[-1].status_update.status.state == COMPLETED
            assert text_of([*begun, *[event async for event in events]]) == numbers(1, 6)


async def test_cancel(place, binding):
    async with client(place, binding, streaming=False) as old:
        waiting = asyncio.create_task(send(old, "work; wait never; complete"))
        await asyncio.to_thread(until, lambda: place.site.waiting("never") == 1)
        task_id = place.site.tasks()[-1]
        await asyncio.to_thread(until, lambda: place.site.last_sequence(task_id) >= 2)
        assert (await old.cancel_task(CancelTaskRequest(id=task_id))).status.state == CANCELED
        assert (await waiting).task.status.state == CANCELED
        with pytest.raises(TaskNotCancelableError):
            await old.cancel_task(CancelTaskRequest(id=task_id))


async def test_push_configs(place, binding):
    async with client(place, binding, streaming=False) as old:
        asked = (await send(old, "work; ask Which one?")).task
        config = TaskPushNotificationConfig(task_id=asked.id, id="mine", url="https://hooks.example.com/", token="t")
        made = await old.create_task_push_notification_config(config)
        assert (made.id, made.url) == ("mine", "https://hooks.example.com/")

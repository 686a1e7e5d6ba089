"""The main job on real processes with the a2a-sdk's client: every configuration, all bindings."""

import asyncio
import json
from contextlib import aclosing

import pytest
from a2a.client.errors import A2AClientError
from a2a.types import (
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTasksRequest,
    SubscribeToTaskRequest,
    TaskPushNotificationConfig,
)
from a2a.utils.errors import (
    A2AError,
    InvalidParamsError,
    PushNotificationNotSupportedError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from google.protobuf.json_format import MessageToDict

from tests.acceptance.clients import (
    BINDINGS,
    CANCELED,
    COMPLETED,
    FAILED,
    INPUT_REQUIRED,
    WORKING,
    connect,
    numbers,
    raw,
    read,
    request,
    send,
    stream,
    text_of,
    until_event,
)
from tests.acceptance.conftest import ALL, STREAMING
from tests.acceptance.processes import until

pytestmark = pytest.mark.parametrize("binding", BINDINGS)
everywhere = pytest.mark.parametrize("place", ALL, indirect=True)
streaming = pytest.mark.parametrize("place", STREAMING, indirect=True)


# --- blocking and polling


@everywhere
async def test_blocking_send(place, binding):
    async with connect(place.here, "echo", binding, streaming=False) as client:
        (answer,) = await stream(client, "Hello, wörld \u2028 \U0001f600")
        assert answer.task.status.state == COMPLETED
        assert text_of([answer]) == "Hello, wörld \u2028 \U0001f600"
        stored = await client.get_task(GetTaskRequest(id=answer.task.id))
        assert stored == answer.task


@everywhere
async def test_message_without_a_task(place, binding):
    async with connect(place.here, binding=binding, streaming=False) as client:
        answer = await send(client, "say Good morning")
        assert answer.message.parts[0].text == "Good morning"


@everywhere
async def test_polling(place, binding):
    async with connect(place.here, binding=binding, streaming=False, polling=True) as client:
        task = (await send(client, "work; wait door; chunks 3; complete")).task
        assert task.status.state != COMPLETED
        place.site.open("door")
        async with connect(place.elsewhere, binding=binding) as other:
            while (found := await other.get_task(GetTaskRequest(id=task.id))).status.state != COMPLETED:
                pass
        assert found.artifacts[0].parts[-1].text == "3 "


@everywhere
async def test_tickets_from_the_sites_database(place, binding):
    """The example's agent: a question back, then JSON from the ORM."""
    async with connect(place.here, "tickets", binding, streaming=False) as client:
        asked = (await send(client, "How is my ticket?")).task
        assert asked.status.state == INPUT_REQUIRED
        task = (await send(client, "Number 3", task=asked.id)).task
        assert task.status.state == COMPLETED
        assert MessageToDict(task.artifacts[0])["parts"][0]["data"]["subject"] == "Password mail never arrives"


# --- streaming


@streaming
async def test_streaming(place, binding):
    async with connect(place.here, "report", binding) as client:
        events = await stream(client, "Write the report")
        assert events[0].HasField("task")
        assert events[-1].status_update.status.state == COMPLETED
        report = text_of(events)
        assert report.startswith("# Tickets on")
        assert "Printer on the second floor is on fire" in report
        task = await client.get_task(GetTaskRequest(id=events[0].task.id))
        assert "".join(part.text for part in task.artifacts[0].parts) == report


@streaming
async def test_streamed_events_come_as_they_happen(place, binding):
    async with connect(place.here, binding=binding) as client:
        async with aclosing(client.send_message(request("work; chunks 2; wait door; chunks 2; complete"))) as events:
            before = await until_event(events, "artifact_update", 2)
            place.site.open("door")
            after = [event async for event in events]
        assert text_of(before) == numbers(1, 2)
        assert text_of(after) == numbers(3, 4)
        assert after[-1].status_update.status.state == COMPLETED


@streaming
async def test_a_message_alone_is_the_whole_stream(place, binding):
    """CASES 66."""
    async with connect(place.here, binding=binding) as client:
        (event,) = await stream(client, "say Good morning")
        assert event.message.parts[0].text == "Good morning"


@streaming
async def test_many_chunks(place, binding):
    """CASES 46: everything comes, once and in order."""
    async with connect(place.here, binding=binding) as client:
        events = await stream(client, "work; chunks 1500; complete")
        assert text_of(events) == numbers(1, 1500)


# --- input required


@everywhere
async def test_input_required_is_resumed_at_another_web_process(place, binding):
    """CASES 42."""
    async with connect(place.here, binding=binding, streaming=False) as client:
        asked = (await send(client, "work; chunks 2; ask Which one?")).task
        assert asked.status.state == INPUT_REQUIRED
        assert asked.status.message.parts[0].text == "Which one?"
    async with connect(place.elsewhere, binding=binding, streaming=False) as other:
        task = (await send(other, "work; dump; complete", task=asked.id)).task
        assert task.status.state == COMPLETED
        assert [artifact.artifact_id for artifact in task.artifacts] == ["chunks", "dump"]
        texts = [message.parts[0].text for message in task.history]
        assert texts == ["work; chunks 2; ask Which one?", "Which one?", "work; dump; complete"]
        told = json.loads(task.artifacts[1].parts[0].text)
        assert told["history"] == [task.history[0].message_id]  # the question stood in the status


@streaming
async def test_a_stream_ends_when_input_is_required(place, binding):
    async with connect(place.here, binding=binding) as client:
        events = await stream(client, "work; ask Which one?")
        assert events[-1].status_update.status.state == INPUT_REQUIRED
        more = await stream(client, "work; chunks 1; complete", task=events[0].task.id)
        assert more[0].task.status.state == INPUT_REQUIRED
        assert more[-1].status_update.status.state == COMPLETED


@everywhere
async def test_follow_ups_of_one_task_run_one_at_a_time(place, binding):
    """CASES 42: the second waits for the first, whichever process takes it in."""
    async with (
        connect(place.here, binding=binding, streaming=False) as client,
        connect(place.elsewhere, binding=binding, streaming=False) as other,
    ):
        asked = (await send(client, "work; ask Which one?")).task
        first = asyncio.create_task(send(client, "work; wait one; ask And then?", task=asked.id))
        await asyncio.to_thread(until, lambda: place.site.waiting("one") == 1)
        second = asyncio.create_task(send(other, "work; wait two; complete", task=asked.id))
        await asyncio.to_thread(until, lambda: place.site.turns(asked.id) == ["done", "running", "queued"])
        place.site.open("one")
        assert (await first).task.status.state == INPUT_REQUIRED
        await asyncio.to_thread(until, lambda: place.site.waiting("two") == 1)
        place.site.open("two")
        assert (await second).task.status.state == COMPLETED


# --- cancel


@everywhere
async def test_cancel_by_another_client_at_another_web_process(place, binding):
    """CASES 51."""
    async with (
        connect(place.here, binding=binding, streaming=False) as client,
        connect(place.elsewhere, binding=binding) as other,
    ):
        waiting = asyncio.create_task(send(client, "work; chunks 2; wait never; complete"))
        task_id = await running_task(place, "never")
        canceled = await other.cancel_task(CancelTaskRequest(id=task_id))
        assert canceled.status.state == CANCELED
        assert (await waiting).task.status.state == CANCELED
        with pytest.raises(TaskNotCancelableError):
            await client.cancel_task(CancelTaskRequest(id=task_id))


@streaming
async def test_a_canceled_stream_ends_canceled(place, binding):
    async with connect(place.here, "report", binding) as client, connect(place.elsewhere, "report", binding) as other:
        async with aclosing(client.send_message(request("Write the report"))) as events:
            begun = await until_event(events, "artifact_update")
            canceled = await other.cancel_task(CancelTaskRequest(id=begun[0].task.id))
            rest = [event async for event in events]
        assert canceled.status.state == rest[-1].status_update.status.state == CANCELED


@everywhere
async def test_cancel_of_a_parked_task(place, binding):
    async with connect(place.here, binding=binding, streaming=False) as client:
        asked = (await send(client, "work; ask Which one?")).task
        assert (await client.cancel_task(CancelTaskRequest(id=asked.id))).status.state == CANCELED
        with pytest.raises(UnsupportedOperationError):
            await send(client, "complete", task=asked.id)


async def running_task(place, gate):
    """The id of the task whose executor waits at `gate`, once what it said before is in the log."""
    await asyncio.to_thread(until, lambda: place.site.waiting(gate) == 1)
    task = place.site.tasks()[-1]
    await asyncio.to_thread(until, lambda: place.site.last_sequence(task) >= 2)
    return task


# --- subscribers


@streaming
async def test_subscribe_from_a_second_client(place, binding):
    """CASES 60: the snapshot and what follows make the whole."""
    sent = request("work; chunks 3; wait door; chunks 3; complete")
    async with (
        connect(place.here, binding=binding) as client,
        connect(place.elsewhere, binding=binding) as other,
        aclosing(client.send_message(sent)) as events,
    ):
        begun = await until_event(events, "artifact_update", 3)
        task_id = begun[0].task.id
        async with aclosing(other.subscribe(SubscribeToTaskRequest(id=task_id))) as subscribed:
            snapshot = await anext(subscribed)
            assert snapshot.task.status.state == WORKING
            assert text_of([snapshot]) == numbers(1, 3)
            place.site.open("door")
            rest = [event async for event in subscribed]
        assert rest == [event async for event in events]
        assert text_of([snapshot, *rest]) == numbers(1, 6)


@streaming
async def test_one_of_several_subscribers_leaves_and_one_comes_late(place, binding):
    """CASES 61."""
    sent = request("work; wait one; chunks 3; wait two; chunks 3; complete")
    async with (
        connect(place.here, binding=binding) as client,
        connect(place.elsewhere, binding=binding) as other,
        aclosing(client.send_message(sent)) as own,
    ):
        task_id = (await until_event(own, "status_update"))[0].task.id

        async def subscribe(one):
            events = one.subscribe(SubscribeToTaskRequest(id=task_id))
            assert (await anext(events)).HasField("task")
            return events

        staying, leaving, elsewhere = await subscribe(client), await subscribe(client), await subscribe(other)
        place.site.open("one")
        await until_event(leaving, "artifact_update")
        await leaving.aclose()
        seen = await until_event(elsewhere, "artifact_update", 3)
        late = await subscribe(other)
        place.site.open("two")
        all_of_it = [event async for event in staying]
        assert seen + [event async for event in elsewhere] == all_of_it
        assert [event async for event in late] == all_of_it[3:]
        assert [event async for event in own] == all_of_it
        assert text_of(all_of_it) == numbers(1, 6)


@streaming
async def test_subscribing_to_what_has_ended_or_never_was(place, binding):
    """CASES 36."""
    async with connect(place.here, binding=binding) as client:
        task_id = (await stream(client, "work; complete"))[0].task.id
        for wrong, error in ((task_id, UnsupportedOperationError), ("nobody's", TaskNotFoundError)):
            with pytest.raises(error):
                await anext(client.subscribe(SubscribeToTaskRequest(id=wrong)))


# --- a lost connection


@pytest.mark.http
@streaming
async def test_a_client_comes_back_with_last_event_id(place, binding):
    """CASES 59, 60: it sees exactly 1..n, wherever it comes back."""
    async with raw(place.here, binding) as http, raw(place.elsewhere, binding) as other:
        async with http.stream("work; chunks 10; wait door; chunks 10; complete") as events:
            seen = await read(events, 4)
        task_id = seen[0].data["task"]["id"]
        async with other.subscribe(task_id, after=seen[-1].sequence) as events:
            seen += await read(events, 4)
        place.site.open("door")
        async with http.subscribe(task_id, after=seen[-1].sequence) as events:
            seen += await read(events)
        assert [event.sequence for event in seen] == list(range(1, place.site.last_sequence(task_id) + 1))
        async with other.subscribe(task_id, after=seen[-2].sequence) as events:  # it has ended: the rest and a close
            assert await read(events) == seen[-1:]


# --- listing, push configs, cards


@everywhere
async def test_list(place, binding):
    async with connect(place.here, "private", binding, user="ann", streaming=False) as client:
        sent = [(await send(client, f"work; chunks {number}; complete", context="one")).task.id for number in (1, 2, 3)]
        page = await client.list_tasks(ListTasksRequest(context_id="one", page_size=2, include_artifacts=True))
        assert [task.id for task in page.tasks] == sent[:0:-1]
        assert len(page.tasks[0].artifacts[0].parts) == 3
        following = ListTasksRequest(context_id="one", page_size=2, page_token=page.next_page_token)
        assert sent[0] in [task.id for task in (await client.list_tasks(following)).tasks]
    async with connect(place.elsewhere, "private", binding, user="bob") as other:
        assert not (await other.list_tasks(ListTasksRequest())).tasks
        with pytest.raises(TaskNotFoundError):
            await other.get_task(GetTaskRequest(id=sent[0]))


@everywhere
async def test_push_configs_are_kept(place, binding):
    async with connect(place.here, binding=binding, streaming=False) as client:
        task_id = (await send(client, "work; ask What?")).task.id
        wanted = TaskPushNotificationConfig(task_id=task_id, url="https://example.com/hook", token="t")
        wanted.authentication.scheme, wanted.authentication.credentials = "Bearer", "hidden"
        made = await client.create_task_push_notification_config(wanted)
        assert (made.url, made.token, made.authentication.scheme) == ("https://example.com/hook", "t", "Bearer")
        assert not made.authentication.credentials
        one = GetTaskPushNotificationConfigRequest(task_id=task_id, id=made.id)
        assert await client.get_task_push_notification_config(one) == made
        every = ListTaskPushNotificationConfigsRequest(task_id=task_id)
        assert list((await client.list_task_push_notification_configs(every)).configs) == [made]
        await client.delete_task_push_notification_config(
            DeleteTaskPushNotificationConfigRequest(task_id=task_id, id=made.id)
        )
        with pytest.raises(TaskNotFoundError):
            await client.get_task_push_notification_config(one)


@everywhere
async def test_cards(place, binding):
    """The default agent's card at the site's root; its URL is the one that answers (CASES 1)."""
    async with connect(place.here, "echo", binding) as client:
        card = client._card
    own = {interface.protocol_binding: interface.url for interface in card.supported_interfaces}
    assert own["JSONRPC"] == own["HTTP+JSON"] == f"{place.here.url}/a2a/echo"
    assert card.capabilities.streaming == (not place.here.name.startswith("gunicorn"))
    async with raw(place.here) as http:
        default = await http.http.get(f"{place.here.url}/.well-known/agent-card.json")
        assert default.json()["name"] == card.name == "Echo"
        again = await http.http.get(
            f"{place.elsewhere.url}/.well-known/agent-card.json", headers={"If-None-Match": default.headers["ETag"]}
        )
        assert again.status_code == (304 if place.here is place.elsewhere else 200)  # each port is a site of its own


# --- errors, as the client raises them


@everywhere
async def test_errors(place, binding):
    async with connect(place.here, binding=binding, streaming=False) as client:
        ended = (await send(client, "work; complete")).task.id
        with pytest.raises(UnsupportedOperationError):
            await send(client, "complete", task=ended)
        with pytest.raises(TaskNotFoundError):
            await send(client, "complete", task="nobody's")
        with pytest.raises(TaskNotFoundError):
            await client.get_task(GetTaskRequest(id="nobody's"))
        with pytest.raises(TaskNotFoundError):
            await client.cancel_task(CancelTaskRequest(id="nobody's"))
        with pytest.raises(InvalidParamsError):
            await client.list_tasks(ListTasksRequest(page_size=101))
        with pytest.raises(InvalidParamsError):
            await send(client, "complete", task=(await send(client, "work; ask What?")).task.id, context="another")
    async with connect(place.here, "silent", binding) as client:
        with pytest.raises(PushNotificationNotSupportedError):
            await client.create_task_push_notification_config(
                TaskPushNotificationConfig(task_id=ended, url="https://a.b")
            )
    async with connect(place.here, "private", binding) as client:
        with pytest.raises(A2AClientError, match=r"401|UNAUTHENTICATED"):
            await client.get_task(GetTaskRequest(id=ended))


@everywhere
async def test_an_executor_that_raises_tells_nothing(place, binding):
    """CASES 47, 49."""
    async with connect(place.here, binding=binding, streaming=False) as client:
        task = (await send(client, "work; chunks 1; raise")).task
        assert task.status.state == FAILED
        assert "hunter2" not in str(task.status)
        with pytest.raises(A2AError) as before_any_event:
            await send(client, "raise")
        assert "hunter2" not in str(before_any_event.value)


@streaming
async def test_errors_around_a_stream(place, binding):
    """CASES 66: before the first event a plain error, later a FAILED task and a close."""
    async with connect(place.here, binding=binding) as client:
        events = await stream(client, "work; chunks 1; raise")
        assert events[-1].status_update.status.state == FAILED
        assert "hunter2" not in str(events)
        with pytest.raises(A2AError) as before_any_event:
            await stream(client, "raise")
        assert "hunter2" not in str(before_any_event.value)

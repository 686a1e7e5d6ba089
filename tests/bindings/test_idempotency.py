"""The same messageId again: joined or refused (DESIGN 6; A2A 3.3.1), over every binding."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from django.db import connection
from django.db.models import F

from a2a_django.models import Event, Message, PushConfig, Task, Turn
from tests.clients import Error, artifact, kinds, message, state


@pytest.fixture
def alice(client, make_user):
    """A client with credentials."""
    make_user("alice")
    return client.as_("alice")


def refused(call):
    with pytest.raises(Error) as error:
        call()
    return error.value


def stored():
    """How many rows of each kind there are."""
    return [model.objects.count() for model in (Task, Message, Turn, Event, PushConfig)]


# --- joining


def test_a_send_that_has_ended_is_answered_again(alice):
    said = message("task artifact:a:b completed:done")
    first = alice.task(said)
    before = stored()

    assert alice.task(said) == first
    assert alice.task(said, returnImmediately=True) == first
    assert "history" not in alice.task(said, historyLength=0)
    assert stored() == before


@pytest.mark.v0_3
def test_a_send_that_runs_is_joined(alice, gate):
    said = message("task working wait:a artifact:a:b completed")
    first = alice.sending(said)
    gate("a").reached()
    again = alice.sending(said)
    assert state(alice.task(said, returnImmediately=True)) in ("SUBMITTED", "WORKING")

    gate("a").open()
    assert first() == again()
    assert Turn.objects.count() == Task.objects.count() == 1


@pytest.mark.v0_3
def test_a_message_is_answered_by_the_same_message(alice):
    said = message("message:hello")
    first = alice.send(said)

    assert alice.send(said) == first
    assert alice.stream(said).all() == [first]
    assert Event.objects.count() == 1


@pytest.mark.v0_3
def test_an_error_is_the_answer_again(alice):
    said = message("a2aerror:ContentTypeNotSupportedError")
    for call in (alice.send, alice.send, alice.stream):
        assert refused(lambda call=call: call(said)).reason == "CONTENT_TYPE_NOT_SUPPORTED"
    assert Turn.objects.count() == 1


@pytest.mark.v0_3
def test_a_follow_up_is_joined_although_it_has_ended_the_task(alice):
    asked = alice.task("task input:what?")
    answer = message("artifact:a:b completed", taskId=asked["id"])
    done = alice.task(answer)
    before = stored()

    assert alice.task(answer) == done
    (opening,) = alice.stream(answer).all()
    assert opening == {"task": done}
    assert stored() == before


@pytest.mark.v0_3
def test_a_follow_up_that_waits_or_runs_is_joined(alice, gate, eventually):
    asked = alice.task("task input:what?")
    running = message("working wait:a input:more?", taskId=asked["id"])
    waiting = message("wait:b completed", taskId=asked["id"])
    pending = [alice.sending(running)]
    gate("a").reached()
    pending += [alice.sending(running), alice.sending(waiting)]
    eventually(lambda: Turn.objects.count() == 3)
    pending.append(alice.sending(waiting))

    gate("a").open()
    assert [state(call()["task"]) for call in pending[:2]] == ["INPUT_REQUIRED"] * 2
    gate("b").open()
    assert [state(call()["task"]) for call in pending[2:]] == ["COMPLETED"] * 2
    assert Turn.objects.count() == 3


@pytest.mark.v0_3
def test_many_at_once_are_one(alice, gate):
    """The unique constraint decides the race."""
    said = message("task working wait:a completed")
    with ThreadPoolExecutor(6) as pool:
        pending = list(pool.map(lambda _: alice.sending(said), range(6)))
    gate("a").reached()
    gate("a").open()

    assert len({call()["task"]["id"] for call in pending}) == 1
    assert Turn.objects.count() == Task.objects.count() == Message.objects.count() == 1


@pytest.mark.v0_3
def test_many_follow_ups_at_once_are_one(alice):
    asked = alice.task("task input:what?")
    said = message("working completed", taskId=asked["id"])
    with ThreadPoolExecutor(6) as pool:
        pending = list(pool.map(lambda _: alice.sending(said), range(6)))

    assert {state(call()["task"]) for call in pending} == {"COMPLETED"}
    assert (Turn.objects.count(), Message.objects.count()) == (2, 3)


# --- streams


@pytest.mark.v0_3
def test_a_stream_is_joined_from_its_start(alice, gate):
    said = message("task working artifact:a:one wait:a append:a:two completed")
    first = alice.stream(said)
    begun = [next(first) for _ in range(3)]
    again = alice.stream(said)
    assert [next(again) for _ in range(3)] == begun

    gate("a").open()
    rest = list(first)
    assert list(again) == rest
    assert list(alice.stream(said)) == begun + rest
    assert Turn.objects.count() == 1


@pytest.mark.v0_3
@pytest.mark.http
@pytest.mark.parametrize("last", [0, 1, 3, 4, 5])
def test_a_stream_is_resumed_by_sending_the_message_again(alice, gate, last):
    """DESIGN 6: the events after k, no Task first."""
    said = message("task working artifact:a:one wait:a append:a:two completed")
    first = alice.stream(said)
    begun = [next(first) for _ in range(3)]
    running = alice.stream(said, last=min(last, 3))
    gate("a").open()
    everything = begun + list(first)

    assert list(running) == everything[min(last, 3) :]
    assert list(alice.stream(said, last=last)) == everything[last:]


@pytest.mark.v0_3
@pytest.mark.http
def test_a_resumed_follow_up_ends_with_its_turn(alice):
    asked = alice.task("task input:what?")
    said = message("working input:more?", taskId=asked["id"])
    opening, *events = alice.stream(said)

    assert kinds(event.data for event in events) == ["WORKING", "INPUT_REQUIRED"]
    assert list(alice.stream(said, last=opening.id)) == events
    assert list(alice.stream(said, last=events[-1].id)) == []


@pytest.mark.v0_3
@pytest.mark.http
def test_a_resumed_message(alice):
    said = message("message:hello")
    (event,) = alice.stream(said)

    assert list(alice.stream(said, last=0)) == [event]
    assert list(alice.stream(said, last=1)) == []


@pytest.mark.v0_3
@pytest.mark.http
@pytest.mark.parametrize("last", ["4", "-1", "abc", "1.0"])
def test_resuming_from_nowhere_is_refused(alice, last):
    said = message("task working completed")
    alice.stream(said).all()
    assert refused(lambda: alice.stream(said, last=last)).fields == ["Last-Event-ID"]


@pytest.mark.v0_3
@pytest.mark.http
def test_a_new_message_resumes_nothing(alice, client, a2a):
    """DESIGN 6: Last-Event-ID goes with the same messageId; taken as new it would do the work twice."""
    said = message("task completed")
    assert refused(lambda: alice.stream(said, last=1)).fields == ["Last-Event-ID"]
    assert refused(lambda: client.stream(said, last=1)).fields == ["Last-Event-ID"]
    a2a(IDEMPOTENCY_SECONDS=0)
    assert refused(lambda: alice.stream(said, last=1)).fields == ["Last-Event-ID"]
    assert stored() == [0] * 5


@pytest.mark.v0_3
@pytest.mark.http
def test_a_stream_is_resumed_however_old_it_is(alice):
    said = message("task working completed")
    alice.stream(said).all()
    Turn.objects.update(created_at=F("created_at") - timedelta(days=1))

    assert kinds(alice.stream(said, last=2).all()) == ["COMPLETED"]
    assert Turn.objects.count() == 1


# --- refusing


CHANGES = {
    "text": ({"parts": [{"text": "task failed"}]}, {}, {}),
    "part": ({"parts": [{"text": "task completed"}, {"data": {"b": 1}}]}, {}, {}),
    "context": ({"contextId": "other"}, {}, {}),
    "references": ({"referenceTaskIds": ["x"]}, {}, {}),
    "message metadata": ({"metadata": {"a": 1}}, {}, {}),
    "metadata": ({}, {"a": {"c": 1}}, {}),
    "output modes": ({}, {}, {"acceptedOutputModes": ["text/html"]}),
    "webhook": ({}, {}, {"taskPushNotificationConfig": {"url": "https://example.com/hook"}}),
}


@pytest.mark.parametrize("change", CHANGES)
def test_another_payload_is_refused_and_nothing_is_stored(alice, change):
    said = message("task completed")
    alice.send(said)
    before = stored()

    fields, metadata, configuration = CHANGES[change]
    error = refused(lambda: alice.send(said | fields, metadata, **configuration))
    assert (error.reason, error.fields) == ("INVALID_PARAMS", ["message.messageId"])
    assert refused(lambda: alice.stream(said | fields, metadata, **configuration)).fields == ["message.messageId"]
    assert stored() == before


@pytest.mark.v0_3
def test_another_follow_up_under_the_same_id_leaves_the_task_as_it_was(alice):
    asked = alice.task("task input:what?")
    said = message("working input:more?", taskId=asked["id"])
    alice.send(said)
    before, rows = alice.get(asked["id"]), stored()

    assert refused(lambda: alice.send(said | {"parts": [{"text": "completed"}]})).fields == ["message.messageId"]
    assert (alice.get(asked["id"]), stored()) == (before, rows)
    assert Task.objects.get().lease == ""
    assert state(alice.follow(asked, "completed")) == "COMPLETED"


@pytest.mark.http
def test_the_order_of_keys_is_no_difference(alice):
    """It is the message that counts, not its spelling."""
    said = message("task completed", parts=[{"text": "task completed"}, {"data": {"a": 1, "b": [1.0, None]}}])
    first = alice.task(said, {"x": 1, "y": 2})
    turned = dict(reversed(said.items())) | {"parts": [{"text": "task completed"}, {"data": {"b": [1, None], "a": 1}}]}

    assert alice.task(turned | {"unknown": 5}, {"y": 2, "x": 1}) == first


# --- who is joined, and for how long


@pytest.mark.v0_3
def test_nobody_joins_another(alice, client, make_user, make_tenant):
    """Clients re-use ids: user, tenant, agent and task make the difference; anonymous callers never join."""
    make_user("bob"), make_tenant("acme")
    said = message("task input:what?")
    everybody = [alice, client.as_("bob"), alice.within("acme"), client, client]
    tasks = [one.task(said) for one in everybody]
    assert len({task["id"] for task in tasks}) == len(tasks)

    followed = alice.task(said | {"taskId": tasks[0]["id"]})
    assert len(followed["history"]) == 3
    assert Turn.objects.filter(idempotency_key=None).count() == 2


@pytest.mark.v0_3
def test_an_anonymous_callers_second_message_may_differ(client):
    said = message("task completed", messageId="1")
    client.send(said)
    assert state(client.task(said | {"parts": [{"text": "task failed"}]})) == "FAILED"


@pytest.mark.v0_3
def test_after_its_time_an_id_is_free_again(alice):
    said = message("task completed")
    first = alice.task(said)
    Turn.objects.update(created_at=F("created_at") - timedelta(seconds=595))
    assert alice.task(said) == first
    Turn.objects.update(created_at=F("created_at") - timedelta(seconds=10))

    other = said | {"parts": [{"text": "task artifact:a:new completed"}]}
    second = alice.task(other)
    assert (second["id"] != first["id"], artifact(second)) == (True, "new")
    assert alice.task(other) == second
    assert refused(lambda: alice.task(said)).fields == ["message.messageId"]


@pytest.mark.v0_3
def test_many_at_once_after_its_time_are_one(alice, gate):
    said = message("task wait:a completed")
    gate("a").open()
    alice.send(said)
    Turn.objects.update(created_at=F("created_at") - timedelta(seconds=601))
    with ThreadPoolExecutor(6) as pool:
        pending = list(pool.map(lambda _: alice.sending(said), range(6)))

    assert len({call()["task"]["id"] for call in pending}) == 1
    assert Turn.objects.count() == 2


@pytest.mark.v0_3
def test_joining_can_be_turned_off(alice, a2a):
    a2a(IDEMPOTENCY_SECONDS=0)
    said = message("task completed")

    assert alice.task(said)["id"] != alice.task(said)["id"]
    assert not Turn.objects.exclude(idempotency_key=None).exists()


@pytest.mark.v0_3
def test_a_message_that_was_refused_may_be_sent_again(alice):
    """What was never taken in has used up nothing."""
    said = message("task completed", taskId="nobody's")
    assert refused(lambda: alice.send(said)).reason == "TASK_NOT_FOUND"
    assert state(alice.task({key: value for key, value in said.items() if key != "taskId"})) == "COMPLETED"


@pytest.mark.v0_3
def test_a_retry_within_the_requests_own_transaction(alice, monkeypatch):
    """CASES 56: with ATOMIC_REQUESTS the transaction in which the retry was found goes on."""
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
    said = message("task completed")
    first = alice.task(said)
    assert alice.task(said) == first
    assert Turn.objects.count() == 1

"""Executors that go on after they have asked, and read the answer themselves: `inbox(context)` (A2A 7.6.1)."""

import subprocess
import sys
from uuid import uuid4

import pytest
from a2a.server.agent_execution import RequestContext

import a2a_django
from a2a_django import batches, doorbell, event_log
from a2a_django.agents import claims, registry
from a2a_django.agents.mailbox import Mailbox
from a2a_django.batches import End
from a2a_django.event_log import FencedError
from a2a_django.models import Agent, Task, Turn
from a2a_django.models.turn import TurnState
from tests.clients import artifact, kinds, message, state, words
from tests.executors import Script

ASKING = "task auth:please inbox:1 completed:done"


@pytest.fixture
def turns():
    """turns(): how each turn stands, in order."""
    return lambda: list(Turn.objects.order_by("pk").values_list("state", flat=True))


@pytest.mark.v0_3
def test_an_answer_reaches_the_executor_that_asked(client, turns):
    """CASES 47: the send returns at AUTH_REQUIRED, the executor runs on and ends the task with the answer."""
    asked = client.task(ASKING)
    assert (state(asked), turns()) == ("AUTH_REQUIRED", ["running"])

    done = client.follow(asked, "artifact:a:granted")
    assert (state(done), artifact(done)) == ("COMPLETED", "granted")
    assert words(done) == [ASKING, "please", "artifact:a:granted"]
    assert done["status"]["message"]["parts"] == [{"text": "done"}]
    assert turns() == ["done", "done"]
    assert Task.objects.get().lease == ""


def test_streams_stay_open_and_tell_all(client):
    """DESIGN 6: AUTH_REQUIRED keeps the stream while the executor runs on."""
    first = client.stream(ASKING)
    task, auth = next(first), next(first)
    assert kinds([auth.data]) == ["AUTH_REQUIRED"]
    subscribed = client.subscribe(task.data["task"]["id"])
    assert state(next(subscribed).data["task"]) == "AUTH_REQUIRED"

    answer = client.stream(message("working artifact:a:granted", taskId=task.data["task"]["id"]))
    opening = next(answer).data["task"]
    assert words(opening) == [ASKING, "please", "working artifact:a:granted"]
    rest = answer.all()
    assert kinds(rest) == ["WORKING", "artifactUpdate", "COMPLETED"]
    assert first.all() == subscribed.all() == rest


def test_an_answer_may_have_come_before_the_executor_looks(client, gate, eventually, turns):
    pending = client.sending("task working wait:a inbox:1 completed")
    gate("a").reached()
    (task,) = eventually(lambda: client.list()["tasks"])
    follow = client.sending(message("artifact:a:early", taskId=task["id"]))
    eventually(lambda: turns() == ["running", "queued"])

    gate("a").open()
    assert pending()["task"]["artifacts"] == follow()["task"]["artifacts"]
    assert turns() == ["done", "done"]


@pytest.mark.v0_3
def test_messages_come_in_order_each_once(client, turns):
    asked = client.task("task artifact:a:. auth:one? inbox:3 completed")
    for count in range(2):
        answered = client.follow(asked, f"append:a:{count} auth:more?")
        assert (state(answered), answered["status"]["message"]["parts"]) == ("AUTH_REQUIRED", [{"text": "more?"}])
    done = client.follow(asked, "append:a:2")

    assert artifact(done) == ".012"
    assert turns() == ["done"] * 4
    assert words(done)[1:] == ["one?", "append:a:0 auth:more?", "more?", "append:a:1 auth:more?", "more?", "append:a:2"]


@pytest.mark.v0_3
def test_what_is_not_read_gets_a_turn_of_its_own(client, gate, eventually, turns):
    asked = client.task("task auth:please inbox:1 wait:a input:more?")
    read = client.sending(message("artifact:a:read", taskId=asked["id"]))
    eventually(lambda: turns() == ["running", "running"])
    unread = client.sending(message("append:a:.turn completed", taskId=asked["id"]))
    eventually(lambda: turns() == ["running", "running", "queued"])

    gate("a").open()
    assert state(read()["task"]) in ("INPUT_REQUIRED", "COMPLETED")
    assert artifact(unread()["task"]) == "read.turn"
    assert turns() == ["done"] * 3


@pytest.mark.v0_3
def test_who_sends_and_does_not_wait(client, gate, eventually):
    asked = client.task("task auth:please inbox:1 completed")
    answered = client.follow(asked, "working wait:a", returnImmediately=True)

    assert state(answered) in ("AUTH_REQUIRED", "WORKING")
    gate("a").open()
    assert eventually(lambda: state(client.get(asked["id"])) == "COMPLETED")


@pytest.mark.v0_3
def test_a_failure_is_that_of_all_senders(client, turns):
    asked = client.task("task auth:please inbox:1 completed")

    assert state(client.follow(asked, "raise")) == "FAILED"
    assert turns() == ["failed", "failed"]


@pytest.mark.v0_3
def test_a_retry_joins_a_message_that_was_read(client, make_user, turns):
    """DESIGN 6: the same messageId again."""
    make_user("alice")
    alice = client.as_("alice")
    asked = alice.task(ASKING)
    said = message("artifact:a:granted", taskId=asked["id"])

    assert alice.task(said) == alice.task(said)
    assert turns() == ["done", "done"]


@pytest.mark.v0_3
def test_a_blocking_executor_reads_in_its_own_thread(make_client, monkeypatch):
    monkeypatch.setitem(registry._registered, "blocking", registry.Registration(Script, blocking=True))
    client = make_client()
    Agent.objects.update(executor="blocking")
    asked = client.task(ASKING)
    assert artifact(client.follow(asked, "artifact:a:granted")) == "granted"


# --- the end of an inbox


@pytest.mark.v0_3
def test_it_ends_with_the_task(client, gate):
    assert state(client.task("task completed inbox")) == "COMPLETED"
    gate("inbox ended").reached()


@pytest.mark.v0_3
def test_it_ends_when_the_task_is_anothers(client, gate, turns):
    task = client.task("task auth:please inbox")
    Task.objects.update(lease="another's")
    queue(Task.objects.get(pk=task["id"]), "artifact:a:b")
    doorbell.ring(task["id"])

    gate("inbox ended").reached()
    assert turns() == ["running", "queued"]


@pytest.mark.v0_3
def test_a_cancel_ends_the_wait(client, turns):
    task = client.task("task auth:please inbox")
    assert state(client.cancel(task["id"])) == "CANCELED"


@pytest.mark.parametrize("binding", ["rest"], indirect=True)
def test_a_message_whose_ring_was_lost_is_found(client, a2a, eventually):
    """DESIGN 4: a lost ring costs time, never a message."""
    a2a(LOOK_SECONDS=0.02)
    asked = client.task("task auth:please inbox:1 completed")
    queue(Task.objects.get(pk=asked["id"]), "artifact:a:b")

    assert eventually(lambda: state(client.get(asked["id"])) == "COMPLETED")


def test_only_the_context_of_execute_has_one():
    with pytest.raises(LookupError, match="execute"):
        a2a_django.inbox(RequestContext(None))


def test_the_package_is_imported_before_there_are_models():
    """Sites write `from a2a_django import executor, inbox` in modules that Django may import early."""
    code = "import a2a_django, sys; a2a_django.inbox; sys.exit('a2a_django.models' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


# --- the mailbox itself


def queue(task, text):
    """A follow-up's turn, as another process stores it."""
    Task.objects.filter(pk=task.pk).update(crowded=True)
    said = {"messageId": str(uuid4()), "role": "ROLE_USER", "parts": [{"text": text}]}
    row = batches.message_row(task.pk, said)
    row.save()
    return Turn.objects.create(task=task, message=row, request="{}")


@pytest.fixture
def running(make_task):
    """A running turn's writer and mailbox."""
    task = make_task(lease="mine")
    turn = Turn.objects.create(task=task, message=task.messages.get(), state=TurnState.RUNNING)
    writer = event_log.writer(task)
    writer.turn, writer.task = turn, task
    return writer, Mailbox(turn.pk, writer)


@pytest.mark.django_db(transaction=True)
class TestMailbox:
    def test_a_turn_is_taken_once_and_ends_with_the_one_that_read_it(self, running, django_assert_num_queries):
        writer, mailbox = running
        with django_assert_num_queries(1):
            assert mailbox.take() is None
        first, second = queue(writer.task, "one"), queue(writer.task, "two")

        letter = mailbox.take()
        assert mailbox.open(letter).parts[0].text == "one"
        assert mailbox.open(letter) is None
        assert mailbox.open(mailbox.take()).parts[0].text == "two"
        assert mailbox.take() is None
        taken = Turn.objects.filter(pk__in=(first.pk, second.pk)).values_list("state", "start_sequence", "attempt")
        assert list(taken) == [("running", 1, 1)] * 2
        assert {first.message.message_id, second.message.message_id} <= writer.message_ids

        event_log.append(writer, [], end=End(writer.turn.pk, absorbed=tuple(mailbox.read)))
        assert set(Turn.objects.values_list("state", flat=True)) == {"done"}

    def test_what_was_taken_but_did_not_arrive_is_given_again(self, running):
        """Who waits with a timeout gives up at any instant."""
        writer, mailbox = running
        queue(writer.task, "one")
        lost = mailbox.take()

        assert mailbox.take() == lost._replace(state="running")
        assert mailbox.open(mailbox.take()).parts[0].text == "one"

    def test_what_was_taken_but_did_not_arrive_at_all_runs_afterwards(self, running):
        writer, mailbox = running
        turn = queue(writer.task, "one")
        mailbox.take()

        event_log.append(writer, [], end=End(writer.turn.pk, absorbed=tuple(mailbox.read)))
        assert list(Turn.objects.order_by("pk").values_list("state", flat=True)) == ["done", "queued"]
        assert claims.claim(turn.pk).turn_id == turn.pk

    @pytest.mark.parametrize("change", [{"lease": ""}, {"lease": "another's"}, {"state": "TASK_STATE_CANCELED"}])
    def test_nothing_is_taken_for_a_task_that_is_lost(self, running, change):
        writer, mailbox = running
        turn = queue(writer.task, "one")
        Task.objects.update(**change)

        with pytest.raises(FencedError):
            mailbox.take()
        turn.refresh_from_db()
        assert turn.state == TurnState.QUEUED

    def test_earlier_turns_are_not_its_own(self, running):
        writer, mailbox = running
        assert Mailbox(writer.turn.pk + 1, writer).take() is mailbox.take() is None

"""The log of a task: one writer, no holes, no doubles, and what is folded from it (DESIGN 4)."""

import asyncio
import json
import random
import threading
from uuid import uuid4

import pytest
from django.db import OperationalError, connection, connections
from django.test.utils import CaptureQueriesContext

from a2a_django import batches, chunks, doorbell, entries, event_log, snapshots, statements
from a2a_django.agents import claims
from a2a_django.batches import End
from a2a_django.doorbell import Ear
from a2a_django.event_log import FencedError
from a2a_django.models import Artifact, Event, Message, Task, Turn
from a2a_django.models.event import Kind
from a2a_django.models.turn import TurnState
from a2a_django.protocol import codec
from a2a_django.protocol.states import TERMINAL, TaskState

pytestmark = pytest.mark.django_db
committed = pytest.mark.django_db(transaction=True)  # for what other threads see, and for what a commit does

PATIENCE = 60
SUBMITTED, WORKING, COMPLETED, CANCELED = (
    TaskState.SUBMITTED,
    TaskState.WORKING,
    TaskState.COMPLETED,
    TaskState.CANCELED,
)


@pytest.fixture
def begin(make_task):
    """begin(): the writer of a new turn of a new task, as a claim has it. `writer.turn` is the turn."""

    def new():
        task = make_task(visible=False, lease=str(uuid4()))
        turn = Turn.objects.create(task=task, message=task.messages.get(), state=TurnState.RUNNING)
        writer = claims.writer(task, turn.pk, turn.message.message_id, turn.message.body)
        writer.turn = turn
        return writer

    return new


# --- what executors say


def said_task(writer, state=SUBMITTED, *, messages=(), artifacts=(), **fields):
    status = {"state": state.value, "timestamp": "2026-01-31T12:00:00.000Z"}
    data = {"id": writer.task_id, "contextId": writer.context_id, "status": status, **fields}
    if messages:
        data["history"] = list(messages)
    if artifacts:
        data["artifacts"] = list(artifacts)
    return entries.entry(Kind.TASK, data)


def said_status(writer, state, text=None, message_id=None, **fields):
    status = {"state": state.value, "timestamp": "2026-01-31T12:00:00.000Z"}
    if text is not None:
        status["message"] = said(text, message_id)
    data = {"taskId": writer.task_id, "contextId": writer.context_id, "status": status, **fields}
    return entries.entry(Kind.STATUS, data)


def said(text, message_id=None, role="ROLE_AGENT"):
    return {"messageId": message_id or text, "role": role, "parts": [{"text": text}]}


def chunk(writer, text, artifact_id="a", *, append=False, **fields):
    artifact = {"artifactId": artifact_id, "parts": [{"text": text}], **fields}
    data = {"taskId": writer.task_id, "contextId": writer.context_id, "artifact": artifact}
    return entries.entry(Kind.ARTIFACT, data | ({"append": True} if append else {}))


# --- what is there


def stored(writer):
    return Task.objects.get(pk=writer.task_id)


def bodies(writer):
    """The log as data, its numbers checked."""
    rows = list(Event.objects.after(writer.task_id, 0).values_list("sequence", "body"))
    assert [sequence for sequence, _ in rows] == list(range(1, len(rows) + 1)), "the log has a hole"
    assert stored(writer).last_sequence == len(rows)
    return [json.loads(body) for _, body in rows]


def kinds(writer):
    return [next(iter(body)) for body in bodies(writer)]


def snapshot(writer):
    return json.loads(snapshots.snapshot(stored(writer)).text(artifacts=True))


def history(writer):
    return [message["parts"][0]["text"] for message in snapshot(writer).get("history", [])]


def folded(log):
    """What the events of a log make of the artifacts (A2A 4.2.2), as simply as can be said."""
    found = {}
    for body in log:
        for artifact in body.get("task", {}).get("artifacts", []):
            found.setdefault(artifact["artifactId"], artifact)
        if "artifactUpdate" not in body:
            continue
        new, append = body["artifactUpdate"]["artifact"], body["artifactUpdate"].get("append")
        old = found.get(new["artifactId"])
        if not (append and old):
            found[new["artifactId"]] = new
            continue
        found[new["artifactId"]] = old | {"parts": old["parts"] + new["parts"]}
        if "metadata" in new:
            found[new["artifactId"]]["metadata"] = old.get("metadata", {}) | new["metadata"]
    return list(found.values())


def rows(writer):
    return [json.loads(row.body) for row in Artifact.objects.filter(task=writer.task_id).order_by("pk")]


# --- append


def test_events_are_numbered_and_kept_as_they_are_sent(begin):
    writer = begin()
    first = [said_task(writer), chunk(writer, "1")]
    event_log.append(writer, first)
    event_log.append(writer, [])
    event_log.append(writer, [chunk(writer, "2", append=True)])
    then = [said_status(writer, COMPLETED)]
    event_log.append(writer, then)
    written = list(Event.objects.after(writer.task_id, 0).values_list("body", flat=True))
    assert [written[0], written[1], written[3]] == [item.text for item in first + then]
    assert kinds(writer) == ["task", "artifactUpdate", "artifactUpdate", "statusUpdate"]
    assert [event.state for event in stored(writer).events.all()] == [SUBMITTED, "", "", COMPLETED]
    assert (writer.sequence, writer.visible, writer.terminal) == (4, True, True)


@pytest.mark.parametrize("say", [lambda writer: said_status(writer, WORKING), lambda writer: chunk(writer, "1")])
def test_the_server_makes_the_task_that_an_executor_does_not_begin_with(begin, say):
    writer = begin()
    event_log.append(writer, [say(writer)])
    task, _ = bodies(writer)
    assert task["task"]["status"]["state"] == SUBMITTED
    assert [message["parts"] for message in task["task"]["history"]] == [[{"text": "hi"}]]
    assert history(writer) == ["hi"]


def test_the_row_is_what_the_last_status_said(begin):
    writer = begin()
    event_log.append(writer, [said_task(writer)])
    assert stored(writer).visible
    event_log.append(writer, [said_status(writer, WORKING, "at it"), chunk(writer, "1")])
    task = stored(writer)
    assert (task.state, task.status_sequence, task.last_sequence) == (WORKING, 2, 3)
    assert json.loads(task.status) == bodies(writer)[1]["statusUpdate"]["status"]
    assert codec.timestamp(task.status_timestamp) == "2026-01-31T12:00:00.000Z"


def test_metadata_is_merged(begin):
    writer = begin()
    event_log.append(writer, [said_task(writer, metadata={"a": 1, "b": {"c": 1}})])
    event_log.append(writer, [said_status(writer, WORKING, metadata={"b": {"d": 2}, "n": None})])
    event_log.append(writer, [said_status(writer, COMPLETED)])
    assert snapshot(writer)["metadata"] == {"a": 1, "b": {"d": 2}, "n": None}


@committed
def test_readers_are_rung_after_the_commit(begin, monkeypatch):
    monkeypatch.setattr(doorbell, "_listened", list)  # the keeper doesn't look: it would find the news as well
    writer = begin()

    async def listen():
        ear = Ear()
        ear.listen(writer.task_id)
        await asyncio.to_thread(_in_thread, event_log.append, writer, [said_task(writer)])
        return await ear.wait(2)

    assert asyncio.run(listen())


def _in_thread(function, *args):
    try:
        function(*args)
    finally:
        connections.close_all()


# --- history


def test_a_status_message_becomes_history_once_another_status_has_come(begin):
    """CASES 42"""
    writer = begin()
    event_log.append(writer, [said_task(writer), said_status(writer, WORKING, "one")])
    assert history(writer) == ["hi"]
    event_log.append(writer, [chunk(writer, "x")])
    assert history(writer) == ["hi"]
    event_log.append(writer, [said_status(writer, WORKING, "two")])
    assert history(writer) == ["hi", "one"]
    event_log.append(writer, [said_status(writer, WORKING), said_status(writer, WORKING)])
    assert history(writer) == ["hi", "one", "two"]
    event_log.append(writer, [said_status(writer, COMPLETED, "three")])
    assert history(writer) == ["hi", "one", "two"]
    assert snapshot(writer)["status"]["message"]["parts"] == [{"text": "three"}]


def test_a_status_message_becomes_history_once_the_client_says_something(begin):
    """CASES 42: the question goes before the answer, stands nowhere else then, and the old rows are as they were."""
    writer = begin()
    event_log.append(writer, [said_task(writer), said_status(writer, WORKING, "what?")])
    row = stored(writer).status
    answer = batches.message_row(writer.task_id, said("this", role="ROLE_USER"))
    answer.save()
    assert history(writer) == ["hi", "what?", "this"]
    assert snapshot(writer)["status"].keys() == {"state", "timestamp"}
    assert stored(writer).status == row

    (listed,) = snapshots.snapshots([stored(writer)], artifacts=False, history=False)
    assert json.loads(listed.text(0))["status"] == snapshot(writer)["status"]
    before = snapshots.snapshot(stored(writer), before=answer.pk)
    assert (before.status, len(before.history)) == (row, 1)

    event_log.append(writer, [said_status(writer, WORKING, "thanks")])
    assert history(writer) == ["hi", "what?", "this"]
    assert snapshot(writer)["status"]["message"]["parts"] == [{"text": "thanks"}]


def test_a_task_event_adds_only_the_messages_that_are_not_there(begin):
    """CASES 42; DESIGN 5.5"""
    writer = begin()
    own = json.loads(writer.opening)
    event_log.append(writer, [said_task(writer, messages=[own, said("plan"), said("plan")])])
    assert history(writer) == ["hi", "plan"]
    event_log.append(writer, [said_status(writer, WORKING, "at it"), said_status(writer, WORKING)])
    again = [own, said("plan"), said("at it"), said("more")]
    event_log.append(writer, [said_task(writer, COMPLETED, messages=again, metadata={"a": 1})])
    assert history(writer) == ["hi", "plan", "at it", "more"]
    assert kinds(writer) == ["task", "statusUpdate", "statusUpdate"]
    assert (stored(writer).state, "metadata" in snapshot(writer)) == (WORKING, False)


def test_a_message_with_a_known_id_is_not_dropped_from_history(begin):
    """DESIGN 6: executors re-use ids; only in a Task event an id that is there means the same message."""
    writer = begin()
    again = [said_status(writer, WORKING, text, message_id="same") for text in ("one", "two")]
    event_log.append(writer, [said_task(writer), *again, said_status(writer, COMPLETED)])
    assert history(writer) == ["hi", "one", "two"]


# --- a Message instead of a task


def test_a_message_leaves_a_hidden_settled_task(begin):
    writer = begin()
    answer = entries.entry(Kind.MESSAGE, said("hello"))
    event_log.append(writer, [answer], end=End(writer.turn.pk))
    task = stored(writer)
    assert (task.visible, task.state, task.lease) == (False, COMPLETED, "")
    assert bodies(writer) == [{"message": said("hello")}]
    assert Turn.objects.get().state == TurnState.DONE


def test_a_message_completes_a_task_that_was_made_visible_meanwhile(begin):
    """DESIGN 6, returnImmediately."""
    writer, other = begin(), event_log.writer(Task.objects.get())
    event_log.append(other, [entries.submitted(other.task_id, other.context_id, other.opening)])
    event_log.append(writer, [entries.entry(Kind.MESSAGE, said("hello"))], end=End(writer.turn.pk))
    assert kinds(writer) == ["task", "statusUpdate"]
    assert snapshot(writer)["status"]["message"] == said("hello")
    assert stored(writer).state == COMPLETED


# --- the end of a turn


def test_the_last_append_ends_the_turn_and_gives_the_lease_up(begin):
    writer = begin()
    Task.objects.update(cancel="requested")
    event_log.append(writer, [said_task(writer, COMPLETED)], end=End(writer.turn.pk))
    task, turn = stored(writer), Turn.objects.get()
    assert (task.lease, task.lease_expires, task.cancel) == ("", None, "")
    assert (turn.state, turn.answer, turn.error) == (TurnState.DONE, None, "")
    assert turn.ended_at is not None


def test_a_turn_may_end_without_a_word(begin):
    writer = begin()
    event_log.append(writer, [said_task(writer, WORKING)])
    event_log.append(writer, [], end=End(writer.turn.pk, failed=True, error="why"))
    turn = Turn.objects.get()
    assert (turn.state, turn.error) == (TurnState.FAILED, "why")
    assert (stored(writer).state, stored(writer).lease) == (WORKING, "")
    assert kinds(writer) == ["task"]


ANSWER = {"type": "InvalidParamsError", "message": "no", "data": None}


def test_an_error_before_the_first_event_leaves_a_hidden_task(begin):
    writer = begin()
    end = End(writer.turn.pk, failed=True, answer=ANSWER)
    event_log.append(writer, [said_status(writer, TaskState.FAILED, "no")], end=end)
    assert (stored(writer).visible, stored(writer).state, bodies(writer)) == (False, TaskState.FAILED, [])
    assert Turn.objects.get().answer == ANSWER


def test_an_error_fails_a_task_that_was_made_visible_meanwhile(begin):
    writer, other = begin(), event_log.writer(Task.objects.get())
    event_log.append(other, [entries.submitted(other.task_id, other.context_id, other.opening)])
    end = End(writer.turn.pk, failed=True, answer=ANSWER)
    event_log.append(writer, [said_status(writer, TaskState.FAILED, "no")], end=end)
    assert kinds(writer) == ["task", "statusUpdate"]
    assert stored(writer).state == TaskState.FAILED


def test_a_turn_that_came_meanwhile_is_not_overlooked(begin):
    """Who ends a turn looks for the next one where the writer is crowded."""
    writer = begin()
    event_log.append(writer, [said_task(writer, WORKING)])
    Task.objects.update(crowded=True)
    assert not writer.crowded
    event_log.append(writer, [chunk(writer, "1")], end=End(writer.turn.pk))
    assert writer.crowded
    assert kinds(writer) == ["task", "artifactUpdate"]
    assert rows(writer) == folded(bodies(writer))


# --- fences


def take_over(writer):
    Task.objects.filter(pk=writer.task_id).update(lease="another's")


def end_elsewhere(writer):
    other = event_log.writer(stored(writer))
    event_log.append(other, [said_status(other, CANCELED)])


def delete(writer):
    Task.objects.filter(pk=writer.task_id).delete()


@pytest.mark.parametrize("lose", [take_over, end_elsewhere, delete])
@pytest.mark.parametrize("ending", [False, True])
def test_who_has_lost_the_task_writes_nothing(begin, lose, ending):
    """CASES 53, 55"""
    writer = begin()
    event_log.append(writer, [said_task(writer, WORKING), chunk(writer, "1")])
    lose(writer)
    before = _all_rows()
    late = [chunk(writer, "2", append=True), said_status(writer, COMPLETED, "late")]
    for _ in range(2):
        with pytest.raises(FencedError):
            event_log.append(writer, late, end=End(writer.turn.pk) if ending else None)
    assert _all_rows() == before
    assert (writer.sequence, writer.terminal) == (2, False)


def _all_rows():
    return [list(model.objects.order_by("pk").values()) for model in (Task, Event, Message, Artifact, Turn)]


def test_a_turn_that_was_taken_over_cannot_be_ended_silently(begin):
    """CASES 55"""
    writer = begin()
    event_log.append(writer, [said_task(writer, WORKING)])
    take_over(writer)
    with pytest.raises(FencedError):
        event_log.append(writer, [], end=End(writer.turn.pk))
    assert Turn.objects.get().state == TurnState.RUNNING
    assert stored(writer).lease == "another's"


def test_a_turn_ends_after_another_ended_its_task(begin):
    """Nothing more to say, but the turn and its lease are still the writer's to end."""
    writer = begin()
    event_log.append(writer, [said_task(writer, WORKING)])
    end_elsewhere(writer)
    event_log.append(writer, [], end=End(writer.turn.pk))
    assert Turn.objects.get().state == TurnState.DONE
    assert (stored(writer).state, stored(writer).lease) == (CANCELED, "")


def test_a_writer_goes_on_behind_what_another_wrote_with_its_lease(begin):
    """A waiting call makes a hidden task visible while its executor begins to speak."""
    writer, other = begin(), event_log.writer(Task.objects.get())
    event_log.append(other, [entries.submitted(other.task_id, other.context_id, other.opening)])
    event_log.append(writer, [said_status(writer, WORKING), chunk(writer, "1")])
    event_log.append(writer, [said_status(writer, COMPLETED)], release=True)
    assert kinds(writer) == ["task", "statusUpdate", "artifactUpdate", "statusUpdate"]
    assert history(writer) == ["hi"]
    assert rows(writer) == folded(bodies(writer))


# --- a commit whose answer is lost


@pytest.fixture
def lose_answer(monkeypatch):
    """lose_answer(): the next commit succeeds, but who made it is told that the connection broke."""

    def cut(call):
        def broken(*arguments):
            monkeypatch.undo()
            call(*arguments)
            raise OperationalError("the connection broke")

        return broken

    def lose():
        monkeypatch.setattr(connection, "commit", cut(connection.commit))
        monkeypatch.setattr(chunks, "_write", cut(chunks._write))

    return lose


SAYINGS = {
    "a task": lambda writer: [said_task(writer, messages=[said("plan")]), chunk(writer, "1")],
    "a status, before which the server makes the task": lambda writer: [said_status(writer, WORKING, "at it")],
    "an artifact, before which the server makes the task": lambda writer: [chunk(writer, "1"), chunk(writer, "2")],
    "the end": lambda writer: [said_task(writer), said_status(writer, COMPLETED, "done")],
}


@committed
@pytest.mark.parametrize("saying", SAYINGS)
@pytest.mark.parametrize("ending", [False, True])
def test_a_lost_answer_to_the_commit_doubles_nothing(begin, lose_answer, saying, ending):
    writer = begin()
    batch = SAYINGS[saying](writer)
    end = End(writer.turn.pk) if ending else None
    lose_answer()
    with pytest.raises(OperationalError):
        event_log.append(writer, batch, end=end)
    before = _all_rows()
    assert len(bodies(writer)) >= len(batch)
    _let_a_millisecond_pass()
    event_log.append(writer, batch, end=end)
    assert _all_rows() == before
    assert writer.sequence == len(bodies(writer))
    if not (ending or writer.terminal):
        event_log.append(writer, [chunk(writer, "next")])
        assert kinds(writer)[-1] == "artifactUpdate"


def _let_a_millisecond_pass():
    """So that a time that is made anew is another one."""
    begun = entries.status("t", "c", WORKING).text
    while entries.status("t", "c", WORKING).text == begun:
        pass


@committed
def test_a_lost_answer_later_in_a_turn_doubles_nothing(begin, lose_answer):
    writer = begin()
    event_log.append(writer, [said_task(writer)])
    for number in range(3):
        lose_answer()
        batch = [chunk(writer, str(number), append=number > 0)]
        with pytest.raises(OperationalError):
            event_log.append(writer, batch)
        event_log.append(writer, batch)
    assert folded(bodies(writer))[0]["parts"] == [{"text": "0"}, {"text": "1"}, {"text": "2"}]


@committed
def test_a_commit_that_failed_is_made_again(begin, monkeypatch):
    writer = begin()

    def broken():
        monkeypatch.undo()
        raise OperationalError("the connection broke")

    monkeypatch.setattr(connection, "commit", broken)
    with pytest.raises(OperationalError):
        event_log.append(writer, [said_task(writer, COMPLETED)], end=End(writer.turn.pk))
    assert bodies(writer) == []
    event_log.append(writer, [said_task(writer, COMPLETED)], end=End(writer.turn.pk))
    assert kinds(writer) == ["task"]


# --- races


def together(*functions):
    """Calls the functions at the same moment, each in a thread; what each returned or raised."""
    barrier = threading.Barrier(len(functions), timeout=PATIENCE)
    results = [None] * len(functions)

    def run(index, function):
        try:
            connection.ensure_connection()
            barrier.wait()
            results[index] = function()
        except Exception as error:
            results[index] = error
        finally:
            connections.close_all()

    threads = [threading.Thread(target=run, args=item) for item in enumerate(functions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    return results


@committed
def test_append_against_cancel(begin):
    """CASES 51: whatever ends a task first wins; the log has one terminal event, and no hole."""
    for number in range(30):
        writer = begin()
        event_log.append(writer, [said_task(writer, WORKING)])
        canceller = event_log.writer(stored(writer))

        def run(writer=writer, number=number):
            for step in range(number % 5):
                event_log.append(writer, [chunk(writer, str(step), append=step > 0)])
            event_log.append(writer, [said_status(writer, COMPLETED)], end=End(writer.turn.pk))
            return "completed"

        def cancel(canceller=canceller):
            event_log.append(canceller, [said_status(canceller, CANCELED)], release=True)
            return "canceled"

        results = together(run, cancel)
        (winner,) = (result for result in results if isinstance(result, str))
        (loser,) = (result for result in results if not isinstance(result, str))
        assert isinstance(loser, FencedError)
        log, task = bodies(writer), stored(writer)
        states = [body["statusUpdate"]["status"]["state"] for body in log if "statusUpdate" in body]
        assert states == [task.state] == [f"TASK_STATE_{winner.upper()}"]
        assert [body for body in log if "statusUpdate" in body] == log[-1:]
        event_log.fold(task.pk)
        assert rows(writer) == folded(log)
        texts = [part["text"] for artifact in folded(log) for part in artifact["parts"]]
        assert texts == [str(step) for step in range(len(texts))]


@committed
def test_writers_with_one_lease_share_the_log(begin):
    """The runner and a waiting call: neither overwrites the other, both go on."""
    writer = begin()
    event_log.append(writer, [said_task(writer, WORKING)])
    others = [event_log.writer(stored(writer)) for _ in range(3)]

    def write(other, name):
        for step in range(10):
            event_log.append(other, [chunk(other, f"{name}{step}", name, append=step > 0)])

    results = together(
        *(lambda other=other, name=name: write(other, name) for other, name in zip(others, "xyz", strict=True))
    )
    assert results == [None] * 3
    event_log.fold(writer.task_id)
    for artifact in rows(writer):
        name = artifact["artifactId"]
        assert [part["text"] for part in artifact["parts"]] == [f"{name}{step}" for step in range(10)]
    assert len(bodies(writer)) == 31


# --- folding


class Babbler:
    """Says random things that keep the contract."""

    def __init__(self, writer, seed):
        self.writer, self.random, self.begun, self.count = writer, random.Random(seed), set(), 0

    def say(self, most):
        return [self.one() for _ in range(self.random.randint(1, most))]

    def one(self):
        self.count += 1
        if self.random.random() < 0.15:
            return said_status(self.writer, WORKING, self.random.choice([None, f"m{self.count}"]))
        name = self.random.choice("abcd")
        append = name in self.begun and self.random.random() < 0.8
        self.begun.add(name)
        fields = {} if append else {"name": f"artifact {name} {self.count}"}
        if self.random.random() < 0.3:
            fields["metadata"] = {self.random.choice("xy"): self.count}
        return chunk(self.writer, f"{self.count}", name, append=append, **fields)

    def task(self):
        self.begun.add("a")
        return said_task(self.writer, artifacts=[{"artifactId": "a", "parts": [{"text": "first"}]}])


@pytest.mark.parametrize("seed", range(12))
def test_a_fold_of_the_whole_log_is_the_rows(begin, monkeypatch, seed):
    """Whatever is said, in whatever batches, folded whenever: the snapshot is the fold of the log at every step."""
    monkeypatch.setattr(batches, "FOLD_AT_ONCE", [0, 5, 1000][seed % 3])
    writer = begin()
    babbler = Babbler(writer, seed)
    if seed % 2:
        event_log.append(writer, [babbler.task()])
    for _ in range(15):
        event_log.append(writer, babbler.say(most=6))
        assert snapshot(writer)["artifacts"] == folded(bodies(writer))
        if babbler.random.random() < 0.25:
            event_log.fold(writer.task_id)
            assert rows(writer) == folded(bodies(writer))
            assert snapshot(writer)["artifacts"] == folded(bodies(writer))
    event_log.append(writer, [*babbler.say(most=3), said_status(writer, COMPLETED)], end=End(writer.turn.pk))
    assert stored(writer).folded_sequence == stored(writer).last_sequence
    assert rows(writer) == folded(bodies(writer)) == snapshot(writer)["artifacts"]
    before = _all_rows()
    event_log.fold(writer.task_id)
    assert _all_rows() == before


def test_a_small_first_turn_writes_its_artifacts_with_its_end(begin, django_assert_max_num_queries):
    """One transaction, and nothing is read back from the log."""
    writer = begin()
    batch = [
        said_task(writer),
        *(chunk(writer, str(n), append=n > 0) for n in range(50)),
        said_status(writer, COMPLETED),
    ]
    inserts = -(-len(batch) // (statements.FEW // len(Event._meta.concrete_fields)))
    with django_assert_max_num_queries(5 + inserts) as captured:
        event_log.append(writer, batch, end=End(writer.turn.pk))
    assert not [query for query in captured if query["sql"].startswith("SELECT")]
    assert rows(writer) == folded(bodies(writer))
    assert stored(writer).folded_sequence == 52


def test_many_chunks_are_folded_after_the_end(begin):
    writer = begin()
    event_log.append(writer, [said_task(writer)])
    count = batches.FOLD_AT_ONCE + 50
    for start in range(0, count, 50):
        event_log.append(writer, [chunk(writer, str(n), append=n > 0) for n in range(start, start + 50)])
    assert rows(writer) == []
    event_log.append(writer, [said_status(writer, COMPLETED)], release=True)
    assert rows(writer) == folded(bodies(writer))
    assert "".join(part["text"] for part in rows(writer)[0]["parts"]) == "".join(map(str, range(count)))


def test_a_later_turn_adds_to_the_artifacts_of_an_earlier_one(begin):
    """CASES 42: no artifact is lost."""
    first = begin()
    input_required = said_status(first, TaskState.INPUT_REQUIRED)
    event_log.append(first, [said_task(first), chunk(first, "1"), chunk(first, "1", "b"), input_required], release=True)
    second = event_log.writer(stored(first))
    event_log.append(second, [chunk(second, "2", append=True)])
    event_log.append(second, [chunk(second, "3", "c"), said_status(second, COMPLETED)], release=True)
    assert rows(second) == folded(bodies(second)) == snapshot(second)["artifacts"]
    assert [artifact["artifactId"] for artifact in rows(second)] == ["a", "b", "c"]


def test_an_event_is_folded_once():
    """Whoever meets it again, in rows that are newer than he thought, changes nothing."""
    found = {}
    said = [{"artifact": {"artifactId": "a", "parts": [{"text": "1"}]}}]
    said.append({"artifact": {"artifactId": "a", "parts": [{"text": "2"}], "metadata": {"x": 1}}, "append": True})
    for sequence, data in [*enumerate(said, 1), *enumerate(said, 1)]:
        snapshots.merge(found, sequence, Kind.ARTIFACT, data)
    assert found["a"].data == {"artifactId": "a", "parts": [{"text": "1"}, {"text": "2"}], "metadata": {"x": 1}}
    assert found["a"].through == 2


@committed
def test_one_folder_works_at_a_time(begin):
    for _ in range(10):
        writer = begin()
        babbler = Babbler(writer, 1)
        event_log.append(writer, babbler.say(most=40))
        results = together(*[lambda writer=writer: event_log.fold(writer.task_id)] * 3)
        assert results == [None] * 3
        assert rows(writer) == folded(bodies(writer))


# --- readers


@committed
def test_a_snapshot_is_never_wrong_while_events_come_and_are_folded(begin):
    """As sketches/fold_race.py: rows and tail belong to one moment, and nothing is missing, double or ahead."""
    writer = begin()
    event_log.append(writer, [said_task(writer)])
    over, wrong, reads = threading.Event(), [], []

    def write():
        begun, dice = set(), random.Random(1)
        try:
            for number in range(2, 302):
                name = dice.choice("abcd")
                event_log.append(writer, [chunk(writer, str(number), name, append=name in begun)])
                begun.add(name)
                if number % 7 == 0:
                    event_log.fold(writer.task_id)
        finally:
            over.set()

    def read():
        last = 0
        while not over.is_set():
            found = snapshots.snapshot(Task.objects.get(pk=writer.task_id))
            numbers = [int(part["text"]) for artifact in found.artifacts for part in artifact["parts"]]
            upto = found.task.last_sequence
            if sorted(numbers) != list(range(2, upto + 1)) or upto < last:
                wrong.append((upto, sorted(numbers)))
            last = upto
            reads.append(last)

    assert together(write, read, read) == [None] * 3
    assert wrong == []
    assert len(set(reads)) > 10, "the readers saw too little to tell"


def test_a_fold_between_task_and_rows_makes_a_reader_look_again(begin, monkeypatch):
    """The same as above, but at the very moment: the row at hand is older than the artifacts."""
    writer = begin()
    event_log.append(writer, [said_task(writer), chunk(writer, "1"), chunk(writer, "2", append=True)])
    old = stored(writer)
    event_log.append(writer, [chunk(writer, "3", append=True), chunk(writer, "4", "b")])
    event_log.fold(writer.task_id)
    found = snapshots.snapshot(old)
    assert found.task.last_sequence == 5
    assert found.artifacts == folded(bodies(writer))


def test_a_snapshot_tells_nothing_that_came_after_its_row(begin):
    writer = begin()
    event_log.append(writer, [said_task(writer), said_status(writer, WORKING, "one"), chunk(writer, "1")])
    old, before = stored(writer), snapshot(writer)
    later = [
        said_status(writer, WORKING, "two"),
        said_status(writer, WORKING, "three"),
        chunk(writer, "2", append=True),
    ]
    event_log.append(writer, later)
    assert json.loads(snapshots.snapshot(old).text(artifacts=True)) == before


def test_a_snapshot_of_many_tasks_is_as_right_as_of_one(begin, django_assert_max_num_queries):
    writers = [begin() for _ in range(5)]
    for number, writer in enumerate(writers):
        event_log.append(writer, [said_task(writer), *Babbler(writer, number).say(most=20)])
        if number % 2:
            event_log.fold(writer.task_id)
            event_log.append(writer, [chunk(writer, "tail", "a"), chunk(writer, "x", append=True)])
    tasks = list(Task.objects.order_by("pk"))
    with django_assert_max_num_queries(3):
        found = snapshots.snapshots(tasks)
    for item in found:
        log = [json.loads(body) for body in item.task.events.values_list("body", flat=True)]
        assert item.artifacts == folded(log)
        assert item.history == [
            json.loads(body) for body in item.task.messages.filter(event_sequence=0).values_list("body", flat=True)
        ]


# --- cost


def test_what_is_folded_is_not_read_again(begin):
    """CASES 46: neither by readers nor by the next fold."""
    writer = begin()
    event_log.append(writer, [said_task(writer), chunk(writer, "1")])
    event_log.fold(writer.task_id)
    Event.objects.update(body="nobody can read this")
    event_log.append(writer, [chunk(writer, "2", append=True)])
    assert snapshot(writer)["artifacts"] == [{"artifactId": "a", "parts": [{"text": "1"}, {"text": "2"}]}]
    event_log.fold(writer.task_id)
    assert rows(writer) == snapshot(writer)["artifacts"]


class Meter:
    """An execute wrapper that counts statements, and the bytes that are written."""

    def __init__(self):
        self.statements = self.written = 0

    def __call__(self, execute, sql, params, many, context):
        self.statements += 1
        if not sql.startswith("SELECT"):
            self.written += len(repr(params))
        return execute(sql, params, many, context)


def test_the_cost_of_a_stream_is_linear(begin):
    """CASES 46: four times the chunks cost four times the bytes and statements, with the fold at the end."""
    cost = {}
    for count in (500, 2000):
        writer, meter = begin(), Meter()
        with connection.execute_wrapper(meter):
            event_log.append(writer, [said_task(writer)])
            for start in range(0, count, 5):
                event_log.append(writer, [chunk(writer, f"{n:020}", append=n > 0) for n in range(start, start + 5)])
            event_log.append(writer, [said_status(writer, COMPLETED)], end=End(writer.turn.pk))
        cost[count] = meter
        expected = [{"text": f"{n:020}"} for n in range(count)]
        assert snapshot(writer)["artifacts"] == [{"artifactId": "a", "parts": expected}]
        assert len(rows(writer)) == 1
    assert cost[2000].written <= 4.5 * cost[500].written
    assert cost[2000].statements <= 4.5 * cost[500].statements
    assert cost[2000].written < 2000 * 1000


def test_each_transaction_begins_with_a_write(begin):
    """One that begins with a read fails on SQLite with "database is locked" when another writes meanwhile."""
    writer = begin()
    for work in (
        lambda: event_log.append(writer, [said_task(writer), chunk(writer, "1")]),
        lambda: event_log.fold(writer.task_id),
        lambda: event_log.append(writer, [said_status(writer, COMPLETED)], end=End(writer.turn.pk)),
    ):
        with CaptureQueriesContext(connection) as queries:
            work()
        verbs = [query["sql"].split()[0] for query in queries]
        assert next(verb for verb in verbs if verb != "SAVEPOINT") == "UPDATE"


def test_terminal_states_are_what_the_log_ends_at(begin):
    for state in TERMINAL:
        writer = begin()
        event_log.append(writer, [said_task(writer, TaskState(state))])
        assert writer.terminal
        with pytest.raises(FencedError):
            event_log.append(writer, [chunk(writer, "late")])

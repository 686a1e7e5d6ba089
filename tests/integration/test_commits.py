"""Group commit: turns of one process share their commits, and nothing else (DESIGN 4)."""

import asyncio
import threading
from dataclasses import replace

import pytest
from django.db import OperationalError, connection, connections
from django.test.utils import CaptureQueriesContext

from a2a_django import database, entries, event_log
from a2a_django.agents import claims, commits
from a2a_django.batches import FOLD_AT_ONCE, End
from a2a_django.event_log import Append, FencedError
from a2a_django.models import Artifact, Event, Message, Task, Turn
from a2a_django.models.event import Kind
from a2a_django.models.turn import TurnState
from a2a_django.protocol.states import TaskState

pytestmark = pytest.mark.django_db

PATIENCE = 20


@pytest.fixture
def begin(make_task):
    """begin(count): writers of new turns of new tasks, as claims have them; `writer.turn` is the turn."""

    def one(number):
        task = make_task(visible=False, lease=f"lease {number}")
        message = task.messages.get()
        turn = Turn.objects.create(task=task, message=message, state=TurnState.RUNNING)
        writer = claims.writer(task, turn.pk, message.message_id, message.body)
        writer.turn = turn
        return writer

    return lambda count: [one(number) for number in range(count)]


def status(writer, state=TaskState.WORKING):
    return entries.status(writer.task_id, writer.context_id, state)


def chunk(writer, text, *, append=False):
    artifact = {"artifactId": "a", "parts": [{"text": text}]}
    data = {"taskId": writer.task_id, "contextId": writer.context_id, "artifact": artifact, "append": append}
    return entries.entry(Kind.ARTIFACT, data)


def unwritable(writer):
    """An entry that no database takes."""
    return entries.Entry(Kind.ARTIFACT, chunk(writer, "x").data, "\ud800")


def kinds(writer):
    found = list(Event.objects.after(writer.task_id, 0).values_list("sequence", "kind"))
    assert [sequence for sequence, _ in found] == list(range(1, len(found) + 1))
    assert Task.objects.get(pk=writer.task_id).last_sequence == len(found)
    return [kind for _, kind in found]


def all_rows():
    return [list(model.objects.order_by("pk").values()) for model in (Task, Event, Message, Artifact, Turn)]


# --- append_together


def test_appends_of_several_tasks_are_one_transaction(begin):
    writers = begin(3)
    with CaptureQueriesContext(connection) as queries:
        event_log.append_together([Append(writer, [status(writer), chunk(writer, "1")]) for writer in writers])
    verbs = [query["sql"].split()[0] for query in queries if "SAVEPOINT" not in query["sql"]]
    assert verbs == ["UPDATE"] * 3 + ["INSERT"] * 2  # six events, of seven columns each: see statements.FEW
    for writer in writers:
        assert kinds(writer) == ["task", "statusUpdate", "artifactUpdate"]
        assert (writer.sequence, writer.visible) == (3, True)


def test_turns_end_together(begin):
    first, second, third = begin(3)
    said = [status(first), chunk(first, "1"), status(first, TaskState.COMPLETED)]
    appends = [
        Append(first, said, End(first.turn.pk)),
        Append(second, [], End(second.turn.pk, failed=True, answer={"type": "X", "message": "no", "data": None})),
        Append(third, [status(third)]),
    ]
    event_log.append_together(appends)
    assert [item.error for item in appends] == [None] * 3
    assert list(Turn.objects.order_by("pk").values_list("state", flat=True)) == ["done", "failed", "running"]
    assert [Task.objects.get(pk=writer.task_id).lease for writer in (first, second, third)] == ["", "", "lease 2"]
    assert [artifact.task_id for artifact in Artifact.objects.all()] == [first.task_id]
    assert Turn.objects.get(pk=second.turn.pk).answer["message"] == "no"


def test_one_that_is_fenced_off_hinders_no_other(begin):
    writers = begin(3)
    Task.objects.filter(pk=writers[1].task_id).update(lease="another's")
    appends = [Append(writer, [status(writer), chunk(writer, "1")]) for writer in writers]
    event_log.append_together(appends)
    assert [type(item.error) for item in appends] == [type(None), FencedError, type(None)]
    assert [len(kinds(writer)) for writer in writers] == [3, 0, 3]


def test_one_that_cannot_be_written_hinders_no_other(begin):
    writers = begin(3)
    appends = [Append(writer, [status(writer)]) for writer in writers]
    appends[1].said = [status(writers[1]), unwritable(writers[1])]
    event_log.append_together(appends)
    assert [item.error is None for item in appends] == [True, False, True]
    assert [len(kinds(writer)) for writer in writers] == [2, 0, 2]
    assert writers[1].sequence == 0


def test_one_that_was_made_visible_meanwhile_goes_on_behind(begin):
    writers = begin(2)
    other = event_log.writer(Task.objects.get(pk=writers[0].task_id))
    event_log.append(other, [entries.submitted(other.task_id, other.context_id, other.opening)])
    event_log.append_together([Append(writer, [status(writer)]) for writer in writers])
    assert [kinds(writer) for writer in writers] == [["task", "statusUpdate"]] * 2


def test_one_with_nothing_to_write_is_fine(begin):
    writers = begin(2)
    appends = [Append(writers[0], []), Append(writers[1], [status(writers[1])])]
    event_log.append_together(appends)
    assert [item.error for item in appends] == [None, None]
    assert [len(kinds(writer)) for writer in writers] == [0, 2]


@pytest.mark.django_db(transaction=True)
def test_a_lost_answer_to_the_commit_doubles_nothing(begin, monkeypatch):
    """Each finds its own events in the log."""
    writers = begin(3)
    commit = connection.commit

    def broken():
        monkeypatch.undo()
        commit()
        raise OperationalError("the connection broke")

    monkeypatch.setattr(connection, "commit", broken)
    event_log.append_together([Append(writer, [status(writer), chunk(writer, "1")]) for writer in writers])
    for writer in writers:
        assert kinds(writer) == ["task", "statusUpdate", "artifactUpdate"]
        event_log.append(writer, [chunk(writer, "2", append=True)])
        assert len(kinds(writer)) == 4


# --- commits.append


def begun(begin, count):
    """Writers of tasks whose artifact has begun."""
    writers = begin(count)
    for writer in writers:
        event_log.append(writer, [chunk(writer, "a")])
    return writers


@pytest.mark.vendor("postgresql")
def test_chunks_of_many_streams_take_one_statement(begin):
    """The same one, however many they are."""
    writers = begun(begin, 30)
    appends = [Append(writer, [chunk(writer, "b", append=True)]) for writer in writers]
    with CaptureQueriesContext(connection) as queries:
        event_log.append_together(appends)
    assert ["moved" in query["sql"] for query in queries] == [True]
    assert [item.error for item in appends] == [None] * 30
    for writer in writers:
        assert kinds(writer) == ["task", "artifactUpdate", "artifactUpdate"]
        assert writer.sequence == 3


def test_one_that_lost_its_task_does_not_keep_the_chunks_of_the_others(begin):
    writers = begun(begin, 4)
    Task.objects.filter(pk=writers[1].task_id).update(lease="another's")
    Task.objects.filter(pk=writers[2].task_id).update(state=TaskState.CANCELED)
    appends = [Append(writer, [chunk(writer, "b", append=True)]) for writer in writers]
    event_log.append_together(appends)
    assert [type(item.error) for item in appends] == [type(None), FencedError, FencedError, type(None)]
    assert [len(kinds(writer)) for writer in writers] == [3, 2, 2, 3]


def test_chunks_and_other_things_go_together(begin):
    writers = begun(begin, 5)
    said = [[chunk(writer, "b", append=True)] for writer in writers[:2]]
    said += [[chunk(writers[2], "b", append=True), chunk(writers[2], "c", append=True)], [status(writers[3])]]
    said += [
        [chunk(writers[4], text, append=True) for text in ("%s ' \\", '{"NULL",}', "NULL", "ä\t") for _ in range(25)]
    ]
    appends = [Append(writer, one) for writer, one in zip(writers, said, strict=True)]
    event_log.append_together(appends)
    assert [item.error for item in appends] == [None] * 5
    assert [len(kinds(writer)) for writer in writers] == [3, 3, 4, 3, 102]
    for writer, one in zip(writers, said, strict=True):
        stored = Event.objects.after(writer.task_id, 2).values_list("kind", "state", "body")
        assert list(stored) == [(entry.kind.value, entry.state, entry.text) for entry in one]


def test_after_a_lost_answer_nothing_is_written_twice(begin):
    """A second Task event adds messages and no event: no sequence tells that it is there."""
    [writer] = begun(begin, 1)
    said = {"messageId": "more", "role": "ROLE_AGENT", "parts": [{"text": "x"}]}
    task = {"id": writer.task_id, "contextId": writer.context_id, "history": [said]}
    again = entries.entry(
        Kind.TASK, {**task, "status": {"state": TaskState.WORKING, "timestamp": "2026-01-01T00:00:00Z"}}
    )
    tried = replace(writer, message_ids=set(writer.message_ids))
    event_log.append(tried, [again])
    writer.unsure = True
    other = begun(begin, 1)[0]
    event_log.append_together([Append(writer, [again]), Append(other, [chunk(other, "b", append=True)])])
    assert Message.objects.filter(task=writer.task_id, message_id="more").count() == 1
    assert not writer.unsure
    event_log.append(writer, [chunk(writer, "b", append=True)])
    assert kinds(writer) == ["task", "artifactUpdate", "artifactUpdate"]


@pytest.fixture
def held():
    """Keeps the thread that commits from working until `held.set()`."""
    release, begun = threading.Event(), threading.Event()

    def hold():
        begun.set()
        release.wait(PATIENCE)

    future = database.commits.submit(hold)
    assert begun.wait(PATIENCE)
    yield release
    release.set()
    future.result(PATIENCE)


async def in_thread(function, *args):
    """What `function(*args)` returns, called where the ORM may be used."""

    def call():
        try:
            return function(*args)
        finally:
            connections.close_all()

    return await asyncio.to_thread(call)


@pytest.mark.django_db(transaction=True)
class TestCommits:
    async def test_what_comes_while_a_commit_is_under_way_is_the_next_one(self, begin, held, monkeypatch):
        writers = await in_thread(begin, 5)
        groups, together = [], event_log.append_together

        def watched(taken):
            groups.append(len(taken))
            together(taken)

        monkeypatch.setattr(commits._appends, "_work", watched)
        waiting = [asyncio.create_task(commits.append(writer, [status(writer)], None)) for writer in writers]
        await asyncio.sleep(0)
        held.set()
        await asyncio.gather(*waiting)
        assert groups == [5]
        for writer in writers:
            assert await in_thread(kinds, writer) == ["task", "statusUpdate"]

    async def test_each_hears_of_its_own_error(self, begin, held):
        writers = await in_thread(begin, 3)
        await in_thread(Task.objects.filter(pk=writers[2].task_id).delete)
        said = [[status(writers[0])], [unwritable(writers[1])], [status(writers[2])]]
        calls = [commits.append(writer, one, None) for writer, one in zip(writers, said, strict=True)]
        waiting = [asyncio.create_task(call) for call in calls]
        await asyncio.sleep(0)
        held.set()
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(result) for result in results] == [type(None), UnicodeEncodeError, FencedError]

    async def test_one_who_gives_up_hinders_no_other(self, begin, held):
        """A turn that waited for the database as long as its lease lasts."""
        writers = await in_thread(begin, 3)
        gives_up, waits = (
            asyncio.create_task(commits.append(writer, [status(writer)], None)) for writer in writers[:2]
        )
        await asyncio.sleep(0)
        gives_up.cancel()
        await asyncio.wait({gives_up})
        held.set()
        await asyncio.wait_for(waits, PATIENCE)
        await asyncio.wait_for(commits.append(writers[2], [status(writers[2])], None), PATIENCE)
        for writer in writers[1:]:
            assert await in_thread(kinds, writer) == ["task", "statusUpdate"]

    async def test_many_chunks_are_folded_at_the_end(self, begin):
        [writer] = await in_thread(begin, 1)
        count = FOLD_AT_ONCE + 1
        said = [status(writer), *(chunk(writer, "x", append=n > 0) for n in range(count))]
        await commits.append(writer, said, None)
        await commits.append(writer, [status(writer, TaskState.COMPLETED)], End(writer.turn.pk))
        row = await in_thread(Artifact.objects.get)
        assert row.body.count('"x"') == count

    async def test_a_voice_is_heard_without_anybody_s_waiting(self, begin, voice):
        [writer] = await in_thread(begin, 1)
        speak, _ = voice(writer)
        speak.now(status(writer))
        speak.now(chunk(writer, "a"))
        await speak.heard(lambda: writer.sequence == 3)
        assert await in_thread(kinds, writer) == ["task", "statusUpdate", "artifactUpdate"]

    async def test_a_voice_falls_silent_when_its_last_words_are_written(self, begin, held, voice):
        [writer] = await in_thread(begin, 1)
        speak, woken = voice(writer)
        speak.now(status(writer))
        await asyncio.sleep(0)  # it asks for a commit, which can't begin
        assert speak.silence()
        held.set()
        await asyncio.to_thread(database.commits.submit(lambda: None).result, PATIENCE)
        assert (writer.sequence, woken.is_set()) == (0, False)
        speak.go_on()
        await speak.heard(lambda: writer.sequence == 2)

    async def test_a_voice_that_is_speaking_can_be_waited_for(self, begin, voice, monkeypatch):
        [writer] = await in_thread(begin, 1)
        speak, woken = voice(writer)
        begun, go_on, together = threading.Event(), threading.Event(), event_log.append_together

        def slowly(appends):
            begun.set()
            go_on.wait(PATIENCE)
            together(appends)

        monkeypatch.setattr(event_log, "append_together", slowly)
        speak.now(status(writer))
        await asyncio.to_thread(begun.wait, PATIENCE)
        assert not speak.silence()
        go_on.set()
        await asyncio.wait_for(woken.wait(), PATIENCE)
        assert speak.silence()
        assert writer.sequence == 2

    async def test_what_a_voice_could_not_have_written_is_kept(self, begin, voice, monkeypatch):
        [writer] = await in_thread(begin, 1)
        speak, woken = voice(writer)
        with monkeypatch.context() as patch:
            patch.setattr(event_log, "_commit", lambda planned: (_ for _ in ()).throw(OperationalError("gone")))
            speak.now(status(writer))
            await asyncio.wait_for(woken.wait(), PATIENCE)
        assert isinstance(speak.failed.error, OperationalError)
        assert [entry.kind for entry in speak.failed.said] == [Kind.STATUS]
        speak.now(chunk(writer, "a"))
        await asyncio.to_thread(database.commits.submit(lambda: None).result, PATIENCE)
        assert writer.sequence == 0, "it must not speak before it is told to"


@pytest.fixture
def voice():
    """voice(writer): a Voice that says what is given to `now`, and the event that its runner waits for."""

    def make(writer):
        said, woken = [], asyncio.Event()

        def take():
            taken = said[:]
            said.clear()
            return taken

        made = commits.Voice(writer, take, lambda: False, woken.set)

        def now(entry):
            said.append(entry)
            made.said()

        async def heard(condition):
            async with asyncio.timeout(PATIENCE):
                while not condition():  # noqa: ASYNC110 (its runner is not told of success)
                    await asyncio.sleep(0.01)

        made.now, made.heard = now, heard
        return made, woken

    return make

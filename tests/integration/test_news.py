"""Streams that look at the same time share their queries, and each gets what is its own (DESIGN 4)."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from a2a_django import entries, event_log
from a2a_django.models import Event, Turn
from a2a_django.models.event import Kind
from a2a_django.models.turn import TurnState
from a2a_django.operations import news
from a2a_django.protocol import errors
from a2a_django.protocol.states import TaskState

pytestmark = pytest.mark.django_db


@pytest.fixture
def logged(make_task):
    """logged(count, state, ended): a task with so many events, and a turn of it."""

    def make(count, *, state=TaskState.WORKING, ended=False):
        task = make_task(visible=True)
        writer = event_log.writer(task)
        said = [entries.status(task.pk, task.context_id, TaskState.WORKING) for _ in range(count - 2)]
        event_log.append(writer, [*said, entries.status(task.pk, task.context_id, state)])
        turn_state = TurnState.DONE if ended else TurnState.RUNNING
        turn = Turn.objects.create(task=task, message=task.messages.get(), state=turn_state)
        return task.pk, turn.pk

    return make


def looks(*asked, limit=news.CHUNK):
    return [news._Look(*one, limit=limit) for one in asked]


def outcome(looked):
    return [([sequence for sequence, _ in one.found], one.over) for one in looked]


def test_many_get_what_each_would_get_alone(logged):
    running, ended, terminal = logged(4), logged(3, ended=True), logged(5, state=TaskState.COMPLETED, ended=True)
    asked = [(running[0], 0, running[1]), (running[0], 2, running[1]), (running[0], 4, running[1])]
    asked += [(ended[0], 1, ended[1]), (ended[0], 3, ended[1]), (ended[0], 0, None)]
    asked += [(terminal[0], 2, None), (terminal[0], 5, None), (terminal[0], 0, terminal[1])]
    together, alone = looks(*asked), looks(*asked)
    news._look_together(together)
    for one in alone:
        news._look_together([one])
    assert outcome(together) == outcome(alone)
    assert outcome(together)[:6] == [
        ([1, 2, 3, 4], False),
        ([3, 4], False),
        ([], False),
        ([2, 3], True),
        ([], True),
        ([1, 2, 3], False),
    ]
    assert outcome(together)[6:] == [([3, 4, 5], True), ([], True), ([1, 2, 3, 4, 5], True)]


def test_a_stream_ends_with_the_last_event_of_its_turn(logged):
    """What a later turn has said meanwhile is that one's."""
    (task, turn), other = logged(5), logged(2)
    Turn.objects.filter(pk=turn).update(state=TurnState.DONE, end_sequence=3)
    asked = [(task, after, turn) for after in (0, 2, 3, 4)]
    together, alone = looks(*asked, (other[0], 0, other[1])), looks(*asked)
    news._look_together(together)
    for one in alone:
        news._look_together([one])
    assert outcome(alone) == outcome(together)[:4] == [([1, 2, 3], True), ([3], True), ([], True), ([], True)]


def test_the_texts_are_those_that_are_stored(logged):
    (first, turn), (second, _) = logged(2), logged(2)
    one, other = looks((first, 1, turn), (second, 1, None))
    news._look_together([one, other])
    for looked in (one, other):
        stored = Event.objects.get(task_id=looked.task_id, sequence=2)
        assert looked.found == [(2, stored.body)]


def test_readers_share_their_queries(logged):
    tasks = [logged(2) for _ in range(5)]
    asked = looks(*((task, 0, turn) for task, turn in tasks * 8))
    with CaptureQueriesContext(
        connection,
    ) as queries:
        news._look_together(asked)
    assert len(queries) == 2 * -(-40 // news.TOGETHER)
    assert all(one.found for one in asked)


def test_a_log_that_is_longer_than_one_look_is_read_on(logged):
    (long, turn), (short, _) = logged(8, ended=True), logged(2)
    asked = looks((long, 0, turn), (short, 0, None), (long, 5, turn), limit=3)
    news._look_together(asked)
    assert outcome(asked) == [([1, 2, 3], False), ([1, 2], False), ([6, 7, 8], False)]


def test_an_error_is_for_the_caller_of_its_turn_alone(make_task, logged):
    hidden = make_task(visible=False)
    answer = errors.store(errors.InvalidParamsError("no"))
    failed = Turn.objects.create(task=hidden, message=hidden.messages.get(), state=TurnState.FAILED, answer=answer)
    task, turn = logged(2)
    asked = looks((hidden.pk, 0, failed.pk), (task, 0, turn))
    news._look_together(asked)
    assert isinstance(asked[0].error, errors.InvalidParamsError)
    assert asked[1].error is None
    assert len(asked[1].found) == 2


def test_a_message_ends_the_stream_of_its_turn(make_task, logged):
    hidden = make_task(visible=False)
    turn = Turn.objects.create(task=hidden, message=hidden.messages.get(), state=TurnState.RUNNING)
    writer = event_log.writer(hidden)
    message = {"messageId": "a", "role": "ROLE_AGENT", "parts": [{"text": "hello"}]}
    event_log.append(writer, [entries.entry(Kind.MESSAGE, message)], end=event_log.End(turn.pk))
    asked = looks((hidden.pk, 0, turn.pk), (logged(2)[0], 0, None))
    news._look_together(asked)
    assert outcome(asked)[0] == ([1], True)


def test_more_than_a_chunk_that_came_with_the_end_is_read_to_its_end(logged, monkeypatch):
    task_id, turn_id = logged(8, state=TaskState.COMPLETED, ended=True)
    read, reads = news._read, []

    def nothing_at_first(asked):
        reads.append(asked.after)
        if len(reads) > 1:
            read(asked)

    monkeypatch.setattr(news, "_read", nothing_at_first)
    [asked] = looks((task_id, 0, turn_id), limit=3)
    news._look_together([asked])
    assert ([sequence for sequence, _ in asked.found], asked.over) == ([1, 2, 3], False)

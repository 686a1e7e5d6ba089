"""Statements that are compiled once do what the querysets do that they are made of."""

from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.db.models import F
from django.db.models.functions import Now

from a2a_django import statements
from a2a_django.models import Event, Message, Task, Turn
from a2a_django.models.event import Kind
from a2a_django.models.turn import TurnState
from a2a_django.statements import Select, Update

pytestmark = pytest.mark.django_db

MOMENT = datetime(2026, 1, 31, 12, 0, 0, 123_000, tzinfo=UTC)

BY_ID = Select(Task, lambda task_id: Task.objects.filter(pk=task_id).order_by())
SINCE = Select(
    Task,
    lambda moment, visible: (
        Task.objects.filter(status_timestamp__gte=moment, visible=visible)
        .order_by("status_timestamp")
        .values_list("pk", "status_timestamp", "visible", "lease_expires", "agent__slug")
    ),
)
STAMP = Update(
    Task,
    lambda task_id, moment, lease: (
        Task.objects.filter(pk=task_id),
        {"lease": lease, "lease_expires": moment, "last_sequence": F("last_sequence") + 1},
    ),
)


def test_rows_are_instances_like_any_other(make_task):
    task = make_task(lease_expires=MOMENT, metadata='{"a":1}')
    make_task()
    [found] = BY_ID.objects(task.pk)
    assert {**vars(found), "_state": None} == {**vars(Task.objects.get(pk=task.pk)), "_state": None}
    found.lease = "x"
    found.save()
    assert Task.objects.get(pk=task.pk).lease == "x"
    assert BY_ID.objects("another") == []


def test_values_are_python_s(make_task):
    """Times with their zone, booleans as such, null as None; on every database."""
    task = make_task(visible=False, status_timestamp=MOMENT)
    make_task(visible=False, status_timestamp=MOMENT - timedelta(milliseconds=1))
    make_task(visible=True)
    assert SINCE.rows(MOMENT, False) == [(task.pk, MOMENT, False, None, "test")]
    assert SINCE.rows(MOMENT, False)[0][2] is False
    assert SINCE.rows(MOMENT + timedelta(milliseconds=1), False) == []


def test_an_update_changes_and_counts_rows(make_task):
    task, other = make_task(), make_task()
    assert STAMP.run(task.pk, MOMENT, "a 'quoted' %s") == 1
    assert STAMP.run("another", MOMENT, "x") == 0
    task.refresh_from_db()
    assert (task.lease, task.lease_expires, task.last_sequence) == ("a 'quoted' %s", MOMENT, 2)
    assert STAMP.run(task.pk, None, "") == 1
    task.refresh_from_db()
    assert (task.lease, task.lease_expires, task.last_sequence) == ("", None, 3)
    assert Task.objects.get(pk=other.pk).last_sequence == 1


def test_the_sql_is_made_once(make_task):
    built = []

    def build(task_id):
        built.append(task_id)
        return Task.objects.filter(pk=task_id).values_list("pk")

    statement, task = Select(Task, build), make_task()
    for _ in range(3):
        assert statement.rows(task.pk) == [(task.pk,)]
    assert len(built) == 1


@pytest.mark.django_db(transaction=True)
def test_the_sql_outlives_its_connection(make_task):
    task = make_task()
    assert BY_ID.objects(task.pk) == [task]
    connection.close()
    assert BY_ID.objects(task.pk) == [task]


def test_rows_are_inserted_with_all_that_the_orm_fills_in(make_task):
    """More than fit into one statement."""
    task = make_task()
    count = statements.AT_ONCE + 2
    statements.insert([Event(task=task, sequence=n, kind=Kind.STATUS, body=f"%s ' {n}") for n in range(2, count + 2)])
    found = list(Event.objects.after(task.pk, 1))
    assert [(event.sequence, event.kind, event.state) for event in found] == [
        (n, "statusUpdate", "") for n in range(2, count + 2)
    ]
    assert found[0].body == "%s ' 2"
    assert datetime.now(UTC) - found[-1].created_at < timedelta(minutes=1)
    statements.insert([])


def test_one_row_gets_its_key(make_task):
    task = make_task()
    message = statements.insert_one(Message(task=task, message_id="m", role="ROLE_USER", body="{}"))
    assert Message.objects.get(message_id="m").pk == message.pk
    turn = Turn(task=task, message=message, request="{}", context={"state": {"a": [None]}}, state=TurnState.QUEUED)
    stored = Turn.objects.get(pk=statements.insert_one(turn).pk)
    assert (stored.context, stored.answer, stored.user) == ({"state": {"a": [None]}}, None, None)


def test_a_row_may_hold_the_database_s_time(make_task):
    task = make_task()
    made = Turn(task=task, message=task.messages.get(), request="{}", started_at=statements.raw(Now(), Turn))
    statements.insert_one(made)
    assert abs(datetime.now(UTC) - Turn.objects.get().started_at) < timedelta(minutes=1)

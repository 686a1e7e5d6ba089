"""What has been kept for long enough is deleted, and nothing else (CASES 82; A2A 13.4)."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from io import StringIO

import pytest
from asgiref.sync import async_to_sync
from django.core.exceptions import ValidationError
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.db.models.functions import Now
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from a2a_django import doorbell, event_log
from a2a_django.agents import claims, retention
from a2a_django.agents.retention import Purged
from a2a_django.models import Artifact, Event, Message, PushConfig, Task, Turn
from a2a_django.models.turn import TurnState
from a2a_django.operations import news
from a2a_django.protocol.errors import UnsupportedOperationError
from a2a_django.protocol.states import TERMINAL
from tests.clients import Error, artifact, kinds, message, state

pytestmark = pytest.mark.django_db(transaction=True)

DAY = 86_400.0
CHILDREN = (Message, Artifact, Event, Turn, PushConfig)


@pytest.fixture
def binding():
    """What is deleted is so for all of them."""
    return "rest"


@pytest.fixture
def aged():
    """aged(task id, days): the task and its turns as if all had happened so long ago."""

    def age(task_id, days):
        ago = Now() - timedelta(days=days)
        Task.objects.filter(pk=task_id).update(status_timestamp=ago, created_at=ago)
        Turn.objects.filter(task=task_id).update(created_at=ago, ended_at=ago)
        return task_id

    return age


@pytest.fixture
def make_old(make_task):
    """make_old(count, **fields): completed tasks of two days ago, which have no turns."""

    def make(count, **fields):
        ago = Now() - timedelta(days=2)
        tasks = [make_task(state="TASK_STATE_COMPLETED", **fields).pk for _ in range(count)]
        Task.objects.filter(pk__in=tasks).update(status_timestamp=ago, created_at=ago)
        return tasks

    return make


def purge():
    done = list(retention.purge())
    return Purged(sum(one.tasks for one in done), sum(one.events for one in done))


def rows(task_id):
    return [model.objects.filter(task=task_id).count() for model in CHILDREN]


def test_every_model_of_a_task_goes_with_it():
    assert {relation.related_model for relation in Task._meta.related_objects} == set(CHILDREN)


def test_to_delete_a_row_no_table_is_read_whole():
    """Databases look for what refers to each row that goes: every such column begins an index."""
    for model in CHILDREN:
        with connection.cursor() as cursor:
            found = connection.introspection.get_constraints(cursor, model._meta.db_table).values()
        indexed = {each["columns"][0] for each in found if each["index"] or each["unique"]}
        references = {field.column for field in model._meta.fields if field.related_model in (Task, *CHILDREN)}
        assert references <= indexed, model


def test_nothing_is_deleted_unless_asked_for(client, aged):
    aged(client.task("task artifact:a:b completed")["id"], 10_000)
    client.send("message:hi")
    Task.objects.update(created_at=Now() - timedelta(days=10_000))
    assert purge() == (0, 0)
    assert Task.objects.count() == 2


def test_ended_tasks_go_after_their_time(a2a, client, aged):
    """CASES 82: with all that is theirs; others stay as they are."""
    a2a(TASK_RETENTION=7 * DAY)
    old = aged(client.task("task artifact:a:b completed")["id"], 8)
    client.create_push(old, url="https://example.com/hook")
    recent = aged(client.task("task artifact:a:b completed")["id"], 6)
    waiting = aged(client.task("task input")["id"], 100)
    before = rows(recent), rows(waiting)
    assert purge() == (1, 3)
    assert rows(old) == [0] * len(CHILDREN)
    with pytest.raises(Error, match="TASK_NOT_FOUND"):
        client.get(old)
    assert (rows(recent), rows(waiting)) == before
    assert purge() == (0, 0)


def test_what_still_runs_stays(a2a, client, gate, aged, said):
    a2a(TASK_RETENTION=0, IDEMPOTENCY_SECONDS=0)
    task = client.task("task working wait:x completed", returnImmediately=True)["id"]
    gate("x").reached()
    said(task, 2)
    aged(task, 100)
    assert purge() == (0, 0)
    gate("x").open()


def test_a_status_of_long_ago_makes_no_task_old(a2a, client):
    """Executors may give any time."""
    a2a(TASK_RETENTION=DAY)
    task = client.task("task completed")["id"]
    Task.objects.update(status_timestamp=Now() - timedelta(days=1000))
    assert purge() == (0, 0)
    Task.objects.update(created_at=Now() - timedelta(days=1000))
    assert purge() == (0, 0), "its turn ended just now"
    assert state(client.get(task)) == "COMPLETED"


def test_answers_without_a_task_stay_as_long_as_they_join_a_repeated_send(a2a, make_client, make_user, aged):
    make_user("ann")
    a2a(TASK_RETENTION=0, IDEMPOTENCY_SECONDS=DAY)
    client = make_client().as_("ann")
    client.send("message:hi")
    hidden = aged(Task.objects.get(visible=False).pk, 0.5)
    assert purge() == (0, 0)
    aged(hidden, 2)
    assert purge() == (1, 1)


def test_a_tenant_s_own_retention_goes_before_the_site_s(a2a, client, make_tenant, aged):
    a2a(TASK_RETENTION=7 * DAY)
    make_tenant("short", task_retention=DAY)
    make_tenant("long", task_retention=1000 * DAY)
    make_tenant("plain")
    tasks = {slug: client.within(slug).task("task completed")["id"] for slug in ("short", "long", "plain")}
    tasks["none"] = client.task("task completed")["id"]
    for task in tasks.values():
        aged(task, 2)
    purge()
    assert not Task.objects.filter(pk=tasks["short"]).exists()
    for task in tasks.values():
        Task.objects.filter(pk=task).exists() and aged(task, 8)
    purge()
    assert list(Task.objects.values_list("pk", flat=True)) == [tasks["long"]]
    a2a(TASK_RETENTION=None)
    aged(tasks["long"], 1001)
    assert purge().tasks == 1


def test_tenants_with_times_of_their_own_cost_no_more_walks(a2a, make_agent, make_tenant, make_old):
    a2a(TASK_RETENTION=DAY)
    agent = make_agent()

    def statements(*slugs):
        for slug in slugs:
            make_old(2, agent=agent, tenant=make_tenant(slug, task_retention=DAY + len(slug)))
        with CaptureQueriesContext(connection) as queries:
            assert purge().tasks == 2 * len(slugs)
        return len(queries)

    assert statements("a") == statements("bb", "ccc", "dddd", "eeeee")


@pytest.mark.parametrize("ever", [1e11, 1e300])
def test_a_time_beyond_what_databases_can_count_keeps_nobody_from_purging(a2a, make_agent, make_tenant, make_old, ever):
    a2a(TASK_RETENTION=DAY, EVENT_RETENTION=ever)
    agent = make_agent()
    [kept] = make_old(1, agent=agent, tenant=make_tenant(task_retention=ever))
    make_old(1, agent=agent)
    assert purge().tasks == 1
    assert Task.objects.get().pk == kept


def test_no_tenant_says_less_than_nothing(make_tenant):
    """Staff who think that -1 is for ever are told so, and lose nothing."""
    with pytest.raises(ValidationError) as caught:
        make_tenant(task_retention=-1, event_retention=-1).full_clean()
    assert set(caught.value.message_dict) == {"task_retention", "event_retention"}


def test_events_go_and_the_task_stays_as_it_was(a2a, client, aged):
    a2a(EVENT_RETENTION=DAY)
    task = client.task("task artifact:a:b status:thinking artifact:a:c:append completed:done")["id"]
    aged(task, 2)
    before = client.get(task)
    count = Event.objects.count()
    assert purge() == (0, count)
    assert client.get(task) == before
    assert purge() == (0, 0)


def test_events_that_are_no_artifacts_yet_are_folded_first(a2a, client, aged):
    a2a(EVENT_RETENTION=DAY)
    task = client.task("task artifact:a:b completed")["id"]
    aged(task, 2)
    Artifact.objects.all().delete()
    Task.objects.update(folded_sequence=0)
    purge()
    assert artifact(client.get(task)) == "b"
    assert not Event.objects.exists()


def test_a_stream_whose_rest_is_not_kept_resumes_with_the_task(a2a, make_client, make_user, aged):
    """Nothing is left out in silence: the Task has it all."""
    make_user("ann")
    client = make_client().as_("ann")
    request = message("task artifact:a:b completed")
    client.stream(request).all()
    task = Task.objects.get()
    a2a(EVENT_RETENTION=DAY, AUTHENTICATION_CLASSES=["tests.clients.BearerName"])
    aged(task.pk, 2)
    purge()
    for again in (client.subscribe(task.pk, last="2"), client.stream(request, last="2")):
        [event] = list(again)
        assert event.data["task"] == client.get(task.pk)
        assert event.id == task.last_sequence
    assert client.subscribe(task.pk, last=str(task.last_sequence)).all() == []


def test_an_answer_without_a_task_goes_with_its_event(a2a, make_client, make_user, aged):
    """Nothing else would be left of it. Who resumes its stream is told so, also while it is being deleted."""
    make_user("ann")
    client = make_client().as_("ann")
    request = message("message:hi")
    client.stream(request).all()
    a2a(EVENT_RETENTION=DAY, AUTHENTICATION_CLASSES=["tests.clients.BearerName"])
    hidden = aged(Task.objects.get(visible=False).pk, 2)
    assert command("--dry-run") == "1 tasks and 1 events would be deleted\n"
    Event.objects.all().delete()
    with pytest.raises(Error, match="not kept any more"):
        client.stream(request, last="0").all()
    Event.objects.create(task_id=hidden, sequence=1, kind="message", body="{}")
    assert purge() == (1, 1)
    with pytest.raises(Error, match="Last-Event-ID"):
        client.stream(request, last="0").all()
    assert kinds([event.data for event in client.stream(request)]) == ["message"]


@pytest.mark.parametrize("kept", [0, 2], ids=["all of them", "the first of them"])
def test_a_stream_whose_events_are_deleted_meanwhile_says_so(client, kept):
    """Between one look of a slow reader and the next."""
    task = client.task("task artifact:a:b artifact:c:d artifact:e:f completed")["id"]
    events = Event.objects.filter(task=task)
    (events.filter(sequence__lte=kept + 2) if kept else events).delete()
    with pytest.raises(UnsupportedOperationError, match="not kept any more"):
        async_to_sync(news.look)(task, 2, Turn.objects.get().pk, TERMINAL, 500)
    with pytest.raises(UnsupportedOperationError, match="not kept any more"):
        async_to_sync(news.look)(task, 2, None, TERMINAL, 500)


def test_many_tasks_and_events_go_in_portions(a2a, make_old, monkeypatch):
    a2a(TASK_RETENTION=DAY)
    monkeypatch.setattr(retention, "AT_ONCE", 3)
    make_old(7)
    done = list(retention.purge())
    assert [one.tasks for one in done] == [3, 3, 1]
    assert not Task.objects.exists()


def test_the_work_grows_with_the_portions_and_not_with_the_rows(a2a, make_old):
    a2a(TASK_RETENTION=DAY)

    def statements(count):
        make_old(count)
        with CaptureQueriesContext(connection) as queries:
            assert purge().tasks == count
        return len(queries)

    assert statements(2) == statements(40)


@pytest.mark.parametrize(
    "work", [async_to_sync(retention._purge), retention.run_purge], ids=["the keeper's duty", "Celery's job"]
)
def test_processes_purge_by_themselves(a2a, client, aged, work):
    a2a(TASK_RETENTION=DAY)
    for _ in range(3):
        aged(client.task("task completed")["id"], 2)
    work()
    assert not Task.objects.exists()


def test_many_processes_purge_at_once(a2a, make_old, monkeypatch):
    """Each row is deleted once, and nobody fails."""
    a2a(TASK_RETENTION=DAY)
    monkeypatch.setattr(retention, "AT_ONCE", 5)
    make_old(40)
    together = threading.Barrier(4)

    def process():
        together.wait(20)
        try:
            return purge()
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as pool:
        done = [call.result(60) for call in [pool.submit(process) for _ in range(4)]]
    assert (sum(one.tasks for one in done), sum(one.events for one in done)) == (40, 80)
    assert not Task.objects.exists()


# --- one person's


def command(*arguments):
    out = StringIO()
    call_command("a2a_purge", *arguments, stdout=out)
    return out.getvalue()


def test_all_tasks_of_one_person_are_deleted(make_client, make_user, gate, said):
    """Live ones too: the executor is stopped, who waits is told, and nothing is written afterwards."""
    ann, ben = make_user("ann"), make_user("ben")
    client = make_client()
    for user in ("ann", "ben"):
        client.as_(user).task("task artifact:a:b completed")
        client.as_(user).task("task input")
    waits = client.as_("ann").sending("task working wait:x artifact:a:b completed")
    gate("x").reached()
    live = Task.objects.exclude(lease="").get()
    said(live.pk, 2)
    stream = client.as_("ann").subscribe(live.pk)
    assert kinds([next(stream).data]) == ["task"]
    assert "3 tasks and" in command("--user", "ann", "--dry-run")
    assert Task.objects.count() == 5
    assert command("--user", "ann").startswith("3 tasks and")
    with pytest.raises(Error, match="TASK_NOT_FOUND"):
        waits()
    with pytest.raises(Error, match="TASK_NOT_FOUND"):
        stream.all()
    gate("x").open()
    assert set(Task.objects.values_list("owner", flat=True)) == {str(ben.pk)}
    for model in CHILDREN:
        assert not model.objects.exclude(task__owner=str(ben.pk)).exists()
    ann.refresh_from_db()


def test_a_user_may_be_named_by_key_also_when_the_account_is_gone(make_client, make_user):
    ann = make_user("ann")
    client = make_client().as_("ann")
    client.task("task completed")
    key = str(ann.pk)
    assert command("--user", key, "--dry-run").startswith("1 tasks")
    ann.delete()
    assert command("--user", key).startswith("1 tasks")
    assert command("--user", "nobody").startswith("0 tasks")


@pytest.mark.parametrize(
    ("arguments", "error"), [(["--user", ""], "is empty"), (["--user", "ann", "--abandoned", "5"], "not allowed with")]
)
def test_a_user_who_is_not_named_loses_nothing(client, arguments, error):
    """The scope of anonymous callers has no name either."""
    client.task("task completed")
    with pytest.raises(CommandError, match=error):
        command(*arguments)
    assert Task.objects.count() == 1


@pytest.mark.vendor("postgresql", "mysql")
def test_live_tasks_are_closed_one_by_one(make_task):
    """An append that holds one of them, and wants another, finds it free: else both would wait for each other."""
    first, second = sorted(make_task(state="TASK_STATE_WORKING").pk for _ in range(2))
    Task.objects.update(status_timestamp=Now())

    def erase():
        try:
            return sum(one.tasks for one in retention.erase(Task.objects.all()))
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            Task.objects.filter(pk=second).update(crowded=True)
            erasing = pool.submit(erase)
            assert closed(first)
            assert Task.objects.filter(pk=first).update(crowded=True) == 1
        assert erasing.result(60) == 2


def closed(task_id):
    """Whether others see it closed before long; in a thread with a connection of its own."""

    def look():
        deadline = time.monotonic() + 20
        try:
            while Task.objects.filter(pk=task_id, visible=True).exists():
                if time.monotonic() > deadline:
                    return False
                time.sleep(0.01)
            return True
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(look).result()


def test_staff_delete_a_task_that_runs(client, gate, said, admin_client):
    """Its executor is stopped, and who follows it is told at once."""
    task = client.task("task working wait:x artifact:a:b completed", returnImmediately=True)["id"]
    gate("x").reached()
    said(task, 2)
    stream = client.subscribe(task)
    next(stream)
    url = reverse("admin:a2a_django_task_delete", args=[task])
    assert admin_client.post(url, {"post": "yes"}).status_code == 302
    with pytest.raises(Error, match="TASK_NOT_FOUND"):
        stream.all()
    gate("x").open()
    assert rows(task) == [0] * len(CHILDREN)


def test_a_turn_that_waits_is_not_begun_while_its_task_is_deleted(make_task, monkeypatch):
    """Between the first statement and the last."""
    task = make_task(state="TASK_STATE_WORKING")
    turn = Turn.objects.create(task=task, message=task.messages.get(), state=TurnState.QUEUED)
    delete_events = retention._delete_events

    def with_a_worker(portion):
        assert claims.claim(turn.pk) is None
        return delete_events(portion)

    monkeypatch.setattr(retention, "_delete_events", with_a_worker)
    assert list(retention.erase(Task.objects.all())) == [(1, 2)]
    assert not Turn.objects.exists()


def test_no_reader_takes_the_deletion_for_the_end(client, monkeypatch):
    """One who looks between the first statement and the last."""
    task = client.task("task input")["id"]
    stream = client.subscribe(task)
    next(stream)
    delete_events = retention._delete_events

    def with_a_reader(portion):
        doorbell.ring(task)
        with pytest.raises(Error, match="TASK_NOT_FOUND"):
            stream.all()
        return delete_events(portion)

    monkeypatch.setattr(retention, "_delete_events", with_a_reader)
    assert [one.tasks for one in retention.erase(Task.objects.all())] == [1]


def test_readers_whom_no_ring_reaches_hear_of_the_deletion(a2a, client, monkeypatch):
    """The command is a process of its own, and a site may have no Redis."""
    a2a(LOOK_SECONDS=0.05)
    task = client.task("task input")["id"]
    stream = client.subscribe(task)
    next(stream)
    monkeypatch.setattr(doorbell, "ring", lambda *keys: None)
    assert [one.tasks for one in retention.erase(Task.objects.all())] == [1]
    with pytest.raises(Error, match="TASK_NOT_FOUND"):
        stream.all()


def test_a_repeated_send_whose_task_is_being_deleted(a2a, make_client, make_user):
    make_user("ann")
    client = make_client().as_("ann")
    request = message("task completed")
    client.send(request)
    Task.objects.update(visible=False)
    with pytest.raises(Error, match="TASK_NOT_FOUND"):
        client.send(request)


def test_what_is_added_at_the_last_moment_is_deleted_too(make_task, monkeypatch):
    task = make_task(state="TASK_STATE_WORKING")
    delete_events = retention._delete_events

    def with_a_late_event(portion):
        deleted = delete_events(portion)
        Event.objects.create(task=task, sequence=3, kind="statusUpdate", body="{}")
        return deleted

    monkeypatch.setattr(retention, "_delete_events", with_a_late_event)
    list(retention.erase(Task.objects.all()))
    assert not Task.objects.exists()
    assert not Event.objects.exists()


# --- abandoned


def test_abandoned_tasks_are_ended_on_demand(client, aged):
    """CASES 82: those who still listen hear of it."""
    waiting = client.task("task input")["id"]
    stream = client.subscribe(waiting)
    next(stream)
    recent = client.task("task input")["id"]
    aged(waiting, 40)
    assert "1 abandoned tasks would be ended" in command("--abandoned", str(30 * DAY), "--dry-run")
    assert "1 abandoned tasks ended" in command("--abandoned", str(30 * DAY))
    assert kinds(stream.all()) == ["FAILED"]
    assert state(client.get(waiting)) == "FAILED"
    assert state(client.get(recent)) == "INPUT_REQUIRED"
    assert "0 abandoned" in command("--abandoned", str(30 * DAY))


def test_one_whose_client_comes_back_goes_on(client, aged, monkeypatch):
    task = client.task("task input")
    aged(task["id"], 40)
    append = event_log.append

    def after_the_client(writer, *args, **kwargs):
        monkeypatch.undo()
        client.follow(task, "completed")
        append(writer, *args, **kwargs)

    monkeypatch.setattr(event_log, "append", after_the_client)
    assert retention.give_up(30 * DAY) == 0
    assert state(client.get(task["id"])) == "COMPLETED"

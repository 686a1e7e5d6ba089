"""What things cost: SQL statements, bytes, connections, threads; no times."""

import gc
import json
import threading

import pytest
from django.contrib.auth.models import Group
from django.db import connection
from django.db.models import F
from django.db.models.functions import Now

from a2a_django import database, doorbell, snapshots
from a2a_django.agents import loop
from a2a_django.models import AccessToken, Agent, Artifact, Event, Task
from tests.clients import Error, artifact, kinds, state
from tests.clients_grpc import CLIENTS

pytestmark = pytest.mark.parametrize("binding", ["rest"], indirect=True)


def test_a_stream_of_chunks_costs_in_proportion(client, statements, eventually):
    """CASES 46: four times the chunks, no more than five times the bytes; and far fewer statements than events."""
    costs = []
    for chunks in (500, 2000):
        statements.begin()
        events = client.stream(f"task chunks:{chunks} completed").all()
        task = client.get(events[0]["task"]["id"])
        assert artifact(task) == "".join(f"{count:019d} " for count in range(chunks))
        eventually(lambda: not Task.objects.filter(folded_sequence__lt=F("last_sequence")).exists())
        costs.append((statements.count, statements.bytes))

    (few, small), (many, large) = costs
    assert large <= 5 * small
    assert many <= 5 * few
    assert many < 1000


def test_chunks_that_come_one_by_one_are_not_looked_for(client, statements, gate, monkeypatch, a2a):
    """A ring brings them along, and so the Task and WORKING; who waits for the end of the turn isn't concerned."""
    monkeypatch.setattr(doorbell, "_listened", list)  # the keeper's own look is another matter
    a2a(HEARTBEAT_SECONDS=60)
    chunks = "".join(f"append:a:{number} wait:{number} " for number in range(5))
    stream = client.stream(f"task artifact:a:x {chunks} completed")
    first = [next(stream).data for _ in range(3)]  # the next brings what was rung for before
    gate("0").open()
    assert kinds([*first, next(stream).data]) == ["task", "artifactUpdate", "artifactUpdate", "artifactUpdate"]
    statements.count = 0
    for number in range(1, 4):
        gate(str(number)).open()
        next(stream)
    assert statements.count == 0
    gate("4").open()
    assert kinds(stream.all()) == ["COMPLETED"]

    statements.count = 0
    client.task("task chunks:50:0.01 completed")
    assert statements.count < 50

    statements.count = 0  # agent, SQLite's BEGIN, task, message, turn
    stream = client.stream("task working wait:end completed")
    assert kinds([next(stream).data, next(stream).data]) == ["task", "WORKING"]
    gate("end").reached()
    assert statements.count <= 5
    gate("end").open()
    assert kinds(stream.all()) == ["COMPLETED"]


def test_a_blocking_send_costs_few_statements(client, statements):
    """What the speed of a send rests on (DESIGN 4); a higher number needs a reason."""
    client.task("task artifact:a:b completed")
    statements.begin()
    client.task("task artifact:a:b completed")
    assert statements.count <= 25


def test_extensions_that_nobody_asks_for_cost_nothing(client, statements):
    """Neither those of the agent nor those of other agents."""
    extensions = Agent.objects.get().extensions

    def cost(one):
        return min(once(one) for _ in range(5))  # a reader may be rung twice

    def once(one):
        statements.begin()
        assert kinds(one.stream().all()) == ["task", "COMPLETED"]
        assert state(one.task()) == "COMPLETED"
        return statements.count

    without = [cost(client), cost(client.with_headers(A2A_Extensions="urn:other"))]
    extensions.create(uri="urn:a"), extensions.create(uri="urn:b")
    assert [cost(client), cost(client.with_headers(A2A_Extensions="urn:other"))] == without
    extensions.update(required=True)
    assert cost(client.with_headers(A2A_Extensions="urn:a, urn:b")) > without[0]  # what may be activated is looked for


def test_what_it_costs_to_be_somebody(site, binding, make_agent, make_user, make_token, statements):
    """One statement finds token, user and the token's agents; one more whether the user is in one of the groups."""
    agent, ann, root = make_agent(), make_user(), make_user("root", is_superuser=True)
    ann.groups.add(group := Group.objects.create(name="sales"))
    texts = [make_token(ann), make_token(ann, [agent, make_agent(slug="other")]), make_token(root)]
    AccessToken.objects.update(last_used_at=Now())
    anonymous = CLIENTS[binding](site)

    def cost(client):
        client.list()
        statements.begin()
        client.list()
        return statements.count

    clients = [anonymous.as_(text) for text in texts]
    free = cost(anonymous)
    assert [cost(client) - free for client in clients] == [1, 1, 1]
    agent.allowed_groups.add(group)
    assert [cost(client) - free for client in clients] == [2, 2, 1]


def test_what_limits_cost(make_client, make_tenant, statements, a2a):
    """Nothing where there are none; of running tasks one statement for each send, and none for what only reads."""
    client = make_client()
    free, limited = client.within(make_tenant().slug), client.within(make_tenant("other", running_tasks=100).slug)
    make_tenant("busy", requests_per_minute=10_000, open_streams=100, max_body_bytes=10_000)

    def cost(call):
        call()
        return min(once(call) for _ in range(5))  # a reader may be rung twice

    def once(call):
        statements.count = 0
        call()
        return statements.count

    sends = [cost(lambda one=one: one.task("task completed")) for one in (free, limited, client.within("busy"))]
    assert sends == [sends[0], sends[0] + 1, sends[0]]
    assert len({cost(one.list) for one in (free, limited, client.within("busy"))}) == 1
    bare = cost(lambda: client.task("task completed"))
    a2a(RUNNING_TASKS=100, AUTHENTICATION_CLASSES=[])
    assert cost(lambda: client.task("task completed")) == bare + 1


def test_what_it_costs_to_be_in_a_tenant(client, make_user, make_tenant, statements):
    """One statement, for members and others; nothing where none is named."""
    ann, group = make_user("ann"), Group.objects.create(name="sales")
    make_tenant("acme", members=[ann]), make_tenant("globex", members=[group]), make_tenant("open")
    ann.groups.add(group)

    def cost(client):
        client.list()
        statements.begin()
        client.list()
        return statements.count

    ann = client.as_("ann")
    assert [cost(ann.within(slug)) - cost(ann) for slug in ("acme", "globex", "open")] == [1, 1, 1]


def test_a_list_costs_the_same_however_long_it_is(client, statements):
    counts = []
    for _ in range(2):
        for _ in range(4):
            client.task("task artifact:a:b working:x completed:y")
        client.list()
        statements.begin()
        client.list(includeArtifacts=True)
        counts.append(statements.count)
    assert counts[0] == counts[1]


def test_folding_the_log_gives_the_rows(client, eventually):
    """DESIGN 4, for few events (folded with the end) and many (folded after it), over several turns."""
    for script in ("task artifact:a:1 append:a:2 artifact:b:x completed", "task chunks:700 artifact:b:x completed"):
        client.task(script)
    asked = client.task("task chunks:300 input:what?")
    client.follow(asked, "append:chunks:more artifact:b:new completed")

    eventually(lambda: not Task.objects.filter(folded_sequence__lt=F("last_sequence")).exists())
    for task in Task.objects.all():
        found = {}
        for event in Event.objects.filter(task=task, kind__in=("task", "artifactUpdate")).order_by("sequence"):
            snapshots.merge(found, event.sequence, event.kind, json.loads(event.body)[event.kind])
        rows = {row.artifact_id: json.loads(row.body) for row in Artifact.objects.filter(task=task)}
        assert {key: item.data for key, item in found.items()} == rows


# --- idle streams and waiting calls (CASES 58)


def test_idle_streams_and_waiting_sends_hold_no_thread_and_no_connection(client, gate, a2a):
    a2a(HEARTBEAT_SECONDS=0.05)
    client.task("task completed")
    before, waiting, streams = threading.active_count(), [], []
    for count in range(30):  # one after the other: only as many threads are needed as requests that Django has at once
        waiting.append(client.sending(f"task wait:{count} wait:a completed"))
        gate(str(count)).reached()
        streams.append(client.stream("task working wait:a completed"))
        assert kinds([next(streams[-1]).data, next(streams[-1]).data]) == ["task", "WORKING"]
        gate(str(count)).open()
    for stream in streams:
        stream.comment()

    assert threading.active_count() - before <= a2a_threads() + 2
    assert state(client.task("task completed")) == "COMPLETED"
    gate("a").open()
    assert all(state(call()["task"]) == "COMPLETED" for call in waiting)
    assert all(kinds(stream.all()) == ["COMPLETED"] for stream in streams)


def a2a_threads():
    """As many as our pools may have in all, and the one of Django's own."""
    return database.requests.executor._max_workers + database.log.executor._max_workers + 1


def test_nothing_listens_any_more_when_all_have_gone(client, gate, eventually, a2a):
    a2a(HEARTBEAT_SECONDS=3600)
    streams = [client.stream("task working wait:a completed") for _ in range(5)]
    for stream in streams:
        next(stream)
        stream.close()
    gate("a").open()
    eventually(lambda: all(state(task) == "COMPLETED" for task in client.list()["tasks"]))

    client.site.server.settle()
    eventually(lambda: gc.collect() >= 0 and doorbell._listened() == [])


# --- executors in their loops


def test_executors_run_at_the_same_time_in_one_thread(client, gate):
    pending = [client.sending(f"task wait:{count} completed") for count in range(20)]
    for count in range(20):
        gate(str(count)).reached()
    assert [thread.name for thread in threading.enumerate()].count("a2a-executors") == 1
    for count in range(20):
        gate(str(count)).open()
    assert all(state(call()["task"]) == "COMPLETED" for call in pending)


def test_executors_that_block_get_a_thread_each(make_client, gate, monkeypatch, eventually):
    from a2a_django.agents import registry
    from tests.executors import Script

    monkeypatch.setitem(registry._registered, "blocking", registry.Registration(Script, blocking=True))
    client = make_client()
    client.task("task completed")
    Task.objects.get().agent.__class__.objects.update(executor="blocking")
    pending = [client.sending(f"task working block:{count} agents artifact:a:b completed") for count in range(3)]
    for count in range(3):
        gate(str(count)).reached()
    # What was said before the blocking code is in the log while that runs.
    eventually(lambda: [state(task) for task in client.list()["tasks"]].count("WORKING") == 3)

    for count in range(3):
        gate(str(count)).open()
    assert all(state(call()["task"]) == "COMPLETED" for call in pending)


def test_an_executor_that_holds_the_shared_loop_is_named(client, gate, caplog, eventually, monkeypatch):
    monkeypatch.setattr(loop, "HELD_TOO_LONG", 0.05)
    client.task("task completed")
    pending = client.sending("task working block:a completed")
    eventually(lambda: "do_block" in caplog.text)

    assert state(client.task("task input:what?", returnImmediately=True)) == "SUBMITTED"
    gate("a").open()
    assert state(pending()["task"]) == "COMPLETED"


def test_the_executors_orm_leaves_no_connection_behind(make_client):
    """On PostgreSQL each would be one of the server's few."""
    client = make_client("UsesOrm")
    names = [thread.name for thread in threading.enumerate()]
    for _ in range(10):
        client.task("x")
    assert len(threading.enumerate()) <= len(names) + a2a_threads() + 2


# --- the store fails


@pytest.mark.vendor("sqlite")
def test_a_store_that_takes_no_events_fails_the_send(client, a2a):
    """CASES 47: no caller hangs because an append fails for good."""
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE TRIGGER refuse BEFORE INSERT ON a2a_django_event BEGIN SELECT RAISE(ABORT, 'hunter2'); END"
        )
    try:
        with pytest.raises(Error) as error:
            client.send("task completed")
        assert error.value.reason == "INTERNAL_ERROR"
        assert b"hunter2" not in error.value.response.body
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP TRIGGER refuse")

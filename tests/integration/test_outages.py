"""A database that locks, hangs up or goes away: what was accepted is done, once, and nobody hears more (issue 3.6)."""

import sqlite3
import threading
from contextlib import closing

import pytest
from django.db import OperationalError, connection, connections
from django.db.models import F

from a2a_django import database
from a2a_django.agents import dispatch
from a2a_django.models import Event, Task, Turn
from tests.client_fixtures import in_threads
from tests.clients import Error, kinds, state
from tests.integration.test_races import one_terminal_event, queued_turn

pytestmark = pytest.mark.parametrize("binding", ["rest"], indirect=True)

OTHERS = {
    "postgresql": "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()",
    "mysql": "SELECT id FROM information_schema.processlist WHERE db = database() AND id <> connection_id()",
}
KILL = {"postgresql": "SELECT pg_terminate_backend(%s)", "mysql": "KILL %s"}


def kill_connections():
    """Has the server end every connection to the tests' database but the one of this thread; how many there were."""
    with connection.cursor() as cursor:
        cursor.execute(OTHERS[connection.vendor])
        others = [row[0] for row in cursor.fetchall()]
        for other in others:
            cursor.execute(KILL[connection.vendor], [other])
    return len(others)


def warm(pool):
    """Has each thread of `pool` a connection."""
    barrier = threading.Barrier(pool.executor._max_workers)

    def work():
        barrier.wait(20)
        connection.ensure_connection()

    for call in [pool.submit(work) for _ in range(barrier.parties)]:
        call.result(20)


@pytest.mark.vendor("postgresql", "mysql")
def test_connections_that_the_server_ends(client, gate, said):
    """Turns, streams and waiting calls go on; of later calls one is told to come again, not one for each thread."""
    for pool in (database.requests, database.log, database.commits):
        warm(pool)
    sending = client.sending("task working wait:a artifact:a:b completed")
    gate("a").reached()
    task = Task.objects.get()
    said(task.pk, 2)
    stream = client.subscribe(task.pk, last=0)
    assert [next(stream).id, next(stream).id] == [1, 2]
    assert kill_connections() > 8
    statuses = [client.call("GET", f"/tasks/{task.pk}").response().status for _ in range(12)]
    assert statuses.count(503) <= 1
    assert set(statuses) <= {200, 503}
    gate("a").open()
    assert kinds(stream.all()) == ["artifactUpdate", "COMPLETED"]
    assert state(sending()["task"]) == "COMPLETED"
    assert one_terminal_event(task.pk) == "COMPLETED"


@pytest.fixture
def other(monkeypatch):
    """Another process' connection; ours wait no longer than 20 ms for its locks."""

    def reconnect():
        for pool in (database.requests, database.log, database.commits):
            in_threads(pool, connections.close_all)

    with monkeypatch.context() as patch:
        patch.setitem(connection.settings_dict["OPTIONS"], "timeout", 0.02)
        reconnect()
        with closing(sqlite3.connect(connection.settings_dict["NAME"], isolation_level=None)) as opened:
            yield opened
    reconnect()


@pytest.mark.vendor("sqlite")
def test_a_database_that_another_locks(client, gate, said, other, caplog, eventually):
    """What runs writes when it can, what only reads goes on, who would write is told to come again."""
    sending = client.sending("task working wait:a artifact:a:b completed")
    gate("a").reached()
    task = Task.objects.get()
    said(task.pk, 2)
    other.execute("BEGIN IMMEDIATE")
    gate("a").open()
    eventually(lambda: "Could not append to the log" in caplog.text)
    assert state(client.get(task.pk)) == "WORKING"
    for call in (client.send, lambda: client.cancel(task.pk)):
        with pytest.raises(Error) as error:
            call()
        assert (error.value.status, error.value.response.headers["retry-after"]) == (503, "5")
    other.execute("COMMIT")
    assert state(sending()["task"]) == "COMPLETED"
    assert one_terminal_event(task.pk) == "COMPLETED"
    assert Turn.objects.count() == 1


def test_a_claim_that_fails_is_made_again(client, a2a, no_broker, outage, eventually):
    """Else the turn would wait until recovery hands it on again."""
    turn = queued_turn(client, a2a)
    outage.begin()
    job = threading.Thread(target=dispatch.run_turn, args=[turn.pk])
    job.start()
    eventually(lambda: "a2a-log" in outage.hits)
    outage.end()
    job.join(20)
    assert one_terminal_event(turn.task_id) == "COMPLETED"
    assert Turn.objects.get().attempt == 1


def test_a_fold_that_fails_is_made_again(client, eventually):
    """The turn's end is written by then; it is neither written again nor fenced off."""
    failed = []

    def once(execute, sql, params, many, context):
        if not failed and sql.startswith("UPDATE") and "folded_sequence" in sql and "last_sequence" in sql:
            failed.append(sql)
            raise OperationalError("deadlock")
        return execute(sql, params, many, context)

    in_threads(database.log, lambda: connection.execute_wrappers.append(once))
    try:
        task = client.task("task chunks:300 completed")
        eventually(lambda: Task.objects.filter(folded_sequence=F("last_sequence")))
        assert failed
    finally:
        in_threads(database.log, lambda: connection.execute_wrappers.remove(once))
    assert Event.objects.filter(task=task["id"]).count() == 302
    assert len(client.get(task["id"])["artifacts"][0]["parts"]) == 300

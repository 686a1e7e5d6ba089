"""The indexes that the queries need are there and used: EXPLAIN on PostgreSQL (issue 2, point 3).

Where the suite runs on another database, `test_on_postgres` runs these tests, and all that is about what databases
do, in a pytest of its own on TEST_POSTGRES_URL.
"""

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from a2a.types import GetTaskRequest, ListTasksRequest
from django.db import connection
from django.db.models import F
from django.test.utils import CaptureQueriesContext

from a2a_django import operations
from a2a_django.agents import retention
from a2a_django.models import Artifact, Task, Turn
from a2a_django.models.turn import TurnState
from a2a_django.operations import news, quotas

TESTS = Path(__file__).parent.parent
ON_POSTGRES = [
    *("integration/test_queries.py", "integration/test_event_log.py", "integration/test_races.py"),
    *("integration/test_commits.py", "integration/test_retention.py", "integration/test_quotas.py"),
    *("unit/test_database.py", "unit/test_statements.py"),
]
on_postgres = pytest.mark.vendor("postgresql")


@pytest.mark.postgres
@pytest.mark.vendor("sqlite", "mysql")
def test_on_postgres(service_url):
    """CASES 18, 46, 51, 58: what holds on the suite's database holds on PostgreSQL."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *(TESTS / file for file in ON_POSTGRES)]
    environment = {**os.environ, "DATABASE_URL": service_url("postgres")}
    run = subprocess.run(
        command, check=False, env=environment, cwd=TESTS.parent, capture_output=True, text=True, timeout=600
    )
    print(run.stdout)
    assert run.returncode == 0, run.stdout[-5000:]
    assert "database: postgresql" in run.stdout


def multiply(template, count, **columns):
    """Makes `count` rows like `template`; `columns` are SQL, in which n is the number of the row."""
    table, names = template._meta.db_table, [field.column for field in template._meta.fields]
    if "id" not in columns:
        names.remove("id")
    values = ", ".join(columns.get(name, f"row.{name}") for name in names)
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {table} ({', '.join(names)}) SELECT {values} FROM {table} row, generate_series(1, {count}) n "
            f"WHERE row.id = '{template.pk}'"
        )
        cursor.execute(f"ANALYZE {table}")


@pytest.fixture
def crowd(make_agent, make_user, make_tenant, make_task):
    """Twenty thousand tasks of a hundred callers, and one of these: agent, user, and the tenant of half the tasks."""
    agent, user, tenant = make_agent(), make_user(), make_tenant()
    task = make_task(agent, owner="somebody", state="TASK_STATE_COMPLETED")
    artifact = Artifact.objects.create(task=task, artifact_id="a", body="{}", through=1)
    multiply(
        task,
        20_000,
        id="'task-' || n",
        folded_sequence="2",
        tenant_id=f"CASE WHEN n % 2 = 0 THEN {tenant.pk} END",
        owner=f"({user.pk} + n / 2 % 50)::text",
        context_id="'context-' || n / 100 % 10",
        status_timestamp="now() - n * interval '1 minute'",
    )
    multiply(task.messages.get(), 20_000, task_id="'task-' || n")
    multiply(artifact, 20_000, task_id="'task-' || n")
    multiply(task.events.get(sequence=2), 20_000, task_id="'task-' || n % 5 + 1", sequence="n / 5 + 1")
    return agent, user, tenant


def plans(function, table):
    """What `function` returns, and for each SELECT from `table` its SQL and the nodes of its plan."""
    with CaptureQueriesContext(connection) as queries:
        found = function()
    selects = [query["sql"].replace('"', "").strip() for query in queries]
    selects = [sql for sql in selects if sql.startswith("SELECT") and f" FROM {table} " in sql]
    assert selects
    return found, [(sql, _explain(sql)) for sql in selects]


def _explain(sql):
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (FORMAT JSON) {sql}")
        ((answer,),) = cursor.fetchall()
    plan = json.loads(answer) if isinstance(answer, str) else answer
    return list(_nodes(plan[0]["Plan"]))


def _nodes(plan):
    yield plan
    for inner in plan.get("Plans", ()):
        yield from _nodes(inner)


def assert_reads_by(index, table, plan, *, in_order=True):
    """The query finds its rows by `index`; `in_order`: and needs not sort them."""
    sql, nodes = plan
    assert [node["Index Name"] for node in nodes if node.get("Index Name", "") == index], sql
    kinds = {node["Node Type"] for node in nodes if node.get("Relation Name", table) == table}
    assert not kinds & ({"Seq Scan", "Sort", "Incremental Sort"} if in_order else {"Seq Scan"}), sql


def pages(caller, **filters):
    """The plans of the SELECTs of the first and the second page of a list."""
    request = ListTasksRequest(page_size=5, **filters)
    first, plans_of_first = plans(lambda: operations.list_tasks(caller, request), "a2a_django_task")
    request.page_token = json.loads(first)["nextPageToken"]
    assert request.page_token
    second, plans_of_second = plans(lambda: operations.list_tasks(caller, request), "a2a_django_task")
    ids = [task["id"] for page in (first, second) for task in json.loads(page)["tasks"]]
    assert len(set(ids)) == 10
    return plans_of_first + plans_of_second


@on_postgres
@pytest.mark.django_db
class TestIndexes:
    @pytest.fixture(params=[False, True], ids=["without a tenant", "within a tenant"])
    def caller(self, request, crowd, make_caller):
        agent, user, tenant = crowd
        return make_caller(agent, user, tenant=tenant if request.param else None)

    def test_list_by_caller(self, caller):
        self.check(pages(caller), "a2a_task_by_caller")

    def test_list_by_context(self, caller):
        self.check(pages(caller, context_id="context-3"), "a2a_task_by_context")

    def check(self, found, index):
        assert len(found) == 4
        for plan in found:
            if "COUNT" in plan[0]:
                assert "Seq Scan" not in {node["Node Type"] for node in plan[1]}, plan[0]
            else:
                assert_reads_by(index, "a2a_django_task", plan)

    def test_what_is_purged(self, crowd, settings):
        """A portion from the middle of the tasks by time; the newer half is not looked at."""
        settings.A2A = {**settings.A2A, "TASK_RETENTION": 10_000 * 60}
        Task.objects.update(created_at=F("status_timestamp"))
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE a2a_django_task")
        portions = retention._portions(retention._due("TASK_RETENTION", "task_retention"))
        next(portions)
        found, [plan] = plans(lambda: next(portions), "a2a_django_task")
        assert len(found) == retention.AT_ONCE
        assert_reads_by("a2a_task_by_time", "a2a_django_task", plan)

    def test_events_after_n(self, crowd):
        """Also where thousands of them wait, of which one look takes a few, and may sort them."""
        for after in (0, 3000, 3990, 4001):
            look = partial(news._look_at_one, news._Look("task-2", after, None))
            for plan in plans(look, "a2a_django_event")[1]:
                assert_reads_by("a2a_event_sequence", "a2a_django_event", plan, in_order=False)

    def test_tasks_that_run(self, caller, settings):
        """Of all turns a tenth runs or waits, and only their tasks are looked at, each by its key."""
        task = Task.objects.get(pk="task-1")
        turn = Turn.objects.create(task=task, message=task.messages.get(), request="{}", state=TurnState.DONE)
        state = "CASE WHEN n % 20 < 2 THEN 'queued' ELSE 'done' END"
        multiply(turn, 10_000, task_id="'task-' || n", state=state)
        settings.A2A = {**settings.A2A, "RUNNING_TASKS": 10_000}
        _, [plan] = plans(lambda: quotas.check_running(caller, "task-1"), "a2a_django_turn")
        assert_reads_by("a2a_turn_by_state", "a2a_django_turn", plan, in_order=False)
        assert "Seq Scan" not in {node["Node Type"] for node in plan[1]}, plan[0]

    def test_history_and_artifacts_of_a_task(self, crowd, make_caller):
        agent, user, _ = crowd
        task = Task.objects.filter(owner=user.pk, tenant=None).first()
        get = partial(operations.get_task, make_caller(agent, user), GetTaskRequest(id=task.pk))
        for table, index in (
            ("a2a_django_message", "a2a_message_in_order"),
            ("a2a_django_artifact", "a2a_artifact_once_per_task"),
        ):
            for plan in plans(get, table)[1]:
                assert_reads_by(index, table, plan, in_order=False)

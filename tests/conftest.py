"""Fixtures for all tests: rows by function call, the database that DATABASE_URL names, services by marker."""

import asyncio
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest
from asgiref.sync import SyncToAsync
from celery import Celery, current_app
from django.contrib.auth.models import AnonymousUser, Group, User
from django.db import connection, connections
from django.utils import timezone

from a2a_django import batches, database, doorbell, entries, event_log
from a2a_django.agents import leases, loop
from a2a_django.models import AccessToken, Agent, Caller, Task, Tenant, Turn
from a2a_django.models.turn import ENDED, TurnState
from a2a_django.protocol import codec
from a2a_django.protocol.states import TaskState

SERVICES = ("postgres", "redis", "rabbitmq")
VENDORS = {"": "sqlite", "sqlite": "sqlite", "postgres": "postgresql", "postgresql": "postgresql", "mysql": "mysql"}
POOLS = (database.requests, database.log, database.commits)
PATIENCE = 20.0  # seconds after which a test that waits for a condition has failed


def wanted_vendor():
    """The database vendor that DATABASE_URL names."""
    return VENDORS[os.environ.get("DATABASE_URL", "").partition(":")[0]]


# --- which tests run


def pytest_configure(config):
    config.addinivalue_line("markers", "vendor(name, ...): runs only where DATABASE_URL names such a database")
    config.addinivalue_line("markers", "v0_3: holds for clients of A2A 0.3, too, and runs over their bindings as well")
    config.addinivalue_line("markers", "http: is about HTTP or JSON itself, and runs over the bindings that have them")


def pytest_report_header():
    return f"database: {wanted_vendor()}"


def pytest_collection_modifyitems(config, items):
    """A test for one vendor is no test at all on another: it is left out, not skipped. So is what a binding lacks."""
    vendor = wanted_vendor()
    other = [item for item in items if (mark := item.get_closest_marker("vendor")) and vendor not in mark.args]
    other += [item for item in items if _is_legacy(item) and not item.get_closest_marker("v0_3")]
    other += [item for item in items if item.get_closest_marker("http") and _binding(item) in ("grpc", "GRPC")]
    if other:
        config.hook.pytest_deselected(items=other)
        items[:] = [item for item in items if item not in other]


def _is_legacy(item):
    return str(_binding(item)).endswith(" 0.3")


def _binding(item):
    return item.callspec.params.get("binding") if hasattr(item, "callspec") else None


def pytest_runtest_setup(item):
    for name in SERVICES:
        if item.get_closest_marker(name) and not os.environ.get(f"TEST_{name.upper()}_URL"):
            pytest.skip(f"TEST_{name.upper()}_URL is not set")


@pytest.fixture(scope="session")
def service_url():
    """service_url("redis"): where that service is."""
    return lambda name: os.environ[f"TEST_{name.upper()}_URL"]


# --- the database


@pytest.fixture(scope="session")
def django_db_modify_db_settings(tmp_path_factory):
    """A database of this run's own; SQLite's is a file, since several threads work on it."""
    file = tmp_path_factory.mktemp("database") / "test.sqlite3"
    name = file if connection.vendor == "sqlite" else f"test_a2a_{os.getpid()}"
    connection.settings_dict["TEST"]["NAME"] = str(name)


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup, django_db_blocker):
    """The test database, of the vendor that was asked for; before it is dropped all threads let go of it."""
    with django_db_blocker.unblock():
        assert connection.vendor == wanted_vendor(), "The tests don't run on the database that DATABASE_URL names"
        assert connection.get_database_version()
    yield
    if doorbell._keeper is not None:
        stop(doorbell._keeper)
    _in_all_threads(connections.close_all)
    for pool in POOLS:
        pool.executor.shutdown()
    SyncToAsync.single_thread_executor.submit(connections.close_all).result(PATIENCE)


def stop(keeper):
    """Ends a keeper, which else looks for news for as long as the process lives."""
    asyncio.run_coroutine_threadsafe(_cancel_all(), keeper.loop).result(PATIENCE)
    keeper.loop.call_soon_threadsafe(keeper.loop.stop)
    while keeper.loop.is_running():
        time.sleep(0.001)
    keeper.loop.close()


async def _cancel_all():
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    if doorbell._layer() is not None:
        await doorbell._layer().flush()


@pytest.fixture
def stop_keeper():
    """stop_keeper(keeper)"""
    return stop


def _in_all_threads(function):
    """Calls `function` in every thread of our database pools, after what they are at."""
    for pool in (database.requests, database.log, database.commits):
        executor: ThreadPoolExecutor = pool.executor
        barrier = threading.Barrier(executor._max_workers)
        calls = [executor.submit(_call_together, barrier, function) for _ in range(executor._max_workers)]
        for call in calls:
            call.result(PATIENCE)


def _call_together(barrier, function):
    barrier.wait(PATIENCE)
    function()


@pytest.fixture(autouse=True)
def _turns_end(request):
    """When a transactional test is over, no turn of its runs on into the next one."""
    marker = request.node.get_closest_marker("django_db")
    if "transactional_db" not in request.fixturenames and not (marker and marker.kwargs.get("transaction")):
        yield
        return
    request.getfixturevalue("transactional_db")
    yield
    end_turns()


def end_turns():
    """Fences off the turns that still run in this process, as recovery would, and waits until they are gone."""
    Turn.objects.exclude(state__in=ENDED).update(state=TurnState.FAILED)
    Task.objects.exclude(lease="").update(lease="", lease_expires=None)
    for held in list(leases._held.values()):
        held.was_renewed(None)
    if loop._shared is not None:
        asyncio.run_coroutine_threadsafe(_others_end(), loop._shared.loop).result(PATIENCE)
    for thread in threading.enumerate():
        if thread.name == "a2a-executor":
            thread.join(PATIENCE)
            assert not thread.is_alive(), "a blocking executor did not end with its test"
    _in_all_threads(lambda: None)


async def _others_end():
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        _, still = await asyncio.wait(others, timeout=PATIENCE / 2)
        assert not still, f"turns did not end with their test: {still}"


@pytest.fixture
def celery_app():
    """celery_app(**conf): the site's Celery app for this test, with a broker in memory."""
    before = current_app._get_current_object()

    def make(**conf):
        app = Celery("test", broker="memory://", set_as_current=False)
        app.conf.update(conf)
        app.set_default(), app.set_current()
        return app

    yield make
    before.set_default(), before.set_current()


# --- waiting


@pytest.fixture
def eventually():
    """eventually(condition): what the function returns once it is true; fails when that takes too long."""

    def wait(condition, seconds=PATIENCE):
        deadline = time.monotonic() + seconds
        while not (found := condition()):
            assert time.monotonic() < deadline, f"never came true: {condition}"
            time.sleep(0.005)
        return found

    return wait


@pytest.fixture
def eventually_async():
    """Like `eventually`, for async conditions."""

    async def wait(condition, seconds=PATIENCE):
        async with asyncio.timeout(seconds):
            while not (found := await condition()):  # noqa: ASYNC110 (a row has no Event to wait for)
                await asyncio.sleep(0.005)
        return found

    return wait


# --- rows


@pytest.fixture
def make_agent():
    """make_agent(**fields): an agent that anonymous callers may use, with the executor Echo."""

    def make(**fields):
        defaults = {
            "slug": "test",
            "name": "Test",
            "description": "An agent for tests.",
            "executor": "tests.executors.Echo",
            "default_input_modes": ["*/*"],
            "anonymous_access": "shared",
            "streaming": True,
            "push_notifications": True,
        }
        return Agent.objects.create(**defaults | fields)

    return make


@pytest.fixture
def make_tenant():
    """make_tenant(slug="acme", members=None, **fields): for these users and groups only, else for everybody."""

    def make(slug="acme", members=None, agents=(), **fields):
        made = Tenant.objects.create(**{"slug": slug, "name": slug.title(), "public": members is None} | fields)
        for member in members or ():
            made.memberships.create(**{"group" if isinstance(member, Group) else "user": member})
        made.agents.set(agents)
        return made

    return make


@pytest.fixture
def make_user():
    """make_user(username="ann", password="secret", **fields)"""

    def make(username="ann", password="secret", **fields):
        return User.objects.create_user(username, password=password, **fields)

    return make


@pytest.fixture
def make_token():
    """make_token(user, agents=(), **fields): the text of a new access token."""

    def make(user, agents=(), **fields):
        token = AccessToken(user=user, **{"name": "test"} | fields)
        text = token.renew()
        token.save()
        token.agents.set(agents)
        return text

    return make


@pytest.fixture
def make_caller():
    """make_caller(agent, user=None, **fields): what `bindings.caller` makes of such a call."""

    def make(agent, user=None, **fields):
        defaults = {"user": user or AnonymousUser(), "owner": str(user.pk) if user else ""}
        return Caller(agent=agent, **defaults | fields)

    return make


@pytest.fixture
def make_task(make_agent):
    """make_task(agent, text="hi", state=None, visible=True, **fields): a task with its first message.

    Its log is in order: a visible task has its Task event, one with a `state` the status event, too. Without
    `agent` one is made or taken.
    """

    def make(agent=None, *, text="hi", state=None, visible=True, **fields):
        agent = agent or Agent.objects.first() or make_agent()
        now = timezone.now()
        status = {"state": TaskState.SUBMITTED.value, "timestamp": codec.timestamp(now)}
        defaults = {
            "pk": str(uuid4()),
            "context_id": str(uuid4()),
            "status": codec.dumps(status),
            "status_timestamp": codec.moment(status["timestamp"]),
        }
        task = Task.objects.create(agent=agent, **defaults | fields)
        message = {
            "messageId": str(uuid4()),
            "contextId": task.context_id,
            "taskId": task.pk,
            "role": "ROLE_USER",
            "parts": [{"text": text}],
        }
        batches.message_row(task.pk, message).save()
        writer = event_log.writer(task)
        said = [entries.submitted(task.pk, task.context_id, writer.opening)] if visible else []
        if state:
            said.append(entries.status(task.pk, task.context_id, TaskState(state)))
        event_log.append(writer, said)
        task.refresh_from_db()
        return task

    return make

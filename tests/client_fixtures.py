"""`client`: one client for each binding; every test of an operation is written once over it."""

import threading

import pytest
from celery import current_app
from django.conf import settings as site_settings
from django.db import OperationalError, connection, connections

from a2a_django import database
from a2a_django.agents import dispatch
from a2a_django.models import Task
from tests import clients, executors
from tests.clients_grpc import CLIENTS
from tests.clients_v0_3 import LEGACY

__all__ = [
    "a2a",
    "binding",
    "client",
    "gate",
    "make_client",
    "no_broker",
    "outage",
    "said",
    "server",
    "site",
    "statements",
]

ALL = CLIENTS | {f"{name} 0.3": LEGACY[name] for name in ("jsonrpc", "rest")}


@pytest.fixture
def a2a(settings):
    """a2a(NAME=value): sets settings of the A2A dict for this test."""

    def put(**values):
        settings.A2A = {**site_settings.A2A, **values}

    return put


@pytest.fixture(scope="session")
def server():
    """The one web server of all tests."""
    return clients.Server()


@pytest.fixture
def site(server, transactional_db):
    """The site as its asgi.py makes it."""
    yield clients.Site(server)
    executors.open_all_gates()
    server.settle()


@pytest.fixture(params=sorted(ALL))
def binding(request):
    """The name of a binding; those of A2A 0.3 for tests that are marked `v0_3`."""
    return request.param


@pytest.fixture
def make_client(site, binding, make_agent, a2a):
    """make_client(executor="Script", **agent): a client of a new agent. Clients are whom `as_` says."""
    a2a(AUTHENTICATION_CLASSES=["tests.clients.BearerName"])

    def make(executor="Script", **agent):
        made = make_agent(executor=f"tests.executors.{executor}", **agent)
        return ALL[binding](site, made.slug)

    return make


@pytest.fixture
def client(make_client):
    """An anonymous client of an agent that does what it is told (executors.Script)."""
    return make_client()


@pytest.fixture
def gate():
    """gate("name"): where executors stop until the test opens it."""
    return executors.gate


@pytest.fixture
def said(eventually):
    """said(task id, n): waits until n events of a task are in its log; an executor may be a little ahead of it."""

    def wait(task_id, number):
        eventually(lambda: Task.objects.filter(pk=task_id, last_sequence__gte=number).exists())

    return wait


@pytest.fixture
def no_broker(settings):
    """Celery with a broker that is away."""
    before = current_app.conf.broker_url
    current_app.conf.broker_url = "amqp://guest@127.0.0.1:1//"
    dispatch._broker_failed = -dispatch.BROKER_REST
    yield
    current_app.conf.broker_url = before
    dispatch._broker_failed = -dispatch.BROKER_REST


class Outage:
    """Between `begin` and `end` no thread of this process reaches the database; `hits` have tried."""

    def __init__(self, monkeypatch):
        self._patch, self.hits = monkeypatch, []

    def begin(self):
        self._patch.setattr(type(connections["default"]), "cursor", self._refuse)

    def _refuse(self, *_):
        self.hits.append(threading.current_thread().name.partition("_")[0])
        raise OperationalError(f"could not connect: {executors.SECRET}")

    def end(self):
        self._patch.undo()


@pytest.fixture
def outage():
    """outage.begin(), outage.end(): the database is away for this process."""
    with pytest.MonkeyPatch.context() as patch:
        yield Outage(patch)


class Statements:
    """Counts SQL statements and their bytes in the threads of our pools; `of_requests` are those of requests alone."""

    def __init__(self):
        self.count = self.of_requests = self.bytes = 0
        self._lock = threading.Lock()

    def __call__(self, execute, sql, params, many, context):
        size = len(str(params)) if sql.startswith(("INSERT", "UPDATE")) else 0
        of_requests = threading.current_thread().name.startswith("a2a-request")
        with self._lock:
            self.count += 1
            self.of_requests += of_requests
            self.bytes += size
        return execute(sql, params, many, context)

    def begin(self):
        self.__dict__.update(count=0, of_requests=0, bytes=0)


@pytest.fixture
def statements():
    """The counter, in place."""
    counter = Statements()
    pools = (database.requests, database.log)
    for pool in pools:
        in_threads(pool, lambda: connection.execute_wrappers.append(counter))
    yield counter
    for pool in pools:
        in_threads(pool, lambda: counter in connection.execute_wrappers and connection.execute_wrappers.remove(counter))


def in_threads(pool, function):
    """What `function` returns in each thread of a pool."""
    threads = pool.executor._max_workers
    barrier = threading.Barrier(threads)

    def call():
        barrier.wait(20)
        return function()

    return [future.result(20) for future in [pool.executor.submit(call) for _ in range(threads)]]

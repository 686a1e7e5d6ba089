"""Sites made of real processes; every scenario ends with the fold of all its tasks (DESIGN 8)."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from a2a.types import CancelTaskRequest
from a2a.types.a2a_pb2_grpc import A2AServiceStub

from tests.acceptance import databases, folding, processes, sites
from tests.acceptance.databases import Postgres
from tests.acceptance.processes import Redis, until
from tests.acceptance.sites import HEADERS, Site, Web

SERVICES = (pytest.mark.postgres, pytest.mark.redis)
STREAMING = ("embedded", *(pytest.param(name, marks=SERVICES) for name in ("daphne", "uvicorn")))
ALL = (*STREAMING, pytest.param("gunicorn", marks=SERVICES))
HERE = Path(__file__).parent

_alive: list[Site] = []  # whose logs a failure shows


@dataclass
class Place:
    """Where a scenario happens: a site, the web process under test, and another one where there is one."""

    site: Site
    here: Web
    elsewhere: Web


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """gRPC has a process of its own: it is tried once with each kind of site, not beside each web server."""
    other = [item for item in items if _parameters(item) in (("GRPC", "uvicorn"), ("GRPC", "gunicorn"))]
    config.hook.pytest_deselected(items=other)
    items[:] = [item for item in items if item not in other]


def _parameters(item: pytest.Item) -> tuple[Any, Any]:
    given = item.callspec.params if hasattr(item, "callspec") else {}
    return given.get("binding"), given.get("place")


# --- logs, and nothing left behind


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = (yield).get_result()
    if report.failed and HERE in item.path.parents:
        for site in _alive:
            report.sections += [(f"log of {name}", text[-4000:]) for name, text in site.logs() if text]


@pytest.fixture(scope="session", autouse=True)
def nothing_left() -> Iterator[None]:
    """No process outlives the run."""
    yield
    until(lambda: not processes.left_over(), f"processes end: {processes.left_over()}", 5)


@contextmanager
def shown(site: Site) -> Iterator[Site]:
    """A site whose logs are shown when a test fails."""
    _alive.append(site)
    try:
        yield site
    finally:
        _alive.remove(site)


@contextmanager
def scenario(site: Site) -> Iterator[None]:
    """What happens on `site` within it is folded and compared at the end."""
    known = set(site.tasks())
    yield
    site.open("all")
    try:
        folding.check_all(site, known)
    finally:
        site.close_gates()


# --- services


@contextmanager
def database(name: str, template: str = "template1") -> Iterator[Postgres]:
    """A database of this run's own."""
    made = Postgres(os.environ["TEST_POSTGRES_URL"], f"a2a_{name}_{os.getpid()}")
    made.create(template)
    try:
        yield made
    finally:
        made.close()
        made.drop()


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The name of a database that is migrated and has the scenarios' agents in it.

    Each site has a copy: all processes that share a database recover its turns, and hand them to their own broker.
    """
    with database("template") as made:
        site = Site(tmp_path_factory.mktemp("seed"), made)
        with site.stack:
            site.prepare()
        yield made.name


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Redis]:
    """A broker for one test."""
    with processes.redis(tmp_path, "broker") as server:
        yield server


@pytest.fixture
def layer(tmp_path: Path) -> Iterator[Redis]:
    """A channel layer for one test."""
    with processes.redis(tmp_path, "layer") as server:
        yield server


@pytest.fixture
def cluster() -> Iterator[databases.Cluster]:
    """A PostgreSQL server for one test."""
    with databases.cluster() as server:
        yield server


# --- sites that many scenarios share


@pytest.fixture(scope="session")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The SQLite file that embedded sites begin with."""
    return sites.seeded(tmp_path_factory.mktemp("seeded"))


@pytest.fixture(scope="session")
def embedded_site(tmp_path_factory: pytest.TempPathFactory, seeded: Path) -> Iterator[Site]:
    """SQLite, in-process, daphne and a gRPC server, which runs executors of its own."""
    folder, port = tmp_path_factory.mktemp("embedded"), processes.free_port()
    with sites.embedded(folder, seeded, GRPC_URL=f"127.0.0.1:{port}") as site, shown(site):
        site.serve("daphne")
        site.serve_grpc(port)
        yield site


@pytest.fixture(scope="session")
def full_site(tmp_path_factory: pytest.TempPathFactory, template: str) -> Iterator[Site]:
    """PostgreSQL, Redis, a Celery worker; two daphne, a uvicorn, a gunicorn, and a gRPC server."""
    folder, port = tmp_path_factory.mktemp("full"), processes.free_port()
    with ExitStack() as stack:
        redis = stack.enter_context(processes.redis(folder, "redis"))
        postgres = stack.enter_context(database("shared", template))
        site = stack.enter_context(sites.full(folder, postgres, redis, redis, GRPC_URL=f"127.0.0.1:{port}"))
        stack.enter_context(shown(site))
        for server, streaming in (("daphne", True), ("daphne", True), ("uvicorn", True), ("gunicorn", False)):
            listen(site.serve(server, STREAMING=streaming), redis)
        site.serve_grpc(port)
        listen_grpc(port, redis)
        site.work()
        yield site


def listen(web: Web, layer: Redis) -> None:
    """Waits until `web` hears the doorbell: its keeper starts with the first call."""
    before = subscriptions(layer)
    httpx.post(f"{web.url}/a2a/script/tasks/none:cancel", headers=HEADERS, timeout=20)
    until(lambda: subscriptions(layer) > before, f"{web.name} joins the group")


def listen_grpc(port: int, layer: Redis) -> None:
    """As `listen`, for a gRPC server."""
    before = subscriptions(layer)
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel, suppress(grpc.RpcError):
        request = CancelTaskRequest(id="none", tenant="script")
        A2AServiceStub(channel).CancelTask(request, metadata=[("a2a-version", "1.0")], timeout=20)
    until(lambda: subscriptions(layer) > before, "the gRPC server joins the group")


def subscriptions(layer: Redis) -> int:
    """How many processes hear the doorbell."""
    channels = layer.command("PUBSUB", "CHANNELS", "*doorbell*").split()
    return sum(int(layer.command("PUBSUB", "NUMSUB", channel).split()[1]) for channel in channels)


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    """A site by the name of its configuration; the scenario's tasks are folded at its end."""
    if request.param == "embedded":
        site = request.getfixturevalue("embedded_site")
        here = elsewhere = site.web[0]
    else:
        site = request.getfixturevalue("full_site")
        elsewhere, *others = site.web
        here = next(web for web in others if web.name.startswith(request.param))
    with scenario(site):
        yield Place(site, here, elsewhere)


# --- sites of one test


@pytest.fixture
def make_fragile(tmp_path: Path, cluster: databases.Cluster, broker: Redis) -> Iterator[Callable[..., Site]]:
    """make_fragile(layer=None, **a2a): as make_full, on the database server `cluster`."""
    with ExitStack() as stack:

        def make(layer: Redis | None = None, **a2a: Any) -> Site:
            postgres = Postgres(cluster.url, "fragile")
            postgres.create()
            site = stack.enter_context(sites.full(tmp_path, postgres, broker, layer, **a2a)).prepare()
            stack.enter_context(shown(site))
            stack.enter_context(scenario(site))
            return site

        yield make


@pytest.fixture
def make_embedded(tmp_path: Path, seeded: Path) -> Iterator[Callable[..., Site]]:
    """make_embedded(**a2a): SQLite, in-process; nothing is started yet."""
    with ExitStack() as stack:

        def make(**a2a: Any) -> Site:
            site = stack.enter_context(sites.embedded(tmp_path, seeded, **a2a))
            stack.enter_context(shown(site))
            stack.enter_context(scenario(site))
            return site

        yield make


@pytest.fixture
def make_full(tmp_path: Path, template: str, broker: Redis) -> Iterator[Callable[..., Site]]:
    """make_full(layer=None, **a2a): PostgreSQL, a broker, maybe a channel layer; nothing is started yet."""
    with ExitStack() as stack:
        postgres = stack.enter_context(database("site", template))

        def make(layer: Redis | None = None, **a2a: Any) -> Site:
            site = stack.enter_context(sites.full(tmp_path, postgres, broker, layer, **a2a))
            stack.enter_context(shown(site))
            stack.enter_context(scenario(site))
            return site

        yield make


@pytest.fixture
def stopwatch() -> Callable[[], float]:
    """Seconds since the fixture was made."""
    start = time.monotonic()
    return lambda: time.monotonic() - start

"""Whole sites: a database, web processes, and what else a configuration needs."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx

from tests.acceptance import processes
from tests.acceptance.databases import Database, Postgres, Sqlite
from tests.acceptance.processes import CHECKOUT, Process, Redis, python

HEADERS = {"A2A-Version": "1.0"}


class Site:
    """One database and the processes that serve it."""

    def __init__(self, folder: Path, database: Database, **environment: str) -> None:
        self.folder, self.database = folder, database
        self.gates = folder / f"gates-{uuid4().hex[:8]}"
        self.gates.mkdir()
        self.web: list[Web] = []
        self.workers: list[Process] = []
        self.stack = ExitStack()
        self.stack.callback(database.close)
        self._http = self.stack.enter_context(httpx.Client(headers=HEADERS, timeout=20, verify=False))
        self._environment = {
            "DJANGO_SETTINGS_MODULE": "tests.acceptance.settings",
            "PYTHONPATH": str(CHECKOUT),
            "PYTHONUNBUFFERED": "1",
            "DEBUG": "False",
            "SECRET_KEY": "for the acceptance tests",
            "ALLOWED_HOSTS": "127.0.0.1",
            "DATABASE_URL": database.url,
            "REDIS_URL": "",
            "CELERY_BROKER_URL": "",
            "A2A_BASE_URL": "",
            "ACCEPTANCE_GATES": str(self.gates),
        } | environment

    # --- processes

    def environment(self, name: str, **a2a: Any) -> dict[str, str]:
        """What a process of this site called `name` is told; `a2a` are settings that it has besides."""
        told = json.loads(self._environment.get("ACCEPTANCE_A2A", "{}")) | a2a
        return self._environment | {"PGAPPNAME": self.application(name), "ACCEPTANCE_A2A": json.dumps(told)}

    def application(self, name: str) -> str:
        """What PostgreSQL calls the connections of the process `name`; sites share the server."""
        return f"{name} {self.gates.name}"[:63]

    def set(self, **environment: str) -> None:
        """For processes that start from now on."""
        self._environment |= environment

    def prepare(self, seed: str = "tests.acceptance.seed") -> "Site":
        """Migrates the database and makes agents and users, as the module `seed` does it."""
        done = subprocess.run(
            python("-m", seed),
            cwd=CHECKOUT,
            env={"PATH": os.environ["PATH"]} | self.environment("seed"),
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return self

    def serve(self, server: str = "daphne", **a2a: Any) -> "Web":
        """One more web process: daphne, uvicorn or gunicorn."""
        port, name = processes.free_port(), f"{server}-{len(self.web) + 1}"
        web = Web(name, SERVERS[server](port), self.folder / f"{name}.log", self.environment(name, **a2a))
        web.port = port
        web.start(lambda process: process.said(f"(?i)(listening|running) .*:{port}") and processes.answers(port))
        self.stack.callback(web.stop)
        self.web.append(web)
        return web

    def serve_grpc(self, port: int, *options: str, **a2a: Any) -> Process:
        """A gRPC server for all agents, which the cards must name: A2A["GRPC_URL"]."""
        command = python("manage.py", "a2a_grpc", "--bind", f"127.0.0.1:{port}", *options)
        server = Process("grpc", command, self.folder / "grpc.log", self.environment("grpc", **a2a))
        server.start(lambda process: process.said("Serving gRPC on"))
        self.stack.callback(server.stop)
        return server

    def work(
        self, *, pool: str = "threads", slots: int = 100, variables: dict[str, str] | None = None, **a2a: Any
    ) -> Process:
        """One more Celery worker, as the README starts it."""
        name = f"worker-{len(self.workers) + 1}"
        command = ["-m", "celery", "-A", "example_project", "worker", "-P", pool, "-c", str(slots), "-l", "INFO"]
        environment = self.environment(name, **a2a) | (variables or {})
        worker = Process(name, python(*command, "-n", f"{name}@%h"), self.folder / f"{name}.log", environment)
        worker.start(lambda process: process.said(r"@\S+ ready\."))
        self.stack.callback(worker.stop)
        self.workers.append(worker)
        return worker

    def recover(self, *options: str) -> Process:
        """`manage.py a2a_recover`, which has looked for the first time."""
        command = python("manage.py", "a2a_recover", *options)
        process = Process("recovery", command, self.folder / "recovery.log", self.environment("recovery"))
        process.start(lambda process: process.said("recovered"))
        self.stack.callback(process.stop)
        return process

    # --- what it knows

    @property
    def url(self) -> str:
        """Of a web process that runs."""
        running = [web for web in self.web if web.alive]
        return (running[0] if running else self.serve()).url

    @property
    def keeps_events(self) -> bool:
        """Whether the log of an ended task stays whole."""
        return json.loads(self._environment.get("ACCEPTANCE_A2A", "{}")).get("EVENT_RETENTION") is None

    def tasks(self) -> list[str]:
        """The ids of all tasks, hidden ones too."""
        return [task for (task,) in self.database.rows("SELECT id FROM a2a_django_task ORDER BY created_at")]

    def connections(self, process: Process) -> list[str]:
        """The state of each PostgreSQL connection of a process."""
        query = "SELECT state FROM pg_stat_activity WHERE application_name = ?"
        return [state for (state,) in self.database.rows(query, self.application(process.name))]

    def idle_seconds(self, process: Process) -> float:
        """How long a process has asked PostgreSQL nothing."""
        query = "SELECT EXTRACT(EPOCH FROM now() - max(query_start)) FROM pg_stat_activity WHERE application_name = ?"
        return float(self.database.rows(query, self.application(process.name))[0][0])

    def attempts(self, task: str) -> list[tuple[int, str]]:
        """How often each turn of a task was tried, and who did it last."""
        query = "SELECT attempt, worker FROM a2a_django_turn WHERE task_id = ? ORDER BY id"
        return [(attempt, worker.rpartition(":")[2]) for attempt, worker in self.database.rows(query, task)]

    def longest_turn(self) -> float:
        """For how many seconds the oldest turn has been running, by PostgreSQL's clock."""
        query = "SELECT EXTRACT(EPOCH FROM now() - min(started_at)) FROM a2a_django_turn WHERE state = 'running'"
        return float(self.database.rows(query)[0][0] or 0)

    def turns(self, task: str) -> list[str]:
        """The states of a task's turns."""
        found = self.database.rows("SELECT state FROM a2a_django_turn WHERE task_id = ? ORDER BY id", task)
        return [state for (state,) in found]

    def abandoned(self, task: str) -> bool:
        """Whether a task's lease has expired, by SQLite's clock."""
        query = "SELECT lease_expires < strftime('%Y-%m-%d %H:%M:%f', 'now') FROM a2a_django_task WHERE id = ?"
        return bool(self.database.rows(query, task)[0][0])

    def last_sequence(self, task: str) -> int:
        """The number of a task's newest event."""
        return self.database.rows("SELECT last_sequence FROM a2a_django_task WHERE id = ?", task)[0][0]

    def get_task(self, task: str) -> tuple[int, Any]:
        """Status and body of a GetTask by its owner."""
        agent, owner = self.database.rows(
            "SELECT a.slug, t.owner FROM a2a_django_task t JOIN a2a_django_agent a ON a.id = t.agent_id WHERE t.id = ?",
            task,
        )[0]
        auth = None
        if owner:
            auth = (self.database.rows("SELECT username FROM auth_user WHERE id = ?", int(owner))[0][0], "secret")
        url = f"{self.url}/a2a/{agent}/tasks/{task}"
        response = self._http.get(url, auth=auth)
        return response.status_code, response.json()

    def unfinished(self) -> list[tuple[Any, ...]]:
        """Turns that have not ended, and tasks whose last fold is still to come: (task id, what)."""
        turns = self.database.rows("SELECT task_id, state FROM a2a_django_turn WHERE state IN ('queued', 'running')")
        behind = self.database.rows("SELECT id, state FROM a2a_django_task WHERE folded_sequence < last_sequence")
        return turns + behind

    # --- gates

    def open(self, name: str) -> None:
        """Lets the executors go on that wait at a gate."""
        (self.gates / name).touch()

    def waiting(self, name: str) -> int:
        """How many executors have come to a gate."""
        return len(list(self.gates.glob(f"{name}.waiting-*")))

    def close_gates(self) -> None:
        """For the next scenario."""
        for file in self.gates.iterdir():
            file.unlink()

    def logs(self) -> Iterator[tuple[str, str]]:
        """Name and text of each process' output."""
        for file in sorted(self.folder.glob("*.log")):
            yield file.name, file.read_text(errors="replace")


class Web(Process):
    """A web process."""

    port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


SERVERS = {
    "daphne": lambda port: python("-m", "daphne", "-p", str(port), "example_project.asgi:application"),
    "uvicorn": lambda port: python(
        "-m", "uvicorn", "--port", str(port), "--timeout-graceful-shutdown", "3", "example_project.asgi:application"
    ),
    "gunicorn": lambda port: python(
        "-m", "gunicorn", "-b", f"127.0.0.1:{port}", "--threads", "16", "example_project.wsgi:application"
    ),
}


def seeded(folder: Path) -> Path:
    """A SQLite file with all that `embedded` sites begin with."""
    site = Site(folder, Sqlite(folder / "seeded.sqlite3"))
    with site.stack:
        site.prepare()
    return folder / "seeded.sqlite3"


@contextmanager
def embedded(folder: Path, seeded: Path, **a2a: Any) -> Iterator[Site]:
    """SQLite, executors in the web process; none is started yet."""
    file = shutil.copy(seeded, folder / "site.sqlite3")
    site = Site(folder, Sqlite(file), ACCEPTANCE_A2A=json.dumps(a2a))
    with site.stack:
        yield site


@contextmanager
def full(folder: Path, database: Postgres, broker: Redis, layer: Redis | None, **a2a: Any) -> Iterator[Site]:
    """PostgreSQL, Redis, Celery; neither a web process nor a worker is started yet."""
    variables = {"CELERY_BROKER_URL": broker.url, "REDIS_URL": layer.url if layer else ""}
    site = Site(folder, database, ACCEPTANCE_A2A=json.dumps(a2a), **variables)
    with site.stack:
        yield site

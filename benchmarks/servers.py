"""The sides: what is started for each, on which database; everything on 127.0.0.1, and nothing is left behind."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import redis

HERE = Path(__file__).resolve().parent
PEER_PYTHON = os.environ.get("PEER_PYTHON", sys.executable)
POSTGRES_URL = os.environ.get("BENCH_POSTGRES_URL", "postgres://postgres@127.0.0.1:5432/postgres")
REDIS_URL = os.environ.get("BENCH_REDIS_URL", "redis://127.0.0.1:6379").rstrip("/")
LAYER_URL, BROKER_URL = f"{REDIS_URL}/9", f"{REDIS_URL}/10"
DATABASES = {"ours": "a2a_bench_ours", "embedded": "a2a_bench_embedded", "peer": "a2a_bench_peer"}
PORTS = range(9200, 9300)
START_SECONDS, STOP_SECONDS = 60, 10

# Side -> the services that it needs besides its own processes.
SIDES = {
    "peer-memory": set(),
    "peer-sqlite": set(),
    "peer-postgres": {"postgres"},
    "embedded": set(),
    "embedded-postgres": {"postgres"},
    "celery": {"postgres", "redis"},
}


class FailedError(Exception):
    """A side could not be started or did not answer as it must; the text says why."""


class Machine:
    """Makes databases ready once for each side, and starts sides."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._prepared = folder, set[str]()
        self.pids: dict[str, int] = {}

    @contextlib.contextmanager
    def running(self, side: str) -> Iterator[str]:
        """The REST base of `side`, which runs within the block and answers already."""
        port = _free_port()
        with contextlib.ExitStack() as stack:
            if side.startswith("peer-"):
                url, commands = f"http://127.0.0.1:{port}", [self._peer(side, port)]
            else:
                url, commands = f"http://127.0.0.1:{port}/a2a/bench", self._ours(side, port)
            processes = [stack.enter_context(self._process(name, *command)) for name, *command in commands]
            _wait_for(url, processes)
            self.pids = {name: process.pid for (name, *_), process in zip(commands, processes, strict=True)}
            yield url

    def cpu(self) -> float | None:
        """Seconds of processor time that the processes of the running side have used; None where Linux isn't."""
        try:
            stats = [Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split() for pid in self.pids.values()]
        except OSError:
            return None
        return sum(int(stat[11]) + int(stat[12]) for stat in stats) / os.sysconf("SC_CLK_TCK")

    def _peer(self, side: str, port: int) -> tuple[str, list[str], dict[str, str]]:
        environment = {"PEER_URL": f"http://127.0.0.1:{port}", "STORE": "memory"}
        if side == "peer-sqlite":
            environment |= {"STORE": "sqlite", "PEER_DB": f"sqlite+aiosqlite:///{self.folder}/peer.sqlite3"}
        elif side == "peer-postgres":
            environment |= {"STORE": "pg", "PEER_DB": _database_url("peer", scheme="postgresql+asyncpg")}
        command = [PEER_PYTHON, "-m", "uvicorn", "--app-dir", str(HERE), "--host", "127.0.0.1", "--port", str(port)]
        return side, [*command, "--log-level", "error", "--no-access-log", "peer_server:app"], environment

    def _ours(self, side: str, port: int) -> list[tuple[str, list[str], dict[str, str]]]:
        database = f"sqlite:///{self.folder}/ours.sqlite3"
        if side != "embedded":
            database = _database_url("ours" if side == "celery" else "embedded")
        environment = {
            "DJANGO_SETTINGS_MODULE": "benchmarks.site.settings",
            "DATABASE_URL": database,
            "REDIS_URL": LAYER_URL if side == "celery" else "",
            "CELERY_BROKER_URL": BROKER_URL if side == "celery" else "",
            "A2A_EXECUTION": "",
            "A2A_STREAMING": "True",
        }
        if side not in self._prepared:
            with self._process("prepare", [sys.executable, "-m", "benchmarks.site.prepare"], environment) as process:
                if process.wait(START_SECONDS):
                    raise FailedError(f"The site could not be made:\n{self._tail('prepare')}")
            self._prepared.add(side)
        daphne = [sys.executable, "-m", "daphne", "-b", "127.0.0.1", "-p", str(port), "--access-log", "/dev/null"]
        commands = [(f"{side}-web", [*daphne, "example_project.asgi:application"], environment)]
        if side == "celery":
            celery = [sys.executable, "-m", "celery", "-A", "example_project", "worker"]
            commands.append((f"{side}-worker", [*celery, "-P", "threads", "-c", "100", "-l", "warning"], environment))
        return commands

    @contextlib.contextmanager
    def _process(
        self, name: str, command: list[str], environment: dict[str, str]
    ) -> Iterator["subprocess.Popen[bytes]"]:
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                command,
                cwd=HERE.parent,
                env={**os.environ, "PYTHONPATH": str(HERE.parent), **environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the script, which stops the servers itself
            )
        process.log = lambda: self._tail(name)  # type: ignore[attr-defined]
        try:
            yield process
        finally:
            _stop(process)

    def _tail(self, name: str) -> str:
        return "\n".join((self.folder / f"{name}.log").read_text(errors="replace").splitlines()[-20:])


@contextlib.contextmanager
def machine(services: set[str]) -> Iterator[Machine]:
    """A Machine with empty databases; they and all files are gone after the block."""
    folder = Path(tempfile.mkdtemp(prefix="a2a-bench-"))
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        if "postgres" in services:
            stack.callback(_drop_databases)
            _drop_databases(create=True)
        if "redis" in services:
            stack.callback(_flush_redis)
            _flush_redis()
        yield Machine(folder)


def _drop_databases(*, create: bool = False) -> None:
    with psycopg.connect(POSTGRES_URL, autocommit=True) as connection:
        for name in DATABASES.values():
            connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
            if create:
                connection.execute(f'CREATE DATABASE "{name}"')


def _database_url(which: str, scheme: str = "postgres") -> str:
    return urlsplit(POSTGRES_URL)._replace(scheme=scheme, path=f"/{DATABASES[which]}").geturl()


def _flush_redis() -> None:
    for url in (LAYER_URL, BROKER_URL):
        with redis.Redis.from_url(url) as client:
            client.flushdb()


def services_found(services: set[str]) -> dict[str, str]:
    """Their versions; an error of the driver where one isn't there."""
    found = {}
    if "postgres" in services:
        with psycopg.connect(POSTGRES_URL) as connection:
            found["postgres"] = connection.execute("SHOW server_version").fetchone()[0]  # type: ignore[index]
    if "redis" in services:
        with redis.Redis.from_url(LAYER_URL) as client:
            found["redis"] = client.info("server")["redis_version"]
    return found


def _free_port() -> int:
    for port in PORTS:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                return port
    raise FailedError(f"Every port from {PORTS.start} to {PORTS.stop - 1} is taken.")


def _wait_for(url: str, processes: "list[subprocess.Popen[bytes]]") -> None:
    """Returns when `url` has answered a message, so that a worker, too, is known to run."""
    message = {"messageId": "ready", "role": "ROLE_USER", "parts": [{"text": "hello"}]}
    headers = {"A2A-Version": "1.0", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{url}/message:send", json.dumps({"message": message}).encode(), headers)
    deadline, reason = time.monotonic() + START_SECONDS, ""
    while time.monotonic() < deadline:
        for process in processes:
            if process.poll() is not None:
                raise FailedError(f"{process.args} ended by itself:\n{process.log()}")  # type: ignore[attr-defined]
        try:
            with urllib.request.urlopen(request, timeout=START_SECONDS) as response:
                answer = response.read().decode()
        except urllib.error.HTTPError as error:
            raise FailedError(f"{url} answered {error.code}: {error.read().decode()[:500]}") from error
        except OSError as error:
            reason = str(error)
            time.sleep(0.1)
            continue
        if "TASK_STATE_COMPLETED" in answer:
            return
        raise FailedError(f"{url} answered: {answer[:500]}")
    logs = "\n".join(process.log() for process in processes)  # type: ignore[attr-defined]
    raise FailedError(f"{url} did not answer within {START_SECONDS} s ({reason}):\n{logs}")


def _stop(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS)
    with contextlib.suppress(ProcessLookupError):  # whatever of its group is left
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()

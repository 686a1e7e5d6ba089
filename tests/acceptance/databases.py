"""The site's database as it really is, read without Django."""

import os
import shutil
import sqlite3
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit, urlunsplit

import psycopg

from tests.acceptance.processes import MARK, free_port


class Database(Protocol):
    """Where a site keeps its rows."""

    url: str

    def rows(self, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """What `query`, with `?` for each parameter, finds."""
        ...

    def close(self) -> None:
        """Lets go of it."""
        ...


class Sqlite:
    """A file."""

    def __init__(self, file: Path) -> None:
        self.url, self._file = f"sqlite:///{file}", file

    def rows(self, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self._file, timeout=20)) as connection:
            return connection.execute(query, parameters).fetchall()

    def close(self) -> None:
        """Nothing is open."""


class Postgres:
    """A database of our own on the server that TEST_POSTGRES_URL names."""

    def __init__(self, server: str, name: str) -> None:
        self._server, self.name = server, name
        self._connection: psycopg.Connection | None = None
        self._lock = threading.Lock()
        self.url = urlunsplit(urlsplit(server)._replace(path=f"/{name}"))

    def create(self, template: str = "template1") -> None:
        """As a copy of the database `template`, to which nobody may be connected."""
        self._run(f'CREATE DATABASE "{self.name}" TEMPLATE "{template}"')

    def drop(self) -> None:
        self._run(f'DROP DATABASE IF EXISTS "{self.name}" WITH (FORCE)')

    def close_to_all(self) -> None:
        """Nobody can connect any more; who is connected stays."""
        self._run(f'ALTER DATABASE "{self.name}" ALLOW_CONNECTIONS false')

    def open_to_all(self) -> None:
        """Whoever is allowed to can connect again."""
        self._run(f'ALTER DATABASE "{self.name}" ALLOW_CONNECTIONS true')

    def end_sessions(self, applications: list[str]) -> None:
        """Ends the connections of these, whatever they are at."""
        query = (
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND application_name = ANY(%s)"
        )
        self._run(query, self.name, applications)

    def _run(self, statement: str, *parameters: Any) -> None:
        with psycopg.connect(self._server, autocommit=True) as connection:
            connection.execute(statement, parameters)

    def rows(self, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
        with self._lock:
            if self._connection is None:
                self._connection = psycopg.connect(self.url, autocommit=True)
            return self._connection.execute(query.replace("?", "%s"), parameters).fetchall()

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
            self._connection = None


class Cluster:
    """A PostgreSQL server of our own, which can be stopped and started again."""

    def __init__(self, folder: Path) -> None:
        self._data, self._log, self._port = folder / "data", folder / "log", free_port()
        self._binaries = subprocess.run(["pg_config", "--bindir"], capture_output=True, text=True, check=True).stdout
        self._run("initdb", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync")

    @property
    def url(self) -> str:
        return f"postgres://postgres@127.0.0.1:{self._port}/postgres"

    def start(self) -> None:
        """Returns when it takes connections."""
        options = f"-p {self._port} -h 127.0.0.1 -k {self._data} -c fsync=off"
        self._run("pg_ctl", "-w", "-l", str(self._log), "-o", options, "start")

    def stop(self) -> None:
        """Ends it with all connections."""
        self._run("pg_ctl", "-w", "-m", "fast", "stop")

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(Path(self._binaries.strip()) / program), "-D", str(self._data), *arguments]
        environment = dict([MARK.split("=")], PATH=os.environ["PATH"])
        done = subprocess.run(
            command, stdout=subprocess.DEVNULL, env=environment, check=False, timeout=60, **_account()
        )
        assert done.returncode == 0, self._log.read_text() if self._log.exists() else program


def _account() -> dict[str, Any]:
    """PostgreSQL does not run as root."""
    return {"user": "postgres", "group": "postgres", "extra_groups": ()} if os.geteuid() == 0 else {}


@contextmanager
def cluster() -> Iterator[Cluster]:
    """A PostgreSQL server that runs; its folder is one that its account can reach."""
    folder = Path(tempfile.mkdtemp(prefix="a2a-postgres-"))
    try:
        if _account():
            shutil.chown(folder, "postgres")
        server = Cluster(folder)
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder)

"""The site's database as it really is, read without Django."""

import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit, urlunsplit

import psycopg


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

    def create(self) -> None:
        self._run(f'CREATE DATABASE "{self.name}"')

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

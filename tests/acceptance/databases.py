"""The site's database as it really is, read without Django."""

import sqlite3
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


class Sqlite:
    """A file."""

    def __init__(self, file: Path) -> None:
        self.url, self._file = f"sqlite:///{file}", file

    def rows(self, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self._file, timeout=20)) as connection:
            return connection.execute(query, parameters).fetchall()


class Postgres:
    """A database of our own on the server that TEST_POSTGRES_URL names."""

    def __init__(self, server: str, name: str) -> None:
        self._server, self.name = server, name
        self.url = urlunsplit(urlsplit(server)._replace(path=f"/{name}"))

    def create(self) -> None:
        self._run(f'CREATE DATABASE "{self.name}"')

    def drop(self) -> None:
        self._run(f'DROP DATABASE IF EXISTS "{self.name}" WITH (FORCE)')

    def _run(self, statement: str) -> None:
        with psycopg.connect(self._server, autocommit=True) as connection:
            connection.execute(statement)

    def rows(self, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            return connection.execute(query.replace("?", "%s"), parameters).fetchall()

    def connections(self, application: str) -> list[str]:
        """The state of each connection of that process."""
        query = "SELECT state FROM pg_stat_activity WHERE datname = ? AND application_name = ?"
        return [state for (state,) in self.rows(query, self.name, application)]

"""Statements of the hot paths: Django makes their SQL once, from then on only the arguments change.

Making SQL from a queryset takes several times as long as running it. Use these where a statement runs for every
request, event or reader; a queryset is right everywhere else.
"""

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any, Generic, NamedTuple, TypeVar

from django.db import connections, models, router
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models.expressions import DatabaseDefault, RawSQL
from django.db.models.sql import UpdateQuery

Row = TypeVar("Row", bound=models.Model)
Item = TypeVar("Item")

AT_ONCE = 500  # rows of one INSERT: databases bound the number of parameters
FEW = 50  # parameters up to which psycopg remembers how it has read a statement, which costs more than a trip


@dataclass(frozen=True)
class _Argument:
    """Stands among the parameters of compiled SQL for the argument at `index`."""

    index: int


class _Compiled(NamedTuple):
    """SQL for one connection, its parameters with the places of the arguments, and what reads the rows."""

    sql: str
    parameters: Sequence[Any]
    compiler: Any

    def filled(self, arguments: Sequence[Any], connection: BaseDatabaseWrapper) -> list[Any]:
        """The parameters with `arguments` in their places."""
        return [
            _adapted(arguments[item.index], connection) if isinstance(item, _Argument) else item
            for item in self.parameters
        ]


def _adapted(value: Any, connection: BaseDatabaseWrapper) -> Any:
    return connection.ops.adapt_datetimefield_value(value) if isinstance(value, datetime) else value


class _Statement(Generic[Row]):
    """`build` makes the queryset from expressions that stand for the arguments; `arity` says how many, if it can't."""

    def __init__(self, model: type[Row], build: Callable[..., Any], arity: int | None = None) -> None:
        self._model, self._build = model, build
        self._arity = len(inspect.signature(build).parameters) if arity is None else arity

    def _expressions(self) -> list[RawSQL]:
        return [RawSQL("%s", [_Argument(index)]) for index in range(self._arity)]

    def _on(self, connection: BaseDatabaseWrapper) -> _Compiled:
        """The SQL for `connection`, kept with it: a compiler belongs to one connection."""
        kept: dict[Any, _Compiled] = connection.__dict__.setdefault("a2a_statements", {})
        if self not in kept:
            compiler = self._query().get_compiler(connection=connection)
            sql, parameters = compiler.as_sql()
            kept[self] = _Compiled(sql, parameters, compiler)
        return kept[self]

    def _query(self) -> Any:
        raise NotImplementedError


class Select(_Statement[Row]):
    """A query: `rows(…)` for the tuples of a `values_list`, `objects(…)` for whole rows of `model`."""

    def _query(self) -> Any:
        return self._build(*self._expressions()).query

    def rows(self, *arguments: Any) -> list[tuple[Any, ...]]:
        """The rows as tuples of Python values."""
        connection = connections[router.db_for_write(self._model)]
        compiled = self._on(connection)
        with connection.cursor() as cursor:
            cursor.execute(compiled.sql, compiled.filled(arguments, connection))
            found = cursor.fetchall()
        return list(compiled.compiler.results_iter([found], tuple_expected=True)) if found else []

    def objects(self, *arguments: Any) -> list[Row]:
        """The rows as instances."""
        alias, names = router.db_for_write(self._model), [field.attname for field in self._model._meta.concrete_fields]
        return [self._model.from_db(alias, names, row) for row in self.rows(*arguments)]

    def row(self, *arguments: Any) -> tuple[Any, ...]:
        """The one row; DoesNotExist where it was purged meanwhile."""
        return self._one(self.rows(*arguments))

    def get(self, *arguments: Any) -> Row:
        """The one row as an instance; DoesNotExist."""
        return self._one(self.objects(*arguments))

    def _one(self, found: Sequence[Item]) -> Item:
        if found:
            return found[0]
        raise self._model.DoesNotExist  # type: ignore[attr-defined]  # the stubs know it of models alone


class Update(_Statement[Row]):
    """An UPDATE of the rows in the first that `build` returns, with the values in the second; `run(…)` counts rows."""

    def _query(self) -> Any:
        queryset, values = self._build(*self._expressions())
        query = queryset.query.chain(UpdateQuery)
        query.add_update_values(values)
        return query

    def run(self, *arguments: Any) -> int:
        """How many rows it changed."""
        connection = connections[router.db_for_write(self._model)]
        compiled = self._on(connection)
        with connection.cursor() as cursor:
            cursor.execute(compiled.sql, compiled.filled(arguments, connection))
            return int(cursor.rowcount)


def padded(items: Sequence[Item]) -> list[Item]:
    """`items`, the last repeated up to a power of two: statements of many sizes become few that are compiled once."""
    size = 1 << (len(items) - 1).bit_length()
    return [*items, *[items[-1]] * (size - len(items))]


class Insert:
    """An INSERT of rows that are tuples of the values of `columns`; nothing but times is prepared for the database."""

    def __init__(self, model: type[models.Model], *columns: str) -> None:
        self._model, self._columns = model, [model._meta.get_field(name) for name in columns]

    def run(self, rows: Sequence[tuple[Any, ...]]) -> None:
        """Inserts `rows`, any number."""
        connection = connections[router.db_for_write(self._model)]
        into, places = _into(self._model, self._columns, connection), f"({', '.join(['%s'] * len(self._columns))})"
        for some in _portions(rows, len(self._columns)):
            values = [_adapted(value, connection) for row in some for value in row]
            with connection.cursor() as cursor:
                cursor.execute(f"{into} VALUES {', '.join([places] * len(some))}", values)


def insert(rows: Sequence[models.Model]) -> None:
    """Inserts `rows` of one model, any number; their keys are not read back, but see `insert_one`."""
    if rows:
        for some in _portions(rows, len(rows[0]._meta.concrete_fields)):
            _insert(some)


def _portions(rows: Sequence[Item], columns: int) -> Iterator[Sequence[Item]]:
    """`rows` in portions for one INSERT each: as small as psycopg remembers statements, or large ones."""
    few = FEW // columns
    size = few if len(rows) <= 8 * few else AT_ONCE
    return (rows[start : start + size] for start in range(0, len(rows), size))


def _into(model: type[models.Model], fields: Sequence[Any], connection: BaseDatabaseWrapper) -> str:
    quote = connection.ops.quote_name
    return f"INSERT INTO {quote(model._meta.db_table)} ({', '.join(quote(field.column) for field in fields)})"


def insert_one(row: Row) -> Row:
    """Inserts `row` and gives it the key that the database made."""
    row.pk = _insert([row], returning=True)
    return row


def _insert(rows: Sequence[models.Model], *, returning: bool = False) -> Any:
    model: Any = type(rows[0])
    connection = connections[router.db_for_write(model)]
    fields = [field for field in model._meta.concrete_fields if not isinstance(field, models.AutoField)]
    values, parameters = _values(rows, fields, connection)
    sql, key = f"{_into(model, fields, connection)} VALUES {values}", model._meta.pk.column
    returns = returning and connection.features.can_return_columns_from_insert
    with connection.cursor() as cursor:
        cursor.execute(f"{sql} RETURNING {connection.ops.quote_name(key)}" if returns else sql, parameters)
        if returns:
            return cursor.fetchone()[0]
        return connection.ops.last_insert_id(cursor, model._meta.db_table, key) if returning else None


def _values(
    rows: Sequence[models.Model], fields: Sequence[Any], connection: BaseDatabaseWrapper
) -> tuple[str, list[Any]]:
    """The VALUES of an INSERT and their parameters; a RawSQL, such as a time of the database's, may be one."""
    parameters: list[Any] = []
    tuples = []
    for row in rows:
        places = []
        for field in fields:
            value = field.get_db_prep_save(field.pre_save(row, add=True), connection)
            value = _default(field) if isinstance(value, DatabaseDefault) else value
            is_raw = isinstance(value, RawSQL)
            places.append(value.sql if is_raw else "%s")
            parameters.extend(value.params if is_raw else (value,))
        tuples.append(f"({', '.join(places)})")
    return ", ".join(tuples), parameters


@cache
def _default(field: Any) -> RawSQL:
    """What the database gives the field by default; SQLite has no word for that in an INSERT."""
    return raw(field.db_default, field.model)


def raw(expression: Any, model: type[models.Model]) -> RawSQL:
    """The SQL of an `expression` without columns, for the database of `model`."""
    query = model._default_manager.all().query
    compiler = query.get_compiler(router.db_for_write(model))
    return RawSQL(*compiler.compile(expression.resolve_expression(query)))  # noqa: S611  SQL that Django made

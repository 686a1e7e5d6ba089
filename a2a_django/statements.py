"""Statements of the hot paths: Django makes their SQL once, from then on only the arguments change.

Making SQL from a queryset takes several times as long as running it. Use these where a statement runs for every
request, event or reader; a queryset is right everywhere else.
"""

import inspect
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Generic, NamedTuple, TypeVar

from django.db import connections, models, router
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models.expressions import RawSQL
from django.db.models.sql import UpdateQuery

Row = TypeVar("Row", bound=models.Model)


class _Argument(NamedTuple):
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
    """`build` makes the queryset from expressions that stand for the arguments."""

    def __init__(self, build: Callable[..., Any]) -> None:
        self._build = build
        self._arity = len(inspect.signature(build).parameters)

    def _expressions(self) -> list[RawSQL]:
        return [RawSQL("%s", [_Argument(index)]) for index in range(self._arity)]

    def _on(self, connection: BaseDatabaseWrapper) -> _Compiled:
        """The SQL for `connection`, kept with it: a compiler belongs to one connection."""
        kept: dict[Any, _Compiled] = connection.__dict__.setdefault("a2a_statements", {})
        if self not in kept:
            compiler = self._query().get_compiler(connection=connection)
            kept[self] = _Compiled(*compiler.as_sql(), compiler)
        return kept[self]

    def _query(self) -> Any:
        raise NotImplementedError


class Select(_Statement[Row]):
    """A query: `rows(…)` for the tuples of a `values_list`, `objects(…)` for whole rows of one model."""

    def _query(self) -> Any:
        self._queryset: models.QuerySet[Row] = self._build(*self._expressions())
        return self._queryset.query

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
        model = self._model
        alias, names = router.db_for_write(model), [field.attname for field in model._meta.concrete_fields]
        return [model.from_db(alias, names, row) for row in self.rows(*arguments)]

    @property
    def _model(self) -> type[Row]:
        if not hasattr(self, "_queryset"):
            self._query()
        return self._queryset.model


class Update(_Statement[Row]):
    """An UPDATE of the rows in the first that `build` returns, with the values in the second; `run(…)` counts rows."""

    def __init__(self, model: type[Row], build: Callable[..., tuple[models.QuerySet[Row], dict[str, Any]]]) -> None:
        super().__init__(build)
        self._model = model

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


def insert(rows: Sequence[models.Model]) -> None:
    """Inserts `rows` of one model in one statement; their keys are not read back."""
    if not rows:
        return
    model = type(rows[0])
    connection = connections[router.db_for_write(model)]
    fields = [field for field in model._meta.concrete_fields if not isinstance(field, models.AutoField)]
    quote = connection.ops.quote_name
    columns = ", ".join(quote(field.column) for field in fields)
    values = ", ".join(["(" + ", ".join(["%s"] * len(fields)) + ")"] * len(rows))
    parameters = [
        field.get_db_prep_save(field.pre_save(row, add=True), connection) for row in rows for field in fields
    ]
    with connection.cursor() as cursor:
        cursor.execute(f"INSERT INTO {quote(model._meta.db_table)} ({columns}) VALUES {values}", parameters)

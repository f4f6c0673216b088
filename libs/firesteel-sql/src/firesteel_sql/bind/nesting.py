"""Queries within queries: what the parts of a SELECT ask of the binder of the whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from firesteel_sql.bind.expressions import ExpressionBinder
from firesteel_sql.bind.scope import Scope, ScopedColumn
from firesteel_sql.catalog.catalogs import Catalogs
from firesteel_sql.catalog.tables import CatalogView
from firesteel_sql.functions.signature import Session
from firesteel_sql.parse import nodes as n
from firesteel_sql.plan.relations import Relation

Source = tuple[Relation, list[ScopedColumn]]
"""Rows, and the names of their columns."""


class NestedQueries(Protocol):
    """Binds the queries that stand within another one."""

    @property
    def catalogs(self) -> Catalogs:
        """The tables and views that queries may name."""

    @property
    def session(self) -> Session:
        """What functions need to know."""

    @property
    def common_tables(self) -> Mapping[str, Relation]:
        """Relations behind WITH, by name."""

    @property
    def depth(self) -> int:
        """How many views are around."""

    @property
    def outer(self) -> Scope | None:
        """What the query around this one sees; None = there is none."""

    def bind_nested(self, query: n.Query) -> Relation:
        """The relation of a query whose rows another one reads."""

    def bind_inner(self, query: n.Query, outer: Scope) -> Relation:
        """The relation of a query for each row of another one."""

    def bind_view(self, view: CatalogView) -> Relation:
        """The relation of a view's query."""

    def source(self, node: n.TableReference, hints: Sequence[n.Hint]) -> Source:
        """The rows behind FROM."""

    def expressions(self, scope: Scope) -> ExpressionBinder:
        """What binds expressions over the columns of a scope."""

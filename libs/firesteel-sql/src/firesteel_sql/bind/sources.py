"""What stands behind FROM: tables, views, joins, windows, collections."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, NoReturn

from firesteel.table.types import DataType, DataTypes, ElementsType, MapType, RowField, RowType
from firesteel_sql.bind.expressions import ExpressionBinder
from firesteel_sql.bind.nesting import NestedQueries, Source
from firesteel_sql.bind.placeholders import QueryResult, QueryUse
from firesteel_sql.bind.scope import NameRefused, Scope, ScopedColumn
from firesteel_sql.bind.state_hints import state_ttl_of
from firesteel_sql.bind.subqueries import QueryJoiner, outer_parameters, parametrised
from firesteel_sql.bind.windows import WINDOW_FUNCTIONS, window_arguments, window_table
from firesteel_sql.catalog.catalogs import CatalogError, near
from firesteel_sql.catalog.tables import CatalogTable, CatalogView, Identifier, InlineView
from firesteel_sql.connectors.connector import connector_of
from firesteel_sql.connectors.options import TableOptionError
from firesteel_sql.functions.signature import OperandsRefused, cast, operation
from firesteel_sql.parse import nodes as n
from firesteel_sql.parse.errors import SqlError
from firesteel_sql.plan.changes import unique_keys
from firesteel_sql.plan.projections import all_columns, chosen_columns, column_at, extended, projected
from firesteel_sql.plan.pushdown import joined, looked_up, with_versions
from firesteel_sql.plan.relations import Column, ConstantRows, Projection, Relation, Scan, WatermarkAssigner
from firesteel_sql.plan.row_expressions import InputColumn, RowExpression, composed, conjuncts_of, moved
from firesteel_sql.plan.stateful_relations import JoinKind, Normalize, Unnest
from firesteel_sql.types import rules

_DEEPEST: Final = 50
"""Views within each other."""

_KINDS: Final = {
    "CROSS": JoinKind.INNER, "INNER": JoinKind.INNER, "LEFT": JoinKind.LEFT, "RIGHT": JoinKind.RIGHT,
    "FULL": JoinKind.FULL, "LEFT SEMI": JoinKind.SEMI, "LEFT ANTI": JoinKind.ANTI,
}  # fmt: skip


@dataclass
class SourceBinder:
    """Finds the meaning of what stands behind FROM.

    Attributes:
        queries: binds the queries within it.
        hints: of the SELECT.
    """

    queries: NestedQueries
    hints: Sequence[n.Hint] = ()

    def bind(self, source: n.TableReference) -> Source:
        """The rows of a source.

        Raises:
            SqlError: a name is unknown, types do not fit, or a part of SQL is not supported.
        """
        match source:
            case n.Aliased():
                return self._aliased(source)
            case n.JoinedTable():
                return self._join(source)
        raise AssertionError(source)

    def _refuse(self, node: n.Node, problem: str) -> NoReturn:
        self._binder([]).refuse(node, problem)

    def _binder(self, columns: list[ScopedColumn]) -> ExpressionBinder:
        return self.queries.expressions(Scope(columns, self.queries.outer))

    def _aliased(self, node: n.Aliased) -> Source:
        if node.as_of is not None:
            self._refuse(node.as_of, "FOR SYSTEM_TIME AS OF belongs to the right side of a join")
        qualifiers: tuple[tuple[str, ...], ...] = ()
        match node.source:
            case n.NamedTable():
                relation, qualifiers = self.named(node.source)
            case n.DerivedTable():
                if node.source.is_lateral:
                    return self._unnested(ConstantRows((), ((),)), [], node, is_outer=False)
                relation = self.queries.bind_nested(node.source.query)
            case n.TableFunction():
                relation = self._table_function(node.source)
            case n.UnnestedTable():
                return self._unnested(ConstantRows((), ((),)), [], node, is_outer=False)
            case _:  # joins in parentheses, under a name
                relation, scoped = self.bind(node.source)
                relation = chosen_columns(relation, [item.index for item in Scope(scoped).starred])
        if node.alias is not None:
            qualifiers = ((node.alias,),)
        relation = renamed(self._binder([]), node, relation, node.columns)
        return relation, [ScopedColumn(column, place, qualifiers) for place, column in enumerate(relation.columns)]

    # -- tables and views

    def named(self, node: n.NamedTable) -> tuple[Relation, tuple[tuple[str, ...], ...]]:
        """The rows of a table or view, and the names under which columns may be qualified.

        Raises:
            SqlError: there is none.
        """
        common_tables, catalogs = self.queries.common_tables, self.queries.catalogs
        if len(node.path) == 1 and node.path[0] in common_tables:
            return common_tables[node.path[0]], ((node.path[0],),)
        try:
            identifier, entry = catalogs.find(node.path)
        except CatalogError as error:
            self._refuse(node, str(error))
        qualifiers = (identifier[2:], identifier[1:], identifier)
        if isinstance(entry, CatalogView):
            return self._view(node, entry), qualifiers
        if isinstance(entry, InlineView):
            inline: Relation = entry.relation
            return inline, qualifiers
        options = dict(entry.options)
        for hint in node.hints:
            if hint.name == "OPTIONS":
                options.update(hint.options)
        return self._table(identifier, replace(entry, options=options)), qualifiers

    def _view(self, node: n.Node, view: CatalogView) -> Relation:
        if self.queries.depth >= _DEEPEST:
            self._refuse(node, f"views stand within each other more than {_DEEPEST} levels deep")
        try:
            relation = self.queries.bind_view(view)
        except SqlError as error:
            self._refuse(node, f"the view's query is not right any more: {error.problem}")
        return renamed(self._binder([]), node, relation, view.columns)

    def _table(self, identifier: Identifier, table: CatalogTable) -> Relation:
        """What a query reads of a table: its rows, with computed columns and event time."""
        scan = self._scan(identifier, table)
        scoped = [ScopedColumn(column, place, ()) for place, column in enumerate(scan.columns)]
        places = {column.name: place for place, column in enumerate(scan.columns)}
        columns: list[Column] = []
        expressions: list[RowExpression] = []
        for declared in table.columns:
            if declared.computed is None:
                column = scan.columns[places[declared.name]]
                columns.append(column)
                expressions.append(InputColumn(column.type, places[declared.name], column.name))
            else:
                binder = ExpressionBinder(Scope(scoped), self.queries.session, declared.text)
                bound = binder.bind(declared.computed)
                is_proctime = (
                    isinstance(declared.computed, n.Call) and declared.computed.function[-1].upper() == "PROCTIME"
                )
                columns.append(Column(declared.name, bound.type, "PROCTIME" if is_proctime else None))
                expressions.append(bound)
        relation = scan
        if any(declared.computed is not None for declared in table.columns):
            relation = Projection(tuple(columns), scan, tuple(expressions))
        if table.watermark is not None:
            relation = self._with_watermark(relation, table)
        return relation

    def _with_watermark(self, relation: Relation, table: CatalogTable) -> Relation:
        assert table.watermark is not None
        declared = table.watermark
        place = next(place for place, column in enumerate(relation.columns) if column.name == declared.column)
        scoped = [ScopedColumn(column, index, ()) for index, column in enumerate(relation.columns)]
        watermark = ExpressionBinder(Scope(scoped), self.queries.session, declared.text).bind(declared.expression)
        columns = tuple(
            replace(column, time_attribute="ROWTIME") if index == place else column
            for index, column in enumerate(relation.columns)
        )
        return WatermarkAssigner(columns, relation, place, watermark)

    # -- table functions

    def _scan(self, identifier: Identifier, table: CatalogTable) -> Relation:
        """The rows of a table's connector, with metadata in the types that the table declares."""
        declared = [column for column in table.columns if column.computed is None]
        read = declared
        if any(column.metadata_key is not None for column in declared):
            with suppress(TableOptionError):  # it is raised when the table is read
                _, context = connector_of(identifier, table)
                read = [column for column in context.table.columns if column.computed is None]
        columns = [Column(column.name, column.type) for column in read if column.type is not None]
        scan = Scan(tuple(columns), identifier, table)
        casts: list[RowExpression] = []
        for place, (column, declaration) in enumerate(zip(scan.columns, declared, strict=True)):
            value: RowExpression = InputColumn(column.type, place, column.name)
            assert declaration.type is not None
            if column.type.nullable_() != declaration.type.nullable_():
                try:
                    value = cast(value, declaration.type, self.queries.session)
                except OperandsRefused as refused:
                    name = f"{'.'.join(identifier)}: the metadata column {column.name}"
                    raise TableOptionError(f"table {name}: {refused}") from None
            casts.append(value)
        if all(isinstance(value, InputColumn) for value in casts):
            return scan
        named = [Column(column.name, value.type) for column, value in zip(scan.columns, casts, strict=True)]
        return Projection(tuple(named), scan, tuple(casts))

    def _table_function(self, node: n.TableFunction) -> Relation:
        call = node.call
        name = ".".join(call.function)
        if name.upper() not in WINDOW_FUNCTIONS:
            self._refuse(node, f"there is no table function {name}{near(name.upper(), WINDOW_FUNCTIONS)}")
        binder = self._binder([])
        arguments = window_arguments(call, binder)
        data = arguments["DATA"]
        keys: tuple[n.ValueExpression, ...] = ()
        match data:
            case n.TableArgument(table=n.Query() as query):
                relation, keys = self.queries.bind_nested(query), data.partition_by
            case n.TableArgument(table=tuple() as path):
                relation, keys = self.named(n.NamedTable(path, at=data.at))[0], data.partition_by
            case n.ScalarQuery():
                relation = self.queries.bind_nested(data.query)
            case _:
                self._refuse(data, f"{name.upper()} is over a table: {name.upper()}(TABLE t, ...)")
        inner = self._binder([ScopedColumn(column, place, ()) for place, column in enumerate(relation.columns)])
        partition = []
        for key in keys:
            bound = inner.bind(key)
            if not isinstance(bound, InputColumn):
                self._refuse(key, "PARTITION BY of a window is over columns: compute them in a query before")
            partition.append(bound.index)
        return window_table(call, arguments, relation, partition, binder)

    # -- joins

    def _join(self, node: n.JoinedTable) -> Source:
        left, left_scope = self.bind(node.left)
        kind = _KINDS[node.kind]
        right_node = node.right
        if isinstance(right_node, n.Aliased):
            inner = right_node.source
            if isinstance(inner, n.UnnestedTable) or (isinstance(inner, n.DerivedTable) and inner.is_lateral):
                return self._lateral_join(node, right_node, left, left_scope)
            if right_node.as_of is not None:
                return self._temporal_join(node, right_node, left, left_scope)
        right, right_scope = self.bind(right_node)
        width = len(left.columns)
        moved_scope = [replace(scoped, index=scoped.index + width) for scoped in right_scope]
        scoped = [*left_scope, *moved_scope]
        conditions: list[RowExpression] = []
        names = node.using
        if node.is_natural:
            right_names = {item.column.name for item in right_scope if not item.is_merged}
            names = tuple(
                item.column.name for item in left_scope if not item.is_merged and item.column.name in right_names
            )
        if node.condition is not None:
            conditions.append(self._binder(scoped).condition(node.condition, "ON"))
        pairs = [
            (self._merged_column(node, name, left_scope, "left"), self._merged_column(node, name, moved_scope, "right"))
            for name in names
        ]
        binder = self._binder(scoped)
        for one, other in pairs:
            conditions.append(binder.call(node.right, "=", _expression(one), _expression(other)))
        ttl = state_ttl_of(node.left, self.hints), state_ttl_of(right_node, self.hints)
        relation = joined(left, right, kind, conditions, state_ttl=ttl)
        if kind in (JoinKind.SEMI, JoinKind.ANTI):
            return relation, _current(left_scope, relation)
        if pairs:
            return self._merged(node, relation, kind, scoped, pairs)
        return relation, _current(scoped, relation)

    def _merged_column(self, node: n.JoinedTable, name: str, scoped: list[ScopedColumn], side: str) -> ScopedColumn:
        try:
            return Scope(scoped).find((name,))[0]
        except NameRefused as refused:
            self._refuse(node.right, f"USING ({name}): on the {side} side, {refused}")

    def _merged(
        self, node: n.JoinedTable, relation: Relation, kind: JoinKind, scoped: list[ScopedColumn],
        pairs: Sequence[tuple[ScopedColumn, ScopedColumn]],
    ) -> Source:  # fmt: skip
        """The columns after USING: those of both sides first, as one column each."""
        binder = self._binder(scoped)
        scoped = _current(scoped, relation)
        hidden: set[int] = set()
        merged: list[ScopedColumn] = []
        for one, other in pairs:
            if kind is JoinKind.FULL:
                sides = [column_at(relation, one.index), column_at(relation, other.index)]
                value = binder.call(node.right, "COALESCE", *sides)
                relation, (place,) = extended(relation, [value], [one.column.name])
                merged.append(ScopedColumn(relation.columns[place], place, ()))
                hidden |= {one.index, other.index}
            else:
                shown, other_side = (other, one) if kind is JoinKind.RIGHT else (one, other)
                merged.append(next(item for item in scoped if item.index == shown.index and not item.is_merged))
                hidden.add(other_side.index)
        shown_places = {item.index for item in merged}
        rest = [
            replace(item, is_merged=item.is_merged or item.index in hidden)
            for item in scoped
            if item.index not in shown_places or item.is_merged
        ]
        return relation, [*merged, *rest]

    # -- versions and lookups

    def _temporal_join(
        self, node: n.JoinedTable, right_node: n.Aliased, left: Relation, left_scope: list[ScopedColumn]
    ) -> Source:
        assert right_node.as_of is not None
        kind = _KINDS[node.kind]
        if kind not in (JoinKind.INNER, JoinKind.LEFT):
            self._refuse(right_node, f"a join FOR SYSTEM_TIME AS OF is inner or left, not {node.kind}")
        time = self._binder(left_scope).bind(right_node.as_of)
        attribute = left.columns[time.index].time_attribute if isinstance(time, InputColumn) else None
        if isinstance(right_node.as_of, n.Call) and right_node.as_of.function[-1].upper() == "PROCTIME":
            attribute = "PROCTIME"
        if attribute is None:
            self._refuse(
                right_node.as_of, "Temporal table join only supports join on a left table's time attribute: "
                f"{time} is none",
            )  # fmt: skip
        if node.condition is None and not node.using:
            self._refuse(right_node, "a join FOR SYSTEM_TIME AS OF needs an ON with the key of the table")
        right, right_scope = self._aliased(replace(right_node, as_of=None))
        width = len(left.columns)
        scoped = [*left_scope, *[replace(item, index=item.index + width) for item in right_scope]]
        binder = self._binder(scoped)
        conditions = [] if node.condition is None else conjuncts_of(binder.condition(node.condition, "ON"))
        for name in node.using:
            one = self._merged_column(node, name, left_scope, "left")
            other = self._merged_column(node, name, scoped[len(left_scope) :], "right")
            conditions.append(binder.call(node.right, "=", _expression(one), _expression(other)))
        if attribute == "PROCTIME":
            relation = self._lookup(right_node, left, right, kind, conditions)
        else:
            assert isinstance(time, InputColumn)
            relation = self._versioned(right_node, left, right, kind, conditions, time.index)
        return relation, _current(scoped, relation)

    def _versioned(
        self, node: n.Aliased, left: Relation, right: Relation, kind: JoinKind, conditions: list[RowExpression],
        left_time: int,
    ) -> Relation:  # fmt: skip
        time = next((place for place, column in enumerate(right.columns) if column.time_attribute == "ROWTIME"), None)
        keys = unique_keys(right)
        if not keys:
            self._refuse(
                node, "Temporal Table Join requires primary key in versioned table, but no primary key can be found: "
                "declare PRIMARY KEY ... NOT ENFORCED, or use a view with ROW_NUMBER() ... = 1",
            )  # fmt: skip
        if time is None:
            self._refuse(
                node,
                "Event-Time Temporal Table Join requires both primary key and row time attribute in "
                "versioned table, but no row time attribute can be found: declare WATERMARK FOR",
            )
        relation, join = with_versions(left, right, kind, conditions, left_time, time)
        equal = {key.right for key in join.keys}
        if not any(key <= equal for key in keys):
            names = " or ".join(f"({', '.join(right.columns[place].name for place in sorted(key))})" for key in keys)
            self._refuse(
                node, "Temporal table join requires an equality condition on the primary key of the versioned table: "
                f"its key is {names}",
            )  # fmt: skip
        return relation

    def _lookup(
        self, node: n.Aliased, left: Relation, right: Relation, kind: JoinKind, conditions: list[RowExpression]
    ) -> Relation:
        source = right.input if isinstance(right, Projection) and isinstance(right.input, WatermarkAssigner) else right
        source = source.input if isinstance(source, (WatermarkAssigner, Normalize)) else source
        items = all_columns(right)
        if isinstance(source, Projection):
            items, source = list(source.expressions), source.input
        if not isinstance(source, Scan):
            self._refuse(
                node, "FOR SYSTEM_TIME AS OF a processing time looks a table up: it can't be a query or a view"
            )
        width = len(left.columns)
        shifted = [moved(item, lambda place: place + width) for item in items]
        inputs = [*all_columns(left), *shifted]
        name = node.alias or source.identifier[-1]
        options = next(
            (hint.options for hint in self.hints if hint.name == "LOOKUP" and dict(hint.options).get("table") == name),
            (),
        )
        relation = looked_up(left, source, kind, [composed(part, inputs) for part in conditions], options)
        if relation is None:
            table = ".".join(source.identifier)
            self._refuse(node, f"Temporal table join requires an equality condition on fields of table [{table}]")
        if all(isinstance(item, InputColumn) for item in items) and len(items) == len(source.columns):
            return relation
        is_outer = kind is JoinKind.LEFT
        columns = [*relation.columns[:width], *[
            replace(column, type=rules.with_null(column.type, column.type.nullable or is_outer), time_attribute=None)
            for column in right.columns
        ]]  # fmt: skip
        return projected(columns, relation, inputs)

    # -- collections and queries for each row

    def _lateral_join(
        self, node: n.JoinedTable, right_node: n.Aliased, left: Relation, left_scope: list[ScopedColumn]
    ) -> Source:
        kind = _KINDS[node.kind]
        if kind not in (JoinKind.INNER, JoinKind.LEFT):
            self._refuse(
                right_node, f"what is computed for each row is joined by CROSS, INNER or LEFT JOIN, not {node.kind}"
            )
        if node.using or node.is_natural:
            self._refuse(right_node, "what is computed for each row is joined with ON TRUE")
        relation, scoped = self._unnested(left, left_scope, right_node, is_outer=kind is JoinKind.LEFT)
        if node.condition is not None:
            condition = self._binder(scoped).condition(node.condition, "ON")
            parts = conjuncts_of(condition)
            if parts and kind is JoinKind.LEFT:
                self._refuse(right_node, "a LEFT JOIN of what is computed for each row has the condition ON TRUE")
            if parts:
                joiner = QueryJoiner(relation, self._binder(scoped))
                joiner.filter(condition)
                relation = joiner.relation
        return relation, _current(scoped, relation)

    def _unnested(self, left: Relation, left_scope: list[ScopedColumn], node: n.Aliased, *, is_outer: bool) -> Source:
        qualifiers = ((node.alias,),) if node.alias is not None else ()
        if isinstance(node.source, n.DerivedTable):
            relation, first = self._lateral_query(left, left_scope, node.source, is_outer=is_outer)
        else:
            assert isinstance(node.source, n.UnnestedTable)
            relation, first = self._unnest(left, left_scope, node, node.source, is_outer=is_outer)
        added = relation.columns[first:]
        if node.columns:
            if len(node.columns) != len(added):
                self._refuse(node, f"{len(node.columns)} names are given for {len(added)} columns")
            added = tuple(replace(column, name=name) for column, name in zip(added, node.columns, strict=True))
            relation = projected([*relation.columns[:first], *added], relation, all_columns(relation))
        scoped = [ScopedColumn(column, first + place, qualifiers) for place, column in enumerate(added)]
        return relation, [*left_scope, *scoped]

    def _unnest(
        self,
        left: Relation,
        left_scope: list[ScopedColumn],
        node: n.Aliased,
        unnest: n.UnnestedTable,
        *,
        is_outer: bool,
    ) -> tuple[Relation, int]:
        collections = [self._binder(left_scope).bind(item) for item in unnest.collections]
        elements: list[Column] = []
        for item, collection in zip(unnest.collections, collections, strict=True):
            alias = node.alias if len(collections) == 1 else f"f{len(elements)}"
            added = _element_columns(collection.type, alias)
            if added is None:
                self._refuse(item, f"UNNEST needs an ARRAY, a MAP or a MULTISET, not {collection.type}")
            elements += added
        collection = collections[0]
        if len(collections) > 1:  # the shorter ones are filled up with NULLs
            elements = [replace(column, type=rules.with_null(column.type, True)) for column in elements]
            fields = tuple(RowField(f"f{place}", column.type) for place, column in enumerate(elements))
            rows_of_elements = ElementsType("ARRAY", nullable=False, element_type=RowType("ROW", fields=fields))
            kinds = tuple(_kind_of_elements(item.type) for item in collections)
            collection = operation(
                "ARRAYS_ZIP", "nested:zipped", collections, rows_of_elements, nullable=False, kinds=kinds
            )
        if unnest.with_ordinality:
            elements.append(Column("ORDINALITY", DataTypes.INT(False)))
        if is_outer:
            elements = [replace(column, type=rules.with_null(column.type, True)) for column in elements]
        rows, (place,) = extended(left, [collection])
        return Unnest((*rows.columns, *elements), rows, place, is_outer, unnest.with_ordinality), len(rows.columns)

    def _lateral_query(
        self, left: Relation, left_scope: list[ScopedColumn], node: n.DerivedTable, *, is_outer: bool
    ) -> tuple[Relation, int]:
        scope = Scope(left_scope, self.queries.outer)
        inner, outer = parametrised(self.queries.bind_inner(node.query, scope))
        query = QueryResult(rules.NULL, inner, QueryUse.SCALAR, (), outer_parameters(outer), node)
        joiner = QueryJoiner(left, self._binder(left_scope))
        joiner.join(query, JoinKind.LEFT if is_outer else JoinKind.INNER)
        return joiner.relation, len(left.columns)


def renamed(binder: ExpressionBinder, node: n.Node, relation: Relation, names: Sequence[str]) -> Relation:
    """The relation with other names of its columns.

    Raises:
        SqlError: there are fewer or more names than columns.
    """
    if not names:
        return relation
    if len(names) != len(relation.columns):
        binder.refuse(node, f"{len(names)} names are given for {len(relation.columns)} columns")
    columns = [replace(column, name=name) for column, name in zip(relation.columns, names, strict=True)]
    if isinstance(relation, ConstantRows):  # what fails over them is told with these names
        return replace(relation, columns=tuple(columns))
    return projected(columns, relation, all_columns(relation))


def _expression(scoped: ScopedColumn) -> RowExpression:
    return InputColumn(scoped.column.type, scoped.index, scoped.column.name)


def _current(scoped: Sequence[ScopedColumn], relation: Relation) -> list[ScopedColumn]:
    """The names, with the types that the relation's columns have now."""
    return [replace(item, column=relation.columns[item.index]) for item in scoped]


def _kind_of_elements(data_type: DataType) -> str:
    """What the elements of a collection are: ROW, VALUE, ENTRY (of a map) or REPEATED (of a multiset)."""
    if isinstance(data_type, MapType):
        return "ENTRY"
    assert isinstance(data_type, ElementsType)
    if data_type.name == "MULTISET":
        return "REPEATED"
    return "ROW" if isinstance(data_type.element_type, RowType) else "VALUE"


def _element_columns(data_type: DataType, alias: str | None) -> list[Column] | None:
    """The columns of a collection's elements; None if it is no collection."""
    match data_type:
        case MapType():
            return [Column("KEY", data_type.key_type), Column("VALUE", data_type.value_type)]
        case ElementsType(element_type=RowType() as row):
            return [Column(name, field) for name, field in zip(row.field_names(), row.field_types(), strict=True)]
        case ElementsType():
            return [Column(alias or "f0", data_type.element_type)]
    return None

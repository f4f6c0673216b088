"""Fields of rows as columns: of a column that holds rows, operators and sources get the fields that a query reads.

``SELECT bid.price FROM events WHERE kind = 2`` reads one field of the column ``bid``. It is taken out directly behind
the table, so that no operator has to copy the other fields, and then the table is read without them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from firesteel.table.types import RowType
from firesteel_sql.catalog.tables import TableColumn
from firesteel_sql.plan.projections import all_columns, chosen_columns, column_at
from firesteel_sql.plan.relations import Column, Filter, Projection, Relation, Scan, WatermarkAssigner
from firesteel_sql.plan.row_expressions import AppliedFunction, InputColumn, RowExpression, replaced
from firesteel_sql.plan.traversal import expressions_of, with_inputs

Field = tuple[int, int]
"""Place of a column, and of one of its fields."""


def field_of(expression: RowExpression) -> Field | None:
    """The field that an expression is; None = it is no field of a column."""
    match expression:
        case AppliedFunction(name="FIELD", inputs=(InputColumn() as column,)):
            return column.index, dict(expression.options)["index"]
    return None


@dataclass
class _Reads:
    """What is read of a relation.

    Attributes:
        columns: places of columns that are read as they are.
        fields: fields of the other columns, with an expression that is one.
    """

    columns: set[int] = field(default_factory=set)
    fields: dict[Field, RowExpression] = field(default_factory=dict)

    def add(self, expression: RowExpression) -> None:
        """Add what an expression reads."""
        place = field_of(expression)
        if place is not None:
            self.fields[place] = expression
        elif isinstance(expression, InputColumn):
            self.columns.add(expression.index)
        else:
            for operand in expression.operands:
                self.add(operand)


def with_fields_as_columns(relations: Sequence[Relation]) -> list[Relation]:
    """Relations with the same rows, in which fields of rows are columns from behind the tables on.

    The rows themselves stay beside them: ``pruned`` drops those that nobody reads.
    """
    ordered = list(_inputs_first(relations))
    reads = {id(relation): _Reads() for relation in ordered}
    for relation in relations:
        reads[id(relation)].columns.update(range(len(relation.columns)))
    for relation in reversed(ordered):
        _read_inputs(relation, reads)
    rebuilt: dict[int, _Extended] = {}
    for relation in ordered:
        rebuilt[id(relation)] = _extended(relation, reads[id(relation)], [rebuilt[id(p)] for p in relation.inputs])
    return [rebuilt[id(relation)].original for relation in relations]


def _inputs_first(relations: Iterable[Relation]) -> Iterator[Relation]:
    """Each relation once, behind its inputs."""
    seen: set[int] = set()

    def visit(relation: Relation) -> Iterator[Relation]:
        if id(relation) not in seen:
            seen.add(id(relation))
            for part in relation.inputs:
                yield from visit(part)
            yield relation

    for relation in relations:
        yield from visit(relation)


def _read_inputs(relation: Relation, reads: Mapping[int, _Reads]) -> None:
    """Add what a relation reads of its inputs, if so much is read of its own columns."""
    own = reads[id(relation)]
    match relation:
        case Projection():
            inner = reads[id(relation.input)]
            for place, expression in enumerate(relation.expressions):
                if isinstance(expression, InputColumn) and place not in own.columns:
                    for (column, index), access in own.fields.items():
                        if column == place:
                            inner.fields[expression.index, index] = access
                else:
                    inner.add(expression)
        case Filter() | WatermarkAssigner():
            inner = reads[id(relation.input)]
            inner.columns.update(own.columns)
            inner.fields.update(own.fields)
            for expression in expressions_of(relation):
                inner.add(expression)
            if isinstance(relation, WatermarkAssigner):
                inner.columns.add(relation.column)
        case _:
            for part in relation.inputs:
                reads[id(part)].columns.update(range(len(part.columns)))


@dataclass(frozen=True)
class _Extended:
    """A relation with fields as further columns.

    Attributes:
        relation: its first columns are those of the original one.
        width: how many these are.
        places: of the fields.
    """

    relation: Relation
    width: int
    places: Mapping[Field, int]

    @property
    def original(self) -> Relation:
        """The relation with the columns of the original one."""
        return chosen_columns(self.relation, range(self.width)) if self.places else self.relation

    def over(self, expression: RowExpression) -> RowExpression:
        """An expression over the original relation, which takes fields from their columns."""

        def column(part: RowExpression) -> RowExpression | None:
            place = field_of(part)
            known = None if place is None else self.places.get(place)
            return None if known is None else replace(column_at(self.relation, known), type=part.type)

        return replaced(expression, column)

    @property
    def further(self) -> tuple[Column, ...]:
        """The columns of fields."""
        return self.relation.columns[self.width :]


def _extended(relation: Relation, own: _Reads, inputs: Sequence[_Extended]) -> _Extended:
    width = len(relation.columns)
    match relation:
        case Scan():
            chosen = {place: access for place, access in own.fields.items() if place[0] not in own.columns}
            if not chosen:
                return _Extended(relation, width, {})
            columns, items = list(relation.columns), all_columns(relation)
            for (place, _), access in chosen.items():
                assert isinstance(access, AppliedFunction)
                items.append(replace(access, inputs=(column_at(relation, place),)))
                columns.append(Column(f"{relation.columns[place].name}.{dict(access.options)['field']}", access.type))
            places = {place: width + number for number, place in enumerate(chosen)}
            return _Extended(Projection(tuple(columns), relation, tuple(items)), width, places)
        case Filter():
            (inner,) = inputs
            condition = inner.over(relation.condition)
            return _Extended(
                Filter((*relation.columns, *inner.further), inner.relation, condition), width, inner.places
            )
        case WatermarkAssigner():
            (inner,) = inputs
            watermark = inner.over(relation.watermark)
            columns = [*relation.columns, *inner.further]
            assigner = WatermarkAssigner(tuple(columns), inner.relation, relation.column, watermark)
            return _Extended(assigner, width, inner.places)
        case Projection():
            (inner,) = inputs
            items = [inner.over(expression) for expression in relation.expressions]
            columns, passed = list(relation.columns), dict[Field, int]()
            for place, index in own.fields:
                expression = relation.expressions[place]
                known = inner.places.get((expression.index, index)) if isinstance(expression, InputColumn) else None
                if known is not None:
                    passed[place, index] = len(columns)
                    columns.append(inner.relation.columns[known])
                    items.append(column_at(inner.relation, known))
            return _Extended(Projection(tuple(columns), inner.relation, tuple(items)), width, passed)
    return _Extended(with_inputs(relation, tuple(inner.original for inner in inputs)), width, {})


# -- tables without the fields that nobody reads


def with_narrow_tables(relations: Sequence[Relation], takes_fields: Callable[[Scan], bool]) -> list[Relation]:
    """The relations, whose tables are read without the fields of rows that nobody reads.

    Args:
        relations: as they are computed.
        takes_fields: whether the connector of a table reads rows that have some of their fields.
    """
    ordered = list(_inputs_first(relations))
    reads: dict[int, _Reads] = {id(relation): _Reads() for relation in ordered if isinstance(relation, Scan)}
    for relation in ordered:
        for part in relation.inputs:
            if isinstance(part, Scan) and isinstance(relation, Projection):
                for expression in relation.expressions:
                    reads[id(part)].add(expression)
            elif isinstance(part, Scan):
                reads[id(part)].columns.update(range(len(part.columns)))
    for relation in relations:
        if isinstance(relation, Scan):
            reads[id(relation)].columns.update(range(len(relation.columns)))
    narrow: dict[int, Relation] = {}
    for relation in ordered:
        if isinstance(relation, Scan):
            kept = _kept_fields(relation, reads[id(relation)])
            narrow[id(relation)] = _narrowed(relation, kept) if kept and takes_fields(relation) else relation
        else:
            inner = tuple(narrow[id(part)] for part in relation.inputs)
            narrow[id(relation)] = _over_narrow_table(relation, inner)
    return [narrow[id(relation)] for relation in relations]


def _kept_fields(scan: Scan, reads: _Reads) -> dict[int, list[int]]:
    """The fields of columns that lose some."""
    kept: dict[int, list[int]] = {}
    for place, index in sorted(reads.fields):
        if place not in reads.columns:
            kept.setdefault(place, []).append(index)
    return {
        place: indexes
        for place, indexes in kept.items()
        if isinstance(kind := scan.columns[place].type, RowType) and len(indexes) < len(kind.fields)
    }


def _narrowed(scan: Scan, kept: Mapping[int, Sequence[int]]) -> Scan:
    columns = list(scan.columns)
    types: dict[str, RowType] = {}
    for place, indexes in kept.items():
        kind = columns[place].type
        assert isinstance(kind, RowType)
        narrow = replace(kind, fields=tuple(kind.fields[index] for index in indexes))
        types[columns[place].name] = narrow
        columns[place] = replace(columns[place], type=narrow)

    def declared(column: TableColumn) -> TableColumn:
        return replace(column, type=types[column.name]) if column.name in types else column

    table = replace(scan.table, columns=tuple(map(declared, scan.table.columns)))
    return replace(scan, columns=tuple(columns), table=table)


def _over_narrow_table(relation: Relation, inputs: tuple[Relation, ...]) -> Relation:
    """A relation over inputs of which some tables have lost fields."""
    rebuilt = with_inputs(relation, inputs)
    if rebuilt is relation or not isinstance(rebuilt, Projection) or not isinstance(rebuilt.input, Scan):
        return rebuilt
    scan = rebuilt.input

    def in_place(part: RowExpression) -> RowExpression | None:
        place = field_of(part)
        if place is None:
            return None
        assert isinstance(part, AppliedFunction)
        kind = scan.columns[place[0]].type
        assert isinstance(kind, RowType)
        options = dict(part.options)
        options["index"] = kind.field_names().index(options["field"])
        return replace(part, inputs=(column_at(scan, place[0]),), options=tuple(options.items()))

    return replace(rebuilt, expressions=tuple(replaced(item, in_place) for item in rebuilt.expressions))

"""Relations: what a query makes of tables, as a tree of scans, filters, projections and unions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

from firesteel.table.types import DataType
from firesteel_sql.catalog.tables import CatalogTable, Identifier
from firesteel_sql.plan.row_expressions import RowExpression


@dataclass(frozen=True)
class Column:
    """A column of a relation.

    Attributes:
        name: need not be the only one of its name.
        type: of its values.
        time_attribute: ROWTIME or PROCTIME; None = an ordinary column.
    """

    name: str
    type: DataType
    time_attribute: str | None = None

    def __str__(self) -> str:
        return f"{self.name} {self.type}" + (f" *{self.time_attribute}*" if self.time_attribute else "")


@dataclass(frozen=True)
class Relation(ABC):
    """Rows with columns.

    Attributes:
        columns: in their order.
    """

    columns: tuple[Column, ...]

    @property
    def inputs(self) -> tuple[Relation, ...]:
        """The relations that this one is made of."""
        return ()

    def walk(self) -> Iterator[Relation]:
        """This relation and all that it is made of."""
        yield self
        for part in self.inputs:
            yield from part.walk()

    @abstractmethod
    def text(self) -> str:
        """The relation in EXPLAIN, without its inputs."""


@dataclass(frozen=True)
class Scan(Relation):
    """The rows of a table's connector: its physical columns.

    Attributes:
        identifier: full name of the table.
        table: its declaration, with the options of hints.
    """

    identifier: Identifier
    table: CatalogTable

    def text(self) -> str:
        fields = ", ".join(column.name for column in self.columns)
        return f"TableSourceScan(table=[[{', '.join(self.identifier)}]], fields=[{fields}])"


@dataclass(frozen=True)
class WatermarkAssigner(Relation):
    """Rows with event time.

    Attributes:
        input: the rows.
        column: place of the column with the time.
        watermark: gives the watermark for a row.
    """

    input: Relation
    column: int
    watermark: RowExpression

    @property
    def inputs(self) -> tuple[Relation, ...]:
        return (self.input,)

    def text(self) -> str:
        return f"WatermarkAssigner(rowtime=[{self.columns[self.column].name}], watermark=[{self.watermark}])"


@dataclass(frozen=True)
class Filter(Relation):
    """The rows for which a condition is true."""

    input: Relation
    condition: RowExpression

    @property
    def inputs(self) -> tuple[Relation, ...]:
        return (self.input,)

    def text(self) -> str:
        return f"Filter(where=[{self.condition}])"


@dataclass(frozen=True)
class Projection(Relation):
    """Rows of expressions over the input, one for each column."""

    input: Relation
    expressions: tuple[RowExpression, ...]

    @property
    def inputs(self) -> tuple[Relation, ...]:
        return (self.input,)

    def text(self) -> str:
        pairs = zip(self.expressions, self.columns, strict=True)
        shown = [
            str(expression) if str(expression) == column.name else f"{expression} AS {column.name}"
            for expression, column in pairs
        ]
        return f"Calc(select=[{', '.join(shown)}])"


@dataclass(frozen=True)
class Union(Relation):
    """All rows of several inputs, whose columns have the same types."""

    parts: tuple[Relation, ...]

    @property
    def inputs(self) -> tuple[Relation, ...]:
        return self.parts

    def text(self) -> str:
        return f"Union(all=[true], union=[{', '.join(column.name for column in self.columns)}])"


@dataclass(frozen=True)
class ConstantRows(Relation):
    """Rows of expressions without columns: VALUES, or the one row of a SELECT without FROM."""

    rows: tuple[tuple[RowExpression, ...], ...]

    def text(self) -> str:
        return f"Values(tuples=[{len(self.rows)} rows], values=[{', '.join(column.name for column in self.columns)}])"

"""Parts of expressions that become columns once the relation below the expressions is complete."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from typing_extensions import override

from firesteel_sql.functions.aggregates import AggregateUse
from firesteel_sql.parse import nodes as n
from firesteel_sql.plan.relations import Relation
from firesteel_sql.plan.row_expressions import RowExpression
from firesteel_sql.plan.stateful_relations import OverFrame


@dataclass(frozen=True)
class AggregateResult(RowExpression):
    """The result of a call of an aggregate function.

    Attributes:
        number: of the call in its SELECT.
    """

    number: int

    def __str__(self) -> str:
        return f"$aggregate{self.number}"


@dataclass(frozen=True)
class GroupingFlags(RowExpression):
    """``GROUPING(a)``: for each argument a bit, which is 1 in rows that are not grouped by it.

    Attributes:
        inputs: the arguments; none of GROUP_ID(), which has a bit for each key.
    """

    inputs: tuple[RowExpression, ...]

    def __str__(self) -> str:
        return f"GROUPING({', '.join(map(str, self.inputs))})"


@dataclass(frozen=True)
class OverResult(RowExpression):
    """The result of a call with OVER.

    Attributes:
        number: of the call in its SELECT.
    """

    number: int

    def __str__(self) -> str:
        return f"$over{self.number}"


class QueryUse(Enum):
    """How a query within an expression is read."""

    SCALAR = "a query as a value"
    EXISTS = "EXISTS"
    IN = "IN"


@dataclass(frozen=True)
class QueryResult(RowExpression):
    """The value of a query within an expression.

    Attributes:
        query: its rows; a column of the outer row stands in it by its place among ``parameters``.
        use: how it is read.
        searched: of IN: the values that are looked for.
        parameters: the outer row's columns that the query reads.
        node: where it stands.
    """

    query: Relation = field(hash=False)
    use: QueryUse
    searched: tuple[RowExpression, ...]
    parameters: tuple[RowExpression, ...]
    node: n.Node

    @property
    @override
    def operands(self) -> tuple[RowExpression, ...]:
        return (*self.searched, *self.parameters)

    @override
    def with_operands(self, operands: tuple[RowExpression, ...]) -> RowExpression:
        count = len(self.searched)
        return replace(self, searched=operands[:count], parameters=operands[count:])

    def __str__(self) -> str:
        return f"$query({self.use.value})"


@dataclass(frozen=True)
class PendingAggregate:
    """A call of an aggregate function, as it was bound over the rows below GROUP BY.

    Attributes:
        use: the function and its operands.
        filter: condition behind FILTER.
        distinct: each value counts once.
        order: expressions by which rows are sorted, whether ascending, whether NULL is first.
    """

    use: AggregateUse
    filter: RowExpression | None
    distinct: bool
    order: tuple[tuple[RowExpression, bool, bool], ...]


@dataclass(frozen=True)
class PendingOver:
    """A call with OVER.

    Attributes:
        call: the function.
        partition: expressions of PARTITION BY.
        order: expressions of ORDER BY, whether ascending, whether NULL is first.
        frame: over which rows.
    """

    call: PendingAggregate
    partition: tuple[RowExpression, ...]
    order: tuple[tuple[RowExpression, bool, bool], ...]
    frame: OverFrame

    def expressions(self) -> Sequence[RowExpression]:
        """All that has to be a column before OVER."""
        inside = [expression for expression, _, _ in (*self.order, *self.call.order)]
        condition = [] if self.call.filter is None else [self.call.filter]
        return [*self.partition, *inside, *self.call.use.arguments, *condition]

"""Expressions with their types."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, datetime, time
from decimal import Decimal
from difflib import get_close_matches
from functools import singledispatchmethod
from typing import NoReturn, Protocol, TypeVar

from firesteel.table.types import DataType, DataTypes, ElementsType, MapType, RowField, RowType
from firesteel_sql.bind.scope import NameRefused, Scope
from firesteel_sql.catalog.catalogs import near
from firesteel_sql.functions import nested, operators, times
from firesteel_sql.functions.absent import ABSENT
from firesteel_sql.functions.aggregates import AGGREGATES
from firesteel_sql.functions.builtin import FUNCTIONS
from firesteel_sql.functions.json_functions import JsonOption
from firesteel_sql.functions.signature import OperandsRefused, Session, cast, operation, unified
from firesteel_sql.kernels.casts import CastError, read_timestamp
from firesteel_sql.parse import nodes as n
from firesteel_sql.parse.errors import SqlError, word_end
from firesteel_sql.plan.row_expressions import Constant, InputColumn, OuterColumn, RowExpression
from firesteel_sql.types import rules
from firesteel_sql.types.columns import MICROSECONDS
from firesteel_sql.types.intervals import MILLIS, MONTHS, interval_value
from firesteel_sql.types.written import data_type_of, interval_type

Built = TypeVar("Built")


class ClauseExpressions(Protocol):
    """Binds what depends on the clause in which it stands: aggregates, OVER, queries within expressions."""

    def call(self, node: n.Call, binder: ExpressionBinder) -> RowExpression | None:
        """The meaning of a call of a function of several rows; None for all other functions."""

    def query(
        self, node: n.ScalarQuery | n.CollectionQuery | n.Exists | n.InQuery | n.Quantified, binder: ExpressionBinder
    ) -> RowExpression:
        """The meaning of a query within an expression."""


@dataclass
class ExpressionBinder:
    """Finds the meaning of expressions over the columns of a scope.

    Attributes:
        scope: the columns.
        session: what functions need to know.
        sql: the statement, for errors.
        clause: binds aggregates, OVER and queries; None = there can't be any.
        aliases: meanings of names that are no columns of the scope.
        references: where each column was last named, by its place.
    """

    scope: Scope
    session: Session
    sql: str
    clause: ClauseExpressions | None = None
    aliases: dict[str, RowExpression] = field(default_factory=dict)
    references: dict[int, n.Node] = field(default_factory=dict)

    def bind(self, node: n.ValueExpression) -> RowExpression:
        """The meaning of an expression.

        Raises:
            SqlError: a name is unknown, or types do not fit.
        """
        return self._bind(node)

    def condition(self, node: n.ValueExpression, clause: str) -> RowExpression:
        """The meaning of a condition.

        Raises:
            SqlError: as ``bind``, or it is no condition.
        """
        found = self.bind(node)
        if found.type.name not in ("BOOLEAN", "NULL"):
            self.refuse(node, f"{clause} needs a condition, not {found.type}")
        return found if found.type.name == "BOOLEAN" else Constant(rules.BOOLEAN, None)

    def refuse(self, node: n.Node, problem: str) -> NoReturn:
        """Say what is wrong at the place of a node.

        Raises:
            SqlError: always.
        """
        raise SqlError(problem, self.sql, node.at, word_end(self.sql, node.at))

    def error(self, at: int, problem: str) -> SqlError:
        """The error for a place."""
        return SqlError(problem, self.sql, at, word_end(self.sql, at))

    def call(self, node: n.Node, function: str, *operands: RowExpression) -> RowExpression:
        """An operation of a function.

        Raises:
            SqlError: the operands do not fit.
        """
        return self.checked(node, lambda: FUNCTIONS[function].build(operands, self.session), function)

    def checked(self, node: n.Node, build: Callable[[], Built], name: str) -> Built:
        """What a function builds of operands.

        Raises:
            SqlError: the operands do not fit.
        """
        try:
            return build()
        except OperandsRefused as refused:
            self.refuse(node, f"{name}: {refused}" if name[0].isalpha() and name != "negate" else str(refused))

    # -- each kind of node

    @singledispatchmethod
    def _bind(self, node: n.ValueExpression) -> RowExpression:
        self.refuse(node, "this can't stand in an expression")

    @_bind.register
    def _(self, node: n.NumberLiteral) -> RowExpression:
        if "e" in node.text.lower():
            return Constant(DataTypes.DOUBLE(False), float(node.text))
        value = Decimal(node.text)
        if "." not in node.text:
            whole = int(value)
            if whole < 1 << 31:
                return Constant(DataTypes.INT(False), whole)
            if whole < 1 << 63:
                return Constant(DataTypes.BIGINT(False), whole)
        _, digits, exponent = value.as_tuple()
        scale = -int(exponent)
        precision = max(len(digits), scale, 1)
        if precision > 38:
            self.refuse(node, "a number has 38 digits at most; with an exponent (1e50) it is a DOUBLE")
        return Constant(DataTypes.DECIMAL(precision, scale, False), value)

    @_bind.register
    def _(self, node: n.StringLiteral) -> RowExpression:
        return Constant(DataType("CHAR", (len(node.value),), False), node.value)

    @_bind.register
    def _(self, node: n.BinaryLiteral) -> RowExpression:
        return Constant(DataType("BINARY", (len(node.value),), False), node.value)

    @_bind.register
    def _(self, node: n.BooleanLiteral) -> RowExpression:
        return Constant(DataTypes.BOOLEAN(node.value is None), node.value)

    @_bind.register
    def _(self, node: n.NullLiteral) -> RowExpression:
        return Constant(rules.NULL, None)

    @_bind.register
    def _(self, node: n.TimeLiteral) -> RowExpression:
        value: date | time | datetime
        try:
            moment = read_timestamp(f"1970-01-01 {node.text}" if node.type_name == "TIME" else node.text)
        except CastError:
            self.refuse(node, f"'{node.text}' is no {node.type_name}: write it as {_MOMENTS[node.type_name]}")
        fraction = len(node.text.partition(".")[2])
        if fraction > MICROSECONDS:
            self.refuse(node, f"a {node.type_name} holds microseconds: at most six digits behind the second")
        match node.type_name:
            case "DATE":
                value, data_type = moment.date(), DataTypes.DATE(False)
            case "TIME":
                value, data_type = moment.time(), DataTypes.TIME(fraction, False)
            case _:
                value, data_type = moment, DataTypes.TIMESTAMP(fraction, False)
        return Constant(data_type, value)

    @_bind.register
    def _(self, node: n.IntervalLiteral) -> RowExpression:
        data_type = rules.with_null(interval_type(node.unit, self.error), False)
        try:
            value = interval_value(node.text, node.unit.first, node.unit.last)
        except ValueError as error:
            self.refuse(node, str(error))
        return Constant(data_type, -value if node.is_negative else value)

    @_bind.register
    def _(self, node: n.ComputedInterval) -> RowExpression:
        unit = node.unit.first
        count = self.bind(node.count)
        size = Constant(DataTypes.BIGINT(False), MONTHS[unit] if unit in MONTHS else MILLIS[unit])
        months = self.call(node, "*", count, size)
        return operation("INTERVAL", "numbers:multiply", months.operands, interval_type(node.unit, self.error))

    @_bind.register
    def _(self, node: n.ColumnReference) -> RowExpression:
        word = node.path[0].upper()
        try:
            scoped, fields, depth = self.scope.find(node.path)
        except NameRefused as refused:
            if len(node.path) == 1 and node.path[0] in self.aliases:
                return self.aliases[node.path[0]]
            if len(node.path) == 1 and word in times.WITHOUT_PARENTHESES:
                return self.call(node, word)
            self.refuse(node, f"{refused}{self._keyword_meant(word) if len(node.path) == 1 else ''}")
        column = scoped.column
        found: RowExpression
        if depth:
            found = OuterColumn(column.type, scoped.index, column.name, depth)
        else:
            self.references[scoped.index] = node
            found = InputColumn(column.type, scoped.index, column.name)
        for name in fields:
            found = self._field(node, found, name)
        return found

    def _keyword_meant(self, word: str) -> str:
        """What to say of a name that is no column, but looks like a word of SQL."""
        if word in FUNCTIONS or word in AGGREGATES:
            return f"; the function is called with parentheses, {word}(...)"
        alike = get_close_matches(word, ("DISTINCT", "NULL", "TRUE", "FALSE", *times.WITHOUT_PARENTHESES), 1, 0.8)
        return f"; did you mean {alike[0]}?" if alike else ""

    def _field(self, node: n.Node, row: RowExpression, name: str) -> RowExpression:
        if not isinstance(row.type, RowType):
            hint = ""
            if isinstance(row.type, MapType):
                hint = f": the value of a key is {row}['{name}']"
            elif isinstance(row.type, ElementsType):
                hint = f": an element has a number, {row}[1].{name}"
            self.refuse(node, f"{row} is {row.type.nullable_()}, which has no fields{hint}")
        names = row.type.field_names()
        if name not in names:
            self.refuse(node, f"{row} has no field {name}{near(name, names)}")
        index = names.index(name)
        data_type = row.type.field_types()[index]
        return operation(
            "FIELD", "nested:field", (row,), data_type, nullable=data_type.nullable or row.type.nullable, index=index,
            field=name,
        )  # fmt: skip

    @_bind.register
    def _(self, node: n.Member) -> RowExpression:
        return self._field(node, self.bind(node.operand), node.name)

    @_bind.register
    def _(self, node: n.Element) -> RowExpression:
        value, index = self.bind(node.operand), self.bind(node.index)
        return self.checked(node, lambda: nested.element_of(value, index, self.session), "[]")

    @_bind.register
    def _(self, node: n.Unary) -> RowExpression:
        if node.operator == "-" and isinstance(node.operand, n.NumberLiteral):
            return self._negative(node, node.operand)
        operand = self.bind(node.operand)
        if node.operator == "+":
            return operand
        return self.call(node, "negate" if node.operator == "-" else "NOT", operand)

    def _negative(self, node: n.Unary, number: n.NumberLiteral) -> RowExpression:
        if number.text in ("2147483648", "9223372036854775808"):
            data_type = DataTypes.INT(False) if len(number.text) == 10 else DataTypes.BIGINT(False)
            return Constant(data_type, -int(number.text))
        positive = self.bind(number)
        assert isinstance(positive, Constant)
        return Constant(positive.type, -positive.value)

    @_bind.register
    def _(self, node: n.Binary) -> RowExpression:
        return self.call(node, node.operator, self.bind(node.left), self.bind(node.right))

    @_bind.register
    def _(self, node: n.IsTest) -> RowExpression:
        operand = self.bind(node.operand)
        test = "NULL" if node.test == "UNKNOWN" else node.test
        if test == "JSON VALUE":
            test = "JSON"
        return self._negated(node, self.call(node, f"IS {test}", operand), node.is_negated)

    def _negated(self, node: n.Node, found: RowExpression, is_negated: bool) -> RowExpression:
        return self.call(node, "NOT", found) if is_negated else found

    @_bind.register
    def _(self, node: n.IsDistinct) -> RowExpression:
        found = self.call(node, "IS DISTINCT FROM", self.bind(node.left), self.bind(node.right))
        return self._negated(node, found, node.is_negated)

    @_bind.register
    def _(self, node: n.Between) -> RowExpression:
        value, low, high = self.bind(node.operand), self.bind(node.low), self.bind(node.high)
        found = self._within(node, value, low, high)
        if node.is_symmetric:
            found = self.call(node, "OR", found, self._within(node, value, high, low))
        return self._negated(node, found, node.is_negated)

    def _within(self, node: n.Node, value: RowExpression, low: RowExpression, high: RowExpression) -> RowExpression:
        return self.call(node, "AND", self.call(node, ">=", value, low), self.call(node, "<=", value, high))

    @_bind.register
    def _(self, node: n.InList) -> RowExpression:
        operands = [self.bind(item) for item in (node.operand, *node.items)]
        return self._negated(node, self.call(node, "IN", *operands), node.is_negated)

    @_bind.register
    def _(self, node: n.Like) -> RowExpression:
        operands = [self.bind(node.operand), self.bind(node.pattern)]
        if node.escape is not None:
            operands.append(self.bind(node.escape))
        found = self.call(node, _PATTERNS[node.kind], *operands)
        return self._negated(node, found, node.is_negated)

    @_bind.register
    def _(self, node: n.Case) -> RowExpression:
        conditions, values = [], []
        operand = None if node.operand is None else self.bind(node.operand)
        for when in node.whens:
            if operand is None:
                conditions.append(self.condition(when.condition, "WHEN"))
            else:
                conditions.append(self.call(when, "=", operand, self.bind(when.condition)))
            values.append(self.bind(when.result))
        otherwise = Constant(rules.NULL, None) if node.otherwise is None else self.bind(node.otherwise)
        return self.checked(node, lambda: operators.chosen(conditions, values, otherwise, self.session), "CASE")

    @_bind.register
    def _(self, node: n.Cast) -> RowExpression:
        target = data_type_of(node.type, self.error)
        operand = self.bind(node.operand)
        return self.checked(node, lambda: cast(operand, target, self.session, is_try=node.is_try), "CAST")

    @_bind.register
    def _(self, node: n.Constructor) -> RowExpression:
        items = [self.bind(item) for item in node.items]
        if node.kind == "ROW":
            fields = tuple(RowField(f"EXPR${index}", item.type) for index, item in enumerate(items))
            return operation("ROW", "nested:row", items, RowType("ROW", fields=fields), nullable=False)
        if not items:
            self.refuse(node, f"{node.kind}[] needs an element: its type is not known otherwise")
        if node.kind == "MAP":
            if len(items) % 2:
                self.refuse(node, "MAP has a value for each key: MAP['a', 1, 'b', 2]")
            keys, key_type = self._unified(node, items[::2])
            values, value_type = self._unified(node, items[1::2])
            pairs = [part for pair in zip(keys, values, strict=True) for part in pair]
            data_type: DataType = MapType("MAP", key_type=key_type, value_type=value_type)
            return operation("MAP", "nested:map_", pairs, data_type, nullable=False)
        if node.kind == "MULTISET":
            self.refuse(node, "MULTISET[...] is not supported yet")
        parts, element_type = self._unified(node, items)
        data_type = ElementsType(node.kind, element_type=element_type)
        return operation("ARRAY", "nested:array", parts, data_type, nullable=False)

    def _unified(self, node: n.Node, items: list[RowExpression]) -> tuple[list[RowExpression], DataType]:
        """The items, all of one type, and that type."""
        try:
            found = unified(items, self.session)
        except OperandsRefused as refused:
            self.refuse(node, str(refused))
        common = rules.common_type([item.type for item in found])
        assert common is not None
        if common.name == "NULL":
            self.refuse(node, "all elements are NULL: give one of them a type with CAST(NULL AS ...)")
        return found, common

    @_bind.register
    def _(self, node: n.Symbol) -> RowExpression:
        return Constant(DataType("CHAR", (len(node.word),), False), node.word)

    @_bind.register
    def _(self, node: n.Call) -> RowExpression:
        name = ".".join(node.function).upper()
        if self.clause is not None and (meaning := self.clause.call(node, self)) is not None:
            return meaning
        try:
            function = self.session.function(node.function)
        except OperandsRefused as refused:
            self.refuse(node, str(refused))
        if function is None:
            if name in AGGREGATES:
                self.refuse(node, f"the aggregate function {name} can't stand here: it belongs to a SELECT")
            if name in ABSENT:
                self.refuse(node, f"there is no function {name}: {ABSENT[name]}")
            known = [
                known_name
                for known_name in (*FUNCTIONS, *AGGREGATES)
                if known_name[0].isalpha() and " " not in known_name
            ]
            if self.session.user_functions is not None:
                known += self.session.user_functions.near(node.function)
            self.refuse(node, f"there is no function {'.'.join(node.function)}{near(name, known)}")
        if node.over is not None or node.filter is not None or node.is_distinct or node.order_by:
            self.refuse(node, f"{name} is no aggregate function: OVER, FILTER, DISTINCT and ORDER BY do not go with it")
        name = function.name
        operands = self.operands(node)
        if len(operands) < function.least or (function.most is not None and len(operands) > function.most):
            self.refuse(node, f"{name} takes {number_of_operands(function.least, function.most)}, not {len(operands)}")
        return self.checked(node, lambda: function.build(operands, self.session), name)

    def operands(self, node: n.Call) -> list[RowExpression]:
        """The operands of a call; an entry of a JSON object is two."""
        return [
            self.bind(part)
            for argument in node.arguments
            for part in ((argument.key, argument.value) if isinstance(argument, n.JsonEntry) else (argument,))
        ]

    @_bind.register
    def _(self, node: n.JsonClause) -> RowExpression:
        default = None if node.default is None else self.bind(node.default)
        returning = None if node.type is None else data_type_of(node.type, self.error)
        return JsonOption(node.clause, node.behaviour, default, returning)

    @_bind.register
    def _(self, node: n.Quantified) -> RowExpression:
        if isinstance(node.query, n.Query):
            return self._query(node)
        word = "OR" if node.quantifier == "ANY" else "AND"
        operand = self.bind(node.operand)
        found, *others = [self.call(node, node.operator, operand, self.bind(item)) for item in node.query]
        for other in others:
            found = self.call(node, word, found, other)
        return found

    @_bind.register(n.ScalarQuery)
    @_bind.register(n.CollectionQuery)
    @_bind.register(n.InQuery)
    @_bind.register(n.Exists)
    def _query(self, node: n.ScalarQuery | n.CollectionQuery | n.InQuery | n.Exists | n.Quantified) -> RowExpression:
        if self.clause is None:
            self.refuse(node, "a query can't stand in this expression")
        return self.clause.query(node, self)

    @_bind.register
    def _(self, node: n.AtTimeZone) -> RowExpression:
        self.refuse(node, "AT TIME ZONE is not supported: Flink has no time stamps with a zone of their own")


_PATTERNS = {"LIKE": "LIKE", "SIMILAR": "SIMILAR TO", "RLIKE": "REGEXP"}
_MOMENTS: dict[str, str] = {
    "DATE": "DATE '2026-01-31'", "TIME": "TIME '12:00:00'", "TIMESTAMP": "TIMESTAMP '2026-01-31 12:00:00'",
}  # fmt: skip


def number_of_operands(least: int, most: int | None) -> str:
    """The number of operands that a function takes, in words."""
    if most is None:
        return f"{least} operand{'' if least == 1 else 's'} or more"
    counted = f"{least} to {most}" if least != most else str(least)
    return f"{counted} operand{'' if most == 1 else 's'}" if most else "no operands"

"""Windows: the table functions TUMBLE, HOP, CUMULATE and SESSION, and the windows of GROUP BY."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from firesteel.table.types import DataTypes
from firesteel_sql.bind.expressions import ExpressionBinder
from firesteel_sql.catalog.catalogs import near
from firesteel_sql.parse import nodes as n
from firesteel_sql.plan.projections import column_at, extended
from firesteel_sql.plan.relations import Column, Relation
from firesteel_sql.plan.row_expressions import Constant, InputColumn, RowExpression
from firesteel_sql.plan.stateful_relations import WindowKind, WindowTable
from firesteel_sql.types.intervals import DAY_TIME

_PARAMETERS: Final[Mapping[WindowKind, tuple[str, ...]]] = {
    WindowKind.TUMBLE: ("DATA", "TIMECOL", "SIZE", "OFFSET"),
    WindowKind.HOP: ("DATA", "TIMECOL", "SLIDE", "SIZE", "OFFSET"),
    WindowKind.CUMULATE: ("DATA", "TIMECOL", "STEP", "SIZE", "OFFSET"),
    WindowKind.SESSION: ("DATA", "TIMECOL", "GAP"),
}
"""Names of their arguments, in their order; OFFSET may be missing."""

WINDOW_FUNCTIONS: Final = frozenset(WindowKind.__members__)
"""Names of the window table functions."""


def window_arguments(call: n.Call, binder: ExpressionBinder) -> dict[str, n.ValueExpression]:
    """The arguments of a window table function by their names.

    Raises:
        SqlError: one is missing, or there is no such argument.
    """
    kind = WindowKind[call.function[-1].upper()]
    names = _PARAMETERS[kind]
    arguments: dict[str, n.ValueExpression] = {}
    for place, argument in enumerate(call.arguments):
        if isinstance(argument, n.NamedArgument):
            name = argument.name.upper()
            if name not in names:
                binder.refuse(argument, f"{kind.value} has no argument {argument.name}{near(name, names)}")
            arguments[name] = argument.value
        elif place >= len(names):
            binder.refuse(argument, f"{kind.value} takes {', '.join(names)}")
        else:
            arguments[names[place]] = argument
    for name in names:
        if name not in arguments and name != "OFFSET":
            binder.refuse(call, f"{kind.value} needs {name}: {_EXAMPLES[kind]}")
    return arguments


_EXAMPLES: Final = {
    WindowKind.TUMBLE: "TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' MINUTE)",
    WindowKind.HOP: "HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE, INTERVAL '10' MINUTE), the slide first",
    WindowKind.CUMULATE: "CUMULATE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' HOUR, INTERVAL '1' DAY)",
    WindowKind.SESSION: "SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), INTERVAL '10' MINUTE)",
}  # fmt: skip


def window_table(
    call: n.Call, arguments: Mapping[str, n.ValueExpression], relation: Relation, partition: Sequence[int],
    binder: ExpressionBinder,
) -> Relation:  # fmt: skip
    """The rows of a table with their windows.

    Args:
        call: of the window table function.
        arguments: as ``window_arguments`` gives them.
        relation: the table's rows.
        partition: places of the columns behind PARTITION BY.
        binder: for the lengths, and for errors.

    Raises:
        SqlError: the time is no time attribute, or a length is wrong.
    """
    kind = WindowKind[call.function[-1].upper()]
    descriptor = arguments["TIMECOL"]
    if not isinstance(descriptor, n.Descriptor) or len(descriptor.names) != 1:
        binder.refuse(descriptor, f"the time is written as DESCRIPTOR(column): {_EXAMPLES[kind]}")
    name = descriptor.names[0]
    names = [column.name for column in relation.columns]
    if name not in names:
        binder.refuse(descriptor, f"the table has no column {name}{near(name, names)}")
    if kind is not WindowKind.SESSION and partition:
        binder.refuse(arguments["DATA"], f"{kind.value} has no PARTITION BY: only SESSION has one")
    lengths = {
        parameter: _milliseconds(arguments[parameter], binder)
        for parameter in ("SIZE", "SLIDE", "STEP", "GAP", "OFFSET")
        if parameter in arguments
    }
    size = lengths.get("GAP", lengths.get("SIZE", 0))
    step = lengths.get("SLIDE", lengths.get("STEP", size))
    return _window(call, kind, relation, names.index(name), (size, step, lengths.get("OFFSET", 0)), partition, binder)


def _window(
    node: n.Node, kind: WindowKind, relation: Relation, time: int, lengths: tuple[int, int, int],
    partition: Sequence[int], binder: ExpressionBinder,
) -> WindowTable:  # fmt: skip
    size, step, offset = lengths
    column = relation.columns[time]
    if column.time_attribute is None:
        binder.refuse(
            node, f"The window function requires the timecol to be a time attribute type, but {column.name} is "
            f"{column.type}: a table has one with WATERMARK FOR, or as a column AS PROCTIME()",
        )  # fmt: skip
    if size <= 0 or step <= 0:
        binder.refuse(node, f"{kind.value}: windows have a length above zero")
    if size % step:
        words = "slide" if kind is WindowKind.HOP else "step"
        binder.refuse(node, f"{kind.value}: the size has to be a whole multiple of the {words} ({size} ms, {step} ms)")
    is_by_clock = column.time_attribute == "PROCTIME"
    # Watermarks follow one time: by the clock there is no event time any more, but that of the windows.
    plain = [
        replace(other, time_attribute=None) if place == time or (is_by_clock and other.time_attribute == "ROWTIME")
        else other
        for place, other in enumerate(relation.columns)
    ]  # fmt: skip
    bound = DataTypes.TIMESTAMP(3, False)
    is_instant = column.type.name == "TIMESTAMP_LTZ"
    of_time = DataTypes.TIMESTAMP_LTZ(3, False) if is_instant else bound
    zone = binder.session.zone if is_instant else "UTC"
    added = [
        Column("window_start", bound), Column("window_end", bound),
        Column("window_time", of_time, "ROWTIME"),
    ]  # fmt: skip
    return WindowTable((*plain, *added), relation, kind, time, size, step, offset, tuple(partition), zone)


def _milliseconds(node: n.ValueExpression, binder: ExpressionBinder) -> int:
    length = binder.bind(node)
    if not isinstance(length, Constant) or length.type.name != DAY_TIME.name:
        binder.refuse(node, "the length of a window is a constant of days to milliseconds: INTERVAL '10' MINUTE")
    return int(length.value)


# -- GROUP BY TUMBLE(ts, INTERVAL ...)


@dataclass(frozen=True)
class GroupWindow:
    """A window of GROUP BY.

    Attributes:
        call: in GROUP BY.
        kind: of the windows.
        relation: the rows with their windows.
        start: place of ``window_start``.
    """

    call: n.Call
    kind: WindowKind
    relation: Relation
    start: int

    def bounds(self) -> tuple[RowExpression, ...]:
        """What rows are grouped by."""
        return tuple(column_at(self.relation, self.start + number) for number in range(3))

    def auxiliary(self, function: str) -> InputColumn | None:
        """The column that TUMBLE_START, HOP_ROWTIME and the like mean; None for other functions."""
        kind, _, suffix = function.partition("_")
        if kind != self.kind.value or suffix not in _SUFFIXES:
            return None
        return column_at(self.relation, self.start + _SUFFIXES[suffix])


_SUFFIXES: Final = {"START": 0, "END": 1, "ROWTIME": 2, "PROCTIME": 2}


def is_group_window(call: n.Call) -> bool:
    """Whether a call in GROUP BY is a window."""
    return len(call.function) == 1 and call.function[0].upper() in ("TUMBLE", "HOP", "SESSION")


def group_window(
    relation: Relation, call: n.Call, keys: Sequence[RowExpression], binder: ExpressionBinder
) -> GroupWindow:
    """The rows with the window that they are grouped by.

    Args:
        relation: the rows.
        call: of the window.
        keys: what rows are grouped by besides.
        binder: over the rows.

    Raises:
        SqlError: the window is wrong.
    """
    kind = WindowKind[call.function[0].upper()]
    count = 3 if kind is WindowKind.HOP else 2
    if len(call.arguments) not in (count, count + 1):
        example = "HOP(ts, slide, size)" if kind is WindowKind.HOP else f"{kind.value}(ts, INTERVAL '10' MINUTE)"
        binder.refuse(call, f"a window of GROUP BY is written as {example}")
    time = binder.bind(call.arguments[0])
    if not isinstance(time, InputColumn):
        binder.refuse(call.arguments[0], "a window of GROUP BY is over a column that is a time attribute")
    lengths = [_milliseconds(argument, binder) for argument in call.arguments[1:]]
    step, size = (lengths[0], lengths[1]) if kind is WindowKind.HOP else (lengths[0], lengths[0])
    offset = lengths[count - 1] if len(lengths) == count else 0
    partition: list[int] = []
    if kind is WindowKind.SESSION:
        relation, partition = extended(relation, keys)
    table = _window(call, kind, relation, time.index, (size, step, offset), partition, binder)
    return GroupWindow(call, kind, table, len(relation.columns))

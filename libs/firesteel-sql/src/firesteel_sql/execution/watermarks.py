"""Event time of tables: the strategy of a WATERMARK, over the columns of the stream, or of the source itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from firesteel.common import Duration, WatermarkStrategy
from firesteel_sql.connectors.connector import TableConnector, TableContext
from firesteel_sql.connectors.watermark_options import (
    ALIGNMENT_DRIFT,
    ALIGNMENT_GROUP,
    ALIGNMENT_INTERVAL,
    EMIT_STRATEGY,
    IDLE_TIMEOUT,
)
from firesteel_sql.execution.stream_columns import names_of
from firesteel_sql.plan.relations import Filter, Projection, Scan, WatermarkAssigner
from firesteel_sql.plan.row_expressions import AppliedFunction, InputColumn, RowExpression, to_expression


def strategy_of(relation: WatermarkAssigner, names: Sequence[str]) -> WatermarkStrategy:
    """The strategy of a stream.

    Args:
        relation: the WATERMARK.
        names: columns of the stream.
    """
    column = InputColumn(relation.columns[relation.column].type, relation.column, names[relation.column])
    return _strategy(column, relation.watermark, names)


def _strategy(time: RowExpression, watermark: RowExpression, names: Sequence[str]) -> WatermarkStrategy:
    strategy = WatermarkStrategy.for_expression(to_expression(watermark, list(names)))
    return strategy.with_timestamp_assigner(to_expression(time, list(names)))


def scanned(relation: WatermarkAssigner) -> tuple[Scan, RowExpression, RowExpression] | None:
    """The table in front of a WATERMARK, with time and watermark as expressions over its columns.

    None = something stands between them that brings rows, so that a source must not make the watermarks.
    """
    place = relation.column
    time: RowExpression = InputColumn(relation.columns[place].type, place, relation.columns[place].name)
    watermark, below = relation.watermark, relation.input
    while isinstance(below, (Projection, Filter)):
        if isinstance(below, Projection):
            time, watermark = _over(time, below), _over(watermark, below)
        # Rows that a filter drops move event time on, as in Flink, where filters stand behind the WATERMARK.
        below = below.input
    return (below, time, watermark) if isinstance(below, Scan) else None


def _over(expression: RowExpression, projection: Projection) -> RowExpression:
    """An expression over the columns of a projection, as one over those of its input."""
    match expression:
        case InputColumn():
            return projection.expressions[expression.index]
        case AppliedFunction():
            return replace(expression, inputs=tuple(_over(operand, projection) for operand in expression.inputs))
    return expression


def strategy_of_source(
    relation: WatermarkAssigner, connector: TableConnector, context: TableContext, idle_timeout: timedelta
) -> WatermarkStrategy | None:
    """The strategy that the source of a table runs for each of its splits; None = the source has none.

    Args:
        relation: the WATERMARK.
        connector: of the table.
        context: the table.
        idle_timeout: of the session, for tables that have none; zero = none.

    Raises:
        TableOptionError: an option of the table is wrong.
    """
    parts = scanned(relation)
    if parts is None or not connector.makes_watermarks:
        return None
    scan, time, watermark = parts
    strategy = _strategy(time, watermark, names_of(scan.columns))
    options = context.options
    options.get(EMIT_STRATEGY)
    idle = options.get(IDLE_TIMEOUT) or idle_timeout
    if idle:
        strategy = strategy.with_idleness(_duration(idle))
    group = options.get(ALIGNMENT_GROUP)
    if group is not None:
        drift = _duration(options.required(ALIGNMENT_DRIFT))
        strategy = strategy.with_watermark_alignment(group, drift, _duration(options.get(ALIGNMENT_INTERVAL)))
    return strategy


def _duration(span: timedelta) -> Duration:
    return Duration.of_millis(span // timedelta(milliseconds=1))

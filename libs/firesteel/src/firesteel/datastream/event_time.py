"""Event time of a program: watermark strategies as sources and streams take them, and a warning if none is there."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from firesteel.common.typeinfo import TypeInformation
from firesteel.common.watermark_strategy import WatermarkGeneratorKind, WatermarkStrategy
from firesteel.datastream import column_plans
from firesteel.expressions.expression import ColumnTimestamps
from firesteel.functions.source import Source
from firesteel.graph.specs import OperatorKind
from firesteel.graph.stream_graph import StreamInput, Transformation, display_name

logger = logging.getLogger(__name__)

ALIGNMENT_BELONGS_TO_SOURCES = (
    "watermark alignment pauses the splits of a source: give the strategy to from_source(), or leave out "
    "with_watermark_alignment()"
)


def check_strategy(strategy: Any) -> WatermarkStrategy:
    """Check that the argument is a watermark strategy, and return it.

    Raises:
        TypeError: it is something else.
    """
    if not isinstance(strategy, WatermarkStrategy):
        raise TypeError(
            "watermark_strategy is a WatermarkStrategy such as WatermarkStrategy.no_watermarks(), "
            f"not {type(strategy).__name__}"
        )
    return strategy


def fitted_strategy(strategy: WatermarkStrategy, type_info: TypeInformation, *, wrap: bool) -> WatermarkStrategy:
    """The strategy, with timestamps and watermarks of expressions checked against the stream's columns.

    Raises:
        GraphError: the stream has no columns.
        ProgramError: the expression does not fit them.
    """
    expressions = {
        name: assigner.expression
        for name in ("timestamp_assigner", "watermark_assigner")
        if isinstance(assigner := getattr(strategy, name), ColumnTimestamps)
    }
    if not expressions:
        return strategy
    from firesteel.expressions.timestamps import computing_timestamps

    columns = column_plans.columns_of("with_timestamp_assigner", type_info)
    bound: dict[str, Any] = {name: ColumnTimestamps(expression, wrap=wrap) for name, expression in expressions.items()}
    for assigner in bound.values():
        computing_timestamps(assigner, columns)
    return replace(strategy, **bound)


def source_settings(strategy: WatermarkStrategy, source: Source[Any]) -> dict[str, Any]:
    """The settings of a source's operator: the strategy, if it does anything."""
    if source.own_watermarks and not strategy.makes_watermarks:
        strategy = replace(strategy, kind=WatermarkGeneratorKind.OF_SOURCE)
    if not strategy.makes_watermarks and strategy.timestamp_assigner is None and strategy.idle_timeout is None:
        return {}
    return {"watermark_strategy": strategy}


def sources_without_watermarks(inputs: Iterable[StreamInput]) -> list[str]:
    """Names of upstream sources whose records get no watermarks on their way to these inputs, sorted.

    Walks from the inputs to the sources; a ``WATERMARKS`` operator ends a path, since it replaces all watermarks from
    in front of it.
    """
    silent_names: dict[str, None] = {}
    unvisited: list[Transformation] = [stream_input.source for stream_input in inputs]
    visited_ids: set[int] = set()
    while unvisited:
        upstream = unvisited.pop()
        if upstream.id in visited_ids:
            continue
        visited_ids.add(upstream.id)
        if upstream.kind is OperatorKind.SOURCE:
            strategy = upstream.extra.get("watermark_strategy")
        elif upstream.kind is OperatorKind.WATERMARKS:
            strategy = upstream.function
        else:
            unvisited.extend(stream_input.source for group in upstream.inputs for stream_input in group)
            continue
        if strategy is None or not strategy.makes_watermarks or _is_left_to_silent_source(upstream, strategy):
            silent_names[display_name(upstream)] = None
    return sorted(silent_names)


def _is_left_to_silent_source(source_operator: Transformation, strategy: WatermarkStrategy) -> bool:
    """Whether the watermarks are up to a source that never speaks of any."""
    if strategy.kind is not WatermarkGeneratorKind.OF_SOURCE:
        return False
    return not getattr(source_operator.function, "speaks_of_watermarks", True)


def warn_without_timestamps(consumer: str, inputs: Iterable[StreamInput]) -> None:
    """Warn if a source in front of event-time windows or joins never moves event time."""
    names = sources_without_watermarks(inputs)
    if names:
        logger.warning(
            "%s: no watermarks come from %s, so nothing fires before its input ends, and records may have no "
            "timestamps: give from_source() a WatermarkStrategy, or call assign_timestamps_and_watermarks(), for "
            "example with WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(5))"
            ".with_timestamp_assigner(...)",
            consumer,
            ", ".join(repr(name) for name in names),
        )

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
    """A watermark strategy.

    Raises:
        TypeError: something else was given.
    """
    if not isinstance(strategy, WatermarkStrategy):
        raise TypeError(
            "watermark_strategy is a WatermarkStrategy such as WatermarkStrategy.no_watermarks(), "
            f"not {type(strategy).__name__}"
        )
    return strategy


def fitted_strategy(strategy: WatermarkStrategy, type_info: TypeInformation, *, wrap: bool) -> WatermarkStrategy:
    """The strategy; timestamps that are an expression fit the stream.

    Raises:
        GraphError: the stream has no columns.
        ProgramError: the expression does not fit them.
    """
    assigner = strategy.timestamp_assigner
    if not isinstance(assigner, ColumnTimestamps):
        return strategy
    from firesteel.expressions.timestamps import computing_timestamps

    made = ColumnTimestamps(assigner.expression, wrap=wrap)
    computing_timestamps(made, column_plans.columns_of("with_timestamp_assigner", type_info))
    return replace(strategy, timestamp_assigner=made)


def source_settings(strategy: WatermarkStrategy, source: Source[Any]) -> dict[str, Any]:
    """The settings of a source's operator: the strategy, if it does anything."""
    if source.own_watermarks and not strategy.makes_watermarks:
        strategy = replace(strategy, kind=WatermarkGeneratorKind.OF_SOURCE)
    if not strategy.makes_watermarks and strategy.timestamp_assigner is None and strategy.idle_timeout is None:
        return {}
    return {"watermark_strategy": strategy}


def sources_without_watermarks(inputs: Iterable[StreamInput]) -> list[str]:
    """Names of the sources, among those that are read directly or not, whose records get no watermarks on the way."""
    found: dict[str, None] = {}
    to_look_at: list[Transformation] = [one.source for one in inputs]
    seen: set[int] = set()
    while to_look_at:
        made = to_look_at.pop()
        if made.id in seen:
            continue
        seen.add(made.id)
        if made.kind is OperatorKind.SOURCE:
            strategy = made.extra.get("watermark_strategy")
        elif made.kind is OperatorKind.WATERMARKS:
            strategy = made.function
        else:
            to_look_at.extend(one.source for group in made.inputs for one in group)
            continue
        if strategy is None or not strategy.makes_watermarks or _is_left_to_silent_source(made, strategy):
            found[display_name(made)] = None
    return sorted(found)


def _is_left_to_silent_source(made: Transformation, strategy: WatermarkStrategy) -> bool:
    """Whether the watermarks are up to a source that never speaks of any."""
    if strategy.kind is not WatermarkGeneratorKind.OF_SOURCE:
        return False
    return not getattr(made.function, "speaks_of_watermarks", True)


def warn_without_timestamps(what: str, inputs: Iterable[StreamInput]) -> None:
    """Warn if a source in front of event-time windows or joins never moves event time."""
    names = sources_without_watermarks(inputs)
    if names:
        logger.warning(
            "%s: no watermarks come from %s, so nothing fires before its input ends, and records may have no "
            "timestamps: give from_source() a WatermarkStrategy, or call assign_timestamps_and_watermarks(), for "
            "example with WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(5))"
            ".with_timestamp_assigner(...)",
            what,
            ", ".join(repr(name) for name in names),
        )

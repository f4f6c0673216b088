"""Where a stream's watermarks come from: a warning for event-time windows that will not fire."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from firesteel.common.watermark_strategy import WatermarkGeneratorKind, WatermarkStrategy
from firesteel.graph.specs import OperatorKind
from firesteel.graph.stream_graph import StreamInput, Transformation, display_name

logger = logging.getLogger(__name__)


def sources_without_watermarks(inputs: Iterable[StreamInput]) -> list[str]:
    """Names of the sources, among those that are read directly or not, whose records get no watermarks on the way."""
    found: dict[str, None] = {}
    waiting: list[Transformation] = [one.source for one in inputs]
    seen: set[int] = set()
    while waiting:
        made = waiting.pop()
        if made.id in seen:
            continue
        seen.add(made.id)
        if made.kind is OperatorKind.SOURCE:
            strategy = made.extra.get("watermark_strategy")
        elif made.kind is OperatorKind.WATERMARKS:
            strategy = made.function
        else:
            waiting.extend(one.source for group in made.inputs for one in group)
            continue
        if strategy is None or not strategy.makes_watermarks or _is_silent(made, strategy):
            found[display_name(made)] = None
    return sorted(found)


def _is_silent(made: Transformation, strategy: WatermarkStrategy) -> bool:
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

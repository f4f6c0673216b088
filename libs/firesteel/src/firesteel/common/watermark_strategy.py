"""Watermark strategies: descriptions of how event time is read from records, which the runtime carries out.

A strategy is immutable: each ``with_…`` method returns a new one.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Protocol, runtime_checkable

from firesteel.common.time import Duration, Span, duration_of

__all__ = [
    "TimestampAssigner",
    "WatermarkGenerator",
    "WatermarkGeneratorKind",
    "WatermarkOutput",
    "WatermarkStrategy",
]


class TimestampAssigner(ABC):
    """Extracts the event time of records.

    Examples:
        ```python
        from firesteel.common import TimestampAssigner


        class BySecond(TimestampAssigner):
            def extract_timestamp(self, value, record_timestamp):
                return value["second"] * 1000


        print(BySecond().extract_timestamp({"second": 3}, -1))
        ```

        ```text
        3000
        ```
    """

    @abstractmethod
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        """Returns the record's event time in milliseconds since 1970-01-01 UTC.

        Args:
            value: the record.
            record_timestamp: timestamp that the record has already; -2**63 if it has none.
        """


class _FunctionAssigner(TimestampAssigner):
    """Calls a function with the record, and also with the record's timestamp if it takes two arguments."""

    def __init__(self, function: Callable[..., int]) -> None:
        try:
            inspect.signature(function).bind(None, None)
            takes_timestamp = True
        except (TypeError, ValueError):  # it takes one argument, or is written in C, like operator.itemgetter
            takes_timestamp = False
        self._function, self._takes_timestamp = function, takes_timestamp

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return self._function(value, record_timestamp) if self._takes_timestamp else self._function(value)


@runtime_checkable
class ToTimestampAssigner(Protocol):
    """An object that can be converted to a timestamp assigner: an expression over columns."""

    def to_timestamp_assigner(self) -> TimestampAssigner:
        """Return the assigner that reads timestamps as this object describes."""


class WatermarkOutput(ABC):
    """Takes the watermarks of a generator.

    Examples:
        ```python
        from firesteel.common import WatermarkGenerator


        class AtTheMark(WatermarkGenerator):
            def on_event(self, event, event_timestamp, output):
                if event == "end of hour":
                    output.emit_watermark(event_timestamp)

            def on_periodic_emit(self, output):
                pass
        ```
    """

    @abstractmethod
    def emit_watermark(self, watermark: int) -> None:
        """Emits a watermark (ms): no record with this timestamp or an earlier one will follow.

        A watermark that goes back has no effect. The input counts as active from then on.
        """

    @abstractmethod
    def mark_idle(self) -> None:
        """Marks the input as idle: it has no records at present, and holds back no watermark."""

    @abstractmethod
    def mark_active(self) -> None:
        """Marks the input as active again, after ``mark_idle``."""


class WatermarkGenerator(ABC):
    """Generates watermarks from records, from the clock, or from both. Each split of a source has its own generator.

    Examples:
        ```python
        from firesteel.common import WatermarkGenerator, WatermarkStrategy


        class AtEachRecord(WatermarkGenerator):
            def on_event(self, event, event_timestamp, output):
                output.emit_watermark(event_timestamp - 1)

            def on_periodic_emit(self, output):
                pass


        strategy = WatermarkStrategy.for_generator(AtEachRecord)
        ```
    """

    @abstractmethod
    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        """Called for each record, after it was emitted. A watermark that is emitted here ends the batch.

        Args:
            event: the record.
            event_timestamp: timestamp of the record; -2**63 if it has none.
            output: takes watermarks.
        """

    @abstractmethod
    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        """Called periodically, at the interval ``pipeline.auto-watermark-interval``."""


class WatermarkGeneratorKind(Enum):
    """How watermarks are derived from timestamps."""

    NO_WATERMARKS = "no watermarks"
    MONOTONOUS = "monotonous timestamps"
    BOUNDED_OUT_OF_ORDERNESS = "bounded out of orderness"
    GENERATOR = "generator"
    OF_SOURCE = "of the source"
    PROCESSING_TIME = "processing time"


@dataclass(frozen=True)
class WatermarkStrategy:
    """Describes how timestamps are assigned and watermarks generated.

    Attributes:
        kind: how watermarks are derived from timestamps.
        max_out_of_orderness: ``BOUNDED_OUT_OF_ORDERNESS``: how late a record may be.
        generator_supplier: ``GENERATOR``: makes the generators.
        timestamp_assigner: extracts the event time; None = records keep the timestamps of the source.
        watermark_assigner: expression that gives the watermark behind each row; None = watermarks follow timestamps.
        idle_timeout: time without records after which an input is idle and holds back no watermark; None = never.
        alignment_group: group of sources that wait for each other; None = no alignment.
        alignment_max_drift: how far ahead of its group a source may be.
        alignment_update_interval: time between two exchanges of watermarks in the group.

    Examples:
        ```python
        from firesteel.common import Duration, TimestampAssigner, WatermarkStrategy


        class BySecond(TimestampAssigner):
            def extract_timestamp(self, value, record_timestamp):
                return value["second"] * 1000


        strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(5))
        strategy = strategy.with_timestamp_assigner(BySecond()).with_idleness(Duration.of_minutes(1))
        ```
    """

    kind: WatermarkGeneratorKind = WatermarkGeneratorKind.NO_WATERMARKS
    max_out_of_orderness: Duration = Duration(0)  # noqa: RUF009 - immutable
    generator_supplier: Callable[[], WatermarkGenerator] | None = None
    timestamp_assigner: TimestampAssigner | None = None
    watermark_assigner: TimestampAssigner | None = None
    idle_timeout: Duration | None = None
    alignment_group: str | None = None
    alignment_max_drift: Duration | None = None
    alignment_update_interval: Duration | None = None

    @staticmethod
    def no_watermarks() -> WatermarkStrategy:
        """Makes a strategy without watermarks, for processing time."""
        return WatermarkStrategy()

    @staticmethod
    def for_monotonous_timestamps() -> WatermarkStrategy:
        """Makes a strategy for timestamps that only rise within a split: watermarks follow the latest timestamp."""
        return WatermarkStrategy(WatermarkGeneratorKind.MONOTONOUS)

    @staticmethod
    def for_bounded_out_of_orderness(max_out_of_orderness: Span) -> WatermarkStrategy:
        """Watermarks stay behind the latest timestamp: records come at most so late.

        Raises:
            TypeError: not a span of time.
            ValueError: the duration is negative.
        """
        late = _checked("max_out_of_orderness", max_out_of_orderness, least=0)
        return WatermarkStrategy(WatermarkGeneratorKind.BOUNDED_OUT_OF_ORDERNESS, late)

    @staticmethod
    def for_generator(generator_supplier: Callable[[], WatermarkGenerator]) -> WatermarkStrategy:
        """Makes a strategy with generators of the program.

        Args:
            generator_supplier: called without arguments for each split; may be a ``WatermarkGenerator`` class.

        Raises:
            TypeError: the supplier is not callable.
        """
        if not callable(generator_supplier):
            hint = "; hand over its class" if isinstance(generator_supplier, WatermarkGenerator) else ""
            raise TypeError(
                "generator_supplier is called without arguments and returns a WatermarkGenerator, "
                f"but {type(generator_supplier).__name__} can't be called{hint}."
            )
        return WatermarkStrategy(WatermarkGeneratorKind.GENERATOR, generator_supplier=generator_supplier)

    @staticmethod
    def for_expression(watermark: ToTimestampAssigner) -> WatermarkStrategy:
        """Makes a strategy whose watermark is the highest value of an expression over the columns of a stream.

        Args:
            watermark: gives milliseconds or a time for each row: ``col("ts") - 5000``; null = the row gives none.

        Raises:
            TypeError: the argument is no expression.
        """
        if not isinstance(watermark, ToTimestampAssigner):
            raise TypeError(f"for_expression() takes an expression such as col('ts'), not {type(watermark).__name__}")
        kind = WatermarkGeneratorKind.BOUNDED_OUT_OF_ORDERNESS
        return WatermarkStrategy(kind, watermark_assigner=watermark.to_timestamp_assigner())

    def with_timestamp_assigner(
        self, timestamp_assigner: TimestampAssigner | ToTimestampAssigner | Callable[..., int]
    ) -> WatermarkStrategy:
        """Sets the assigner that extracts the event time.

        Args:
            timestamp_assigner: a ``TimestampAssigner``; or a function of the record, or of the record and its present
                timestamp (``lambda value, record_timestamp: value[1]``); or an expression, computed for whole batches
                of a stream with columns: ``with_timestamp_assigner(col("ts"))`` takes the milliseconds of a column.

        Raises:
            TypeError: the argument is none of these.
        """
        assigner: Any = timestamp_assigner
        if isinstance(assigner, ToTimestampAssigner):
            assigner = assigner.to_timestamp_assigner()
        if isinstance(assigner, type) and issubclass(assigner, TimestampAssigner):
            name = assigner.__name__
            raise TypeError(f"A timestamp assigner is an instance: write {name}(), not {name}.")
        if not callable(getattr(assigner, "extract_timestamp", None)):
            if not callable(assigner):
                raise TypeError(
                    "A timestamp assigner is an object with extract_timestamp(value, record_timestamp), a function, or "
                    f"an expression, not {type(assigner).__name__}."
                )
            assigner = _FunctionAssigner(assigner)
        return replace(self, timestamp_assigner=assigner)

    def with_idleness(self, idle_timeout: Span) -> WatermarkStrategy:
        """Marks an input as idle when it has had no records for ``idle_timeout``.

        Raises:
            TypeError: the timeout is not a span of time.
            ValueError: the duration is not positive.
        """
        return replace(self, idle_timeout=_checked("idle_timeout", idle_timeout, least=1))

    def with_watermark_alignment(
        self,
        watermark_group: str,
        max_allowed_watermark_drift: Span,
        update_interval: Span | None = None,
    ) -> WatermarkStrategy:
        """Pauses sources that run ahead of the others of their group.

        Args:
            watermark_group: name of the group.
            max_allowed_watermark_drift: how far ahead a source may be.
            update_interval: time between two exchanges of watermarks in the group; default: one second.

        Raises:
            TypeError: an argument is not a span of time.
            ValueError: a duration is not positive.
        """
        interval = Duration.of_seconds(1) if update_interval is None else update_interval
        return replace(
            self,
            alignment_group=watermark_group,
            alignment_max_drift=_checked("max_allowed_watermark_drift", max_allowed_watermark_drift, least=1),
            alignment_update_interval=_checked("update_interval", interval, least=1),
        )

    @property
    def makes_watermarks(self) -> bool:
        """Whether the strategy generates watermarks at all."""
        return self.kind is not WatermarkGeneratorKind.NO_WATERMARKS


def _checked(name: str, value: object, least: int) -> Duration:
    duration = duration_of(name, value)
    if duration.to_nanos() < least:
        raise ValueError(f"{name} must be {'positive' if least else 'zero or more'}, not {value}.")
    return duration

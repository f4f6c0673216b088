"""Watermark strategies: how event time is read from records. They describe; the runtime does.

A strategy is a value: each ``with_…`` method returns a new one.
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
    """Reads a record's event time."""

    @abstractmethod
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        """Returns the record's event time in milliseconds since 1970-01-01 UTC.

        Args:
            value: the record.
            record_timestamp: the timestamp it has already; the smallest 64-bit integer if it has none.
        """


class _FunctionAssigner(TimestampAssigner):
    """Calls a function with the record, and with the timestamp it has already if the function takes that."""

    def __init__(self, function: Callable[..., int]) -> None:
        try:
            inspect.signature(function).bind(None, None)
            takes_timestamp = True
        except (TypeError, ValueError):  # one parameter; or written in C, as operator.itemgetter is
            takes_timestamp = False
        self._function, self._takes_timestamp = function, takes_timestamp

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return self._function(value, record_timestamp) if self._takes_timestamp else self._function(value)


@runtime_checkable
class ToTimestampAssigner(Protocol):
    """Something that timestamps can be read by: an expression over columns."""

    def to_timestamp_assigner(self) -> TimestampAssigner:
        """The assigner."""


class WatermarkOutput(ABC):
    """Where a generator's watermarks go."""

    @abstractmethod
    def emit_watermark(self, watermark: int) -> None:
        """Says that no record with this timestamp (ms) or an earlier one comes any more. Going back has no effect.

        The input counts as active from then on.
        """

    @abstractmethod
    def mark_idle(self) -> None:
        """Says that the input has no records for now and must not hold back others."""

    @abstractmethod
    def mark_active(self) -> None:
        """Takes ``mark_idle`` back."""


class WatermarkGenerator(ABC):
    """Makes watermarks from records, from the clock, or from both. One for each split of a source."""

    @abstractmethod
    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        """Called for each record, after it went on. A watermark that is emitted here ends the batch.

        Args:
            event: the record.
            event_timestamp: its timestamp; the smallest 64-bit integer if it has none.
            output: takes a watermark.
        """

    @abstractmethod
    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        """Called every ``pipeline.auto-watermark-interval``."""


class WatermarkGeneratorKind(Enum):
    """How watermarks follow timestamps."""

    NO_WATERMARKS = "no watermarks"
    MONOTONOUS = "monotonous timestamps"
    BOUNDED_OUT_OF_ORDERNESS = "bounded out of orderness"
    GENERATOR = "generator"
    OF_SOURCE = "of the source"


@dataclass(frozen=True)
class WatermarkStrategy:
    """How timestamps are assigned and watermarks made.

    Attributes:
        kind: how watermarks follow timestamps.
        max_out_of_orderness: how late a record may be, for ``BOUNDED_OUT_OF_ORDERNESS``.
        generator_supplier: makes the generators, for ``GENERATOR``.
        timestamp_assigner: reads event time; None keeps the timestamps that the source gave.
        idle_timeout: without records for so long, an input holds back no watermark; None is never.
        alignment_group: sources of one group wait for each other; None is off.
        alignment_max_drift: how far ahead of its group a source may be.
        alignment_update_interval: how often the group is told.
    """

    kind: WatermarkGeneratorKind = WatermarkGeneratorKind.NO_WATERMARKS
    max_out_of_orderness: Duration = Duration(0)  # noqa: RUF009 - immutable
    generator_supplier: Callable[[], WatermarkGenerator] | None = None
    timestamp_assigner: TimestampAssigner | None = None
    idle_timeout: Duration | None = None
    alignment_group: str | None = None
    alignment_max_drift: Duration | None = None
    alignment_update_interval: Duration | None = None

    @staticmethod
    def no_watermarks() -> WatermarkStrategy:
        """No watermarks at all: processing time only."""
        return WatermarkStrategy()

    @staticmethod
    def for_monotonous_timestamps() -> WatermarkStrategy:
        """Watermarks follow the latest timestamp: timestamps only rise within a split."""
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
        """Watermarks are made by generators of one's own.

        Args:
            generator_supplier: called without arguments for each split; a ``WatermarkGenerator`` class will do.

        Raises:
            TypeError: it can't be called.
        """
        if not callable(generator_supplier):
            hint = "; hand over its class" if isinstance(generator_supplier, WatermarkGenerator) else ""
            raise TypeError(
                "generator_supplier is called without arguments and returns a WatermarkGenerator, "
                f"but {type(generator_supplier).__name__} can't be called{hint}."
            )
        return WatermarkStrategy(WatermarkGeneratorKind.GENERATOR, generator_supplier=generator_supplier)

    def with_timestamp_assigner(
        self, timestamp_assigner: TimestampAssigner | ToTimestampAssigner | Callable[..., int]
    ) -> WatermarkStrategy:
        """Reads event time with this assigner.

        Args:
            timestamp_assigner: called for each record; or a function of the record, or of the record and the timestamp
                it has already (``lambda value, record_timestamp: value[1]``); or an expression, computed for whole
                batches of a stream with columns: ``with_timestamp_assigner(col("ts"))`` takes the milliseconds of a
                column.

        Raises:
            TypeError: it is no expression or function, and has no ``extract_timestamp``.
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
        """Takes an input as idle when it had no records for so long.

        Raises:
            TypeError: not a span of time.
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
            update_interval: how often the group is told; one second if left out.

        Raises:
            TypeError: not a span of time.
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
        """Whether records or idleness lead to watermarks."""
        return self.kind is not WatermarkGeneratorKind.NO_WATERMARKS


def _checked(name: str, value: object, least: int) -> Duration:
    found = duration_of(name, value)
    if found.to_nanos() < least:
        raise ValueError(f"{name} must be {'positive' if least else 'zero or more'}, not {value}.")
    return found

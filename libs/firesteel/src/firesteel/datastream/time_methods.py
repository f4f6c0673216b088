"""What streams have to do with event time, and side outputs."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from firesteel.common.watermark_strategy import WatermarkGeneratorKind, WatermarkStrategy
from firesteel.config.options import EXPRESSIONS_WRAP
from firesteel.core.errors import GraphError
from firesteel.expressions.timestamps import ColumnTimestamps
from firesteel.functions.output_tag import OutputTag
from firesteel.functions.source import Source
from firesteel.graph.specs import OperatorKind
from firesteel.graph.stream_graph import StreamInput, Transformation

if TYPE_CHECKING:
    from firesteel.common.typeinfo import TypeInformation
    from firesteel.datastream.data_stream import DataStream
    from firesteel.datastream.stream_execution_environment import StreamExecutionEnvironment

__all__ = ["TimeMethods", "check_strategy", "check_tag", "declare_tag", "fitted_strategy", "source_time"]

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
    from firesteel.datastream import column_plans

    made = ColumnTimestamps(assigner.expression, wrap=wrap)
    made.bound(column_plans.columns_of("with_timestamp_assigner", type_info))
    return replace(strategy, timestamp_assigner=made)


def source_time(strategy: WatermarkStrategy, source: Source[Any]) -> dict[str, Any]:
    """The settings of a source's operator: the strategy, if it does anything."""
    if source.own_watermarks and not strategy.makes_watermarks:
        strategy = replace(strategy, kind=WatermarkGeneratorKind.OF_SOURCE)
    if not strategy.makes_watermarks and strategy.timestamp_assigner is None and strategy.idle_timeout is None:
        return {}
    return {"watermark_strategy": strategy}


def check_tag(method: str, tag: Any) -> OutputTag[Any]:
    """A tag.

    Raises:
        TypeError: something else was given.
    """
    if not isinstance(tag, OutputTag):
        raise TypeError(f"{method}() takes an OutputTag, not {type(tag).__name__}")
    return tag


def declare_tag(operator: Transformation, tag: OutputTag[Any], method: str) -> None:
    """Note that a side output of an operator is used.

    Raises:
        GraphError: its id is taken by a tag of another type.
    """
    tags: dict[str, TypeInformation] = operator.extra.setdefault("side_outputs", {})
    known = tags.setdefault(tag.tag_id, tag.type_info)
    if known != tag.type_info:
        raise GraphError(
            f"{method}(): side output {tag.tag_id!r} of operator {operator.name!r} has the type {known} already and is "
            f"asked for with the type {tag.type_info}: use one OutputTag, or another id"
        )


class TimeMethods:
    """Of all streams."""

    if TYPE_CHECKING:
        _environment: StreamExecutionEnvironment
        _record_type: TypeInformation

        @abstractmethod
        def _operator(self, method: str) -> Transformation: ...

        _inputs: tuple[StreamInput, ...]

        @abstractmethod
        def _result_of(self, made: Transformation, type_info: TypeInformation) -> DataStream: ...

    def assign_timestamps_and_watermarks(self, watermark_strategy: WatermarkStrategy) -> DataStream:
        """Gives records timestamps and makes watermarks; those that come from before end here.

        Prefer the strategy of ``from_source``: it keeps a watermark for each split.

        Raises:
            TypeError: not a strategy.
            GraphError: the strategy aligns sources, or reads columns and the stream has none.
            ProgramError: timestamps are an expression that does not fit the stream.
        """
        strategy = check_strategy(watermark_strategy)
        if strategy.alignment_group is not None:
            raise GraphError(f"assign_timestamps_and_watermarks(): {ALIGNMENT_BELONGS_TO_SOURCES}")
        wrap = self._environment._settings().get(EXPRESSIONS_WRAP)
        strategy = fitted_strategy(strategy, self._record_type, wrap=wrap)
        made = self._environment._add(
            "Timestamps/Watermarks",
            OperatorKind.WATERMARKS,
            strategy,
            (self._inputs,),
            extra={"input_type": self._record_type},
        )
        return self._result_of(made, self._record_type)

    def get_side_output(self, output_tag: OutputTag[Any]) -> DataStream:
        """The stream of what the operator's function sends to this tag with ``yield tag, value``.

        Raises:
            TypeError: not a tag.
            GraphError: the stream is no operator's, or the tag's id is taken by a tag of another type.
        """
        from firesteel.datastream.data_stream import DataStream

        tag = check_tag("get_side_output", output_tag)
        operator = self._operator("get_side_output")
        declare_tag(operator, tag, "get_side_output")
        return DataStream(self._environment, (StreamInput(operator, output_tag=tag.tag_id),), tag.type_info)

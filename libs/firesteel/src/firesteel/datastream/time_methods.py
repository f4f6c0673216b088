"""What streams have to do with event time, and side outputs."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from firesteel.common.watermark_strategy import WatermarkStrategy
from firesteel.core.errors import GraphError
from firesteel.functions.output_tag import OutputTag
from firesteel.graph.specs import OperatorKind
from firesteel.graph.stream_graph import StreamInput, Transformation

if TYPE_CHECKING:
    from firesteel.common.typeinfo import TypeInformation
    from firesteel.datastream.data_stream import DataStream
    from firesteel.datastream.stream_execution_environment import StreamExecutionEnvironment

__all__ = ["TimeMethods", "check_strategy", "check_tag", "declare_tag", "source_time"]

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


def source_time(strategy: WatermarkStrategy) -> dict[str, Any]:
    """The settings of a source's operator: the strategy, if it does anything."""
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

        @abstractmethod
        def _derive(
            self, name: str, kind: OperatorKind, function: Any, type_info: Any, coerce_to: Any
        ) -> DataStream: ...

    def assign_timestamps_and_watermarks(self, watermark_strategy: WatermarkStrategy) -> DataStream:
        """Gives records timestamps and makes watermarks; those that come from before end here.

        Prefer the strategy of ``from_source``: it keeps a watermark for each split.

        Raises:
            TypeError: not a strategy.
            GraphError: the strategy aligns sources.
        """
        strategy = check_strategy(watermark_strategy)
        if strategy.alignment_group is not None:
            raise GraphError(f"assign_timestamps_and_watermarks(): {ALIGNMENT_BELONGS_TO_SOURCES}")
        return self._derive("Timestamps/Watermarks", OperatorKind.WATERMARKS, strategy, self._record_type, None)

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

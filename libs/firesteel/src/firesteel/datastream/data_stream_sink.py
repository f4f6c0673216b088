"""``DataStreamSink``: the end of a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from firesteel.datastream.operator_settings import OperatorSettings
from firesteel.functions.global_commit import GlobalCommitSink
from firesteel.functions.sink import Sink
from firesteel.functions.two_phase import TwoPhaseCommitSink
from firesteel.graph.specs import OperatorKind, PartitionerKind
from firesteel.graph.stream_graph import StreamInput, Transformation

if TYPE_CHECKING:
    from firesteel.datastream.stream_execution_environment import StreamExecutionEnvironment

__all__ = ["DataStreamSink"]


class DataStreamSink(OperatorSettings):
    """The operator that a stream ends in; made by ``print``, ``sink_to`` and ``add_sink``."""

    def __init__(self, transformation: Transformation) -> None:
        self._transformation = transformation

    def _operator(self, method: str) -> Transformation:
        return self._transformation


def sink_behind_stages(
    environment: StreamExecutionEnvironment, inputs: tuple[StreamInput, ...], sink: Sink[Any]
) -> DataStreamSink:
    """A sink, and in front of it the stages that it asks for."""
    made: list[Transformation] = []
    alone = False
    if isinstance(sink, TwoPhaseCommitSink) and sink.commits_globally:
        alone, sink = True, GlobalCommitSink(sink)
    for stage in sink.stages() if isinstance(sink, TwoPhaseCommitSink) else ():
        if made:
            inputs = (StreamInput(made[-1], None if stage.parallel else PartitionerKind.GLOBAL),)
        one = environment._add(stage.name, OperatorKind.SINK_STAGE, stage, (inputs,))
        one.internal, one.non_parallel = True, not stage.parallel
        made.append(one)
    if made:
        inputs = (StreamInput(made[-1], PartitionerKind.GLOBAL if alone else PartitionerKind.REBALANCE),)
    end = environment._add("Writer", OperatorKind.SINK, sink, (inputs,))
    end.alone = alone
    for one in made:
        one.stage_of = end
    return DataStreamSink(end)

"""``DataStreamSink``: the end of a stream."""

from __future__ import annotations

from firesteel.datastream.operator_settings import OperatorSettings
from firesteel.graph.stream_graph import Transformation

__all__ = ["DataStreamSink"]


class DataStreamSink(OperatorSettings):
    """The operator that a stream ends in; made by ``print``, ``sink_to`` and ``add_sink``."""

    def __init__(self, transformation: Transformation) -> None:
        self._transformation = transformation

    def _operator(self, method: str) -> Transformation:
        return self._transformation

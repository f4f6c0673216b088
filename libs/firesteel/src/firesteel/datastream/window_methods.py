"""Windows and joins as methods of streams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from firesteel.core.errors import GraphError
from firesteel.datastream import checks
from firesteel.windowing.assigners import CountSlidingWindowAssigner, CountTumblingWindowAssigner, WindowAssigner

if TYPE_CHECKING:
    from firesteel.datastream.data_stream import DataStream, KeyedStream
    from firesteel.datastream.interval_join import IntervalJoin
    from firesteel.datastream.joined_streams import CoGroupedStreams, JoinedStreams
    from firesteel.datastream.windowed_stream import AllWindowedStream, WindowedStream

__all__ = ["KeyedWindowMethods", "WindowMethods"]


class WindowMethods:
    """Of all streams."""

    def window_all(self, window_assigner: WindowAssigner[Any, Any]) -> AllWindowedStream:
        """Cuts the whole stream into windows; they are worked on by one subtask. See ``KeyedStream.window``."""
        from firesteel.datastream.windowed_stream import AllWindowedStream

        return AllWindowedStream(cast("DataStream", self), window_assigner)

    def count_window_all(self, size: int, slide: int = 0) -> AllWindowedStream:
        """Cuts the whole stream into windows of ``size`` records, one starting each ``slide``."""
        return self.window_all(_count_windows("count_window_all", size, slide))

    def join(self, other_stream: DataStream) -> JoinedStreams:
        """Brings together each pair of records with one key in one window.

        ``a.join(b).where(key_of_a).equal_to(key_of_b).window(assigner).apply(function)``
        """
        from firesteel.datastream.joined_streams import JoinedStreams

        stream = cast("DataStream", self)
        return JoinedStreams(stream, stream._same_environment("join", other_stream))

    def co_group(self, other_stream: DataStream) -> CoGroupedStreams:
        """Brings together all records of both streams with one key in one window.

        ``a.co_group(b).where(key_of_a).equal_to(key_of_b).window(assigner).apply(function)``
        """
        from firesteel.datastream.joined_streams import CoGroupedStreams

        stream = cast("DataStream", self)
        return CoGroupedStreams(stream, stream._same_environment("co_group", other_stream))

    def window(self, window_assigner: WindowAssigner[Any, Any]) -> WindowedStream:
        """Refused: only keyed streams have windows by key.

        Raises:
            GraphError: always.
        """
        raise _not_keyed("window")

    def count_window(self, size: int, slide: int = 0) -> WindowedStream:
        """Refused: only keyed streams have windows by key.

        Raises:
            GraphError: always.
        """
        raise _not_keyed("count_window")

    def interval_join(self, other_stream: Any) -> IntervalJoin:
        """Refused: only keyed streams have interval joins.

        Raises:
            GraphError: always.
        """
        raise GraphError(
            "interval_join() belongs to keyed streams: write "
            "a.key_by(key_of_a).interval_join(b.key_by(key_of_b)).between(...)"
        )


class KeyedWindowMethods(WindowMethods):
    """Of keyed streams."""

    def window(self, window_assigner: WindowAssigner[Any, Any]) -> WindowedStream:
        """Cuts the stream into windows, for each key.

        Raises:
            TypeError: it is no window assigner.
        """
        from firesteel.datastream.windowed_stream import WindowedStream

        return WindowedStream(cast("KeyedStream", self), window_assigner)

    def count_window(self, size: int, slide: int = 0) -> WindowedStream:
        """Cuts the stream into windows of ``size`` records of a key, one starting each ``slide``.

        Windows that are not full when the input ends give nothing. As in PyFlink the first sliding window is full
        before it fires; in Flink's Java API it fires after ``slide`` records.
        """
        return self.window(_count_windows("count_window", size, slide))

    def interval_join(self, other_stream: KeyedStream) -> IntervalJoin:
        """Brings together records of one key whose times are near each other.

        ``a.key_by(f).interval_join(b.key_by(g)).between(lower, upper).process(function)``

        Raises:
            TypeError: the other one is no stream.
            GraphError: it is not keyed, or belongs to another environment.
        """
        from firesteel.datastream.data_stream import KeyedStream
        from firesteel.datastream.interval_join import IntervalJoin

        stream = cast("KeyedStream", self)
        other = stream._same_environment("interval_join", other_stream)
        if not isinstance(other, KeyedStream):
            raise GraphError("interval_join() needs two keyed streams, and the other one is not: call key_by() on it")
        return IntervalJoin(stream, other)


def _count_windows(method: str, size: int, slide: int) -> WindowAssigner[Any, Any]:
    checks.whole_number(f"the size of {method}()", size, 1)
    if checks.whole_number(f"the slide of {method}()", slide, 0) == 0:
        return CountTumblingWindowAssigner(size)
    return CountSlidingWindowAssigner(size, slide)


def _not_keyed(method: str) -> GraphError:
    return GraphError(
        f"{method}() belongs to keyed streams: call key_by() first, or use {method}_all() for windows over the whole "
        "stream, which run in one subtask"
    )

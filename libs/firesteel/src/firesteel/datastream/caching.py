"""``cache()``: the results of a stream, kept for the next jobs of the program. PyFlink's name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firesteel.core.errors import GraphError
from firesteel.datastream import aggregations
from firesteel.datastream.caches import Cache
from firesteel.functions.source import Boundedness, Source
from firesteel.graph.specs import OperatorKind
from firesteel.graph.stream_graph import StreamInput, display_name, reachable

if TYPE_CHECKING:
    from firesteel.common.typeinfo import TypeInformation
    from firesteel.datastream.data_stream import CachedDataStream
    from firesteel.datastream.stream_execution_environment import StreamExecutionEnvironment

__all__ = ["Caching"]


class Caching:
    """Of all streams."""

    if TYPE_CHECKING:
        _environment: StreamExecutionEnvironment
        _inputs: tuple[StreamInput, ...]
        _record_type: TypeInformation

    def cache(self) -> CachedDataStream:
        """Keeps the results for the next jobs of this environment.

        The first job that reads the stream writes its results into files as well (``firesteel.cache.directory``), and
        they count when that job has finished. Later jobs read them in place of computing them; timestamps are kept,
        watermarks are not. Results that are lost are computed again. ``invalidate()``, ``close()`` of the environment
        and the program's end remove them.

        Raises:
            GraphError: a source of the stream never ends.
        """
        from firesteel.datastream.data_stream import CachedDataStream

        for made in reachable(one.source for one in self._inputs).values():
            source = made.function
            if isinstance(source, Source) and source.boundedness is not Boundedness.BOUNDED:
                raise GraphError(
                    f"cache() keeps the results of streams that end, but {display_name(made)!r} is unbounded: write "
                    "the stream to a file sink and read it from there"
                )
        env = self._environment
        name = "Cache of " + ", ".join(dict.fromkeys(one.source.name for one in self._inputs))
        node = env._add(name, OperatorKind.MAP, aggregations.identity, (self._inputs,))
        sink = env._aside(name, OperatorKind.SINK, (self._inputs,))
        node.internal = sink.internal = True
        cache = Cache(node, sink, self._record_type)
        env._caches.add(cache)
        return CachedDataStream(env, cache, self._record_type)

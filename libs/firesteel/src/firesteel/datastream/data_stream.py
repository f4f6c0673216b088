"""Streams: what a program builds its graph with. PyFlink's classes, names and signatures.

A stream is a description; nothing runs before ``execute()``. Parameters that take a function take an instance of the
function class or a plain callable, except where a class is asked for by name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, overload

from firesteel.common.execution_config import ExecutionConfig
from firesteel.common.typeinfo import RowTypeInfo, TypeDescriptor, TypeInformation
from firesteel.core.errors import GraphError
from firesteel.datastream import aggregations, checks
from firesteel.datastream.broadcast_stream import BroadcastConnectedStream, BroadcastMethods, BroadcastStream
from firesteel.datastream.caches import Cache
from firesteel.datastream.caching import Caching
from firesteel.datastream.closeable_iterator import CloseableIterator
from firesteel.datastream.column_methods import ColumnMethods, is_column_key
from firesteel.datastream.data_stream_sink import DataStreamSink, sink_behind_stages
from firesteel.datastream.keyed_aggregations import KeyedAggregations
from firesteel.datastream.operator_settings import OperatorSettings
from firesteel.datastream.projecting import Projecting
from firesteel.datastream.time_methods import TimeMethods
from firesteel.datastream.window_methods import KeyedWindowMethods, WindowMethods
from firesteel.datastream.windowed_stream import AllWindowedStream, WindowedStream
from firesteel.expressions import Expression
from firesteel.functions.coroutines import refuse_coroutines
from firesteel.functions.functions import (
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    FilterFunction,
    FlatMapFunction,
    Function,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    Partitioner,
    ProcessFunction,
    ReduceFunction,
    SinkFunction,
)
from firesteel.functions.sink import Sink
from firesteel.graph.specs import OperatorKind, PartitionerKind
from firesteel.graph.stream_graph import StreamInput, Transformation

if TYPE_CHECKING:
    from firesteel.datastream.stream_execution_environment import StreamExecutionEnvironment

__all__ = [
    "AllWindowedStream",
    "CachedDataStream",
    "CloseableIterator",
    "ConnectedStreams",
    "DataStream",
    "DataStreamSink",
    "KeyedStream",
    "WindowedStream",
]

_KEYED_VALUES_NAME = "_keyed_stream_values_operator"
_KEY_BY_NAME = "_stream_key_by_map_operator"


class DataStream(Caching, Projecting, ColumnMethods, WindowMethods, TimeMethods, BroadcastMethods, OperatorSettings):
    """A stream of records. Streams are made by an environment or by another stream's methods."""

    def __init__(
        self, environment: StreamExecutionEnvironment, inputs: tuple[StreamInput, ...], type_info: TypeInformation
    ) -> None:
        self._environment = environment
        self._inputs = inputs
        self._record_type = type_info

    # --- about the stream ------------------------------------------------------------------------------------------

    def get_name(self) -> str:
        """Returns the name of the operator that gives the stream; ``Union`` or ``Partition`` where there is none."""
        if len(self._inputs) > 1:
            return "Union"
        if self._inputs[0].output_tag is not None:
            return "SideOutput"
        return "Partition" if self._inputs[0].partitioner is not None else self._inputs[0].source.name

    def get_type(self) -> TypeInformation:
        """Returns the type of the records."""
        return self._record_type

    def get_execution_environment(self) -> StreamExecutionEnvironment:
        """Returns the environment that the stream belongs to."""
        return self._environment

    def get_execution_config(self) -> ExecutionConfig:
        """Returns the settings of that environment."""
        return self._environment.get_config()

    # --- operators -------------------------------------------------------------------------------------------------

    def map(
        self, func: Callable[[Any], Any] | MapFunction[Any, Any], output_type: TypeDescriptor | None = None
    ) -> DataStream:
        """One record in, one out."""
        checks.check_function("map", func, MapFunction)
        return self._apply("Map", OperatorKind.MAP, func, output_type)

    def flat_map(
        self, func: Callable[[Any], Any] | FlatMapFunction[Any, Any], output_type: TypeDescriptor | None = None
    ) -> DataStream:
        """One record in, any number out; results of generators are pulled one at a time."""
        checks.check_function("flat_map", func, FlatMapFunction)
        return self._apply("FlatMap", OperatorKind.FLAT_MAP, func, output_type)

    def filter(self, func: Callable[[Any], bool] | FilterFunction[Any] | Expression) -> DataStream:
        """Keeps the records for which the function, or an expression over columns, is true."""
        if isinstance(func, Expression):
            return self._filter_columns(func)
        checks.check_function("filter", func, FilterFunction)
        return self._derive("Filter", OperatorKind.FILTER, func, self._record_type, coerce_to=None)

    def process(self, func: ProcessFunction[Any, Any], output_type: TypeDescriptor | None = None) -> DataStream:
        """One record in, any number out, with the record's timestamp at hand."""
        hint = "; key the stream first: key_by(...).process(...)" if isinstance(func, KeyedProcessFunction) else ""
        checks.check_class("process", func, ProcessFunction, hint=hint)
        return self._apply("PROCESS", OperatorKind.PROCESS, func, output_type)

    # --- several streams -------------------------------------------------------------------------------------------

    def union(self, *streams: DataStream) -> DataStream:
        """All records of this stream and the others.

        Raises:
            TypeError: one is no stream.
            GraphError: the types differ, or one belongs to another environment.
        """
        together = [self._values(), *(self._same_environment("union", s)._values() for s in streams)]
        for other in together[1:]:
            if other._record_type != self._record_type:
                raise GraphError(
                    f"union() needs streams of one type, not {self._record_type} and {other._record_type}: "
                    "bring them to one type with map(..., output_type=...)"
                )
        return DataStream(self._environment, tuple(i for s in together for i in s._inputs), self._record_type)

    @overload
    def connect(self, ds: DataStream) -> ConnectedStreams: ...
    @overload
    def connect(self, ds: BroadcastStream) -> BroadcastConnectedStream: ...
    def connect(self, ds: DataStream | BroadcastStream) -> ConnectedStreams | BroadcastConnectedStream:
        """This stream and another one, of whatever type, as the two inputs of one function."""
        if isinstance(ds, BroadcastStream):
            self._same_environment("connect", ds.input_stream)
            return BroadcastConnectedStream(self, ds, ds.broadcast_state_descriptors)
        return ConnectedStreams(self, self._same_environment("connect", ds))

    # --- partitioning ----------------------------------------------------------------------------------------------

    def key_by(
        self,
        key_selector: Callable[[Any], Any] | KeySelector[Any, Any] | str | Expression | Sequence[str | Expression],
        key_type: TypeDescriptor | None = None,
    ) -> KeyedStream:
        """Sends all records of a key to one subtask, and lets functions keep state for each key.

        A keyed stream is keyed anew, from the stream that it was made of.

        Args:
            key_selector: gives the key of a record; or a column's name or an expression, or a list of them for a tuple
                as key.
            key_type: type of the key; that of the columns if it is made of them.
        """
        if is_column_key(key_selector):
            selector, found = self._column_key(key_selector, key_type)
            return KeyedStream(self, selector, found if key_type is None else key_type)
        return KeyedStream(self, checks.key_function("key_selector", key_selector), key_type)

    def shuffle(self) -> DataStream:
        """Spreads records at random."""
        return self._partition(PartitionerKind.SHUFFLE)

    def rebalance(self) -> DataStream:
        """Spreads records evenly, round-robin over all subtasks."""
        return self._partition(PartitionerKind.REBALANCE)

    def rescale(self) -> DataStream:
        """Spreads records round-robin over some subtasks, so that fewer connections are needed."""
        return self._partition(PartitionerKind.RESCALE)

    def forward(self) -> DataStream:
        """Sends records to the subtask with the same index; the parallelisms must be equal."""
        return self._partition(PartitionerKind.FORWARD)

    def global_(self) -> DataStream:
        """Sends all records to the first subtask (Java's ``global``)."""
        return self._partition(PartitionerKind.GLOBAL)

    def partition_custom(
        self,
        partitioner: Callable[[Any, int], int] | Partitioner[Any],
        key_selector: Callable[[Any], Any] | KeySelector[Any, Any],
    ) -> DataStream:
        """Sends each record to the subtask that ``partitioner(key, number of subtasks)`` names."""
        partition = checks.partition_function("partitioner", partitioner)
        selector = checks.key_function("key_selector", key_selector)
        return self._partition(PartitionerKind.CUSTOM, selector, partition)

    # --- ends ------------------------------------------------------------------------------------------------------

    def print(self, sink_identifier: str | None = None) -> DataStreamSink:
        """Writes each record to stdout; with ``n>`` in front, and the identifier if given."""
        if sink_identifier is not None and not isinstance(sink_identifier, str):
            raise TypeError(f"sink_identifier is a str, not {type(sink_identifier).__name__}")
        extra = {"identifier": sink_identifier or "", "input_type": checks.coerced(self._record_type)}
        return self._end("Print to Std. Out", OperatorKind.PRINT, None, extra)

    def sink_to(self, sink: Sink[Any]) -> DataStreamSink:
        """Writes the records to a sink."""
        if not isinstance(sink, Sink):
            raise TypeError(f"sink_to() takes a firesteel.functions.sink.Sink, not {type(sink).__name__}")
        refuse_coroutines("sink_to()", sink)
        return sink_behind_stages(self._environment, self._inputs, sink.for_type(checks.coerced(self._record_type)))

    def add_sink(self, sink_func: SinkFunction[Any]) -> DataStreamSink:
        """Hands each record to a ``SinkFunction``."""
        hint = "; a Sink goes to sink_to()" if isinstance(sink_func, Sink) else ""
        checks.check_class("add_sink", sink_func, SinkFunction, hint=hint)
        return self._end("Unnamed", OperatorKind.SINK_FUNCTION, sink_func, {})

    @overload
    def execute_and_collect(self, job_execution_name: str | None = None, limit: None = None) -> CloseableIterator: ...
    @overload
    def execute_and_collect(self, job_execution_name: str | None = None, *, limit: int) -> list[Any]: ...
    @overload
    def execute_and_collect(self, job_execution_name: str | None, limit: int) -> list[Any]: ...
    def execute_and_collect(
        self, job_execution_name: str | None = None, limit: int | None = None
    ) -> CloseableIterator | list[Any]:
        """Runs the program, this stream's records coming back to it.

        Args:
            job_execution_name: name of the job.
            limit: so many records at most; then the job is cancelled.

        Returns:
            Without a limit an iterator, which is to be read to its end or closed; with a limit a list.
        """
        if limit is None:
            return self._environment._collect(self._collected(), job_execution_name)
        whole_limit = checks.whole_number("the limit", limit, 1)
        with self._environment._collect(self._collected(), job_execution_name) as results:
            return [value for _, value in zip(range(whole_limit), results, strict=False)]

    # --- inside ----------------------------------------------------------------------------------------------------

    if not TYPE_CHECKING:  # type checkers are to find what is not there

        def __getattr__(self, name: str) -> NoReturn:
            raise AttributeError(checks.no_attribute(type(self).__name__, name))

    def _operator(self, method: str) -> Transformation:
        if len(self._inputs) != 1 or self._inputs[0].partitioner is not None or self._inputs[0].output_tag is not None:
            raise GraphError(
                f"{method}() belongs to an operator, but this stream is a {self.get_name().lower()}: "
                "call it on the stream before or behind"
            )
        return self._inputs[0].source

    def _values(self) -> DataStream:
        return self

    def _collected(self) -> tuple[StreamInput, ...]:
        return self._inputs

    def _same_environment(self, method: str, other: Any) -> DataStream:
        if not isinstance(other, DataStream):
            raise TypeError(f"{method}() takes a DataStream, not {type(other).__name__}")
        if other._environment is not self._environment:
            raise GraphError(f"{method}(): the streams come from different environments; build both in one")
        return other

    def _partition(
        self,
        kind: PartitionerKind,
        key_selector: Callable[[Any], Any] | None = None,
        partition: Callable[[Any, int], int] | None = None,
    ) -> DataStream:
        inputs = tuple(StreamInput(i.source, kind, key_selector, partition, i.output_tag) for i in self._inputs)
        return DataStream(self._environment, inputs, self._record_type)

    def _apply(self, name: str, kind: OperatorKind, function: Any, output_type: TypeDescriptor | None) -> DataStream:
        declared = checks.declared_type("output_type", output_type)
        return self._derive(name, kind, function, declared, checks.coerced(declared))

    def _derive(
        self,
        name: str,
        kind: OperatorKind,
        function: Any,
        type_info: TypeInformation,
        coerce_to: TypeInformation | None,
        key_selectors: tuple[Callable[[Any], Any], ...] = (),
    ) -> DataStream:
        made = self._environment._add(
            name, kind, function, (self._inputs,), coerce_to=coerce_to, key_selectors=key_selectors
        )
        return DataStream(self._environment, (StreamInput(made),), type_info)

    def _result_of(self, made: Transformation, type_info: TypeInformation) -> DataStream:
        return DataStream(self._environment, (StreamInput(made),), type_info)

    def _end(self, name: str, kind: OperatorKind, function: Any, extra: dict[str, Any]) -> DataStreamSink:
        return DataStreamSink(self._environment._add(name, kind, function, (self._inputs,), extra=extra))


class KeyedStream(KeyedAggregations, KeyedWindowMethods, DataStream):
    """A stream whose records of one key go to one subtask; function classes may keep state for each key."""

    AccumulateType = aggregations.AccumulateType

    def __init__(
        self, origin_stream: DataStream, key_selector: Callable[[Any], Any], key_type: TypeDescriptor | None
    ) -> None:
        self._key_type = checks.key_type(checks.declared_type("key_type", key_type))
        self._key_selector = key_selector
        inputs = tuple(
            StreamInput(i.source, PartitionerKind.HASH, key_selector, output_tag=i.output_tag)
            for i in origin_stream._inputs
        )
        super().__init__(origin_stream._environment, inputs, origin_stream._record_type)

    def get_type(self) -> TypeInformation:
        """Returns a row type of key (``f0``) and record (``f1``); functions and sinks see the record."""
        return RowTypeInfo([self._key_type, self._record_type], ["f0", "f1"])

    def map(
        self, func: Callable[[Any], Any] | MapFunction[Any, Any], output_type: TypeDescriptor | None = None
    ) -> DataStream:
        """One record in, one out; a ``MapFunction`` may use keyed state."""
        checks.check_function("map", func, MapFunction)
        return self._apply_keyed("Map", OperatorKind.MAP, OperatorKind.KEYED_MAP, func, output_type)

    def flat_map(
        self, func: Callable[[Any], Any] | FlatMapFunction[Any, Any], output_type: TypeDescriptor | None = None
    ) -> DataStream:
        """One record in, any number out; a ``FlatMapFunction`` may use keyed state."""
        checks.check_function("flat_map", func, FlatMapFunction)
        return self._apply_keyed("FlatMap", OperatorKind.FLAT_MAP, OperatorKind.KEYED_FLAT_MAP, func, output_type)

    def filter(self, func: Callable[[Any], bool] | FilterFunction[Any] | Expression) -> DataStream:
        """Keeps the records for which the function is true; a ``FilterFunction`` may use keyed state."""
        if isinstance(func, Expression):
            return self._filter_columns(func)
        checks.check_function("filter", func, FilterFunction)
        if not isinstance(func, Function):
            return super().filter(func)
        return self._derive("Filter", OperatorKind.KEYED_FILTER, func, self._record_type, None, (self._key_selector,))

    def process(  # type: ignore[override] # as in PyFlink: keyed streams take the keyed class
        self, func: KeyedProcessFunction[Any, Any, Any], output_type: TypeDescriptor | None = None
    ) -> DataStream:
        """One record in, any number out, with the key, keyed state and the record's timestamp at hand."""
        checks.check_class("process", func, KeyedProcessFunction, hint=" (the stream is keyed)")
        declared = checks.declared_type("output_type", output_type)
        kind = OperatorKind.KEYED_PROCESS
        return self._derive("KEYED PROCESS", kind, func, declared, checks.coerced(declared), (self._key_selector,))

    def reduce(self, func: Callable[[Any, Any], Any] | ReduceFunction[Any]) -> DataStream:
        """Combines the records of a key; gives the result so far after each record."""
        checks.check_function("reduce", func, ReduceFunction)
        return self._reduce("Reduce", func)

    def get_name(self) -> NoReturn:
        """Refused, as in PyFlink: a keyed stream is no operator."""
        raise GraphError("Get name of KeyedStream is not supported.")

    def cache(self) -> NoReturn:
        """Refused, as in PyFlink: a keyed stream is no operator."""
        raise GraphError("Cache for KeyedStream is not supported.")

    def _operator(self, method: str) -> NoReturn:
        raise GraphError(
            f"{method}() for KeyedStream is not supported: call it on the stream before key_by() or on the operator "
            "behind it."
        )

    def _partition(
        self,
        kind: PartitionerKind,
        key_selector: Callable[[Any], Any] | None = None,
        partition: Callable[[Any, int], int] | None = None,
    ) -> NoReturn:
        raise GraphError(f"Cannot override partitioning for KeyedStream (asked for {kind.value}).")

    def _values(self) -> DataStream:
        """The records, spread by key, as a stream that is not keyed."""
        return self._derive(_KEYED_VALUES_NAME, OperatorKind.MAP, aggregations.identity, self._record_type, None)

    def _collected(self) -> tuple[StreamInput, ...]:
        function = aggregations.KeyAndValue(self._key_selector)
        inputs = self._derive(_KEY_BY_NAME, OperatorKind.MAP, function, self.get_type(), self.get_type())._inputs
        inputs[0].source.non_parallel = True  # several would mix the order of what one subtask has sent
        return inputs

    def _apply_keyed(
        self, name: str, plain: OperatorKind, keyed: OperatorKind, function: Any, output_type: TypeDescriptor | None
    ) -> DataStream:
        """A plain callable has no way to reach keyed state: it runs as an ordinary operator behind the same edge."""
        if not isinstance(function, Function):
            return self._apply(name, plain, function, output_type)
        declared = checks.declared_type("output_type", output_type)
        return self._derive(name, keyed, function, declared, checks.coerced(declared), (self._key_selector,))

    def _reduce(self, name: str, function: Any) -> DataStream:
        kind, coerce_to = OperatorKind.REDUCE, checks.coerced(self._record_type)
        return self._derive(name, kind, function, self._record_type, coerce_to, (self._key_selector,))


class CachedDataStream(DataStream):
    """A stream whose results are kept for the next jobs; made by ``cache()``."""

    def __init__(self, environment: StreamExecutionEnvironment, cache: Cache, type_info: TypeInformation) -> None:
        super().__init__(environment, (StreamInput(cache.node),), type_info)
        self._cache = cache

    def invalidate(self) -> None:
        """Removes the results; the next job that reads the stream computes and keeps them anew."""
        self._cache.invalidate()


class ConnectedStreams:
    """Two streams as the inputs of one function; if both are keyed, the function's keyed state is shared by them."""

    def __init__(self, stream1: DataStream, stream2: DataStream) -> None:
        self.stream1 = stream1
        self.stream2 = stream2

    def key_by(
        self,
        key_selector1: Callable[[Any], Any] | KeySelector[Any, Any] | str | Expression | Sequence[str | Expression],
        key_selector2: Callable[[Any], Any] | KeySelector[Any, Any] | str | Expression | Sequence[str | Expression],
        key_type: TypeDescriptor | None = None,
    ) -> ConnectedStreams:
        """Keys both streams; their keys must be of one type."""
        return ConnectedStreams(
            self.stream1.key_by(key_selector1, key_type), self.stream2.key_by(key_selector2, key_type)
        )

    def map(self, func: CoMapFunction[Any, Any, Any], output_type: TypeDescriptor | None = None) -> DataStream:
        """One record of either stream in, one result (or none) out."""
        checks.check_class("map", func, CoMapFunction)
        return self._apply("Co-Map", OperatorKind.CO_MAP, OperatorKind.KEYED_CO_MAP, func, output_type)

    def flat_map(self, func: CoFlatMapFunction[Any, Any, Any], output_type: TypeDescriptor | None = None) -> DataStream:
        """One record of either stream in, any number of results out."""
        checks.check_class("flat_map", func, CoFlatMapFunction)
        kinds = OperatorKind.CO_FLAT_MAP, OperatorKind.KEYED_CO_FLAT_MAP
        return self._apply("Co-Flat-Map", *kinds, func, output_type)

    def process(
        self,
        func: CoProcessFunction[Any, Any, Any] | KeyedCoProcessFunction[Any, Any, Any, Any],
        output_type: TypeDescriptor | None = None,
    ) -> DataStream:
        """One record of either stream in, any number of results out, with timestamp (and key) at hand."""
        if self._keyed:
            checks.check_class("process", func, CoProcessFunction, KeyedCoProcessFunction)
        else:
            keyed = isinstance(func, KeyedCoProcessFunction)
            hint = "; key both streams first: connect(...).key_by(..., ...)" if keyed else ""
            checks.check_class("process", func, CoProcessFunction, hint=hint)
        kinds = OperatorKind.CO_PROCESS, OperatorKind.KEYED_CO_PROCESS
        return self._apply("Keyed-Co-Process" if self._keyed else "Co-Process", *kinds, func, output_type)

    @property
    def _keyed(self) -> bool:
        return isinstance(self.stream1, KeyedStream) and isinstance(self.stream2, KeyedStream)

    def _apply(
        self, name: str, plain: OperatorKind, keyed: OperatorKind, function: Any, output_type: TypeDescriptor | None
    ) -> DataStream:
        first, second = self.stream1, self.stream2
        selectors: tuple[Callable[[Any], Any], ...] = ()
        if isinstance(first, KeyedStream) and isinstance(second, KeyedStream):
            selectors = (first._key_selector, second._key_selector)
        declared = checks.declared_type("output_type", output_type)
        made = first._environment._add(
            name,
            keyed if selectors else plain,
            function,
            (first._inputs, second._inputs),
            coerce_to=checks.coerced(declared),
            key_selectors=selectors,
        )
        return DataStream(first._environment, (StreamInput(made),), declared)

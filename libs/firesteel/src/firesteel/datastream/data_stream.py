"""The DataStream API: streams, windows, joins and sinks, with PyFlink's names.

A stream is a description; nothing runs before ``execute()`` of the ``StreamExecutionEnvironment`` it belongs to.
Parameters that take a function take an instance of the function class or a plain callable, except where a class is
asked for by name. Joins of streams and evictors are those of Flink's Java API in snake case; PyFlink has none.

Methods of each class make objects of the others (a stream gives windows, windows give streams), so they are in one
module.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NoReturn, Self, TypeAlias, TypeVar, overload

from firesteel.common.execution_config import ExecutionConfig
from firesteel.common.time import Span
from firesteel.common.typeinfo import RowTypeInfo, TupleTypeInfo, TypeDescriptor, TypeInformation, Types
from firesteel.common.watermark_strategy import WatermarkStrategy
from firesteel.config import options as opt
from firesteel.core.errors import GraphError, UnsupportedFeatureError
from firesteel.datastream import aggregations, checks, column_plans, event_time
from firesteel.datastream.caches import Cache
from firesteel.datastream.closeable_iterator import CloseableIterator
from firesteel.datastream.joined_streams import JoinTag, OnGroups, OnPairs, OnPairsFlat, UnionKey, UnionKeys
from firesteel.datastream.near_names import NearNames
from firesteel.datastream.notebook_cards import shown_type, stream_card
from firesteel.datastream.operator_settings import OperatorSettings
from firesteel.expressions import Expression
from firesteel.expressions.aggregates import Aggregate
from firesteel.expressions.keys import ColumnKey, ManyKeys
from firesteel.functions.batch_functions import KeyedBatchFunction
from firesteel.functions.broadcast import BroadcastProcessFunction, KeyedBroadcastProcessFunction
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
from firesteel.functions.global_commit import GlobalCommitSink
from firesteel.functions.join_functions import CoGroupFunction, FlatJoinFunction, JoinFunction, ProcessJoinFunction
from firesteel.functions.output_tag import OutputTag
from firesteel.functions.sink import Sink
from firesteel.functions.source import Boundedness, Source
from firesteel.functions.state import MapStateDescriptor
from firesteel.functions.two_phase import TwoPhaseCommitSink
from firesteel.functions.window_functions import (
    AggregateFunction,
    AllWindowFunction,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    WindowFunction,
)
from firesteel.graph.specs import OperatorKind, PartitionerKind
from firesteel.graph.stream_graph import StreamInput, Transformation, display_name, reachable
from firesteel.windowing.assigners import (
    CountSlidingWindowAssigner,
    CountTumblingWindowAssigner,
    MergingWindowAssigner,
    WindowAssigner,
)
from firesteel.windowing.checks import check_span
from firesteel.windowing.columnar import ColumnWindowSpec, check_windows
from firesteel.windowing.evictors import Evictor
from firesteel.windowing.spec import WindowGathering, WindowSpec
from firesteel.windowing.triggers import Trigger

if TYPE_CHECKING:
    import pyarrow as pa

    from firesteel.datastream.stream_execution_environment import StreamExecutionEnvironment

    BatchResult: TypeAlias = pa.RecordBatch | Iterator[pa.RecordBatch] | None

__all__ = [
    "AllWindowedStream",
    "BroadcastConnectedStream",
    "BroadcastStream",
    "CachedDataStream",
    "CloseableIterator",
    "CoGroupedStreams",
    "ConnectedStreams",
    "DataStream",
    "DataStreamSink",
    "IntervalJoin",
    "IntervalJoined",
    "JoinedStreams",
    "KeyedStream",
    "WindowedStream",
]

JoinT = TypeVar("JoinT", bound="_WithWindow")
KeyArgument: TypeAlias = Callable[[Any], Any] | KeySelector[Any, Any] | str | Expression | Sequence[str | Expression]
"""What gives the key of a record: a function; or a column's name or an expression, or a list of them."""

_KEYED_VALUES_NAME = "_keyed_stream_values_operator"
_KEY_BY_NAME = "_stream_key_by_map_operator"


_OF_KEYED_STREAMS = frozenset({"reduce", "sum", "min", "max", "min_by", "max_by", "aggregate", "process_batches"})


class DataStream(OperatorSettings, NearNames):
    """A stream of records. Streams are made by an environment or by another stream's methods.

    Examples:
        ```python
        from firesteel.datastream import StreamExecutionEnvironment

        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
        numbers = env.from_collection([1, 2, 3, 4])
        squares = numbers.filter(lambda number: number % 2 == 0).map(lambda number: number**2)
        print(list(squares.execute_and_collect()))
        ```

        ```text
        [4, 16]
        ```
    """

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

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._shown_name()!r} of {shown_type(self._record_type)}>"

    def _repr_html_(self) -> str:
        """The type of the records and the operators that make them, for a notebook."""
        ends = [stream_input.source for stream_input in self._inputs]
        parallelism = self._environment.get_parallelism()
        return stream_card(type(self).__name__, self._shown_name(), self._record_type, ends, parallelism)

    def _shown_name(self) -> str:
        """The operator whose results the stream has; keyed streams have no name of their own."""
        return "Union" if len(self._inputs) > 1 else self._inputs[0].source.name

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

    def project(self, *field_indexes: int) -> DataStream:
        """Keeps some fields of a tuple stream, in the order given.

        Raises:
            TypeError: the records are no typed tuples, or an index is no int.
            ValueError: no index is given, or there is no such field.
        """
        if not isinstance(self._record_type, TupleTypeInfo):
            raise TypeError(f"Only Tuple DataStreams can be projected; this one has the type {self._record_type}")
        types = self._record_type.field_types
        if not field_indexes:
            raise ValueError("project() takes at least one field index")
        for index in field_indexes:
            checks.whole_number("a field index of project()", index, 0, len(types) - 1)
        chosen = TupleTypeInfo([types[index] for index in field_indexes])
        function = aggregations.Project(tuple(field_indexes))
        return self._derive("Projection", OperatorKind.MAP, function, chosen, coerce_to=None)

    # --- columns ---------------------------------------------------------------------------------------------------

    def select(self, *columns: str | Expression) -> DataStream:
        """Makes rows of these columns: names of columns, and expressions with an ``alias``.

        Raises:
            GraphError: the stream has no columns.
            ProgramError: an expression does not fit them.
        """
        return self._project("Select", column_plans.select(columns, self._record_type, wrap=self._wraps()))

    def with_columns(self, *columns: Expression) -> DataStream:
        """Adds columns, or puts others in their place where the name is there already.

        Raises:
            GraphError: the stream has no columns.
            ProgramError: an expression does not fit them.
        """
        return self._project("WithColumns", column_plans.with_columns(columns, self._record_type, wrap=self._wraps()))

    def drop(self, *names: str) -> DataStream:
        """Leaves columns out.

        Raises:
            GraphError: the stream has no columns, or none would be left.
            ProgramError: there is no such column.
        """
        return self._project("Drop", column_plans.drop(names, self._record_type, wrap=self._wraps()))

    def map_batches(
        self,
        func: Callable[[pa.RecordBatch], BatchResult] | MapFunction[pa.RecordBatch, BatchResult],
        output_type: TypeInformation,
        timestamp_column: str | None = None,
    ) -> DataStream:
        """Hands whole ``pyarrow.RecordBatch`` objects to a function, which gives one, several as an iterator, or None.

        Args:
            func: may change the number of rows. How many rows a batch has is not defined. A ``MapFunction`` has
                ``open``, to load once in each subtask what all batches need.
            output_type: type of the result's rows; columns are found by name.
            timestamp_column: column of the result with the timestamps in milliseconds; without it rows keep those of
                the input, whose number they must have then. It need not be in ``output_type``.

        Raises:
            GraphError: the stream or the result has no columns.
        """
        column_plans.columns_of("map_batches", self._record_type)
        checks.check_function("map_batches", func, MapFunction)
        declared = checks.declared_type("output_type", output_type)
        column_plans.check_result("map_batches", declared)
        if timestamp_column is not None:
            checks.some_text("timestamp_column", timestamp_column)
        return self._columnar("MapBatches", OperatorKind.COLUMNS_MAP, func, declared, timestamp_column=timestamp_column)

    # --- several streams -------------------------------------------------------------------------------------------

    def union(self, *streams: DataStream) -> DataStream:
        """All records of this stream and the others.

        Raises:
            TypeError: an argument is no stream.
            GraphError: the types differ, or a stream belongs to another environment.
        """
        branches = [self._values(), *(self._same_environment("union", stream)._values() for stream in streams)]
        for branch in branches[1:]:
            if branch._record_type != self._record_type:
                raise GraphError(
                    f"union() needs streams of one type, not {self._record_type} and {branch._record_type}: "
                    "bring them to one type with map(..., output_type=...)"
                )
        return DataStream(self._environment, tuple(i for branch in branches for i in branch._inputs), self._record_type)

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

    def join(self, other_stream: DataStream) -> JoinedStreams:
        """Brings together each pair of records with one key in one window.

        ``a.join(b).where(key_of_a).equal_to(key_of_b).window(assigner).apply(function)``
        """
        return JoinedStreams(self, self._same_environment("join", other_stream))

    def co_group(self, other_stream: DataStream) -> CoGroupedStreams:
        """Brings together all records of both streams with one key in one window.

        ``a.co_group(b).where(key_of_a).equal_to(key_of_b).window(assigner).apply(function)``
        """
        return CoGroupedStreams(self, self._same_environment("co_group", other_stream))

    # --- partitioning ----------------------------------------------------------------------------------------------

    def key_by(
        self,
        key_selector: KeyArgument,
        key_type: TypeDescriptor | None = None,
    ) -> KeyedStream:
        """Sends all records of a key to one subtask, and lets functions keep state for each key.

        A keyed stream is keyed anew, from the stream that it was made of.

        Args:
            key_selector: gives the key of a record; or a column's name or an expression, or a list of them for a tuple
                as key.
            key_type: type of the key; that of the columns if it is made of them.
        """
        if _is_column_key(key_selector):
            selector, columns_type = self._column_key(key_selector, key_type)
            return KeyedStream(self, selector, columns_type if key_type is None else key_type)
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

    @overload
    def broadcast(self, broadcast_state_descriptor: None = None) -> DataStream: ...
    @overload
    def broadcast(
        self, broadcast_state_descriptor: MapStateDescriptor, *other_broadcast_state_descriptors: MapStateDescriptor
    ) -> BroadcastStream: ...
    def broadcast(
        self, broadcast_state_descriptor: Any = None, *other_broadcast_state_descriptors: Any
    ) -> DataStream | BroadcastStream:
        """Sends each record to all subtasks; with descriptors, as a ``BroadcastStream`` for ``connect``."""
        spread = self._partition(PartitionerKind.BROADCAST)
        if broadcast_state_descriptor is None and not other_broadcast_state_descriptors:
            return spread
        return BroadcastStream(spread, [broadcast_state_descriptor, *other_broadcast_state_descriptors])

    # --- windows ---------------------------------------------------------------------------------------------------

    def window_all(self, window_assigner: WindowAssigner[Any, Any]) -> AllWindowedStream:
        """Cuts the whole stream into windows, which are worked on by one subtask. See ``KeyedStream.window``."""
        return AllWindowedStream(self, window_assigner)

    def count_window_all(self, size: int, slide: int = 0) -> AllWindowedStream:
        """Cuts the whole stream into windows of ``size`` records, one starting each ``slide``."""
        return self.window_all(_count_windows("count_window_all", size, slide))

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

    # --- event time and side outputs -------------------------------------------------------------------------------

    def assign_timestamps_and_watermarks(self, watermark_strategy: WatermarkStrategy) -> DataStream:
        """Gives records timestamps and makes watermarks; those that come from before end here.

        Prefer the strategy of ``from_source``: it keeps a watermark for each split.

        Raises:
            TypeError: not a strategy.
            GraphError: the strategy aligns sources, or reads columns and the stream has none.
            ProgramError: timestamps are an expression that does not fit the stream.
        """
        strategy = event_time.check_strategy(watermark_strategy)
        if strategy.alignment_group is not None:
            raise GraphError(f"assign_timestamps_and_watermarks(): {event_time.ALIGNMENT_BELONGS_TO_SOURCES}")
        strategy = event_time.fitted_strategy(strategy, self._record_type, wrap=self._wraps())
        return self._environment._add_stream(
            "Timestamps/Watermarks",
            OperatorKind.WATERMARKS,
            strategy,
            (self._inputs,),
            self._record_type,
            extra={"input_type": self._record_type},
        )

    def get_side_output(self, output_tag: OutputTag[Any]) -> DataStream:
        """The stream of what the operator's function sends to this tag with ``yield tag, value``.

        Raises:
            TypeError: not a tag.
            GraphError: the stream is no operator's, or the tag's id is taken by a tag of another type.
        """
        tag = checks.output_tag("get_side_output", output_tag)
        operator = self._operator("get_side_output")
        _declare_tag(operator, tag, "get_side_output")
        return DataStream(self._environment, (StreamInput(operator, output_tag=tag.tag_id),), tag.type_info)

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
        return _sink_behind_stages(self._environment, self._inputs, sink.for_type(checks.coerced(self._record_type)))

    def add_sink(self, sink_func: SinkFunction[Any] | Sink[Any]) -> DataStreamSink:
        """Hands each record to a ``SinkFunction``, or to a ``Sink``, as ``sink_to`` does.

        In PyFlink some sinks go to ``add_sink`` alone (``JdbcSink``, ``StreamingFileSink``, ``FlinkKafkaProducer``).
        """
        if isinstance(sink_func, Sink):
            return self.sink_to(sink_func)
        checks.check_class("add_sink", sink_func, SinkFunction)
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

    def cache(self) -> CachedDataStream:
        """Keeps the results for the next jobs of this environment.

        The first job that reads the stream writes its results into files as well (``firesteel.cache.directory``), and
        they count when that job has finished. Later jobs read them in place of computing them; timestamps are kept,
        watermarks are not. Results that are lost are computed again. ``invalidate()``, ``close()`` of the environment
        and the program's end remove them.

        Raises:
            GraphError: a source of the stream never ends.
        """
        for upstream in reachable(stream_input.source for stream_input in self._inputs).values():
            source = upstream.function
            if isinstance(source, Source) and source.boundedness is not Boundedness.BOUNDED:
                raise GraphError(
                    f"cache() keeps the results of streams that end, but {display_name(upstream)!r} is unbounded: "
                    "write the stream to a file sink and read it from there"
                )
        env = self._environment
        name = "Cache of " + ", ".join(dict.fromkeys(stream_input.source.name for stream_input in self._inputs))
        # Two operators: the node takes the stream's place in later graphs, where it reads the results again; the sink
        # stands only in the one graph whose job writes them (Cache.prepare decides which).
        node = env._add(name, OperatorKind.MAP, aggregations.identity, (self._inputs,))
        sink = env._add_aside(name, OperatorKind.SINK, (self._inputs,))
        node.internal = sink.internal = True
        cache = Cache(node, sink, self._record_type)
        env._caches.add(cache)
        return CachedDataStream(env, cache, self._record_type)

    # --- inside ----------------------------------------------------------------------------------------------------

    @classmethod
    def _no_attribute(cls, name: str) -> str:
        if name in _OF_KEYED_STREAMS:
            return f"{name}() belongs to keyed streams: call key_by() first"
        return super()._no_attribute(name)

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
        return self._environment._add_stream(
            name, kind, function, (self._inputs,), type_info, coerce_to=coerce_to, key_selectors=key_selectors
        )

    def _end(self, name: str, kind: OperatorKind, function: Any, extra: dict[str, Any]) -> DataStreamSink:
        return DataStreamSink(self._environment._add(name, kind, function, (self._inputs,), extra=extra))

    def _filter_columns(self, expression: Expression) -> DataStream:
        condition = column_plans.condition(expression, self._record_type, wrap=self._wraps())
        return self._columnar("Filter", OperatorKind.COLUMNS_FILTER, condition, self._record_type)

    def _column_key(self, columns: Any, key_type: Any = None) -> tuple[ColumnKey, TypeInformation]:
        if isinstance(key_type, str | Expression):
            raise TypeError("key_by() takes several columns as a list: key_by([..., ...])")
        chosen = [columns] if isinstance(columns, str | Expression) else columns
        return column_plans.column_key(chosen, self._record_type, wrap=self._wraps())

    def _wraps(self) -> bool:
        return self._environment._settings().get(opt.EXPRESSIONS_WRAP)

    def _columnar(
        self,
        name: str,
        kind: OperatorKind,
        function: Any,
        result: TypeInformation,
        key_selectors: tuple[Callable[[Any], Any], ...] = (),
        inputs: tuple[StreamInput, ...] | None = None,
        **extra: Any,
    ) -> DataStream:
        described = {"input_type": self._record_type, "result_type": result, "wrap": self._wraps(), **extra}
        read = (self._inputs if inputs is None else inputs,)
        return self._environment._add_stream(
            name, kind, function, read, result, key_selectors=key_selectors, extra=described
        )

    def _project(self, name: str, projection: tuple[tuple[Expression, ...], RowTypeInfo]) -> DataStream:
        return self._columnar(name, OperatorKind.COLUMNS_PROJECT, *projection)


class KeyedStream(DataStream):
    """A stream whose records of one key go to one subtask; function classes may keep state for each key.

    Examples:
        ```python
        from firesteel.datastream import StreamExecutionEnvironment

        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
        sales = env.from_collection([("tea", 2), ("milk", 1), ("tea", 3)])
        totals = sales.key_by(lambda sale: sale[0]).sum(1)
        print(list(totals.execute_and_collect()))
        ```

        ```text
        [('tea', 2), ('milk', 1), ('tea', 5)]
        ```
    """

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

    def sum(self, position_to_sum: int | str = 0) -> DataStream:
        """The running sum of a field; other fields are those of the key's first record."""
        position = aggregations.check_position("sum", position_to_sum, self._record_type)
        return self._reduce("Sum", aggregations.FieldReduce(position, operator.add))

    def min(self, position_to_min: int | str = 0) -> DataStream:
        """The running minimum of a field; other fields are those of the key's first record."""
        position = aggregations.check_position("min", position_to_min, self._record_type)
        return self._reduce("Min", aggregations.FieldReduce(position, aggregations.smaller))

    def max(self, position_to_max: int | str = 0) -> DataStream:
        """The running maximum of a field; other fields are those of the key's first record."""
        position = aggregations.check_position("max", position_to_max, self._record_type)
        return self._reduce("Max", aggregations.FieldReduce(position, aggregations.greater))

    def min_by(self, position_to_min_by: int | str = 0) -> DataStream:
        """The record whose field is the smallest so far, the first of equals."""
        position = aggregations.check_position("min_by", position_to_min_by, self._record_type)
        return self._reduce("MinBy", aggregations.PickRecord(position, smallest=True))

    def max_by(self, position_to_max_by: int | str = 0) -> DataStream:
        """The record whose field is the greatest so far, the first of equals."""
        position = aggregations.check_position("max_by", position_to_max_by, self._record_type)
        return self._reduce("MaxBy", aggregations.PickRecord(position, smallest=False))

    def aggregate(self, *aggregates: Aggregate) -> DataStream:
        """For each row the aggregates of its key so far, as rows of the key's columns and the results.

        Computed by kernels over whole batches, with the state in arrays. Rows keep their timestamps.

        Args:
            aggregates: such as ``count()``, ``sum_("price")``, ``max_(col("price") * 2).alias("twice")``. A result is
                called by its alias, or as ``count``, ``sum_price``, ``max_price`` and so on.

        Raises:
            TypeError: an argument is no aggregate.
            GraphError: the stream has no columns, it is keyed by a function, or a name is missing or stands twice.
            ProgramError: an aggregate does not fit the columns; near names and types are in the message.
        """
        bound_aggregates, result = column_plans.aggregate(
            aggregates, self._key_selector, self._record_type, wrap=self._wraps()
        )
        return self._columnar(
            "Aggregate", OperatorKind.COLUMNS_AGGREGATE, bound_aggregates, result, key_selectors=(self._key_selector,)
        )

    def process_batches(
        self,
        func: Callable[[pa.RecordBatch, KeyedBatchFunction.Context], BatchResult] | KeyedBatchFunction,
        output_type: TypeInformation,
        timestamp_column: str | None = None,
    ) -> DataStream:
        """Hands whole ``pyarrow.RecordBatch`` objects to a function with keyed state of many keys at once.

        Args:
            func: a ``KeyedBatchFunction``, or a callable that takes a batch and a ``KeyedBatchFunction.Context``. It
                gives a batch, several as an iterator, or None. How many rows a batch has is not defined.
            output_type: type of the result's rows; columns are found by name.
            timestamp_column: column of the result with the timestamps in milliseconds; without it rows keep those of
                the input, whose number they must have then. It need not be in ``output_type``.

        Raises:
            GraphError: the stream or the result has no columns, or the stream is keyed by a function.
        """
        checks.check_function("process_batches", func, KeyedBatchFunction)
        schema = column_plans.columns_of("process_batches", self._record_type)
        column_plans.key_of("process_batches", self._key_selector, schema)
        declared = checks.declared_type("output_type", output_type)
        column_plans.check_result("process_batches", declared)
        if timestamp_column is not None:
            checks.some_text("timestamp_column", timestamp_column)
        return self._columnar(
            "ProcessBatches",
            OperatorKind.COLUMNS_PROCESS,
            func,
            declared,
            key_selectors=(self._key_selector,),
            timestamp_column=timestamp_column,
        )

    def window(self, window_assigner: WindowAssigner[Any, Any]) -> WindowedStream:
        """Cuts the stream into windows, for each key.

        Raises:
            TypeError: it is no window assigner.
        """
        return WindowedStream(self, window_assigner)

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
            TypeError: ``other_stream`` is no stream.
            GraphError: the other stream is not keyed, or belongs to another environment.
        """
        right_stream = self._same_environment("interval_join", other_stream)
        if not isinstance(right_stream, KeyedStream):
            raise GraphError("interval_join() needs two keyed streams, and the other one is not: call key_by() on it")
        return IntervalJoin(self, right_stream)

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
        inputs[0].source.non_parallel = True  # parallel subtasks would mix the order of what one subtask has sent
        return inputs

    def _apply_keyed(
        self, name: str, plain: OperatorKind, keyed: OperatorKind, function: Any, output_type: TypeDescriptor | None
    ) -> DataStream:
        """Add a keyed operator for a function class; a plain callable gets an ordinary operator behind the same edge.

        The callable has no way to reach keyed state, so nothing needs to set the current key for it.
        """
        if not isinstance(function, Function):
            return self._apply(name, plain, function, output_type)
        declared = checks.declared_type("output_type", output_type)
        return self._derive(name, keyed, function, declared, checks.coerced(declared), (self._key_selector,))

    def _reduce(self, name: str, function: Any) -> DataStream:
        kind, coerce_to = OperatorKind.REDUCE, checks.coerced(self._record_type)
        return self._derive(name, kind, function, self._record_type, coerce_to, (self._key_selector,))


class CachedDataStream(DataStream):
    """A stream whose results are kept for the next jobs; made by ``cache()``.

    Examples:
        ```python
        from firesteel.datastream import StreamExecutionEnvironment

        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
        squares = env.from_collection([1, 2, 3]).map(lambda number: number**2).cache()
        print(list(squares.execute_and_collect()))
        print(sum(squares.execute_and_collect()))  # reads the results of the first job
        squares.invalidate()
        ```

        ```text
        [1, 4, 9]
        14
        ```
    """

    def __init__(self, environment: StreamExecutionEnvironment, cache: Cache, type_info: TypeInformation) -> None:
        super().__init__(environment, (StreamInput(cache.node),), type_info)
        self._cache = cache

    def invalidate(self) -> None:
        """Removes the results; the next job that reads the stream computes and keeps them anew."""
        self._cache.invalidate()


class ConnectedStreams(NearNames):
    """Two streams as the inputs of one function; if both are keyed, the function's keyed state is shared by them.

    Examples:
        ```python
        from firesteel.datastream import CoMapFunction, StreamExecutionEnvironment


        class ToCelsius(CoMapFunction):
            def map1(self, value):
                return value

            def map2(self, value):
                return round((value - 32) / 1.8)


        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
        celsius, fahrenheit = env.from_collection([20]), env.from_collection([212])
        print(sorted(celsius.connect(fahrenheit).map(ToCelsius()).execute_and_collect()))
        ```

        ```text
        [20, 100]
        ```
    """

    def __init__(self, stream1: DataStream, stream2: DataStream) -> None:
        self.stream1 = stream1
        self.stream2 = stream2

    def key_by(
        self,
        key_selector1: KeyArgument,
        key_selector2: KeyArgument,
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
        return first._environment._add_stream(
            name,
            keyed if selectors else plain,
            function,
            (first._inputs, second._inputs),
            declared,
            coerce_to=checks.coerced(declared),
            key_selectors=selectors,
        )


class BroadcastStream:
    """A stream whose records all subtasks get, with the states that are made of them.

    Args:
        input_stream: already partitioned by ``broadcast()``.
        broadcast_state_descriptors: of the states.

    Examples:
        ```python
        from firesteel.common import Types
        from firesteel.datastream import StreamExecutionEnvironment
        from firesteel.datastream.state import MapStateDescriptor

        env = StreamExecutionEnvironment.get_execution_environment()
        prices = MapStateDescriptor("prices", Types.STRING(), Types.INT())
        broadcast = env.from_collection([("tea", 3)]).broadcast(prices)  # orders.connect(broadcast).process(...)
        ```
    """

    def __init__(self, input_stream: DataStream, broadcast_state_descriptors: list[MapStateDescriptor]) -> None:
        self.input_stream = input_stream
        self.broadcast_state_descriptors = checks.broadcast_states(broadcast_state_descriptors)


class BroadcastConnectedStream(NearNames):
    """A stream, keyed or not, and a broadcast stream as the inputs of one function.

    Args:
        non_broadcast_stream: the function sees its records with read access to the broadcast state.
        broadcast_stream: the function sees its records with write access.
        broadcast_state_descriptors: of the states.

    Examples:
        ```python
        from firesteel.common import Types
        from firesteel.datastream import BroadcastProcessFunction, StreamExecutionEnvironment
        from firesteel.datastream.state import MapStateDescriptor

        NAMES = MapStateDescriptor("names", Types.INT(), Types.STRING())


        class Both(BroadcastProcessFunction):
            def process_element(self, value, ctx):
                yield "record", value

            def process_broadcast_element(self, value, ctx):
                yield "rule", value


        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
        connected = env.from_collection([1]).connect(env.from_collection([2]).broadcast(NAMES))
        print(sorted(connected.process(Both()).execute_and_collect()))
        ```

        ```text
        [('record', 1), ('rule', 2)]
        ```
    """

    def __init__(
        self,
        non_broadcast_stream: DataStream,
        broadcast_stream: BroadcastStream,
        broadcast_state_descriptors: list[MapStateDescriptor],
    ) -> None:
        self.non_broadcast_stream = non_broadcast_stream
        self.broadcast_stream = broadcast_stream
        self.broadcast_state_descriptors = checks.broadcast_states(broadcast_state_descriptors)

    def process(
        self,
        func: BroadcastProcessFunction[Any, Any, Any] | KeyedBroadcastProcessFunction[Any, Any, Any, Any],
        output_type: TypeDescriptor | None = None,
    ) -> DataStream:
        """One record of either stream in, any number of results out.

        Args:
            func: a ``KeyedBroadcastProcessFunction`` if the stream is keyed, else a ``BroadcastProcessFunction``.
            output_type: of the results.

        Raises:
            TypeError: the function is of the other class.
        """
        stream = self.non_broadcast_stream
        key_selector = stream._key_selector if isinstance(stream, KeyedStream) else None
        if key_selector is None:
            keyed = isinstance(func, KeyedBroadcastProcessFunction)
            hint = "; key the stream first: key_by(...).connect(broadcast_stream)" if keyed else ""
            checks.check_class("process", func, BroadcastProcessFunction, hint=hint)
        else:
            hint = " (the stream is keyed)"
            checks.check_class("process", func, KeyedBroadcastProcessFunction, hint=hint)
        declared = checks.declared_type("output_type", output_type)
        return stream._environment._add_stream(
            "Co-Process-Broadcast" if key_selector is None else "Co-Process-Broadcast-Keyed",
            OperatorKind.BROADCAST_PROCESS if key_selector is None else OperatorKind.KEYED_BROADCAST_PROCESS,
            func,
            (stream._inputs, self.broadcast_stream.input_stream._inputs),
            declared,
            coerce_to=checks.coerced(declared),
            key_selectors=() if key_selector is None else (key_selector,),
            extra={"broadcast_states": tuple(self.broadcast_state_descriptors)},
        )


class _WindowedBase(ABC, NearNames):
    """A stream cut into windows; ``WindowedStream`` and ``AllWindowedStream`` say by which key."""

    _name: ClassVar[str]
    _plain: ClassVar[type[Function]]
    _process: ClassVar[type[Function]]

    def __init__(self, data_stream: DataStream, window_assigner: WindowAssigner[Any, Any]) -> None:
        if not isinstance(window_assigner, WindowAssigner):
            hint = "; did you leave out .of(...)?" if isinstance(window_assigner, type) else ""
            raise TypeError(f"windows are made by a WindowAssigner, not {window_assigner!r}{hint}")
        self._stream = data_stream
        self._assigner = window_assigner
        self._trigger: Trigger[Any, Any] | None = None
        self._evictor: Evictor[Any, Any] | None = None
        self._lateness: int | None = None
        self._late_tag: OutputTag[Any] | None = None

    def get_execution_environment(self) -> StreamExecutionEnvironment:
        """Returns the environment that the stream belongs to."""
        return self._stream.get_execution_environment()

    def get_input_type(self) -> TypeInformation:
        """Returns the type of the records."""
        return self._stream._record_type

    def trigger(self, trigger: Trigger[Any, Any]) -> Self:
        """Sets when windows are evaluated, in place of the assigner's default.

        Raises:
            TypeError: it is no trigger, or it can't merge and the windows are sessions.
        """
        if not isinstance(trigger, Trigger):
            hint = "; write it with its parameters" if isinstance(trigger, type) else ""
            raise TypeError(f"trigger() takes a Trigger, not {trigger!r}{hint}")
        refuse_coroutines("trigger()", trigger)
        self._check_merging(trigger)
        self._trigger = trigger
        return self

    def evictor(self, evictor: Evictor[Any, Any]) -> Self:
        """Sets which records are taken out of a window when it is evaluated.

        All its records are kept until then, also for ``reduce`` and ``aggregate``.

        Raises:
            TypeError: it is no evictor.
        """
        if not isinstance(evictor, Evictor):
            hint = "; write it with its parameters" if isinstance(evictor, type) else ""
            raise TypeError(f"evictor() takes an Evictor, not {evictor!r}{hint}")
        refuse_coroutines("evictor()", evictor)
        self._evictor = evictor
        return self

    def allowed_lateness(self, time_ms: int | Span) -> Self:
        """Keeps event-time windows so long behind their end: a span of time, or an int of ms.

        A record that comes meanwhile has its window evaluated again.

        Raises:
            TypeError: it is neither.
            ValueError: it is negative, or finer than ms.
        """
        if isinstance(time_ms, int):
            self._lateness = checks.whole_number("allowed_lateness", time_ms, 0)
        else:
            self._lateness = check_span("allowed_lateness", time_ms, 0)
        return self

    def side_output_late_data(self, output_tag: OutputTag[Any]) -> Self:
        """Sends records that come too late for their windows to a side output.

        Read it with ``get_side_output(tag)`` of the resulting stream. Without it such records are dropped and counted
        as ``numLateRecordsDropped``.

        Raises:
            TypeError: it is no tag.
            GraphError: the tag is of another type than the records.
        """
        tag, any_object = checks.output_tag("side_output_late_data", output_tag), Types.PICKLED_BYTE_ARRAY()
        record_type = self.get_input_type()
        if any_object not in (tag.type_info, record_type) and tag.type_info != record_type:
            raise GraphError(
                f"side_output_late_data(): the tag {tag.tag_id!r} is of type {tag.type_info}, and records that come "
                f"too late are {record_type}"
            )
        self._late_tag = tag
        return self

    def _reduced(self, function: Any, window_function: Any, output_type: TypeDescriptor | None) -> DataStream:
        checks.check_function("reduce", function, ReduceFunction)
        if window_function is None and output_type is None:
            output_type = self.get_input_type()
        return self._add_windows("reduce", WindowGathering.REDUCE, function, window_function, output_type)

    def _aggregated(
        self,
        function: Any,
        window_function: Any,
        accumulator_type: TypeDescriptor | None,
        output_type: TypeDescriptor | None,
    ) -> DataStream:
        checks.check_class("aggregate", function, AggregateFunction)
        if accumulator_type is not None:
            checks.declared_type("accumulator_type", accumulator_type)
        return self._add_windows("aggregate", WindowGathering.AGGREGATE, function, window_function, output_type)

    def _whole_windows(
        self, method: str, function: Any, function_class: type[Function], output_type: Any
    ) -> DataStream:
        hint = ""
        if not isinstance(function, function_class) and isinstance(
            function, (*_WINDOW_FUNCTIONS, *_PROCESS_WINDOW_FUNCTIONS)
        ):
            here = "reduced to one by window_all()" if self._name == "WINDOW_ALL" else "keyed"
            hint = f" (the stream is {here}; apply() and process() take different classes)"
        checks.check_class(method, function, function_class, hint=hint)
        return self._add_windows(method, WindowGathering.ALL, None, function, output_type)

    def _add_windows(
        self,
        method: str,
        gathering: WindowGathering,
        gather_function: Any,
        window_function: Any,
        output_type: TypeDescriptor | None,
    ) -> DataStream:
        if window_function is not None and gathering is not WindowGathering.ALL:
            checks.check_class(f"the window function of {method}", window_function, self._plain, self._process)
        self._check_lateness()
        trigger = self._trigger
        if trigger is None:
            trigger = self._assigner.get_default_trigger(self.get_execution_environment())
            self._check_merging(trigger)
        spec = WindowSpec(
            assigner=self._assigner,
            trigger=trigger,
            evictor=self._evictor,
            allowed_lateness=self._lateness or 0,
            late_tag=self._late_tag,
            gathering=gathering,
            gather_function=gather_function,
            window_function=window_function,
        )
        if self._assigner.is_event_time():
            event_time.warn_without_timestamps(f"windows {self._assigner!r}", self._stream._inputs)
        declared = checks.declared_type("output_type", output_type)
        stream = self._add_operator(spec, declared)
        if self._late_tag is not None:
            _declare_tag(stream._inputs[0].source, self._late_tag, "side_output_late_data")
        return stream

    def _aggregate_columns(self, aggregates: Sequence[Any]) -> DataStream:
        """Add windows that aggregate columns by kernels over whole batches.

        Raises:
            GraphError: the windows, the key or the stream do not allow it, or lateness is set without event time.
            ProgramError: an aggregate does not fit the columns.
        """
        check_windows(self._assigner, self._trigger, self._evictor)
        self._check_lateness()
        key, inputs = self._key_columns()
        result = column_plans.windows(key, aggregates, self.get_input_type(), wrap=self._stream._wraps())
        spec = ColumnWindowSpec(self._assigner, tuple(aggregates), self._lateness or 0, self._late_tag)
        if self._assigner.is_event_time():
            event_time.warn_without_timestamps(f"windows {self._assigner!r}", self._stream._inputs)
        stream = self._stream._columnar(self._name, OperatorKind.COLUMNS_WINDOW, spec, result, (key,), inputs)
        if self._late_tag is not None:
            _declare_tag(stream._inputs[0].source, self._late_tag, "side_output_late_data")
        return self._with_parallelism(stream)

    @abstractmethod
    def _key_columns(self) -> tuple[ColumnKey, tuple[StreamInput, ...]]:
        """The key as read from columns, and the inputs of the window operator."""

    def _with_parallelism(self, stream: DataStream) -> DataStream:
        """The stream of results, with the parallelism that the windows allow."""
        return stream

    @abstractmethod
    def _add_operator(self, spec: WindowSpec, declared: TypeInformation) -> DataStream:
        """Adds the operator of the windows."""

    def _check_merging(self, trigger: Trigger[Any, Any]) -> None:
        if isinstance(self._assigner, MergingWindowAssigner) and not trigger.can_merge():
            raise TypeError(
                f"A merging window assigner cannot be used with a trigger that does not support merging: "
                f"{self._assigner!r} with {trigger!r}; sessions take triggers whose can_merge() is true"
            )

    def _check_lateness(self) -> None:
        if self._assigner.is_event_time():
            return
        for value, method in ((self._lateness, "allowed_lateness()"), (self._late_tag, "side_output_late_data()")):
            if value:
                raise GraphError(
                    f"{method} belongs to event-time windows, but {self._assigner!r} does not follow the records' "
                    "timestamps: no record is ever late there"
                )


class WindowedStream(_WindowedBase):
    """A keyed stream cut into windows, for each key.

    Examples:
        ```python
        from firesteel.datastream import StreamExecutionEnvironment

        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
        readings = env.from_collection([("a", 3), ("a", 5), ("b", 1), ("a", 4)])
        largest = readings.key_by(lambda reading: reading[0]).count_window(2).reduce(lambda one, other: max(one, other))
        print(list(largest.execute_and_collect()))
        ```

        ```text
        [('a', 5)]
        ```
    """

    _name = "WINDOW"
    _plain = WindowFunction
    _process = ProcessWindowFunction

    def __init__(self, keyed_stream: KeyedStream, window_assigner: WindowAssigner[Any, Any]) -> None:
        super().__init__(keyed_stream, window_assigner)
        self._keyed_stream = keyed_stream

    def reduce(
        self,
        reduce_function: Callable[[Any, Any], Any] | ReduceFunction[Any],
        window_function: WindowFunction[Any, Any, Any, Any] | ProcessWindowFunction[Any, Any, Any, Any] | None = None,
        output_type: TypeDescriptor | None = None,
    ) -> DataStream:
        """Combines the records of a window as they come; a window keeps one of them.

        With a window function: that gets the combination as its only element.
        """
        return self._reduced(reduce_function, window_function, output_type)

    @overload
    def aggregate(
        self,
        aggregate_function: AggregateFunction[Any, Any, Any],
        window_function: WindowFunction[Any, Any, Any, Any] | ProcessWindowFunction[Any, Any, Any, Any] | None = None,
        accumulator_type: TypeDescriptor | None = None,
        output_type: TypeDescriptor | None = None,
    ) -> DataStream: ...

    @overload
    def aggregate(self, *aggregates: Aggregate) -> DataStream: ...

    def aggregate(  # type: ignore[misc] # aggregates of columns have no names as arguments
        self,
        aggregate_function: Any,
        window_function: Any = None,
        accumulator_type: Any = None,
        output_type: Any = None,
        *aggregates: Aggregate,
    ) -> DataStream:
        """Gathers the records of a window in an accumulator as they come, or aggregates columns.

        With a window function: that gets the result as its only element. ``accumulator_type`` is checked, but
        accumulators stay as the function makes them.

        ``aggregate(count(), max_("price"))`` computes aggregates of columns with arrays, on a stream of typed rows
        whose key is made of columns. The results are rows of the key's columns, ``window_start`` and ``window_end``
        (ms since 1970-01-01 UTC), and the aggregates.

        Raises:
            TypeError: an argument is of another class.
            GraphError: aggregates of columns do not go with the stream, its key, or the windows.
            ProgramError: the aggregates do not fit the columns.
        """
        column_aggregates = _aggregates(aggregate_function, window_function, accumulator_type, output_type, *aggregates)
        if column_aggregates is not None:
            return self._aggregate_columns(column_aggregates)
        return self._aggregated(aggregate_function, window_function, accumulator_type, output_type)

    def apply(
        self, window_function: WindowFunction[Any, Any, Any, Any], output_type: TypeDescriptor | None = None
    ) -> DataStream:
        """Keeps the records of a window and hands them to a function when it is evaluated."""
        return self._whole_windows("apply", window_function, WindowFunction, output_type)

    def process(
        self,
        process_window_function: ProcessWindowFunction[Any, Any, Any, Any],
        output_type: TypeDescriptor | None = None,
    ) -> DataStream:
        """Like ``apply``, with times and state at hand."""
        return self._whole_windows("process", process_window_function, ProcessWindowFunction, output_type)

    def _key_columns(self) -> tuple[ColumnKey, tuple[StreamInput, ...]]:
        schema = column_plans.columns_of("aggregate", self.get_input_type())
        key, _ = column_plans.key_of("aggregate", self._keyed_stream._key_selector, schema)
        return key, self._stream._inputs

    def _add_operator(self, spec: WindowSpec, declared: TypeInformation) -> DataStream:
        stream = self._keyed_stream
        return stream._derive(
            self._name, _kind_of(spec), spec, declared, checks.coerced(declared), (stream._key_selector,)
        )


class AllWindowedStream(_WindowedBase):
    """A stream cut into windows over all its records; it runs in one subtask.

    Examples:
        ```python
        from firesteel.datastream import StreamExecutionEnvironment

        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
        pairs = env.from_collection([1, 2, 3, 4]).count_window_all(2).reduce(lambda one, other: one + other)
        print(list(pairs.execute_and_collect()))
        ```

        ```text
        [3, 7]
        ```
    """

    _name = "WINDOW_ALL"
    _plain = AllWindowFunction
    _process = ProcessAllWindowFunction

    def reduce(
        self,
        reduce_function: Callable[[Any, Any], Any] | ReduceFunction[Any],
        window_function: AllWindowFunction[Any, Any, Any] | ProcessAllWindowFunction[Any, Any, Any] | None = None,
        output_type: TypeDescriptor | None = None,
    ) -> DataStream:
        """Combines the records of a window as they come, as ``WindowedStream.reduce`` does."""
        return self._reduced(reduce_function, window_function, output_type)

    @overload
    def aggregate(
        self,
        aggregate_function: AggregateFunction[Any, Any, Any],
        window_function: AllWindowFunction[Any, Any, Any] | ProcessAllWindowFunction[Any, Any, Any] | None = None,
        accumulator_type: TypeDescriptor | None = None,
        output_type: TypeDescriptor | None = None,
    ) -> DataStream: ...

    @overload
    def aggregate(self, *aggregates: Aggregate) -> DataStream: ...

    def aggregate(  # type: ignore[misc] # aggregates of columns have no names as arguments
        self,
        aggregate_function: Any,
        window_function: Any = None,
        accumulator_type: Any = None,
        output_type: Any = None,
        *aggregates: Aggregate,
    ) -> DataStream:
        """Gathers or aggregates as ``WindowedStream.aggregate`` does; without columns of keys in the results."""
        column_aggregates = _aggregates(aggregate_function, window_function, accumulator_type, output_type, *aggregates)
        if column_aggregates is not None:
            return self._aggregate_columns(column_aggregates)
        return self._aggregated(aggregate_function, window_function, accumulator_type, output_type)

    def apply(
        self, window_function: AllWindowFunction[Any, Any, Any], output_type: TypeDescriptor | None = None
    ) -> DataStream:
        """Keeps the records of a window and hands them to a function when it is evaluated."""
        return self._whole_windows("apply", window_function, AllWindowFunction, output_type)

    def process(
        self,
        process_window_function: ProcessAllWindowFunction[Any, Any, Any],
        output_type: TypeDescriptor | None = None,
    ) -> DataStream:
        """Like ``apply``, with times and state at hand."""
        return self._whole_windows("process", process_window_function, ProcessAllWindowFunction, output_type)

    def _add_operator(self, spec: WindowSpec, declared: TypeInformation) -> DataStream:
        one_key = aggregations.OneKey()
        inputs = self._all_to_one(one_key)
        stream = self._stream._environment._add_stream(
            self._name,
            _kind_of(spec),
            spec,
            (inputs,),
            declared,
            coerce_to=checks.coerced(declared),
            key_selectors=(one_key,),
        )
        return self._with_parallelism(stream)

    def _key_columns(self) -> tuple[ColumnKey, tuple[StreamInput, ...]]:
        one_key = ColumnKey((), ())
        return one_key, self._all_to_one(one_key)

    def _all_to_one(self, one_key: aggregations.OneKey | ColumnKey) -> tuple[StreamInput, ...]:
        return tuple(
            StreamInput(i.source, PartitionerKind.HASH, one_key, output_tag=i.output_tag)
            for i in self._stream._values()._inputs
        )

    def _with_parallelism(self, stream: DataStream) -> DataStream:
        window_operator = stream._inputs[0].source
        window_operator.parallelism = 1
        window_operator.non_parallel = True
        return stream


_WINDOW_FUNCTIONS = (WindowFunction, AllWindowFunction)
_PROCESS_WINDOW_FUNCTIONS = (ProcessWindowFunction, ProcessAllWindowFunction)


def _aggregates(*arguments: Any) -> list[Any] | None:
    """Return the arguments if they are aggregates of columns; None if they belong to an aggregate function."""
    if not isinstance(arguments[0], Aggregate):
        return None
    return [argument for argument in arguments if argument is not None]


def _kind_of(spec: WindowSpec) -> OperatorKind:
    """The kind of operator for these windows: aligned windows and plain sessions have engines of their own."""
    if spec.aligned:
        return OperatorKind.ALIGNED_WINDOW
    return OperatorKind.SESSION_WINDOW if spec.plain_sessions else OperatorKind.WINDOW


class _StreamPair(NearNames):
    """Two streams that are to be joined or grouped; ``where`` comes next."""

    _verb = "join"

    def __init__(self, stream1: DataStream, stream2: DataStream) -> None:
        self._streams = (stream1, stream2)

    def window(self, assigner: Any) -> Any:
        """Too early.

        Raises:
            GraphError: always: ``where`` and ``equal_to`` are missing.
        """
        raise GraphError(
            f"a.{self._verb}(b).window(...) lacks the keys: write "
            f"a.{self._verb}(b).where(key_of_a).equal_to(key_of_b).window(...).apply(function)"
        )


class JoinedStreams(_StreamPair):
    """Two streams that are to be joined: ``a.join(b).where(f).equal_to(g).window(w).apply(h)``.

    Examples:
        ```python
        from firesteel.common import Time, TimestampAssigner, WatermarkStrategy
        from firesteel.datastream import StreamExecutionEnvironment
        from firesteel.datastream.window import TumblingEventTimeWindows


        class BySecond(TimestampAssigner):
            def extract_timestamp(self, value, record_timestamp):
                return value[1] * 1000


        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(BySecond())
        orders = env.from_collection([("a", 1), ("b", 2)]).assign_timestamps_and_watermarks(strategy)
        payments = env.from_collection([("a", 4)]).assign_timestamps_and_watermarks(strategy)
        joined = orders.join(payments).where(lambda order: order[0]).equal_to(lambda payment: payment[0])
        windows = joined.window(TumblingEventTimeWindows.of(Time.seconds(10)))
        print(list(windows.apply(lambda order, payment: (order, payment)).execute_and_collect()))
        ```

        ```text
        [(('a', 1), ('a', 4))]
        ```
    """

    def where(self, key_selector: KeyArgument) -> Where[WithWindowJoined]:
        """Says what the key of a record of the first stream is; as for ``key_by``."""
        return Where(self._streams, _join_key(self._streams[0], key_selector), WithWindowJoined, self._verb)


class CoGroupedStreams(_StreamPair):
    """Two streams that are to be grouped: ``a.co_group(b).where(f).equal_to(g).window(w).apply(h)``.

    Examples:
        ```python
        from firesteel.common import Time, TimestampAssigner, WatermarkStrategy
        from firesteel.datastream import CoGroupFunction, StreamExecutionEnvironment
        from firesteel.datastream.window import TumblingEventTimeWindows


        class BySecond(TimestampAssigner):
            def extract_timestamp(self, value, record_timestamp):
                return value[1] * 1000


        class Unpaid(CoGroupFunction):
            def co_group(self, first, second):
                if not list(second):
                    yield from first


        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(BySecond())
        orders = env.from_collection([("a", 1), ("b", 2)]).assign_timestamps_and_watermarks(strategy)
        payments = env.from_collection([("a", 4)]).assign_timestamps_and_watermarks(strategy)
        grouped = orders.co_group(payments).where(lambda order: order[0]).equal_to(lambda payment: payment[0])
        print(list(grouped.window(TumblingEventTimeWindows.of(Time.seconds(10))).apply(Unpaid()).execute_and_collect()))
        ```

        ```text
        [('b', 2)]
        ```
    """

    _verb = "co_group"

    def where(self, key_selector: KeyArgument) -> Where[WithWindowGrouped]:
        """Says what the key of a record of the first stream is; as for ``key_by``."""
        return Where(self._streams, _join_key(self._streams[0], key_selector), WithWindowGrouped, self._verb)


class Where(NearNames, Generic[JoinT]):
    """The first key is known; ``equal_to`` comes next."""

    def __init__(
        self, streams: tuple[DataStream, DataStream], key_selector: Any, windowed: type[JoinT], verb: str
    ) -> None:
        self._streams, self._selector, self._windowed, self._verb = streams, key_selector, windowed, verb

    def equal_to(self, key_selector: KeyArgument) -> EqualTo[JoinT]:
        """Says what the key of a record of the second stream is; as for ``key_by``."""
        selectors = self._selector, _join_key(self._streams[1], key_selector)
        return EqualTo(self._streams, selectors, self._windowed)

    def window(self, assigner: Any) -> Any:
        """Too early.

        Raises:
            GraphError: always: ``equal_to`` is missing.
        """
        raise GraphError(
            f"a.{self._verb}(b).where(...).window(...) lacks the key of the second stream: put .equal_to(key_of_b) "
            "before .window(...)"
        )


class EqualTo(NearNames, Generic[JoinT]):
    """Both keys are known; ``window`` comes next."""

    def __init__(self, streams: tuple[DataStream, DataStream], selectors: Any, windowed: type[JoinT]) -> None:
        self._streams, self._selectors, self._windowed = streams, selectors, windowed

    def window(self, assigner: WindowAssigner[Any, Any]) -> JoinT:
        """Says in which windows records are brought together. Assigners see ``TaggedUnion`` objects."""
        return self._windowed(self._streams, self._selectors, assigner)

    def apply(self, function: Any, output_type: Any = None) -> Any:
        """Too early.

        Raises:
            GraphError: always: ``window`` is missing.
        """
        raise GraphError(
            "apply() needs windows, since a join over unbounded streams would keep everything for ever: put "
            ".window(assigner) before it, or use interval_join() of keyed streams"
        )


class _WithWindow(NearNames):
    """A join or co-group whose streams, keys and windows are known."""

    _name = "CoGroup"

    def __init__(
        self, streams: tuple[DataStream, DataStream], selectors: Any, assigner: WindowAssigner[Any, Any]
    ) -> None:
        # A join is a window over the union of both streams, whose records are marked with their side (as in Flink's
        # CoGroupedStreams): one operator then keeps both sides of a key.
        tagged = [stream._values().map(JoinTag(side)) for side, stream in enumerate(streams)]
        for side, stream in enumerate(tagged):
            tag_operator, input_operator = stream._inputs[0].source, streams[side]._inputs[0].source
            tag_operator.name, tag_operator.internal = f"Tag input {side + 1}", True
            tag_operator.parallelism, tag_operator.non_parallel = (
                input_operator.parallelism,
                input_operator.non_parallel,
            )  # no exchange in between
        key = (UnionKeys if any(isinstance(selector, ManyKeys) for selector in selectors) else UnionKey)(selectors)
        self._windowed: WindowedStream = tagged[0].union(tagged[1]).key_by(key).window(assigner)

    def trigger(self, trigger: Trigger[Any, Any]) -> Self:
        """Sets when windows are evaluated, as of ``WindowedStream``."""
        self._windowed.trigger(trigger)
        return self

    def evictor(self, evictor: Evictor[Any, Any]) -> Self:
        """Sets which records are taken out of a window, as of ``WindowedStream``; both sides are in one list."""
        self._windowed.evictor(evictor)
        return self

    def allowed_lateness(self, time_ms: int | Span) -> Self:
        """Keeps windows so long behind their end, as of ``WindowedStream``."""
        self._windowed.allowed_lateness(time_ms)
        return self

    def side_output_late_data(self, output_tag: OutputTag[Any]) -> Self:
        """Sends records that come too late to a side output, as ``TaggedUnion`` objects."""
        self._windowed.side_output_late_data(output_tag)
        return self

    def _apply(self, function: WindowFunction[Any, Any, Any, Any], output_type: TypeDescriptor | None) -> DataStream:
        stream = self._windowed.apply(function, output_type)
        stream.name(self._name)
        return stream


class WithWindowJoined(_WithWindow):
    """A join; ``apply`` comes next."""

    _name = "Join"

    def apply(
        self,
        function: Callable[[Any, Any], Any] | JoinFunction[Any, Any, Any] | FlatJoinFunction[Any, Any, Any],
        output_type: TypeDescriptor | None = None,
    ) -> DataStream:
        """Calls the function with each pair of records of one key in one window.

        A ``JoinFunction`` or callable gives one result for each pair, a ``FlatJoinFunction`` any number.
        """
        if isinstance(function, FlatJoinFunction):
            checks.check_class("apply", function, FlatJoinFunction)
            return self._apply(OnPairsFlat(function), output_type)
        checks.check_function("apply", function, JoinFunction)
        return self._apply(OnPairs(function), output_type)


class WithWindowGrouped(_WithWindow):
    """A co-group; ``apply`` comes next."""

    def apply(
        self,
        function: Callable[[list[Any], list[Any]], Iterable[Any] | None] | CoGroupFunction[Any, Any, Any],
        output_type: TypeDescriptor | None = None,
    ) -> DataStream:
        """Calls the function with all records of the first and all of the second stream of one key in one window."""
        checks.check_function("apply", function, CoGroupFunction)
        return self._apply(OnGroups(function), output_type)


class IntervalJoin(NearNames):
    """Two keyed streams that are to be joined; ``between`` comes next.

    Examples:
        ```python
        from firesteel.common import Time, TimestampAssigner, WatermarkStrategy
        from firesteel.datastream import ProcessJoinFunction, StreamExecutionEnvironment


        class BySecond(TimestampAssigner):
            def extract_timestamp(self, value, record_timestamp):
                return value[1] * 1000


        class Waited(ProcessJoinFunction):
            def process_element(self, left, right, ctx):
                yield left[0], right[1] - left[1]


        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(BySecond())
        orders = env.from_collection([("a", 1), ("b", 2)]).assign_timestamps_and_watermarks(strategy)
        payments = env.from_collection([("a", 4), ("b", 60)]).assign_timestamps_and_watermarks(strategy)
        joined = orders.key_by(lambda order: order[0]).interval_join(payments.key_by(lambda payment: payment[0]))
        print(list(joined.between(Time.seconds(0), Time.seconds(30)).process(Waited()).execute_and_collect()))
        ```

        ```text
        [('a', 3)]
        ```
    """

    def __init__(self, stream1: KeyedStream, stream2: KeyedStream) -> None:
        self._streams = (stream1, stream2)

    def in_event_time(self) -> Self:
        """Joins by the records' timestamps, which is what happens anyhow."""
        return self

    def in_processing_time(self) -> Self:
        """Refused, as in Flink.

        Raises:
            UnsupportedFeatureError: always.
        """
        raise UnsupportedFeatureError("Time-bounded stream joins are only supported in event time")

    def between(self, lower_bound: Span, upper_bound: Span) -> IntervalJoined:
        """Says how far the right record's time may be from the left one's; bounds may be negative.

        A pair is ``left + lower_bound <= right <= left + upper_bound``.

        Raises:
            TypeError: a bound is no span of time.
            ValueError: the lower one is above the upper one.
        """
        lower = check_span("the lower bound of between()", lower_bound, -(2**62))
        upper = check_span("the upper bound of between()", upper_bound, -(2**62))
        if lower > upper:
            raise ValueError(f"between(): the lower bound {lower} ms is above the upper bound {upper} ms")
        return IntervalJoined(self._streams, lower, upper)

    def process(self, function: Any, output_type: Any = None) -> Any:
        """Too early.

        Raises:
            GraphError: always: ``between`` is missing.
        """
        raise GraphError("interval_join(...).process(...) lacks the interval: put .between(lower, upper) before it")


class IntervalJoined(NearNames):
    """Streams and interval are known; ``process`` comes last.

    Examples:
        ```python
        from firesteel.common import Time
        from firesteel.datastream import StreamExecutionEnvironment

        env = StreamExecutionEnvironment.get_execution_environment()
        orders = env.from_collection([("a", 1)]).key_by(lambda order: order[0])
        payments = env.from_collection([("a", 4)]).key_by(lambda payment: payment[0])
        joined = orders.interval_join(payments).between(Time.seconds(-5), Time.minutes(1))
        joined = joined.upper_bound_exclusive()  # .process(...)
        ```
    """

    def __init__(self, streams: tuple[KeyedStream, KeyedStream], lower: int, upper: int) -> None:
        self._streams, self._lower, self._upper = streams, lower, upper
        self._exclusive = [False, False]
        self._late_tags: list[OutputTag[Any] | None] = [None, None]

    def lower_bound_exclusive(self) -> Self:
        """A pair whose distance is just the lower bound is none."""
        self._exclusive[0] = True
        return self

    def upper_bound_exclusive(self) -> Self:
        """A pair whose distance is just the upper bound is none."""
        self._exclusive[1] = True
        return self

    def side_output_left_late_data(self, output_tag: OutputTag[Any]) -> Self:
        """Sends records of the left stream that are behind the watermark to a side output; else they are dropped."""
        return self._late(0, "side_output_left_late_data", output_tag)

    def side_output_right_late_data(self, output_tag: OutputTag[Any]) -> Self:
        """Sends records of the right stream that are behind the watermark to a side output; else they are dropped."""
        return self._late(1, "side_output_right_late_data", output_tag)

    def process(
        self, process_join_function: ProcessJoinFunction[Any, Any, Any], output_type: TypeDescriptor | None = None
    ) -> DataStream:
        """Calls the function with each pair; results have the later timestamp of the two.

        Raises:
            TypeError: it is no ``ProcessJoinFunction``.
            ValueError: with exclusive bounds there is nothing between them.
        """
        checks.check_class("process", process_join_function, ProcessJoinFunction)
        # times are whole ms, so an exclusive bound is the inclusive bound 1 ms further in
        lower, upper = self._lower + self._exclusive[0], self._upper - self._exclusive[1]
        if lower > upper:
            raise ValueError(
                f"between({self._lower} ms, {self._upper} ms) with exclusive bounds leaves no time between them (times "
                "are whole ms)"
            )
        declared = checks.declared_type("output_type", output_type)
        left, right = self._streams
        for stream in self._streams:
            event_time.warn_without_timestamps("an interval join", stream._inputs)
        joined = left._environment._add_stream(
            "Interval Join",
            OperatorKind.INTERVAL_JOIN,
            process_join_function,
            (left._inputs, right._inputs),
            declared,
            coerce_to=checks.coerced(declared),
            key_selectors=(left._key_selector, right._key_selector),
            extra={"lower": lower, "upper": upper, "late_tags": tuple(self._late_tags)},
        )
        for tag, side in zip(self._late_tags, ("left", "right"), strict=True):
            if tag is not None:
                _declare_tag(joined._inputs[0].source, tag, f"side_output_{side}_late_data")
        return joined

    def _late(self, side: int, method: str, tag: Any) -> Self:
        self._late_tags[side] = checks.output_tag(method, tag)
        return self


class DataStreamSink(OperatorSettings, NearNames):
    """The operator that a stream ends in; made by ``print``, ``sink_to`` and ``add_sink``.

    Examples:
        ```python
        from firesteel.datastream import StreamExecutionEnvironment

        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
        env.from_collection(["a"]).print().name("show").uid("show").set_parallelism(1)
        env.execute()
        ```

        ```text
        a
        ```
    """

    def __init__(self, transformation: Transformation) -> None:
        self._transformation = transformation

    def __repr__(self) -> str:
        return f"<DataStreamSink {self._transformation.name!r}>"

    def _repr_html_(self) -> str:
        """The operators that lead here, for a notebook."""
        sink = self._transformation
        return stream_card("DataStreamSink", sink.name, None, [sink], max(1, sink.parallelism))

    def _operator(self, method: str) -> Transformation:
        return self._transformation


def _sink_behind_stages(
    environment: StreamExecutionEnvironment, inputs: tuple[StreamInput, ...], sink: Sink[Any]
) -> DataStreamSink:
    """Add a sink to the graph, and in front of it the stages that it asks for.

    A sink that commits for all its subtasks at once gets a committer behind the stages, which runs in one subtask.
    """
    stage_operators: list[Transformation] = []
    global_committer = False
    if isinstance(sink, TwoPhaseCommitSink) and sink.commits_globally:
        global_committer, sink = True, GlobalCommitSink(sink)
    for stage in sink.stages() if isinstance(sink, TwoPhaseCommitSink) else ():
        if stage_operators:
            inputs = (StreamInput(stage_operators[-1], None if stage.parallel else PartitionerKind.GLOBAL),)
        stage_operator = environment._add(stage.name, OperatorKind.SINK_STAGE, stage, (inputs,))
        stage_operator.internal, stage_operator.non_parallel = True, not stage.parallel
        stage_operators.append(stage_operator)
    if stage_operators:
        inputs = (
            StreamInput(stage_operators[-1], PartitionerKind.GLOBAL if global_committer else PartitionerKind.REBALANCE),
        )
    writer = environment._add("Writer", OperatorKind.SINK, sink, (inputs,))
    writer.alone = global_committer
    for stage_operator in stage_operators:
        stage_operator.stage_of = writer
    return DataStreamSink(writer)


def _is_column_key(selector: Any) -> bool:
    """Whether ``key_by`` was given columns: a name, an expression, or a list of them."""
    if isinstance(selector, list | tuple):
        return all(isinstance(part, str | Expression) for part in selector)
    return isinstance(selector, str | Expression)


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


def _join_key(stream: DataStream, key_selector: Any) -> Any:
    if _is_column_key(key_selector):
        return stream._column_key(key_selector)[0]
    return checks.key_function("key_selector", key_selector)


def _declare_tag(operator: Transformation, tag: OutputTag[Any], method: str) -> None:
    """Note that a side output of an operator is used.

    Raises:
        GraphError: its id is taken by a tag of another type.
    """
    tags: dict[str, TypeInformation] = operator.extra.setdefault("side_outputs", {})
    declared_type = tags.setdefault(tag.tag_id, tag.type_info)
    if declared_type != tag.type_info:
        raise GraphError(
            f"{method}(): side output {tag.tag_id!r} of operator {operator.name!r} has the type {declared_type} "
            f"already and is asked for with the type {tag.type_info}: use one OutputTag, or another id"
        )

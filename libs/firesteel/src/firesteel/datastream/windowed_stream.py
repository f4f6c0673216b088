"""Streams cut into windows. PyFlink's classes, names and signatures; ``evictor`` is Flink's."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self, overload

from firesteel.common.typeinfo import TypeDescriptor, TypeInformation, Types
from firesteel.core.errors import GraphError
from firesteel.datastream import checks
from firesteel.datastream.time_methods import check_tag, declare_tag
from firesteel.datastream.timestamps import warn_without_timestamps
from firesteel.expressions.aggregates import Aggregate
from firesteel.expressions.keys import ColumnKey
from firesteel.functions.coroutines import refuse_coroutines
from firesteel.functions.functions import Function, ReduceFunction
from firesteel.functions.output_tag import OutputTag
from firesteel.functions.window_functions import (
    AggregateFunction,
    AllWindowFunction,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    WindowFunction,
)
from firesteel.graph.specs import OperatorKind, PartitionerKind
from firesteel.graph.stream_graph import StreamInput
from firesteel.windowing.assigners import WindowAssigner
from firesteel.windowing.evictors import Evictor
from firesteel.windowing.spec import Gathering, WindowSpec
from firesteel.windowing.triggers import Trigger

if TYPE_CHECKING:
    from firesteel.datastream.data_stream import DataStream, KeyedStream
    from firesteel.datastream.stream_execution_environment import StreamExecutionEnvironment

__all__ = ["AllWindowedStream", "WindowedStream"]


class _Windowed(ABC):
    """What both kinds of windowed streams have in common."""

    _name: ClassVar[str]
    _plain: ClassVar[type[Function]]
    _process: ClassVar[type[Function]]

    def __init__(self, stream: DataStream, window_assigner: WindowAssigner[Any, Any]) -> None:
        if not isinstance(window_assigner, WindowAssigner):
            hint = "; did you leave out .of(...)?" if isinstance(window_assigner, type) else ""
            raise TypeError(f"windows are made by a WindowAssigner, not {window_assigner!r}{hint}")
        self._stream = stream
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

    def allowed_lateness(self, time_ms: int) -> Self:
        """Keeps event-time windows so long behind their end, in ms.

        A record that comes meanwhile has its window evaluated again.

        Raises:
            TypeError: it is no int.
            ValueError: it is negative.
        """
        self._lateness = checks.whole_number("allowed_lateness", time_ms, 0)
        return self

    def side_output_late_data(self, output_tag: OutputTag[Any]) -> Self:
        """Sends records that come too late for their windows to a side output.

        Read it with ``get_side_output(tag)`` of the resulting stream. Without it such records are dropped and counted
        as ``numLateRecordsDropped``.

        Raises:
            TypeError: it is no tag.
            GraphError: the tag is of another type than the records.
        """
        tag, any_object = check_tag("side_output_late_data", output_tag), Types.PICKLED_BYTE_ARRAY()
        given = self.get_input_type()
        if any_object not in (tag.type_info, given) and tag.type_info != given:
            raise GraphError(
                f"side_output_late_data(): the tag {tag.tag_id!r} is of type {tag.type_info}, and records that come "
                f"too late are {given}"
            )
        self._late_tag = tag
        return self

    def _reduced(self, function: Any, window_function: Any, output_type: TypeDescriptor | None) -> DataStream:
        checks.check_function("reduce", function, ReduceFunction)
        if window_function is None and output_type is None:
            output_type = self.get_input_type()
        return self._result("reduce", Gathering.REDUCE, function, window_function, output_type)

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
        return self._result("aggregate", Gathering.AGGREGATE, function, window_function, output_type)

    def _all(self, method: str, function: Any, wanted: type[Function], output_type: Any) -> DataStream:
        hint = ""
        if not isinstance(function, wanted) and isinstance(function, (*_PLAIN, *_PROCESS)):
            here = "reduced to one by window_all()" if self._name == "WINDOW_ALL" else "keyed"
            hint = f" (the stream is {here}; apply() and process() take different classes)"
        checks.check_class(method, function, wanted, hint=hint)
        return self._result(method, Gathering.ALL, None, function, output_type)

    def _result(
        self,
        method: str,
        gathering: Gathering,
        gather_function: Any,
        window_function: Any,
        output_type: TypeDescriptor | None,
    ) -> DataStream:
        if window_function is not None and gathering is not Gathering.ALL:
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
            warn_without_timestamps(f"windows {self._assigner!r}", self._stream._inputs)
        declared = checks.declared_type("output_type", output_type)
        stream = self._transform(spec, declared)
        if self._late_tag is not None:
            declare_tag(stream._inputs[0].source, self._late_tag, "side_output_late_data")
        return stream

    def _columns(self, aggregates: Sequence[Any]) -> DataStream:
        """Windows of aggregates of columns."""
        from firesteel.datastream import column_plans
        from firesteel.windowing.columnar import ColumnWindowSpec, check_windows

        check_windows(self._assigner, self._trigger, self._evictor)
        self._check_lateness()
        key, inputs = self._key_columns()
        result = column_plans.windows(key, aggregates, self.get_input_type(), wrap=self._stream._wraps())
        spec = ColumnWindowSpec(self._assigner, tuple(aggregates), self._lateness or 0, self._late_tag)
        if self._assigner.is_event_time():
            warn_without_timestamps(f"windows {self._assigner!r}", self._stream._inputs)
        stream = self._stream._columnar(self._name, OperatorKind.COLUMNS_WINDOW, spec, result, (key,), inputs)
        if self._late_tag is not None:
            declare_tag(stream._inputs[0].source, self._late_tag, "side_output_late_data")
        return self._limited(stream)

    @abstractmethod
    def _key_columns(self) -> tuple[ColumnKey, tuple[StreamInput, ...]]:
        """The key selector, and the inputs."""

    def _limited(self, stream: DataStream) -> DataStream:
        """The stream of results, with the parallelism that the windows allow."""
        return stream

    @abstractmethod
    def _transform(self, spec: WindowSpec, declared: TypeInformation) -> DataStream:
        """The operator."""

    def _check_merging(self, trigger: Trigger[Any, Any]) -> None:
        from firesteel.windowing.assigners import MergingWindowAssigner

        if isinstance(self._assigner, MergingWindowAssigner) and not trigger.can_merge():
            raise TypeError(
                f"A merging window assigner cannot be used with a trigger that does not support merging: "
                f"{self._assigner!r} with {trigger!r}; sessions take triggers whose can_merge() is true"
            )

    def _check_lateness(self) -> None:
        if self._assigner.is_event_time():
            return
        for value, what in ((self._lateness, "allowed_lateness()"), (self._late_tag, "side_output_late_data()")):
            if value:
                raise GraphError(
                    f"{what} belongs to event-time windows, but {self._assigner!r} does not follow the records' "
                    "timestamps: no record is ever late there"
                )


class WindowedStream(_Windowed):
    """A keyed stream cut into windows, for each key."""

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
            ProgramError: they do not fit the columns.
        """
        given = _aggregates(aggregate_function, window_function, accumulator_type, output_type, *aggregates)
        if given is not None:
            return self._columns(given)
        return self._aggregated(aggregate_function, window_function, accumulator_type, output_type)

    def apply(
        self, window_function: WindowFunction[Any, Any, Any, Any], output_type: TypeDescriptor | None = None
    ) -> DataStream:
        """Keeps the records of a window and hands them to a function when it is evaluated."""
        return self._all("apply", window_function, WindowFunction, output_type)

    def process(
        self,
        process_window_function: ProcessWindowFunction[Any, Any, Any, Any],
        output_type: TypeDescriptor | None = None,
    ) -> DataStream:
        """As ``apply``, with times and state at hand."""
        return self._all("process", process_window_function, ProcessWindowFunction, output_type)

    def _key_columns(self) -> tuple[ColumnKey, tuple[StreamInput, ...]]:
        from firesteel.datastream import column_plans

        given = column_plans.columns_of("aggregate", self.get_input_type())
        key, _ = column_plans.key_of("aggregate", self._keyed_stream._key_selector, given)
        return key, self._stream._inputs

    def _transform(self, spec: WindowSpec, declared: TypeInformation) -> DataStream:
        stream = self._keyed_stream
        return stream._derive(
            self._name, _kind_of(spec), spec, declared, checks.coerced(declared), (stream._key_selector,)
        )


def _kind_of(spec: WindowSpec) -> OperatorKind:
    """The operator that runs such windows best."""
    if spec.aligned:
        return OperatorKind.ALIGNED_WINDOW
    return OperatorKind.SESSION_WINDOW if spec.plain_sessions else OperatorKind.WINDOW


class OneKey:
    """The key of all records where windows are over a whole stream."""

    def __call__(self, value: Any) -> int:
        """The same for all."""
        return 0


class AllWindowedStream(_Windowed):
    """A stream cut into windows over all its records; it runs in one subtask."""

    _name = "WINDOW_ALL"
    _plain = AllWindowFunction
    _process = ProcessAllWindowFunction

    def reduce(
        self,
        reduce_function: Callable[[Any, Any], Any] | ReduceFunction[Any],
        window_function: AllWindowFunction[Any, Any, Any] | ProcessAllWindowFunction[Any, Any, Any] | None = None,
        output_type: TypeDescriptor | None = None,
    ) -> DataStream:
        """As of ``WindowedStream``."""
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
        """As of ``WindowedStream``; without columns of keys in the results."""
        given = _aggregates(aggregate_function, window_function, accumulator_type, output_type, *aggregates)
        if given is not None:
            return self._columns(given)
        return self._aggregated(aggregate_function, window_function, accumulator_type, output_type)

    def apply(
        self, window_function: AllWindowFunction[Any, Any, Any], output_type: TypeDescriptor | None = None
    ) -> DataStream:
        """Keeps the records of a window and hands them to a function when it is evaluated."""
        return self._all("apply", window_function, AllWindowFunction, output_type)

    def process(
        self,
        process_window_function: ProcessAllWindowFunction[Any, Any, Any],
        output_type: TypeDescriptor | None = None,
    ) -> DataStream:
        """As ``apply``, with times and state at hand."""
        return self._all("process", process_window_function, ProcessAllWindowFunction, output_type)

    def _transform(self, spec: WindowSpec, declared: TypeInformation) -> DataStream:
        from firesteel.datastream.data_stream import DataStream

        one_key = OneKey()
        inputs = self._all_to_one(one_key)
        made = self._stream._environment._add(
            self._name, _kind_of(spec), spec, (inputs,), coerce_to=checks.coerced(declared), key_selectors=(one_key,)
        )
        return self._limited(DataStream(self._stream._environment, (StreamInput(made),), declared))

    def _key_columns(self) -> tuple[ColumnKey, tuple[StreamInput, ...]]:
        one_key = ColumnKey((), ())
        return one_key, self._all_to_one(one_key)

    def _all_to_one(self, one_key: OneKey | ColumnKey) -> tuple[StreamInput, ...]:
        return tuple(StreamInput(i.source, PartitionerKind.HASH, one_key) for i in self._stream._values()._inputs)

    def _limited(self, stream: DataStream) -> DataStream:
        made = stream._inputs[0].source
        made.parallelism = 1
        made.non_parallel = True
        return stream


_PLAIN = (WindowFunction, AllWindowFunction)
_PROCESS = (ProcessWindowFunction, ProcessAllWindowFunction)


def _aggregates(*given: Any) -> list[Any] | None:
    """Aggregates of columns, if these are some; None: they are the arguments of an aggregate function."""
    if not isinstance(given[0], Aggregate):
        return None
    return [one for one in given if one is not None]

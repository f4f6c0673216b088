"""State of functions, and the descriptors by which they get it. PyFlink's names.

Keyed state belongs to the key of the current record. A state returns the stored object itself, not a copy: change it in
place only within the call that has read it, and write it back with ``update`` or ``put``, since other state backends
store only what is written back.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, Protocol, TypeVar

from firesteel.common.typeinfo import MapTypeInfo, TypeDescriptor, TypeInformation, as_type_info
from firesteel.functions.state_migration import StateMigration
from firesteel.functions.state_ttl import StateTtlConfig

__all__ = [
    "AggregatingState",
    "AggregatingStateDescriptor",
    "AppendingState",
    "BroadcastState",
    "ListState",
    "ListStateDescriptor",
    "MapState",
    "MapStateDescriptor",
    "MergingState",
    "OperatorStateStore",
    "ReadOnlyBroadcastState",
    "ReducingState",
    "ReducingStateDescriptor",
    "State",
    "StateDescriptor",
    "StateMigration",
    "StateTtlConfig",
    "ValueState",
    "ValueStateDescriptor",
]

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
IN = TypeVar("IN")
OUT = TypeVar("OUT")


class State(ABC):
    """Root of all kinds of state.

    Examples:
        ```python
        from firesteel.common import Types
        from firesteel.datastream import MapFunction
        from firesteel.datastream.state import ValueStateDescriptor


        class Changes(MapFunction):
            def open(self, runtime_context):
                self.last = runtime_context.get_state(ValueStateDescriptor("last", Types.STRING()))

            def map(self, value):
                if value == "forget":
                    self.last.clear()  # of this key alone
                return value
        ```
    """

    @abstractmethod
    def clear(self) -> None:
        """Clears the state (keyed state: for the current key)."""


class ValueState(State, Generic[T]):
    """One value for each key.

    Examples:
        ```python
        from firesteel.common import Types
        from firesteel.datastream import MapFunction, StreamExecutionEnvironment
        from firesteel.datastream.state import ValueStateDescriptor


        class Count(MapFunction):
            def open(self, runtime_context):
                self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.INT()))

            def map(self, value):
                count = (self.count.value() or 0) + 1  # None at the first record of a key
                self.count.update(count)
                return value, count


        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
        words = env.from_collection(["a", "b", "a"]).key_by(lambda word: word)
        print(list(words.map(Count()).execute_and_collect()))
        ```

        ```text
        [('a', 1), ('b', 1), ('a', 2)]
        ```
    """

    @abstractmethod
    def value(self) -> T | None:
        """Returns the value of the current key, None if it has none."""

    @abstractmethod
    def update(self, value: T | None) -> None:
        """Sets the value of the current key; None clears it.

        Raises:
            TypeMismatchError: the value does not fit the descriptor's type.
        """


class AppendingState(State, Generic[IN, OUT]):
    """State to which values are added.

    Examples:
        ```python
        from firesteel.common import Types
        from firesteel.datastream import KeyedProcessFunction
        from firesteel.datastream.state import ListStateDescriptor, ReducingStateDescriptor


        class Orders(KeyedProcessFunction):
            def open(self, runtime_context):
                self.amounts = runtime_context.get_list_state(ListStateDescriptor("amounts", Types.LONG()))
                self.largest = runtime_context.get_reducing_state(ReducingStateDescriptor("largest", max, Types.LONG()))

            def process_element(self, value, ctx):
                for state in (self.amounts, self.largest):  # both are appending states
                    state.add(value["amount"])
                yield list(self.amounts.get()), self.largest.get()
        ```
    """

    @abstractmethod
    def get(self) -> OUT | None:
        """Returns the result of the values added so far, None if there is none."""

    @abstractmethod
    def add(self, value: IN) -> None:
        """Adds a value to the state of the current key."""


class MergingState(AppendingState[IN, OUT]):
    """Appending state that can be merged with another one, as when windows merge.

    Examples:
        ```python
        from firesteel.common import Types
        from firesteel.datastream.state import ReducingStateDescriptor
        from firesteel.datastream.window import Trigger, TriggerResult

        COUNT = ReducingStateDescriptor("count", lambda first, second: first + second, Types.LONG())


        class AfterThree(Trigger):
            def on_element(self, element, timestamp, window, ctx):
                count = ctx.get_partitioned_state(COUNT)
                count.add(1)
                return TriggerResult.FIRE if count.get() >= 3 else TriggerResult.CONTINUE

            def on_processing_time(self, time, window, ctx):
                return TriggerResult.CONTINUE

            def on_event_time(self, time, window, ctx):
                return TriggerResult.CONTINUE

            def can_merge(self):
                return True

            def on_merge(self, window, ctx):
                ctx.merge_partitioned_state(COUNT)  # takes merging state only

            def clear(self, window, ctx):
                ctx.get_partitioned_state(COUNT).clear()
        ```
    """


class ReducingState(MergingState[T, T]):
    """One value for each key; the descriptor's function combines it with each value added.

    Examples:
        ```python
        from firesteel.common import Types
        from firesteel.datastream import MapFunction, StreamExecutionEnvironment
        from firesteel.datastream.state import ReducingStateDescriptor


        class Largest(MapFunction):
            def open(self, runtime_context):
                self.largest = runtime_context.get_reducing_state(ReducingStateDescriptor("largest", max, Types.INT()))

            def map(self, value):
                self.largest.add(value[1])
                return value[0], self.largest.get()


        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
        readings = env.from_collection([("a", 3), ("a", 7), ("a", 5)]).key_by(lambda reading: reading[0])
        print(list(readings.map(Largest()).execute_and_collect()))
        ```

        ```text
        [('a', 3), ('a', 7), ('a', 7)]
        ```
    """


class AggregatingState(MergingState[IN, OUT]):
    """An accumulator for each key; the values added and the result read may have different types.

    Examples:
        ```python
        from firesteel.common import Types
        from firesteel.datastream import AggregateFunction, MapFunction, StreamExecutionEnvironment
        from firesteel.datastream.state import AggregatingStateDescriptor


        class Mean(AggregateFunction):
            def create_accumulator(self):
                return 0, 0

            def add(self, value, accumulator):
                return accumulator[0] + value, accumulator[1] + 1

            def get_result(self, accumulator):
                return accumulator[0] / accumulator[1]

            def merge(self, acc_a, acc_b):
                return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


        class RunningMean(MapFunction):
            def open(self, runtime_context):
                descriptor = AggregatingStateDescriptor("mean", Mean(), Types.TUPLE([Types.INT(), Types.INT()]))
                self.mean = runtime_context.get_aggregating_state(descriptor)

            def map(self, value):
                self.mean.add(value[1])
                return value[0], self.mean.get()


        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
        readings = env.from_collection([("a", 2), ("a", 4)]).key_by(lambda reading: reading[0])
        print(list(readings.map(RunningMean()).execute_and_collect()))
        ```

        ```text
        [('a', 2.0), ('a', 3.0)]
        ```
    """


class ListState(MergingState[T, Iterable[T]]):
    """A list for each key (operator state: for each subtask).

    Examples:
        ```python
        from firesteel.common import Types
        from firesteel.datastream import MapFunction, StreamExecutionEnvironment
        from firesteel.datastream.state import ListStateDescriptor


        class LastTwo(MapFunction):
            def open(self, runtime_context):
                self.last = runtime_context.get_list_state(ListStateDescriptor("last", Types.INT()))

            def map(self, value):
                last = [*(self.last.get() or ()), value[1]][-2:]
                self.last.update(last)
                return value[0], last


        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
        readings = env.from_collection([("a", 1), ("a", 2), ("a", 3)]).key_by(lambda reading: reading[0])
        print(list(readings.map(LastTwo()).execute_and_collect()))
        ```

        ```text
        [('a', [1]), ('a', [1, 2]), ('a', [2, 3])]
        ```
    """

    @abstractmethod
    def get(self) -> Iterable[T]:
        """Returns the elements in the order in which they were added, as a new list; empty if there are none."""

    @abstractmethod
    def update(self, values: Iterable[T]) -> None:
        """Replaces all elements; an empty iterable clears the list."""

    @abstractmethod
    def add_all(self, values: Iterable[T]) -> None:
        """Adds all these values at the end of the list."""

    def __iter__(self) -> Iterator[T]:
        return iter(self.get())


class MapState(State, Generic[K, V]):
    """A map for each key.

    Iteration follows the order in which the keys were first put; with a time-to-live, the order in which entries
    expire. Do not change the map during an iteration: iterate over a copy instead.

    Examples:
        ```python
        from firesteel.common import Types
        from firesteel.datastream import MapFunction, StreamExecutionEnvironment
        from firesteel.datastream.state import MapStateDescriptor


        class Visits(MapFunction):
            def open(self, runtime_context):
                self.pages = runtime_context.get_map_state(MapStateDescriptor("pages", Types.STRING(), Types.INT()))

            def map(self, value):
                user, page = value
                self.pages.put(page, (self.pages.get(page) or 0) + 1)
                return user, dict(self.pages.items())


        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
        visits = env.from_collection([("anna", "/"), ("anna", "/tea"), ("anna", "/")]).key_by(lambda visit: visit[0])
        print(list(visits.map(Visits()).execute_and_collect())[-1])
        ```

        ```text
        ('anna', {'/': 2, '/tea': 1})
        ```
    """

    @abstractmethod
    def get(self, key: K) -> V | None:
        """Returns the value under a key, None if there is none."""

    @abstractmethod
    def put(self, key: K, value: V) -> None:
        """Sets the value under a key."""

    @abstractmethod
    def put_all(self, dict_value: Mapping[K, V]) -> None:
        """Sets the values under all keys of a dict."""

    @abstractmethod
    def remove(self, key: K) -> None:
        """Removes the value under a key, if there is one."""

    @abstractmethod
    def contains(self, key: K) -> bool:
        """Returns whether there is a value under a key."""

    @abstractmethod
    def items(self) -> Iterable[tuple[K, V]]:
        """Returns all keys and values."""

    @abstractmethod
    def keys(self) -> Iterable[K]:
        """Returns the keys, in the order of iteration."""

    @abstractmethod
    def values(self) -> Iterable[V]:
        """Returns the values, in the order of iteration."""

    @abstractmethod
    def is_empty(self) -> bool:
        """Returns whether the map has no entries."""

    def __getitem__(self, key: K) -> V | None:
        return self.get(key)

    def __setitem__(self, key: K, value: V) -> None:
        self.put(key, value)

    def __delitem__(self, key: K) -> None:
        self.remove(key)

    def __contains__(self, key: K) -> bool:
        return self.contains(key)

    def __iter__(self) -> Iterator[K]:
        return iter(self.keys())


class ReadOnlyBroadcastState(State, Generic[K, V]):
    """Broadcast state as the side that is not broadcast sees it: to read only. Do not change its values in place.

    Examples:
        ```python
        from firesteel.common import Types
        from firesteel.datastream import BroadcastProcessFunction
        from firesteel.datastream.state import MapStateDescriptor

        LIMITS = MapStateDescriptor("limits", Types.STRING(), Types.INT())


        class Below(BroadcastProcessFunction):
            def process_element(self, value, ctx):
                limits = ctx.get_broadcast_state(LIMITS)
                if not limits.contains("limit") or value < limits.get("limit"):
                    yield value

            def process_broadcast_element(self, value, ctx):
                ctx.get_broadcast_state(LIMITS).put("limit", value)
        ```
    """

    @abstractmethod
    def get(self, key: K) -> V | None:
        """Returns the value under a key, None if there is none."""

    @abstractmethod
    def contains(self, key: K) -> bool:
        """Returns whether there is a value under a key."""

    @abstractmethod
    def items(self) -> Iterable[tuple[K, V]]:
        """Returns all keys and values, in an order that may differ between subtasks."""

    @abstractmethod
    def keys(self) -> Iterable[K]:
        """Returns the keys, in the order of iteration."""

    @abstractmethod
    def values(self) -> Iterable[V]:
        """Returns the values, in the order of iteration."""

    @abstractmethod
    def is_empty(self) -> bool:
        """Returns whether the map has no entries."""

    def __getitem__(self, key: K) -> V | None:
        return self.get(key)

    def __contains__(self, key: K) -> bool:
        return self.contains(key)

    def __iter__(self) -> Iterator[K]:
        return iter(self.keys())


class BroadcastState(ReadOnlyBroadcastState[K, V]):
    """A map that is the same in all subtasks, since each of them receives all broadcast records.

    Change it by the content of broadcast records only, never by anything that differs between subtasks.

    Examples:
        ```python
        from firesteel.common import Types
        from firesteel.datastream import BroadcastProcessFunction
        from firesteel.datastream.state import MapStateDescriptor

        PRICES = MapStateDescriptor("prices", Types.STRING(), Types.INT())


        class Price(BroadcastProcessFunction):
            def process_element(self, value, ctx):
                yield value, ctx.get_broadcast_state(PRICES).get(value)  # may only be read here

            def process_broadcast_element(self, value, ctx):
                name, price = value
                ctx.get_broadcast_state(PRICES).put(name, price)
        ```
    """

    @abstractmethod
    def put(self, key: K, value: V) -> None:
        """Sets the value under a key."""

    @abstractmethod
    def put_all(self, dict_value: Mapping[K, V]) -> None:
        """Sets the values under all keys of a dict."""

    @abstractmethod
    def remove(self, key: K) -> None:
        """Removes the value under a key, if there is one."""

    def __setitem__(self, key: K, value: V) -> None:
        self.put(key, value)

    def __delitem__(self, key: K) -> None:
        self.remove(key)


class StateDescriptor(ABC):  # noqa: B024 - PyFlink's root class; a descriptor only carries data
    """Name and type of a piece of state.

    Attributes:
        name: unique within its operator.
        type_info: type of the values.
        ttl_config: time-to-live of the values; None = they never expire.
        migration: how values of earlier versions of the program are migrated; None = by comparing the types.

    Raises:
        ValueError: the name is empty.
        TypeError: the name is not a str, or the type is not type information.

    Examples:
        ```python
        from firesteel.common import Types
        from firesteel.datastream.state import StateDescriptor, ValueStateDescriptor

        print(isinstance(ValueStateDescriptor("count", Types.LONG()), StateDescriptor))
        ```

        ```text
        True
        ```
    """

    def __init__(self, name: str, type_info: TypeDescriptor) -> None:
        if not isinstance(name, str):
            raise TypeError(f"the name of a state is a str, not {type(name).__name__}")
        if not name:
            raise ValueError("the name of a state is empty; give each state of a function a name of its own")
        self.name = name
        self.type_info = _type_of(name, type_info)
        self.ttl_config: StateTtlConfig | None = None
        self.migration: StateMigration | None = None

    def get_name(self) -> str:
        """Returns the name of the state."""
        return self.name

    def enable_time_to_live(self, ttl_config: StateTtlConfig) -> None:
        """Gives the state a time-to-live. Call this before the descriptor is used.

        Raises:
            TypeError: the argument is not a ``StateTtlConfig``.
        """
        if not isinstance(ttl_config, StateTtlConfig):
            raise TypeError(
                f"state {self.name!r}: enable_time_to_live() takes a StateTtlConfig, made by "
                f"StateTtlConfig.new_builder(...).build(), not {type(ttl_config).__name__}"
            )
        self.ttl_config = ttl_config

    def enable_state_migration(self, migration: StateMigration) -> None:
        """Sets how state of earlier versions of the program is migrated. Call this before the descriptor is used.

        Raises:
            TypeError: the argument is not a ``StateMigration``.
        """
        if not isinstance(migration, StateMigration):
            raise TypeError(
                f"state {self.name!r}: enable_state_migration() takes a StateMigration, not {type(migration).__name__}"
            )
        self.migration = migration

    def _key(self) -> tuple[Any, ...]:
        return self.name, self.type_info, self.ttl_config

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StateDescriptor):
            return NotImplemented
        return type(self) is type(other) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash((type(self).__name__, self.name))

    def __repr__(self) -> str:
        ttl = "" if self.ttl_config is None else f", {self.ttl_config}"
        return f"{type(self).__name__}({self.name!r}, {self.type_info}{ttl})"


class ValueStateDescriptor(StateDescriptor):
    """Describes a ``ValueState``: ``runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))``.

    Examples:
        ```python
        from firesteel.common import Time, Types
        from firesteel.datastream.state import StateTtlConfig, ValueStateDescriptor

        descriptor = ValueStateDescriptor("last login", Types.LONG())
        descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.days(30)).build())
        print(descriptor.get_name())
        ```

        ```text
        last login
        ```
    """

    def __init__(self, name: str, value_type_info: TypeDescriptor) -> None:
        super().__init__(name, value_type_info)


class ListStateDescriptor(StateDescriptor):
    """Describes a ``ListState``.

    Attributes:
        type_info: type of each element.

    Examples:
        ```python
        from firesteel.common import Types
        from firesteel.datastream.state import ListStateDescriptor

        print(ListStateDescriptor("open orders", Types.STRING()).get_name())
        ```

        ```text
        open orders
        ```
    """

    def __init__(self, name: str, elem_type_info: TypeDescriptor) -> None:
        super().__init__(name, elem_type_info)


class MapStateDescriptor(StateDescriptor):
    """Describes a ``MapState``, or broadcast state.

    Attributes:
        type_info: a ``MapTypeInfo``.
        key_type_info, value_type_info: types of the keys and values.

    Examples:
        ```python
        from firesteel.common import Types
        from firesteel.datastream.state import MapStateDescriptor

        print(MapStateDescriptor("prices", Types.STRING(), Types.DOUBLE()).get_name())
        ```

        ```text
        prices
        ```
    """

    def __init__(self, name: str, key_type_info: TypeDescriptor, value_type_info: TypeDescriptor) -> None:
        self.key_type_info = _type_of(name, key_type_info, "key type")
        self.value_type_info = _type_of(name, value_type_info, "value type")
        super().__init__(name, MapTypeInfo(self.key_type_info, self.value_type_info))


class _Reducing(Protocol):
    """The interface of ``ReduceFunction``, whose module imports this one."""

    def reduce(self, value1: Any, value2: Any, /) -> Any:
        """Combines two values into one of the same type."""


class ReducingStateDescriptor(StateDescriptor):
    """Describes a ``ReducingState``.

    Args:
        name: name of the state.
        reduce_function: a ``ReduceFunction`` or a callable of two values.
        type_info: type of the values.

    Attributes:
        reduce: the callable that combines two values.

    Raises:
        TypeError: the function is neither of the two.

    Examples:
        ```python
        from firesteel.common import Types
        from firesteel.datastream.state import ReducingStateDescriptor

        print(ReducingStateDescriptor("largest", max, Types.INT()).get_name())
        ```

        ```text
        largest
        ```
    """

    def __init__(
        self, name: str, reduce_function: _Reducing | Callable[[Any, Any], Any], type_info: TypeDescriptor
    ) -> None:
        super().__init__(name, type_info)
        method = getattr(reduce_function, "reduce", None)
        if isinstance(reduce_function, type) or not (callable(method) or callable(reduce_function)):
            raise TypeError(
                f"state {name!r} takes a ReduceFunction or a callable of two values, not {reduce_function!r}"
            )
        self._reduce_function = reduce_function
        self.reduce: Callable[[Any, Any], Any] = method if callable(method) else reduce_function  # type: ignore[assignment]

    def get_reduce_function(self) -> Any:
        """Returns the ``reduce_function`` that the descriptor was made with."""
        return self._reduce_function


class AggregatingStateDescriptor(StateDescriptor):
    """Describes an ``AggregatingState``.

    Args:
        name: name of the state.
        agg_function: an ``AggregateFunction``.
        state_type_info: type of the accumulator.

    Raises:
        TypeError: the function lacks a method of ``AggregateFunction``.

    Examples:
        ```python
        from firesteel.common import Types
        from firesteel.datastream import AggregateFunction
        from firesteel.datastream.state import AggregatingStateDescriptor


        class Count(AggregateFunction):
            def create_accumulator(self):
                return 0

            def add(self, value, accumulator):
                return accumulator + 1

            def get_result(self, accumulator):
                return accumulator

            def merge(self, acc_a, acc_b):
                return acc_a + acc_b


        print(AggregatingStateDescriptor("count", Count(), Types.LONG()).get_name())
        ```

        ```text
        count
        ```
    """

    def __init__(self, name: str, agg_function: Any, state_type_info: TypeDescriptor) -> None:
        super().__init__(name, state_type_info)
        methods = ("create_accumulator", "add", "get_result", "merge")
        if isinstance(agg_function, type) or not all(callable(getattr(agg_function, m, None)) for m in methods):
            raise TypeError(f"state {name!r} takes an instance of an AggregateFunction, not {agg_function!r}")
        self._agg_function = agg_function

    def get_agg_function(self) -> Any:
        """Returns the ``AggregateFunction`` that the descriptor was made with."""
        return self._agg_function


class OperatorStateStore(ABC):
    """Operator state: state of a subtask that belongs to no key and is redistributed when the parallelism changes.

    Examples:
        ```python
        from firesteel.common import Types
        from firesteel.datastream import CheckpointedFunction, MapFunction
        from firesteel.datastream.state import ListStateDescriptor


        class Buffered(MapFunction, CheckpointedFunction):
            def initialize_state(self, context):
                store = context.get_operator_state_store()
                self.buffer = store.get_list_state(ListStateDescriptor("buffer", Types.STRING()))

            def snapshot_state(self, context):
                self.buffer.update(["what is not written yet"])

            def map(self, value):
                return value
        ```
    """

    @abstractmethod
    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> BroadcastState[Any, Any]:
        """Returns the broadcast state of this name."""

    @abstractmethod
    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        """Returns the list of this name; if the parallelism changes, its elements are spread over all subtasks."""

    @abstractmethod
    def get_union_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        """Returns the list of this name; after a restore each subtask gets the elements of all subtasks."""

    @abstractmethod
    def get_registered_state_names(self) -> set[str]:
        """Returns the names of the list states in use."""

    @abstractmethod
    def get_registered_broadcast_state_names(self) -> set[str]:
        """Returns the names of the broadcast states in use."""


def _type_of(name: Any, descriptor: TypeDescriptor, role: str = "type") -> TypeInformation:
    return as_type_info(descriptor, lambda: f"the {role} of state {name!r}")

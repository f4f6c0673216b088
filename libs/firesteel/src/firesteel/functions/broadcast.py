"""Functions over a stream and a broadcast stream. PyFlink's classes, names and signatures."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from firesteel.functions.functions import Function
from firesteel.functions.state import BroadcastState, MapStateDescriptor, ReadOnlyBroadcastState, StateDescriptor
from firesteel.functions.timerservice import TimeDomain, TimerService

__all__ = ["BaseBroadcastProcessFunction", "BroadcastProcessFunction", "KeyedBroadcastProcessFunction"]

IN1 = TypeVar("IN1")
IN2 = TypeVar("IN2")
OUT = TypeVar("OUT")
KEY = TypeVar("KEY")


class BaseBroadcastProcessFunction(Function):
    """Base of both kinds of functions: only their broadcast side may change the broadcast state.

    Examples:
        ```python
        from firesteel.common import Types
        from firesteel.datastream.functions import (
            BaseBroadcastProcessFunction,
            BroadcastProcessFunction,
            KeyedBroadcastProcessFunction,
        )
        from firesteel.datastream.state import MapStateDescriptor

        LIMITS = MapStateDescriptor("limits", Types.STRING(), Types.INT())


        class SetsLimit(BaseBroadcastProcessFunction):
            def process_broadcast_element(self, value, ctx):
                ctx.get_broadcast_state(LIMITS).put("limit", value)


        class Below(SetsLimit, BroadcastProcessFunction):
            def process_element(self, value, ctx):
                if value < (ctx.get_broadcast_state(LIMITS).get("limit") or 0):
                    yield value


        class BelowByKey(SetsLimit, KeyedBroadcastProcessFunction):
            def process_element(self, value, ctx):
                if value < (ctx.get_broadcast_state(LIMITS).get("limit") or 0):
                    yield ctx.get_current_key(), value
        ```
    """

    class BaseContext(ABC):
        """Information about the current record, for both sides."""

        @abstractmethod
        def timestamp(self) -> int | None:
            """Returns the record's timestamp in ms since 1970-01-01 UTC, None if it has none."""

        @abstractmethod
        def current_processing_time(self) -> int:
            """Returns the processing time, in ms since 1970-01-01 UTC."""

        @abstractmethod
        def current_watermark(self) -> int:
            """Returns the watermark of the operator."""

    class Context(BaseContext):
        """Times of the record, and broadcast state to change, for ``process_broadcast_element``."""

        @abstractmethod
        def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> BroadcastState[Any, Any]:
            """Returns the broadcast state of this name, to read and to change.

            Raises:
                ProgramError: ``broadcast()`` was called without this descriptor, or with another type.
            """

    class ReadOnlyContext(BaseContext):
        """Times of the record, and broadcast state to read, for ``process_element``."""

        @abstractmethod
        def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> ReadOnlyBroadcastState[Any, Any]:
            """Returns the broadcast state of this name, to read. Do not change its values in place.

            Raises:
                ProgramError: ``broadcast()`` was called without this descriptor, or with another type.
            """


class BroadcastProcessFunction(BaseBroadcastProcessFunction, Generic[IN1, IN2, OUT]):
    """A process function over a stream that is not keyed and a broadcast stream.

    Examples:
        ```python
        from firesteel.common import Types
        from firesteel.datastream import BroadcastProcessFunction, StreamExecutionEnvironment
        from firesteel.datastream.state import MapStateDescriptor

        RULES = MapStateDescriptor("rules", Types.STRING(), Types.INT())


        class Apply(BroadcastProcessFunction):
            def process_element(self, value, ctx):
                limit = ctx.get_broadcast_state(RULES).get("limit")  # None before the rule has come
                if limit is None or value <= limit:
                    yield value

            def process_broadcast_element(self, value, ctx):
                ctx.get_broadcast_state(RULES).put("limit", value)


        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
        rules = env.from_collection([100]).broadcast(RULES)
        print(list(env.from_collection([5, 7]).connect(rules).process(Apply()).execute_and_collect()))
        ```

        ```text
        [5, 7]
        ```
    """

    class Context(BaseBroadcastProcessFunction.Context, ABC):
        """Times of the record, and broadcast state to change, for ``process_broadcast_element``."""

    class ReadOnlyContext(BaseBroadcastProcessFunction.ReadOnlyContext, ABC):
        """Times of the record, and broadcast state to read, for ``process_element``."""

    @abstractmethod
    def process_element(self, value: IN1, ctx: BroadcastProcessFunction.ReadOnlyContext) -> Iterable[OUT] | None:
        """Returns or yields the results for a record of the stream."""

    @abstractmethod
    def process_broadcast_element(self, value: IN2, ctx: BroadcastProcessFunction.Context) -> Iterable[OUT] | None:
        """Returns or yields the results for a broadcast record, which each subtask gets."""


class KeyedBroadcastProcessFunction(BaseBroadcastProcessFunction, Generic[KEY, IN1, IN2, OUT]):
    """A process function over a keyed stream and a broadcast stream, with keyed state and timers.

    Examples:
        ```python
        from firesteel.common import Types
        from firesteel.datastream import KeyedBroadcastProcessFunction, StreamExecutionEnvironment
        from firesteel.datastream.state import MapStateDescriptor, ValueStateDescriptor

        RULES = MapStateDescriptor("rules", Types.STRING(), Types.INT())


        class Count(KeyedBroadcastProcessFunction):
            def open(self, runtime_context):
                self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.INT()))

            def process_element(self, value, ctx):
                self.count.update((self.count.value() or 0) + 1)
                yield value, self.count.value()

            def process_broadcast_element(self, value, ctx):
                ctx.get_broadcast_state(RULES).put("limit", value)


        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
        rules = env.from_collection([100]).broadcast(RULES)
        words = env.from_collection(["a", "b", "a"]).key_by(lambda word: word)
        print(list(words.connect(rules).process(Count()).execute_and_collect()))
        ```

        ```text
        [('a', 1), ('b', 1), ('a', 2)]
        ```
    """

    class Context(BaseBroadcastProcessFunction.Context, ABC):
        """Times of the record, and state to change, for ``process_broadcast_element``, which has no current key."""

        @abstractmethod
        def apply_to_keyed_state(self, state_descriptor: StateDescriptor, function: Callable[[Any, Any], Any]) -> None:
            """Calls ``function(key, state)`` for each key that has state of this name in this subtask.

            Flink's ``applyToKeyedState``. The function may read, change and clear the state.
            """

    class ReadOnlyContext(BaseBroadcastProcessFunction.ReadOnlyContext, ABC):
        """Times of the record, and broadcast state to read, for ``process_element``."""

        @abstractmethod
        def timer_service(self) -> TimerService:
            """Returns the timer service, which reads the time and sets timers for the current key."""

        @abstractmethod
        def get_current_key(self) -> Any:
            """Returns the key of the current record or timer."""

    class OnTimerContext(ReadOnlyContext, ABC):
        """Information about the timer, for ``on_timer``; ``timestamp()`` is the timer's."""

        @abstractmethod
        def time_domain(self) -> TimeDomain:
            """Returns whether the timer was one of event time or processing time."""

    @abstractmethod
    def process_element(self, value: IN1, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext) -> Iterable[OUT] | None:
        """Returns or yields the results for a record of the keyed stream."""

    @abstractmethod
    def process_broadcast_element(self, value: IN2, ctx: KeyedBroadcastProcessFunction.Context) -> Iterable[OUT] | None:
        """Returns or yields the results for a broadcast record, which each subtask gets."""

    def on_timer(self, timestamp: int, ctx: KeyedBroadcastProcessFunction.OnTimerContext) -> Iterable[OUT] | None:
        """Returns or yields the results for a timer that was set for the current key; the default has none."""
        return None

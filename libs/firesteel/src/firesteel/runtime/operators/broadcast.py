"""Operators over a stream (input 0) and a broadcast stream (input 1) with broadcast state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from typing_extensions import override

from firesteel.core.errors import ProgramError
from firesteel.functions.broadcast import BroadcastProcessFunction, KeyedBroadcastProcessFunction
from firesteel.functions.state import (
    AggregatingStateDescriptor,
    BroadcastState,
    ListStateDescriptor,
    MapStateDescriptor,
    ReadOnlyBroadcastState,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from firesteel.functions.timerservice import TimerService
from firesteel.runtime.operator_base.context import OnTimer, OperatorContext, Stamp
from firesteel.runtime.operator_base.function_timers import KeyTimers, TimeOnly
from firesteel.runtime.operator_base.timed import TimedFunction
from firesteel.runtime.operators.stateless import ExpandingOperator
from firesteel.state.backend import KeyedStateBackend
from firesteel.state.keys import NoKey
from firesteel.state.operator_state import HeapOperatorState

NO_KEY_HERE: Final = NoKey(
    "keyed state was used in process_broadcast_element(), where there is no key: use "
    "ctx.apply_to_keyed_state(descriptor, function) to reach the state of all keys"
)
_GETTERS: Final[dict[type[StateDescriptor], str]] = {
    ValueStateDescriptor: "get_state",
    ListStateDescriptor: "get_list_state",
    MapStateDescriptor: "get_map_state",
    ReducingStateDescriptor: "get_reducing_state",
    AggregatingStateDescriptor: "get_aggregating_state",
}


class BroadcastStates:
    """The broadcast states of an operator, as declared in the call of ``broadcast()``.

    Args:
        operator: name of the operator in errors.
        store: operator state in which the broadcast states live.
        descriptors: the descriptors given to ``broadcast()``.
    """

    def __init__(self, operator: str, store: HeapOperatorState, descriptors: tuple[MapStateDescriptor, ...]) -> None:
        self._operator = operator
        self._descriptors = {descriptor.name: descriptor for descriptor in descriptors}
        self._writable = {name: store.get_broadcast_state(d) for name, d in self._descriptors.items()}
        self._readable = {name: store.read_only(d) for name, d in self._descriptors.items()}

    def writable(self, descriptor: MapStateDescriptor) -> BroadcastState[Any, Any]:
        """The state as the broadcast side gets it: all of its subtasks make the same changes."""
        return self._writable[self._name(descriptor)]

    def readable(self, descriptor: MapStateDescriptor) -> ReadOnlyBroadcastState[Any, Any]:
        """The state as the other side gets it, which must not change it: only one subtask would."""
        return self._readable[self._name(descriptor)]

    def _name(self, descriptor: MapStateDescriptor) -> str:
        if not isinstance(descriptor, MapStateDescriptor):
            raise ProgramError(f"get_broadcast_state() takes a MapStateDescriptor, not {descriptor!r}")
        declared = self._descriptors.get(descriptor.name)
        if declared is None:
            raise ProgramError(
                f"operator {self._operator!r} asks for broadcast state {descriptor.name!r}, but broadcast() was called "
                f"with {', '.join(map(repr, self._descriptors))}: add this descriptor there"
            )
        if declared is not descriptor and declared != descriptor:
            raise ProgramError(
                f"operator {self._operator!r} asks for broadcast state {descriptor.name!r} as {descriptor!r}, but "
                f"broadcast() was called with {declared!r}"
            )
        return descriptor.name


class _Time:
    """The part of all contexts that tells the time: timestamp of the record, clock and watermark."""

    def __init__(self, stamp: Stamp, time: TimerService, states: BroadcastStates) -> None:
        self._stamp, self._time, self._states = stamp, time, states

    def timestamp(self) -> int | None:
        return self._stamp.value

    def current_processing_time(self) -> int:
        return self._time.current_processing_time()

    def current_watermark(self) -> int:
        return self._time.current_watermark()


class _ReadOnly(_Time):
    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> ReadOnlyBroadcastState[Any, Any]:
        return self._states.readable(state_descriptor)


class _Writable(_Time):
    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> BroadcastState[Any, Any]:
        return self._states.writable(state_descriptor)


class ReadOnlyContext(_ReadOnly, BroadcastProcessFunction.ReadOnlyContext):
    """The context of ``BroadcastProcessFunction.process_element``."""


class BroadcastContext(_Writable, BroadcastProcessFunction.Context):
    """The context of ``BroadcastProcessFunction.process_broadcast_element``."""


class _KeyedReadOnly(_ReadOnly):
    def __init__(self, stamp: Stamp, time: TimerService, states: BroadcastStates, keyed: KeyedStateBackend) -> None:
        super().__init__(stamp, time, states)
        self._keyed = keyed

    def timer_service(self) -> TimerService:
        return self._time

    def get_current_key(self) -> Any:
        return self._keyed.key


class KeyedReadOnlyContext(_KeyedReadOnly, KeyedBroadcastProcessFunction.ReadOnlyContext):
    """The context of ``KeyedBroadcastProcessFunction.process_element``."""


class KeyedBroadcastOnTimerContext(OnTimer, _KeyedReadOnly, KeyedBroadcastProcessFunction.OnTimerContext):
    """The context of ``KeyedBroadcastProcessFunction.on_timer``."""


class KeyedBroadcastContext(_Writable, KeyedBroadcastProcessFunction.Context):
    """The context of ``KeyedBroadcastProcessFunction.process_broadcast_element``."""

    def __init__(self, stamp: Stamp, time: TimerService, states: BroadcastStates, keyed: KeyedStateBackend) -> None:
        super().__init__(stamp, time, states)
        self._keyed = keyed

    def apply_to_keyed_state(self, state_descriptor: StateDescriptor, function: Callable[[Any, Any], Any]) -> None:
        """Call the function for each key of this subtask that has this state, with key and state."""
        getter = next((name for cls, name in _GETTERS.items() if isinstance(state_descriptor, cls)), None)
        if getter is None:
            raise ProgramError(f"apply_to_keyed_state() takes a state descriptor, not {state_descriptor!r}")
        keyed = self._keyed
        state = getattr(keyed, getter)(state_descriptor)
        former_key = keyed.key
        try:
            for key in keyed.keys(state_descriptor):
                keyed.key = key
                function(key, state)
        finally:
            keyed.key = former_key


class BroadcastProcessOperator(ExpandingOperator):
    """Runs a ``BroadcastProcessFunction`` over a stream without keys and a broadcast stream."""

    may_tag = True

    states: BroadcastStates

    def open(self, context: OperatorContext) -> None:
        """Create the states and the contexts, then open the function, which may use them."""
        descriptors = tuple(self.spec.extra.get("broadcast_states", ()))
        self.states = BroadcastStates(self.name, self.operator_state, descriptors)
        self._contexts = self.make_contexts(context)
        super().open(context)

    def make_contexts(self, context: OperatorContext) -> tuple[Any, Any]:
        """Create the contexts that the function gets with records of the stream and of the broadcast stream."""
        time = TimeOnly(context.stamp, context.clock, self.name)
        return ReadOnlyContext(context.stamp, time, self.states), BroadcastContext(context.stamp, time, self.states)

    @override
    def function_of(self, input_index: int) -> tuple[str, Callable[[Any], Any]]:
        process = self.function.process_broadcast_element if input_index else self.function.process_element
        context = self._contexts[input_index]
        return process.__name__, lambda value: process(value, context)


class KeyedBroadcastProcessOperator(TimedFunction, BroadcastProcessOperator):
    """Runs a ``KeyedBroadcastProcessFunction``: records of input 0 have keys, those of input 1 have none."""

    @override
    def make_contexts(self, context: OperatorContext) -> tuple[Any, Any]:
        timers = KeyTimers(self.timers)
        return (
            KeyedReadOnlyContext(context.stamp, timers, self.states, self.keyed),
            KeyedBroadcastContext(context.stamp, timers, self.states, self.keyed),
        )

    @override
    def make_timer_context(self) -> KeyedBroadcastOnTimerContext:
        return KeyedBroadcastOnTimerContext(self.stamp, KeyTimers(self.timers), self.states, self.keyed)

    @override
    def with_keys(self, records: Iterator[Any], input_index: int) -> Iterator[Any]:
        if input_index == 0:
            yield from super().with_keys(records, input_index)
            return
        keyed = self.keyed
        for value in records:
            keyed.key = NO_KEY_HERE
            yield value

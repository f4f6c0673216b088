"""The contexts that the core passes to assigners, triggers, evictors and window functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NoReturn, Protocol

from typing_extensions import override

from firesteel.core.errors import ProgramError
from firesteel.functions.functions import KeyedStateStore, RuntimeContext
from firesteel.functions.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    State,
    StateDescriptor,
    ValueStateDescriptor,
)
from firesteel.functions.window_functions import ProcessAllWindowFunction, ProcessWindowFunction
from firesteel.windowing.assigners import WindowAssigner
from firesteel.windowing.evictors import Evictor
from firesteel.windowing.triggers import Trigger


class Timers(Protocol):
    """Times and timers of the operator; timers belong to the current key.

    Implemented in ``firesteel.runtime.operator_base.timers``.
    """

    def current_watermark(self) -> int:
        """The watermark of the operator, epoch ms."""

    def current_processing_time(self) -> int:
        """The time of the clock, epoch ms."""

    def register_event_time_timer(self, namespace: Any, timestamp: int) -> None:
        """Set a timer at an event time (epoch ms); a timer that is set twice fires once."""

    def delete_event_time_timer(self, namespace: Any, timestamp: int) -> None:
        """Delete a timer at an event time (epoch ms); does nothing if there is none."""

    def register_processing_time_timer(self, namespace: Any, timestamp: int) -> None:
        """Set a timer at a time of the clock (epoch ms); a timer that is set twice fires once."""

    def delete_processing_time_timer(self, namespace: Any, timestamp: int) -> None:
        """Delete a timer at a time of the clock (epoch ms); does nothing if there is none."""


MergeNamespaces = Callable[[StateDescriptor, Any, Iterable[Any]], None]
"""Moves the state of some windows into that of another one: (descriptor, target, sources)."""
Stores = Callable[[Any], KeyedStateStore]
"""Gives the state of the current key in a window, or, for None, the state that all windows of the key share."""


class _MergingStore(KeyedStateStore):
    """Refuses state by window where windows merge, as Flink does."""

    def _refuse(self, state_descriptor: Any) -> NoReturn:
        raise ProgramError(
            "Per-window state is not allowed when using merging windows: sessions grow into one another, and their "
            "states could not follow; use context.global_state()"
        )

    get_state = get_list_state = get_map_state = get_reducing_state = get_aggregating_state = _refuse


def state_of(store: KeyedStateStore, descriptor: StateDescriptor) -> State:
    """The state of a store that a trigger asks for with a descriptor.

    Raises:
        ProgramError: there is no such kind of keyed state.
    """
    if isinstance(descriptor, ReducingStateDescriptor):
        return store.get_reducing_state(descriptor)
    if isinstance(descriptor, ValueStateDescriptor):
        return store.get_state(descriptor)
    if isinstance(descriptor, ListStateDescriptor):
        return store.get_list_state(descriptor)
    if isinstance(descriptor, AggregatingStateDescriptor):
        return store.get_aggregating_state(descriptor)
    if isinstance(descriptor, MapStateDescriptor):
        return store.get_map_state(descriptor)
    raise ProgramError(f"a trigger asked for state by {descriptor!r}, which is no descriptor of keyed state")


class TriggerContext(Trigger.OnMergeContext):
    """The context that a trigger is called with. Its timers and state are those of the current key and ``window``.

    Attributes:
        window: the window that the trigger is called for; the core sets it before each call.
        merged: the windows that were merged into it, while ``on_merge`` runs.
    """

    def __init__(
        self, timers: Timers, stores: Stores, merge_namespaces: MergeNamespaces, runtime_context: RuntimeContext
    ) -> None:
        self.window: Any = None
        self.merged: Iterable[Any] = ()
        self._timers, self._stores, self._runtime = timers, stores, runtime_context
        self._merge_namespaces = merge_namespaces

    @override
    def get_current_processing_time(self) -> int:
        return self._timers.current_processing_time()

    @override
    def get_current_watermark(self) -> int:
        return self._timers.current_watermark()

    @override
    def get_metric_group(self) -> Any:
        return self._runtime.get_metrics_group()

    @override
    def register_processing_time_timer(self, time: int) -> None:
        self._timers.register_processing_time_timer(self.window, time)

    @override
    def register_event_time_timer(self, time: int) -> None:
        self._timers.register_event_time_timer(self.window, time)

    @override
    def delete_processing_time_timer(self, time: int) -> None:
        self._timers.delete_processing_time_timer(self.window, time)

    @override
    def delete_event_time_timer(self, time: int) -> None:
        self._timers.delete_event_time_timer(self.window, time)

    @override
    def get_partitioned_state(self, state_descriptor: StateDescriptor) -> State:
        return state_of(self._stores(self.window), state_descriptor)

    def merge_partitioned_state(self, state_descriptor: StateDescriptor) -> None:
        """Move the state of the merged windows into the state of the window that they became."""
        self._merge_namespaces(state_descriptor, self.window, self.merged)


class AssignerContext(WindowAssigner.WindowAssignerContext):
    """The context that a window assigner is called with."""

    def __init__(self, timers: Timers, runtime_context: RuntimeContext) -> None:
        self._timers, self._runtime = timers, runtime_context

    @override
    def get_current_processing_time(self) -> int:
        return self._timers.current_processing_time()

    @override
    def get_runtime_context(self) -> RuntimeContext:
        return self._runtime


class EvictorContext(Evictor.EvictorContext):
    """The context that an evictor is called with."""

    def __init__(self, timers: Timers, runtime_context: RuntimeContext) -> None:
        self._timers, self._runtime = timers, runtime_context

    @override
    def get_current_processing_time(self) -> int:
        return self._timers.current_processing_time()

    @override
    def get_metric_group(self) -> Any:
        return self._runtime.get_metrics_group()

    @override
    def get_current_watermark(self) -> int:
        return self._timers.current_watermark()


class FunctionContext(ProcessWindowFunction.Context[Any], ProcessAllWindowFunction.Context[Any]):
    """The context of ``ProcessWindowFunction`` and ``ProcessAllWindowFunction``.

    Attributes:
        at: the window that the function is called for; the core sets it before each call.
        has_window_state: whether the function has ever asked for state of a window.
    """

    def __init__(self, timers: Timers, stores: Stores, merging: bool) -> None:
        self.at: Any = None
        self.has_window_state = False
        self._timers, self._stores = timers, stores
        self._merging = _MergingStore() if merging else None

    @override
    def window(self) -> Any:
        return self.at

    @override
    def current_processing_time(self) -> int:
        return self._timers.current_processing_time()

    @override
    def current_watermark(self) -> int:
        return self._timers.current_watermark()

    def window_state(self) -> KeyedStateStore:
        """The state of the current key and window; refuses to give any where windows merge."""
        self.has_window_state = True
        return self._merging or self._stores(self.at)

    @override
    def global_state(self) -> KeyedStateStore:
        return self._stores(None)

"""Triggers: when a window is evaluated. The base classes, which users may derive from; PyFlink's names."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import Any, Generic, TypeVar

from firesteel.functions.state import State, StateDescriptor

__all__ = ["Trigger", "TriggerResult"]

T = TypeVar("T")
W = TypeVar("W")


class TriggerResult(Enum):
    """What happens with a window. One without records is never evaluated."""

    CONTINUE = (False, False)
    """Nothing happens: the window goes on gathering records."""
    FIRE_AND_PURGE = (True, True)
    """It is evaluated, then its records are thrown away."""
    FIRE = (True, False)
    """It is evaluated and keeps its records."""
    PURGE = (False, True)
    """Its records are thrown away without a result."""

    def is_fire(self) -> bool:
        """Returns whether the window is evaluated."""
        return self.value[0]

    def is_purge(self) -> bool:
        """Returns whether its records are thrown away."""
        return self.value[1]


class Trigger(ABC, Generic[T, W]):
    """Decides when the records of a key in a window are evaluated.

    One object serves all keys and windows of a subtask: what belongs to one of them is kept in
    ``ctx.get_partitioned_state(descriptor)``, never in attributes. Where windows merge, ``can_merge`` has to return
    True and ``on_merge`` has to bring state and timers of the merged windows to the new one.
    """

    class TriggerContext(ABC):
        """Times, timers and state of the key and window at hand. All times are ms since 1970-01-01 UTC."""

        @abstractmethod
        def get_current_processing_time(self) -> int:
            """Returns the time of the clock."""

        @abstractmethod
        def get_metric_group(self) -> Any:
            """Returns the metric group of the operator."""

        @abstractmethod
        def get_current_watermark(self) -> int:
            """Returns the watermark; -2**63 before the first one."""

        @abstractmethod
        def register_processing_time_timer(self, time: int) -> None:
            """Calls ``on_processing_time`` when the clock has come to this time; the same time twice is one timer."""

        @abstractmethod
        def register_event_time_timer(self, time: int) -> None:
            """Calls ``on_event_time`` when the watermark has come to this time; the same time twice is one timer."""

        @abstractmethod
        def delete_processing_time_timer(self, time: int) -> None:
            """Takes a timer back; none there is no error."""

        @abstractmethod
        def delete_event_time_timer(self, time: int) -> None:
            """Takes a timer back; none there is no error."""

        @abstractmethod
        def get_partitioned_state(self, state_descriptor: StateDescriptor) -> State:
            """Returns state that belongs to the key and window at hand."""

    class OnMergeContext(TriggerContext):
        """The context that a trigger's ``on_merge`` is called with."""

        @abstractmethod
        def merge_partitioned_state(self, state_descriptor: StateDescriptor) -> None:
            """Brings list, reducing or aggregating state of the merged windows into that of the new one.

            Raises:
                ProgramError: state of this kind can't be merged.
            """

    @abstractmethod
    def on_element(self, element: T, timestamp: int, window: W, ctx: Trigger.TriggerContext) -> TriggerResult:
        """Called for each record, after it was added to the window.

        Args:
            element: the record.
            timestamp: of the record; -2**63 if it has none.
            window: the window.
            ctx: times, timers and state.
        """

    @abstractmethod
    def on_processing_time(self, time: int, window: W, ctx: Trigger.TriggerContext) -> TriggerResult:
        """Called when a processing-time timer of the window fires; ``time`` is what it was set to."""

    @abstractmethod
    def on_event_time(self, time: int, window: W, ctx: Trigger.TriggerContext) -> TriggerResult:
        """Called when an event-time timer of the window fires; ``time`` is what it was set to."""

    def can_merge(self) -> bool:
        """Returns whether ``on_merge`` is there, so that it may be used with sessions."""
        return False

    @abstractmethod
    def on_merge(self, window: W, ctx: Trigger.OnMergeContext) -> None:
        """Called when windows have been merged into ``window``; behind it ``clear`` is called for each of them."""

    @abstractmethod
    def clear(self, window: W, ctx: Trigger.TriggerContext) -> None:
        """Called when the window is thrown away: delete its timers and clear its state."""

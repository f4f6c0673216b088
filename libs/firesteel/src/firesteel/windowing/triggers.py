"""Triggers, which decide when a window is evaluated: the base classes. PyFlink's names."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import Any, Generic, TypeVar

from firesteel.functions.state import State, StateDescriptor

__all__ = ["Trigger", "TriggerResult"]

T = TypeVar("T")
W = TypeVar("W")


class TriggerResult(Enum):
    """Decision of a trigger about a window. A window without records is never evaluated.

    Examples:
        ```python
        from firesteel.datastream import TriggerResult

        print(TriggerResult.FIRE.is_fire(), TriggerResult.FIRE.is_purge())
        ```

        ```text
        True False
        ```
    """

    CONTINUE = (False, False)
    """Nothing happens; the window goes on collecting records."""
    FIRE_AND_PURGE = (True, True)
    """The window is evaluated, then its records are removed."""
    FIRE = (True, False)
    """The window is evaluated, and keeps its records."""
    PURGE = (False, True)
    """The window's records are removed without a result."""

    def is_fire(self) -> bool:
        """Returns whether the window is evaluated."""
        return self.value[0]

    def is_purge(self) -> bool:
        """Returns whether the window's records are removed."""
        return self.value[1]


class Trigger(ABC, Generic[T, W]):
    """Decides when the records of a key in a window are evaluated.

    One object serves all keys and windows of a subtask, so keep data of a key and window in
    ``ctx.get_partitioned_state(descriptor)``, never in attributes. For windows that merge, ``can_merge`` has to return
    True, and ``on_merge`` has to move state and timers of the merged windows to the new one.

    Examples:
        ```python
        from firesteel.datastream import Trigger, TriggerResult


        class AtTheEnd(Trigger):
            def on_element(self, element, timestamp, window, ctx):
                if element == "end":
                    return TriggerResult.FIRE_AND_PURGE
                return TriggerResult.CONTINUE

            def on_processing_time(self, time, window, ctx):
                return TriggerResult.CONTINUE

            def on_event_time(self, time, window, ctx):
                return TriggerResult.CONTINUE

            def on_merge(self, window, ctx):
                pass

            def clear(self, window, ctx):
                pass


        print(AtTheEnd().on_element("end", 0, None, None).name)
        ```

        ```text
        FIRE_AND_PURGE
        ```
    """

    class TriggerContext(ABC):
        """Times, timers and state of the current key and window. All times are ms since 1970-01-01 UTC."""

        @abstractmethod
        def get_current_processing_time(self) -> int:
            """Returns the processing time."""

        @abstractmethod
        def get_metric_group(self) -> Any:
            """Returns the metric group of the operator."""

        @abstractmethod
        def get_current_watermark(self) -> int:
            """Returns the watermark; -2**63 before the first one."""

        @abstractmethod
        def register_processing_time_timer(self, time: int) -> None:
            """Sets a timer: ``on_processing_time`` is called when the clock reaches this time, once for each time."""

        @abstractmethod
        def register_event_time_timer(self, time: int) -> None:
            """Sets a timer: ``on_event_time`` is called when the watermark reaches this time, once for each time."""

        @abstractmethod
        def delete_processing_time_timer(self, time: int) -> None:
            """Deletes the timer for this time, if there is one."""

        @abstractmethod
        def delete_event_time_timer(self, time: int) -> None:
            """Deletes the timer for this time, if there is one."""

        @abstractmethod
        def get_partitioned_state(self, state_descriptor: StateDescriptor) -> State:
            """Returns state that belongs to the current key and window."""

    class OnMergeContext(TriggerContext):
        """The context that a trigger's ``on_merge`` is called with."""

        @abstractmethod
        def merge_partitioned_state(self, state_descriptor: StateDescriptor) -> None:
            """Merges list, reducing or aggregating state of the merged windows into that of the new one.

            Raises:
                ProgramError: state of this kind can't be merged.
            """

    @abstractmethod
    def on_element(self, element: T, timestamp: int, window: W, ctx: Trigger.TriggerContext) -> TriggerResult:
        """Called for each record, after it was added to the window.

        Args:
            element: the record.
            timestamp: timestamp of the record; -2**63 if it has none.
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
        """Returns whether the trigger implements ``on_merge``, so that it can be used with sessions."""
        return False

    @abstractmethod
    def on_merge(self, window: W, ctx: Trigger.OnMergeContext) -> None:
        """Called when windows have been merged into ``window``; afterwards ``clear`` is called for each of them."""

    @abstractmethod
    def clear(self, window: W, ctx: Trigger.TriggerContext) -> None:
        """Deletes the timers and clears the state of a window; called when it is removed."""

"""Sources in the old way: a function that runs until it is told to stop. PyFlink's name; here they are Python."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

from firesteel.functions.functions import Function

__all__ = ["ParallelSourceFunction", "SourceFunction"]

OUT = TypeVar("OUT")
T = TypeVar("T")


class SourceFunction(Function, Generic[OUT]):
    """Gives records by calling ``ctx.collect``, for ``add_source``; runs in one subtask.

    What it gave can't be read again: after a restart records are lost (at most once). Sources that continue where
    they were derive from ``firesteel.functions.source.Source``.
    """

    class SourceContext(ABC, Generic[T]):
        """Where records go; its methods may be called from the thread of ``run`` only."""

        @abstractmethod
        def collect(self, element: T) -> None:
            """Give a record without a timestamp; waits while nobody takes records."""

        @abstractmethod
        def collect_with_timestamp(self, element: T, timestamp: int) -> None:
            """Give a record with its timestamp, in ms since 1970-01-01 UTC."""

        @abstractmethod
        def emit_watermark(self, watermark: Any) -> None:
            """Refused: UnsupportedFeatureError. Call ``assign_timestamps_and_watermarks`` on the stream instead."""

        def mark_as_temporarily_idle(self) -> None:
            """Has no effect: idleness is a matter of the stream's watermark strategy (``with_idleness``)."""

        @abstractmethod
        def get_checkpoint_lock(self) -> Any:
            """Returns a lock to hold (``with ctx.get_checkpoint_lock():``) while several records are one step."""

    @abstractmethod
    def run(self, ctx: SourceFunction.SourceContext[OUT]) -> None:
        """Gives all records. The source ends when it returns."""

    @abstractmethod
    def cancel(self) -> None:
        """Makes ``run`` return soon; called from another thread. After it ``ctx.collect`` does not return."""


class ParallelSourceFunction(SourceFunction[OUT]):
    """A source function that runs in each subtask; ``open`` tells which one it is."""

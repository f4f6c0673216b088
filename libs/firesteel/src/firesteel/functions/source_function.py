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

    After a restart ``run`` is called again from its beginning. What it gave since the last checkpoint is lost if the
    other side does not keep it (at most once); a function that counts from a start of its own gives its records again.
    One that is also a ``CheckpointedFunction`` begins again with the state of the last checkpoint. It has to collect a
    record and change its state under ``ctx.get_checkpoint_lock()``. Sources of ``firesteel.functions.source.Source``
    are better off: their positions are in the checkpoint.
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
            """Say that no record with this timestamp (ms) or an earlier one comes any more.

            Args:
                watermark: an int, or an object with the attribute ``timestamp``. Going back has no effect.
            """

        @abstractmethod
        def mark_as_temporarily_idle(self) -> None:
            """Say that nothing comes for now: until the next record or watermark the source holds back no other."""

        @abstractmethod
        def get_checkpoint_lock(self) -> Any:
            """Returns a lock to hold (``with ctx.get_checkpoint_lock():``) while records and state are one step."""

    @abstractmethod
    def run(self, ctx: SourceFunction.SourceContext[OUT]) -> None:
        """Gives all records. The source ends when it returns."""

    @abstractmethod
    def cancel(self) -> None:
        """Makes ``run`` return soon; called from another thread. After it ``ctx.collect`` does not return."""


class ParallelSourceFunction(SourceFunction[OUT]):
    """A source function that runs in each subtask; ``open`` tells which one it is."""

"""Sources as functions, which run until they are cancelled. PyFlink's name; here users write them in Python."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

from firesteel.functions.functions import Function

__all__ = ["ParallelSourceFunction", "SourceFunction"]

OUT = TypeVar("OUT")
T = TypeVar("T")


class SourceFunction(Function, Generic[OUT]):
    """Emits records by calling ``ctx.collect``, for ``add_source``; runs in one subtask.

    After a restart ``run`` is called again from its beginning. If the external system does not keep its records, those
    since the last checkpoint are lost (at most once); a function that generates its records emits them all again. If
    the function is also a ``CheckpointedFunction``, it restarts with the state of the last checkpoint; it must then
    collect each record and change its state in one step, under ``ctx.get_checkpoint_lock()``. Prefer
    ``firesteel.functions.source.Source``: the positions of such sources are in the checkpoint.

    Examples:
        ```python
        from firesteel.datastream import SourceFunction, StreamExecutionEnvironment


        class Countdown(SourceFunction):
            def run(self, ctx):
                for number in (3, 2, 1):
                    ctx.collect(number)

            def cancel(self):
                pass


        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
        print(list(env.add_source(Countdown()).execute_and_collect()))
        ```

        ```text
        [3, 2, 1]
        ```
    """

    class SourceContext(ABC, Generic[T]):
        """Emits the records of a source function; only the thread of ``run`` may call its methods."""

        @abstractmethod
        def collect(self, element: T) -> None:
            """Emit a record without a timestamp; waits while the stream is back-pressured."""

        @abstractmethod
        def collect_with_timestamp(self, element: T, timestamp: int) -> None:
            """Emit a record with its timestamp, in ms since 1970-01-01 UTC."""

        @abstractmethod
        def emit_watermark(self, watermark: Any) -> None:
            """Emit a watermark: no record with this timestamp (ms) or an earlier one will follow.

            Args:
                watermark: an int, or an object with the attribute ``timestamp``. One that goes back has no effect.
            """

        @abstractmethod
        def mark_as_temporarily_idle(self) -> None:
            """Mark the source as idle: it holds back no watermark until its next record or watermark."""

        @abstractmethod
        def get_checkpoint_lock(self) -> Any:
            """Return the lock that keeps checkpoints out, to hold while a record is collected and state is changed."""

    @abstractmethod
    def run(self, ctx: SourceFunction.SourceContext[OUT]) -> None:
        """Emit all records. The source ends when this returns."""

    @abstractmethod
    def cancel(self) -> None:
        """Make ``run`` return soon; called from another thread. From then on ``ctx.collect`` raises to end ``run``."""


class ParallelSourceFunction(SourceFunction[OUT]):
    """A source function that runs in each subtask; the context of ``open`` has the subtask's index.

    Examples:
        ```python
        from firesteel.datastream import ParallelSourceFunction


        class Ticks(ParallelSourceFunction):  # env.add_source(Ticks()).set_parallelism(4): each subtask calls run()
            def run(self, ctx):
                ctx.collect("tick")

            def cancel(self):
                pass
        ```
    """

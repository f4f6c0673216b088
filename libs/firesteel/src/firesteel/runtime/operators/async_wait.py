"""The operator behind ``AsyncDataStream``: it hands records to coroutines and emits their results later."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from itertools import repeat
from typing import Any, Final

from typing_extensions import override

from firesteel.common.typeinfo import Types
from firesteel.core.errors import ProgramError
from firesteel.functions.async_functions import AsyncFunction
from firesteel.functions.state import ListStateDescriptor
from firesteel.graph.specs import OperatorSpec
from firesteel.runtime.operator_base.base import Operator
from firesteel.runtime.operator_base.context import OperatorContext
from firesteel.runtime.operator_base.initialization import SnapshotContext
from firesteel.runtime.operators.async_calls import AsyncCalls
from firesteel.runtime.operators.async_queue import OrderedResults, QueuedElement, ResultQueue, UnorderedResults
from firesteel.runtime.records.batch import Batch, Watermark

__all__ = ["AsyncWaitOperator", "LaterResults"]

_IN_FLIGHT: Final = ListStateDescriptor("records-in-flight", Types.PICKLED_BYTE_ARRAY())
_MAX_RECORDS_PER_BATCH: Final = 1024
"""Most records whose results are emitted as one batch."""


class LaterResults(Operator, ABC):
    """An operator that takes records and emits their results later, without further input.

    Attributes:
        on_results: called, possibly from another thread, when there may be results.
    """

    takes_changes = True
    takes_columns = False
    """Whether ``put`` gets batches of columns as they are; else their rows."""

    on_results: Callable[[], None] | None = None

    def before_barrier(self, checkpoint_id: int) -> None:
        """Make results that must leave in front of a barrier ``ready``; the barrier follows once they have left."""

    @property
    @abstractmethod
    def writable(self) -> bool:
        """Whether the operator takes more records now; if not, those in front of it wait."""

    @property
    @abstractmethod
    def ready(self) -> bool:
        """Whether ``take`` would return results or a watermark, or raise."""

    @property
    @abstractmethod
    def empty(self) -> bool:
        """Whether no record, result or watermark is inside the operator."""

    @abstractmethod
    def put(self, batch: Batch) -> None:
        """Take a whole batch of records, even if the operator is not writable."""

    @abstractmethod
    def put_watermark(self, watermark: Watermark) -> None:
        """Take a watermark behind all records put so far; ``take`` returns it in its place."""

    @abstractmethod
    def take(self) -> Batch | Watermark:
        """Return the next results (possibly none) or watermark that may leave now; raises what user code raised."""


class AsyncWaitOperator(LaterResults):
    """Calls an ``AsyncFunction``. At most ``capacity`` records have a running call or results that have not left."""

    def __init__(self, spec: OperatorSpec) -> None:
        super().__init__(spec)
        if not isinstance(spec.function, AsyncFunction):
            raise ProgramError(f"operator {spec.name!r}: {spec.function!r} is not an AsyncFunction")
        extra = spec.extra
        self._capacity: int = extra["capacity"]
        self._results: ResultQueue = OrderedResults() if extra["ordered"] else UnorderedResults()
        self._backlog: deque[QueuedElement] = deque()
        """Records whose call was not started yet, because the capacity is used up, and watermarks behind them."""
        self._in_flight = 0
        """Number of records whose call was started and whose results have not left."""
        timeout_ms: int = extra["timeout_ms"]
        self._calls = AsyncCalls(
            self.name, spec.function, timeout_ms / 1000 if timeout_ms else None, extra["retry"], self._done
        )
        self._error: BaseException | None = None
        self._arrived: deque[tuple[QueuedElement | None, Any]] = deque()
        """Results appended by the loop's thread and taken by the task's thread, each in one atomic operation."""

    def open(self, context: OperatorContext) -> None:
        """Open the function on its loop, and call it again for records whose results the checkpoint did not have."""
        self._calls.start()
        super().open(context)
        for arguments in self.operator_state.get_list_state(_IN_FLIGHT).get():
            self._backlog.append(QueuedElement(*arguments))
        self._start_calls()

    @override
    def call_function(self, function: Any, method: str, *arguments: Any) -> None:
        # The user's function must run on its own loop; key selectors behind it are called in this thread.
        if function is self.function:
            self._calls.do(lambda: getattr(function, method)(*arguments))
        else:
            super().call_function(function, method, *arguments)

    def snapshot_state(self, context: SnapshotContext) -> None:
        """Write the records whose results have not left; after a restore the function is called for them again."""
        entries = [*self._results.entries(), *self._backlog]
        in_flight = [entry.constructor_arguments for entry in entries if not entry.is_watermark]
        self.operator_state.get_list_state(_IN_FLIGHT).update(in_flight)
        super().snapshot_state(context)

    def close(self) -> None:
        """Cancel the running calls, close the functions on the loop, and end its thread."""
        try:
            self._calls.cancel()
            super().close()
        finally:
            self._calls.stop()

    @property
    @override
    def writable(self) -> bool:
        return not self._backlog and self._in_flight < self._capacity

    @property
    @override
    def ready(self) -> bool:
        self._move_arrived()
        return self._error is not None or self._results.peek() is not None

    @property
    @override
    def empty(self) -> bool:
        return not self._backlog and not len(self._results)

    def put(self, batch: Batch) -> None:
        """Start calls for as many records as there is capacity for; the others wait in the backlog."""
        stamps: Iterable[Any] = repeat(None) if batch.timestamps is None else batch.timestamps
        kinds: Iterable[Any] = repeat(None) if batch.kinds is None else batch.kinds
        self._backlog.extend(map(QueuedElement, batch.values, stamps, kinds))
        self._start_calls()

    @override
    def put_watermark(self, watermark: Watermark) -> None:
        self._backlog.append(QueuedElement(watermark, is_watermark=True))
        self._start_calls()

    def take(self) -> Batch | Watermark:
        """Return the results that may leave, up to the next watermark, or that watermark if it is the first.

        Records with and without a timestamp (or a row kind) can't share a batch, so it ends where that changes.
        """
        self._move_arrived()
        if self._error is not None:
            raise self._error
        values: list[Any] = []
        stamps: list[int] = []
        kinds: list[int] = []
        form = (False, False)
        for count in range(_MAX_RECORDS_PER_BATCH):
            entry = self._results.peek()
            if entry is None or (count and (entry.is_watermark or entry.form != form)):
                break
            self._results.pop()
            if entry.is_watermark:
                watermark: Watermark = entry.value
                return watermark
            form = entry.form
            self._in_flight -= 1
            results = self._coerced(entry.results or [])
            values += results
            if entry.stamp is not None:
                stamps += [entry.stamp] * len(results)
            if entry.kind is not None:
                kinds += [entry.kind] * len(results)
        self._start_calls()
        return Batch(values, stamps if form[0] else None, kinds if form[1] else None)

    def _coerced(self, results: list[Any]) -> list[Any]:
        coerce = self.coerce
        return (
            results
            if coerce is None
            else [coerce(value) if value is not None else self.pass_null() for value in results]
        )

    def _start_calls(self) -> None:
        backlog = self._backlog
        while backlog and (backlog[0].is_watermark or self._in_flight < self._capacity):
            entry = backlog.popleft()
            self._results.add(entry)
            if not entry.is_watermark:
                self._in_flight += 1
                self._calls.call(entry, entry.value)

    def _done(self, entry: QueuedElement | None, results: list[Any] | BaseException) -> None:
        """Pass results or an exception to the task's thread; called on the loop's thread."""
        self._arrived.append((entry, results))
        if self.on_results is not None:
            self.on_results()

    def _move_arrived(self) -> None:
        """Move the results that the loop's thread has appended into the queue of this thread."""
        while self._arrived:
            entry, results = self._arrived.popleft()
            if isinstance(results, BaseException):
                self._error = self._error or results
            elif entry is not None:
                self._results.complete(entry, results)

"""The operator behind ``AsyncDataStream``: hands records to coroutines and takes up their results later."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from itertools import repeat
from typing import Any, Final

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
_MOST_AT_ONCE: Final = 1024
"""Records whose results are given at once."""


class LaterResults(Operator, ABC):
    """An operator whose results come after the records were taken, without further input.

    Attributes:
        on_results: called, possibly from another thread, when there may be results.
    """

    takes_changes = True

    on_results: Callable[[], None] | None = None

    def before_barrier(self, checkpoint_id: int) -> None:
        """The barrier of this checkpoint goes on when all that is ``ready`` has left."""

    @property
    @abstractmethod
    def writable(self) -> bool:
        """Whether it takes more now; else what is before it waits."""

    @property
    @abstractmethod
    def ready(self) -> bool:
        """Whether ``take`` would give something."""

    @property
    @abstractmethod
    def empty(self) -> bool:
        """Whether nothing is on its way."""

    @abstractmethod
    def put(self, batch: Batch) -> None:
        """Take a batch of records; all, even if it is not writable."""

    @abstractmethod
    def put_watermark(self, watermark: Watermark) -> None:
        """A watermark comes behind all records put so far; ``take`` gives it back in its place."""

    @abstractmethod
    def take(self) -> Batch | Watermark:
        """The next results (there may be none), or a watermark, that may leave now; raises what user code raised."""


class AsyncWaitOperator(LaterResults):
    """Calls an ``AsyncFunction``; at most ``capacity`` records are being called for, or have results that wait."""

    def __init__(self, spec: OperatorSpec) -> None:
        super().__init__(spec)
        if not isinstance(spec.function, AsyncFunction):
            raise ProgramError(f"operator {spec.name!r}: {spec.function!r} is not an AsyncFunction")
        extra = spec.extra
        self._capacity: int = extra["capacity"]
        self._results: ResultQueue = OrderedResults() if extra["ordered"] else UnorderedResults()
        self._backlog: deque[QueuedElement] = deque()
        """Taken, but not begun: the rest of a batch."""
        self._in_flight = 0
        """Records whose call was begun and whose results have not left."""
        timeout_ms: int = extra["timeout_ms"]
        self._calls = AsyncCalls(
            self.name, spec.function, timeout_ms / 1000 if timeout_ms else None, extra["retry"], self._done
        )
        self._error: BaseException | None = None
        self._arrived: deque[tuple[QueuedElement | None, Any]] = deque()
        """From the loop's thread."""

    def open(self, context: OperatorContext) -> None:
        """Open the function on its loop; call again for records whose results were awaited at the checkpoint."""
        self._calls.start()
        super().open(context)
        for kept in self.operator_state.get_list_state(_IN_FLIGHT).get():
            self._backlog.append(QueuedElement(*kept))
        self._begin()

    def call_function(self, function: Any, method: str, *arguments: Any) -> None:
        """The function's methods run on its loop; those of key selectors behind it here."""
        if function is self.function:
            self._calls.do(lambda: getattr(function, method)(*arguments))
        else:
            super().call_function(function, method, *arguments)

    def snapshot_state(self, context: SnapshotContext) -> None:
        """Records whose results have not left are its state: they are called for again after a restore."""
        awaited = [*self._results.entries(), *self._backlog]
        in_flight = [entry.kept for entry in awaited if not entry.is_watermark]
        self.operator_state.get_list_state(_IN_FLIGHT).update(in_flight)
        super().snapshot_state(context)

    def close(self) -> None:
        """Cancel what runs, close the functions, and end the thread."""
        try:
            self._calls.cancel()
            super().close()
        finally:
            self._calls.stop()

    @property
    def writable(self) -> bool:
        """Whether all that was taken has been begun, and there is room."""
        return not self._backlog and self._in_flight < self._capacity

    @property
    def ready(self) -> bool:
        """Whether something may leave, or a call raised."""
        self._take_up()
        return self._error is not None or self._results.peek() is not None

    @property
    def empty(self) -> bool:
        """Whether every record's results and every watermark have left."""
        return not self._backlog and not len(self._results)

    def put(self, batch: Batch) -> None:
        """Begin with as many as there is room for; the others wait."""
        stamps: Iterable[Any] = repeat(None) if batch.timestamps is None else batch.timestamps
        kinds: Iterable[Any] = repeat(None) if batch.kinds is None else batch.kinds
        self._backlog.extend(map(QueuedElement, batch.values, stamps, kinds))
        self._begin()

    def put_watermark(self, watermark: Watermark) -> None:
        """Keeps its place among the records."""
        self._backlog.append(QueuedElement(watermark, is_watermark=True))
        self._begin()

    def take(self) -> Batch | Watermark:
        """Results of records that all have a timestamp (a row kind) or have none, up to the next watermark, or that."""
        self._take_up()
        if self._error is not None:
            raise self._error
        values: list[Any] = []
        stamps: list[int] = []
        kinds: list[int] = []
        form = (False, False)
        for count in range(_MOST_AT_ONCE):
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
        self._begin()
        return Batch(values, stamps if form[0] else None, kinds if form[1] else None)

    def _coerced(self, results: list[Any]) -> list[Any]:
        coerce = self.coerce
        return (
            results
            if coerce is None
            else [coerce(value) if value is not None else self.pass_null() for value in results]
        )

    def _begin(self) -> None:
        backlog = self._backlog
        while backlog and (backlog[0].is_watermark or self._in_flight < self._capacity):
            entry = backlog.popleft()
            self._results.add(entry)
            if not entry.is_watermark:
                self._in_flight += 1
                self._calls.call(entry, entry.value)

    def _done(self, entry: QueuedElement | None, results: list[Any] | BaseException) -> None:
        """On the loop's thread; what is raised may belong to no record."""
        self._arrived.append((entry, results))
        if self.on_results is not None:
            self.on_results()

    def _take_up(self) -> None:
        while self._arrived:
            entry, results = self._arrived.popleft()
            if isinstance(results, BaseException):
                self._error = self._error or results
            elif entry is not None:
                self._results.complete(entry, results)

"""Results on their way to the client, which pulls them by offset: a bounded buffer."""

from __future__ import annotations

import pickle
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import cloudpickle

from firesteel.core.errors import SerializationError
from firesteel.core.short_repr import short_repr
from firesteel.graph.specs import OperatorSpec
from firesteel.runtime.operators.sinks import Consumer

DEFAULT_BUFFER_BYTES: Final = 4 << 20
_SMALLEST_SIZE: Final = 8


@dataclass(frozen=True)
class Collected:
    """An answer to the client.

    Attributes:
        offset: of the first result.
        count: number of results in ``data``.
        end: there will be no results behind these.
        data: pickled list; empty if there are none.
    """

    offset: int
    count: int
    end: bool
    data: bytes


class CollectOperator(Consumer):
    """Keeps results until the client asks for a later offset; takes no more when full. Thread-safe.

    Attributes:
        on_results: called (from whatever thread writes) when results or the end came; long polls wait for it.
        on_drained: called when the client has acknowledged all results after the end.
    """

    def __init__(self, spec: OperatorSpec) -> None:
        super().__init__(spec)
        self.on_results: Callable[[], None] | None = None
        self.on_drained: Callable[[], None] | None = None
        self._limit = int(spec.extra.get("buffer_bytes") or DEFAULT_BUFFER_BYTES)
        self._lock = threading.Lock()
        self._results: deque[tuple[Any, int]] = deque()  # (result, estimated size)
        self._first = 0
        self._bytes = 0
        self._ended = False

    @property
    def writable(self) -> bool:
        """Whether the buffer has room."""
        return self._bytes < self._limit

    @property
    def drained(self) -> bool:
        """Whether the input has ended and the client has fetched everything."""
        return self._ended and not self._results

    @property
    def available(self) -> int:
        """Offset behind the last result."""
        return self._first + len(self._results)

    @property
    def ended(self) -> bool:
        """No further results will come."""
        return self._ended

    def write(self, values: list[Any], timestamps: list[int] | None) -> None:
        """Keep a chunk."""
        if not values:
            return
        if self.coerce is not None:
            values = [self.coerce(value) for value in values]
        size = _sampled_size(values)
        with self._lock:
            self._results.extend([(value, size) for value in values])
            self._bytes += size * len(values)
        if self.on_results is not None:
            self.on_results()

    def finish(self) -> None:
        """The input has ended."""
        self._ended = True
        if self.on_results is not None:
            self.on_results()

    def fetch(self, offset: int, max_bytes: int) -> Collected:
        """Drop the results before ``offset``, which are thereby acknowledged, and give those from it on.

        Raises:
            ValueError: results from ``offset`` on were dropped before, or are not there yet.
            SerializationError: a result can't be pickled.
        """
        self.acknowledge(offset)
        with self._lock:
            data, count = self._take(max_bytes)
            end = self._ended and offset + count == self.available
        return Collected(offset, count, end, data)

    def acknowledge(self, offset: int) -> None:
        """Drop the results before ``offset``: the client has them.

        Raises:
            ValueError: see ``fetch``.
        """
        with self._lock:
            was_writable = self.writable
            if not self._first <= offset <= self.available:
                raise ValueError(
                    f"results from offset {offset} on are not here: the buffer holds {self._first} to {self.available}"
                )
            while self._first < offset:
                self._bytes -= self._results.popleft()[1]
                self._first += 1
            drained, became_writable = self.drained, self.writable and not was_writable
        if became_writable and self.on_writable is not None:
            self.on_writable()
        if drained and self.on_drained is not None:
            self.on_drained()

    def _take(self, max_bytes: int) -> tuple[bytes, int]:
        if max_bytes <= 0:
            return b"", 0
        values: list[Any] = []
        size = 0
        for value, estimate in self._results:
            size += estimate
            if values and size > max_bytes:
                break
            values.append(value)
            if size >= max_bytes:
                break
        while values:
            data = _dumps(values)
            if len(data) <= 2 * max_bytes or len(values) == 1:
                return data, len(values)
            values = list(islice(values, len(values) // 2))
        return b"", 0

    def close(self) -> None:
        """Forget the results."""
        with self._lock:
            self._results.clear()
            self._bytes = 0


def _sampled_size(values: list[Any]) -> int:
    """About how many bytes one of the values takes when pickled."""
    sample = values[:: max(1, len(values) // 4)][:4]
    return max(_SMALLEST_SIZE, len(_dumps(sample)) // len(sample))


def _dumps(values: list[Any]) -> bytes:
    try:
        return pickle.dumps(values, protocol=5)
    except Exception:  # the user's __reduce__ and __getstate__ raise what they like, here and below
        try:
            data: bytes = cloudpickle.dumps(values, protocol=5)
            return data
        except Exception as error:
            raise SerializationError(
                f"a result can't be sent to the client: {error}; the results begin with {short_repr(values[0], 80)}"
            ) from error

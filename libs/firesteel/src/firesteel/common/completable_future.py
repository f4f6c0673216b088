"""``CompletableFuture``: what asynchronous calls of a job client return."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Generator
from typing import Any, Generic, TypeVar

__all__ = ["CompletableFuture"]

T = TypeVar("T")


class CompletableFuture(Generic[T]):
    """A value that comes later. ``result()`` waits for it; in a coroutine it can be awaited.

    It can be filled from any thread, once.
    """

    def __init__(self, future: concurrent.futures.Future[T] | None = None) -> None:
        self._future: concurrent.futures.Future[T] = concurrent.futures.Future() if future is None else future

    @staticmethod
    def completed(value: T) -> CompletableFuture[T]:
        """Returns a future that has this value already."""
        made: CompletableFuture[T] = CompletableFuture()
        made.set_result(value)
        return made

    def cancel(self) -> bool:
        """Gives up waiting; returns whether that was in time."""
        return self._future.cancel()

    def cancelled(self) -> bool:
        """Returns whether it was cancelled."""
        return self._future.cancelled()

    def done(self) -> bool:
        """Returns whether there is a value, an error, or a cancel."""
        return self._future.done()

    def result(self, timeout: float | None = None) -> T:
        """Waits for the value.

        Args:
            timeout: seconds to wait at most; None waits for ever.

        Raises:
            TimeoutError: there was no value in time.
            Exception: the error that came instead of a value.
        """
        return self._future.result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Waits, then returns the error that came instead of a value, or None."""
        return self._future.exception(timeout)

    def set_result(self, value: T) -> None:
        """Fills in the value."""
        self._future.set_result(value)

    def set_exception(self, error: BaseException) -> None:
        """Fills in an error."""
        self._future.set_exception(error)

    def __await__(self) -> Generator[Any, None, T]:
        return asyncio.wrap_future(self._future).__await__()

    def __repr__(self) -> str:
        return f"CompletableFuture({self._future!r})"

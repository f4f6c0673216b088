"""``CompletableFuture``: the result of an asynchronous call of a job client."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Generator
from typing import Any, Generic, TypeVar

__all__ = ["CompletableFuture"]

T = TypeVar("T")


class CompletableFuture(Generic[T]):
    """A value that is available later. ``result()`` waits for it; a coroutine can await the future.

    Any thread can set the value, once.

    Examples:
        ```python
        from firesteel.common import CompletableFuture

        future = CompletableFuture.completed("done")
        print(future.done(), future.result())
        ```

        ```text
        True done
        ```
    """

    def __init__(self, future: concurrent.futures.Future[T] | None = None) -> None:
        self._future: concurrent.futures.Future[T] = concurrent.futures.Future() if future is None else future

    @staticmethod
    def completed(value: T) -> CompletableFuture[T]:
        """Returns a future that already has this value."""
        future: CompletableFuture[T] = CompletableFuture()
        future.set_result(value)
        return future

    def cancel(self) -> bool:
        """Cancels the future; returns whether it had no value yet."""
        return self._future.cancel()

    def cancelled(self) -> bool:
        """Returns whether the future was cancelled."""
        return self._future.cancelled()

    def done(self) -> bool:
        """Returns whether the future has a value or an error, or was cancelled."""
        return self._future.done()

    def result(self, timeout: float | None = None) -> T:
        """Waits for the value.

        Args:
            timeout: seconds to wait at most; None waits for ever.

        Raises:
            TimeoutError: the value was not set in time.
            Exception: the error that was set.
        """
        return self._future.result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Waits for the future, and returns its error; None if it has a value."""
        return self._future.exception(timeout)

    def set_result(self, value: T) -> None:
        """Sets the value, which ends all waiting."""
        self._future.set_result(value)

    def set_exception(self, error: BaseException) -> None:
        """Sets an error, which ``result()`` raises."""
        self._future.set_exception(error)

    def __await__(self) -> Generator[Any, None, T]:
        return asyncio.wrap_future(self._future).__await__()

    def __repr__(self) -> str:
        return f"CompletableFuture({self._future!r})"

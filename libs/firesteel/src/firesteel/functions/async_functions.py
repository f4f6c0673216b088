"""Functions that wait for others without blocking, and when they are tried again. PyFlink's names and signatures."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from firesteel.functions.functions import IN, OUT, Function

__all__ = ["AsyncFunction", "AsyncRetryPredicate", "AsyncRetryStrategy"]

T = TypeVar("T")


class AsyncRetryPredicate(ABC, Generic[OUT]):
    """What makes a call count as failed."""

    @abstractmethod
    def result_predicate(self) -> Callable[[list[OUT]], bool] | None:
        """Returns what looks at the results of a call; None: results are never a failure."""

    @abstractmethod
    def exception_predicate(self) -> Callable[[Exception], bool] | None:
        """Returns what looks at the exception of a call; None: an exception is final."""


class AsyncRetryStrategy(ABC, Generic[OUT]):
    """Whether, when and how often a failed call is tried again."""

    @abstractmethod
    def can_retry(self, current_attempts: int) -> bool:
        """Returns whether there may be another call after so many."""

    @abstractmethod
    def get_backoff_time_millis(self, current_attempts: int) -> int:
        """Returns the pause after so many calls, in ms."""

    @abstractmethod
    def get_retry_predicate(self) -> AsyncRetryPredicate[OUT]:
        """Returns what makes a call count as failed."""

    @staticmethod
    def no_restart() -> AsyncRetryStrategy[Any]:
        """Never again."""
        from firesteel.functions.async_retry import NoRetryStrategy

        return NoRetryStrategy()

    @staticmethod
    def fixed_delay(
        max_attempts: int,
        backoff_time_millis: int,
        result_predicate: Callable[[list[T]], bool] | None,
        exception_predicate: Callable[[Exception], bool] | None,
    ) -> AsyncRetryStrategy[T]:
        """The same pause after each call; ``max_attempts`` calls at most, the first included."""
        from firesteel.functions.async_retry import FixedDelayRetryStrategy

        return FixedDelayRetryStrategy(max_attempts, backoff_time_millis, result_predicate, exception_predicate)

    @staticmethod
    def exponential_backoff(
        max_attempts: int,
        initial_delay: int,
        max_retry_delay: int,
        multiplier: float,
        result_predicate: Callable[[list[T]], bool] | None,
        exception_predicate: Callable[[Exception], bool] | None,
    ) -> AsyncRetryStrategy[T]:
        """A pause that grows from ``initial_delay`` by ``multiplier`` up to ``max_retry_delay`` (ms)."""
        from firesteel.functions.async_retry import ExponentialBackoffDelayRetryStrategy

        return ExponentialBackoffDelayRetryStrategy(
            max_attempts, initial_delay, max_retry_delay, multiplier, result_predicate, exception_predicate
        )


class AsyncFunction(Function, Generic[IN, OUT]):
    """Calls something that takes time, for many records at once, without holding up the others.

    The methods run on an asyncio loop in a thread of the operator's own; ``open`` and ``close`` too, so that clients
    which belong to a loop can be made and closed there: both may be coroutine functions, which PyFlink does not await.
    Code that blocks instead of awaiting holds up all calls of the
    operator.
    """

    @abstractmethod
    async def async_invoke(self, value: IN) -> list[OUT]:
        """Returns the results for a record."""

    def timeout(self, value: IN) -> list[OUT]:
        """Called when a record took too long: returns results instead, or raises. May be a coroutine function.

        Raises:
            TimeoutError: unless it is overridden.
        """
        raise TimeoutError(f"async_invoke() did not return in time for {value!r:.200}")

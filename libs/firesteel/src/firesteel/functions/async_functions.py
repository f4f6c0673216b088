"""Functions that wait for external systems without blocking, and retries of their calls. PyFlink's names."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from typing_extensions import override

from firesteel.functions.functions import IN, OUT, Function

__all__ = ["AsyncFunction", "AsyncRetryPredicate", "AsyncRetryStrategy"]

T = TypeVar("T")


class AsyncFunction(Function, Generic[IN, OUT]):
    """Calls an external system for many records at the same time.

    All methods run on an asyncio loop in a thread of the operator's own. That includes ``open`` and ``close``, so that
    clients that are bound to a loop can be made and closed there: both may be coroutine functions, which PyFlink does
    not await. Code that blocks instead of awaiting delays all calls of the operator.

    Examples:
        ```python
        import asyncio

        from firesteel.common import Time
        from firesteel.datastream import AsyncDataStream, AsyncFunction, StreamExecutionEnvironment


        class Lookup(AsyncFunction):
            async def async_invoke(self, value):
                await asyncio.sleep(0.01)  # a request
                return [value.upper()]


        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
        found = AsyncDataStream.unordered_wait(env.from_collection(["tea", "milk"]), Lookup(), Time.seconds(5))
        print(sorted(found.execute_and_collect()))
        ```

        ```text
        ['MILK', 'TEA']
        ```
    """

    @abstractmethod
    async def async_invoke(self, value: IN) -> list[OUT]:
        """Returns the results for a record."""

    def timeout(self, value: IN) -> list[OUT]:
        """Returns results for a record whose call took too long, or raises. May be a coroutine function.

        Raises:
            TimeoutError: unless it is overridden.
        """
        raise TimeoutError(f"async_invoke() did not return in time for {value!r:.200}")


class AsyncRetryPredicate(ABC, Generic[OUT]):
    """Decides whether a call has failed, so that it is to be retried.

    Examples:
        ```python
        from firesteel.datastream import AsyncRetryPredicate


        class WhenEmpty(AsyncRetryPredicate):
            def result_predicate(self):
                return lambda results: not results

            def exception_predicate(self):
                return lambda error: isinstance(error, TimeoutError)


        print(WhenEmpty().result_predicate()([]))
        ```

        ```text
        True
        ```
    """

    @abstractmethod
    def result_predicate(self) -> Callable[[list[OUT]], bool] | None:
        """Returns the predicate on a call's results that is true if it failed; None: results are never a failure."""

    @abstractmethod
    def exception_predicate(self) -> Callable[[Exception], bool] | None:
        """Returns the predicate on a call's exception that is true if it is to be retried; None: it never is."""


class AsyncRetryStrategy(ABC, Generic[OUT]):
    """Decides whether, when and how often a failed call is retried.

    Examples:
        ```python
        from firesteel.datastream import AsyncRetryStrategy

        strategy = AsyncRetryStrategy.fixed_delay(3, 100, None, lambda error: isinstance(error, TimeoutError))
        print(strategy.can_retry(1), strategy.get_backoff_time_millis(1))
        ```

        ```text
        True 100
        ```
    """

    @abstractmethod
    def can_retry(self, current_attempts: int) -> bool:
        """Returns whether there may be another call after ``current_attempts`` calls."""

    @abstractmethod
    def get_backoff_time_millis(self, current_attempts: int) -> int:
        """Returns the pause after ``current_attempts`` calls, in ms."""

    @abstractmethod
    def get_retry_predicate(self) -> AsyncRetryPredicate[OUT]:
        """Returns the predicate that decides whether a call has failed."""

    @staticmethod
    def no_restart() -> AsyncRetryStrategy[Any]:
        """Returns a strategy that never retries: the first failure is final."""
        return NoRetryStrategy()

    @staticmethod
    def fixed_delay(
        max_attempts: int,
        backoff_time_millis: int,
        result_predicate: Callable[[list[T]], bool] | None,
        exception_predicate: Callable[[Exception], bool] | None,
    ) -> AsyncRetryStrategy[T]:
        """Returns a strategy with the same pause after each call, and at most ``max_attempts`` calls in all."""
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
        """Returns a strategy whose pauses grow by ``multiplier`` from ``initial_delay`` to ``max_retry_delay`` ms."""
        return ExponentialBackoffDelayRetryStrategy(
            max_attempts, initial_delay, max_retry_delay, multiplier, result_predicate, exception_predicate
        )


def empty_result_predicate(result: list[Any]) -> bool:
    """Whether a call returned no results."""
    return not result


def has_exception_predicate(error: Exception) -> bool:
    """Whether a call raised."""
    return error is not None


def exception_type_predicate(error: Exception, expected_error_type: type[Exception]) -> bool:
    """Whether a call raised an exception of this type; bind the type with ``functools.partial``."""
    return isinstance(error, expected_error_type)


class RetryPredicate(AsyncRetryPredicate[OUT], Generic[OUT]):
    """A predicate made of two functions.

    Examples:
        ```python
        from firesteel.datastream.async_retry_strategies import RetryPredicate

        predicate = RetryPredicate(lambda results: not results, None)
        print(predicate.result_predicate()([]))
        ```

        ```text
        True
        ```
    """

    def __init__(
        self,
        result_predicate: Callable[[list[OUT]], bool] | None,
        exception_predicate: Callable[[Exception], bool] | None,
    ) -> None:
        for name, predicate in (("result", result_predicate), ("exception", exception_predicate)):
            if predicate is not None and not callable(predicate):
                raise TypeError(f"{name}_predicate is a function or None, not {type(predicate).__name__}")
        self._result, self._exception = result_predicate, exception_predicate

    def result_predicate(self) -> Callable[[list[OUT]], bool] | None:
        """Returns the predicate on a call's results, or None."""
        return self._result

    def exception_predicate(self) -> Callable[[Exception], bool] | None:
        """Returns the predicate on a call's exception, or None."""
        return self._exception


class NoRetryStrategy(AsyncRetryStrategy[OUT], Generic[OUT]):
    """Fails the call at its first error.

    Examples:
        ```python
        from firesteel.datastream.async_retry_strategies import NoRetryStrategy

        print(NoRetryStrategy().can_retry(1))
        ```

        ```text
        False
        ```
    """

    @override
    def can_retry(self, current_attempts: int) -> bool:
        return False

    def get_backoff_time_millis(self, current_attempts: int) -> int:
        """Returns -1: there is no next call."""
        return -1

    def get_retry_predicate(self) -> AsyncRetryPredicate[OUT]:
        """Returns a predicate by which no call has failed."""
        return RetryPredicate(None, None)


class FixedDelayRetryStrategy(AsyncRetryStrategy[OUT], Generic[OUT]):
    """The same pause after each call.

    Raises:
        ValueError: fewer than one call, or a negative pause.

    Examples:
        ```python
        from firesteel.datastream.async_retry_strategies import FixedDelayRetryStrategy

        strategy = FixedDelayRetryStrategy(3, 100, lambda results: not results, None)  # again if there is none
        print(strategy.get_backoff_time_millis(2))
        ```

        ```text
        100
        ```
    """

    def __init__(
        self,
        max_attempts: int,
        backoff_time_millis: int,
        result_predicate: Callable[[list[OUT]], bool] | None,
        exception_predicate: Callable[[Exception], bool] | None,
    ) -> None:
        self._most = _at_least("max_attempts", max_attempts, 1)
        self._pause = _at_least("backoff_time_millis", backoff_time_millis, 0)
        self._predicate = RetryPredicate(result_predicate, exception_predicate)

    def can_retry(self, current_attempts: int) -> bool:
        """Whether fewer than ``max_attempts`` calls have been made."""
        return current_attempts < self._most

    @override
    def get_backoff_time_millis(self, current_attempts: int) -> int:
        return self._pause

    @override
    def get_retry_predicate(self) -> AsyncRetryPredicate[OUT]:
        return self._predicate


class ExponentialBackoffDelayRetryStrategy(AsyncRetryStrategy[OUT], Generic[OUT]):
    """A pause that grows from call to call, up to a bound.

    Raises:
        ValueError: fewer than one call, a negative pause, or a multiplier below 1.

    Examples:
        ```python
        from firesteel.datastream.async_retry_strategies import ExponentialBackoffDelayRetryStrategy

        strategy = ExponentialBackoffDelayRetryStrategy(5, 100, 1000, 2.0, None, lambda error: True)
        print([strategy.get_backoff_time_millis(attempt) for attempt in (1, 2, 3)])
        ```

        ```text
        [100, 200, 400]
        ```
    """

    def __init__(
        self,
        max_attempts: int,
        initial_delay: int,
        max_retry_delay: int,
        multiplier: float,
        result_predicate: Callable[[list[OUT]], bool] | None,
        exception_predicate: Callable[[Exception], bool] | None,
    ) -> None:
        self._most = _at_least("max_attempts", max_attempts, 1)
        self._first = _at_least("initial_delay", initial_delay, 0)
        self._longest = _at_least("max_retry_delay", max_retry_delay, initial_delay)
        if multiplier < 1:
            raise ValueError(f"multiplier must be at least 1, not {multiplier}")
        self._factor = multiplier
        self._predicate = RetryPredicate(result_predicate, exception_predicate)

    def can_retry(self, current_attempts: int) -> bool:
        """Whether fewer than ``max_attempts`` calls have been made."""
        return current_attempts < self._most

    def get_backoff_time_millis(self, current_attempts: int) -> int:
        """Returns the pause, computed from the number of calls alone: records share a strategy, so it has no state."""
        pause: float = self._first
        for _ in range(current_attempts - 1):
            pause *= self._factor
            if pause >= self._longest:
                return self._longest
        return min(int(pause), self._longest)

    @override
    def get_retry_predicate(self) -> AsyncRetryPredicate[OUT]:
        return self._predicate


def _at_least(name: str, value: int, least: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} is an int, not {type(value).__name__}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, not {value}")
    return value

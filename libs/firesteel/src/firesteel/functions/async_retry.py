"""The retry strategies and predicates that come with asynchronous functions. PyFlink's names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic

from firesteel.functions.async_functions import AsyncRetryPredicate, AsyncRetryStrategy
from firesteel.functions.functions import OUT

__all__ = [
    "ExponentialBackoffDelayRetryStrategy",
    "FixedDelayRetryStrategy",
    "NoRetryStrategy",
    "RetryPredicate",
    "empty_result_predicate",
    "exception_type_predicate",
    "has_exception_predicate",
]


def empty_result_predicate(result: list[Any]) -> bool:
    """Whether a call gave no results."""
    return not result


def has_exception_predicate(error: Exception) -> bool:
    """Whether a call raised."""
    return error is not None


def exception_type_predicate(error: Exception, expected_error_type: type[Exception]) -> bool:
    """Whether a call raised an exception of this type; bind the type with ``functools.partial``."""
    return isinstance(error, expected_error_type)


class RetryPredicate(AsyncRetryPredicate[OUT], Generic[OUT]):
    """Two functions."""

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
        """What looks at results."""
        return self._result

    def exception_predicate(self) -> Callable[[Exception], bool] | None:
        """What looks at exceptions."""
        return self._exception


class NoRetryStrategy(AsyncRetryStrategy[OUT], Generic[OUT]):
    """Never again."""

    def can_retry(self, current_attempts: int) -> bool:
        """No."""
        return False

    def get_backoff_time_millis(self, current_attempts: int) -> int:
        """-1: there is no next call."""
        return -1

    def get_retry_predicate(self) -> AsyncRetryPredicate[OUT]:
        """Nothing counts as failed."""
        return RetryPredicate(None, None)


class FixedDelayRetryStrategy(AsyncRetryStrategy[OUT], Generic[OUT]):
    """The same pause after each call.

    Raises:
        ValueError: fewer than one call, or a negative pause.
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
        """Whether fewer calls were made than allowed."""
        return current_attempts < self._most

    def get_backoff_time_millis(self, current_attempts: int) -> int:
        """Always the same."""
        return self._pause

    def get_retry_predicate(self) -> AsyncRetryPredicate[OUT]:
        """As given."""
        return self._predicate


class ExponentialBackoffDelayRetryStrategy(AsyncRetryStrategy[OUT], Generic[OUT]):
    """A pause that grows from call to call, up to a bound.

    Raises:
        ValueError: fewer than one call, a negative pause, or a multiplier below 1.
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
        """Whether fewer calls were made than allowed."""
        return current_attempts < self._most

    def get_backoff_time_millis(self, current_attempts: int) -> int:
        """Grows with the number of calls; there is no state, so records do not disturb each other."""
        pause: float = self._first
        for _ in range(current_attempts - 1):
            pause *= self._factor
            if pause >= self._longest:
                return self._longest
        return min(int(pause), self._longest)

    def get_retry_predicate(self) -> AsyncRetryPredicate[OUT]:
        """As given."""
        return self._predicate


def _at_least(name: str, value: int, least: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} is an int, not {type(value).__name__}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, not {value}")
    return value

"""``AsyncDataStream`` builds the right operator, and refuses what can't work at once."""

from __future__ import annotations

from typing import Any

import pytest

from firesteel.common import Types
from firesteel.common.time import Time
from firesteel.datastream import AsyncDataStream, AsyncFunction, AsyncRetryStrategy, DataStream
from firesteel.datastream.async_retry_predicates import empty_result_predicate
from firesteel.datastream.async_retry_strategies import FixedDelayRetryStrategy, NoRetryStrategy
from firesteel.graph.specs import OperatorKind


class Looks(AsyncFunction[Any, Any]):
    async def async_invoke(self, value: Any) -> list[Any]:
        return [value]


class Blocks(AsyncFunction[Any, Any]):
    def async_invoke(self, value: Any) -> Any:
        return [value]


RETRY = AsyncRetryStrategy.fixed_delay(3, 10, empty_result_predicate, None)


def test_the_operator_holds_what_was_said(pairs: DataStream) -> None:
    stream = AsyncDataStream.ordered_wait_with_retry(pairs, Looks(), Time.seconds(2), RETRY, 7, Types.STRING())
    operator = stream._inputs[0].source
    assert operator.kind is OperatorKind.ASYNC_WAIT
    assert operator.extra == {"ordered": True, "capacity": 7, "timeout_ms": 2000, "retry": RETRY}
    assert stream.get_type() == Types.STRING()
    plain = AsyncDataStream.unordered_wait(pairs, Looks(), Time.seconds(0))._inputs[0].source
    assert plain.extra == {"ordered": False, "capacity": 100, "timeout_ms": 0, "retry": None}


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("stream", Looks(), Time.seconds(1)), TypeError, "data_stream is a DataStream"),
        ((None, Looks, Time.seconds(1)), TypeError, r"write Looks\(\)"),
        ((None, Blocks(), Time.seconds(1)), TypeError, "has to be a coroutine function"),
        ((None, len, Time.seconds(1)), TypeError, "takes an AsyncFunction"),
        ((None, Looks(), 1000), TypeError, "timeout is a Time"),
        ((None, Looks(), Time.milliseconds(-1)), ValueError, "timeout"),
        ((None, Looks(), Time.seconds(1), 0), ValueError, "capacity"),
    ],
)
def test_bad_arguments_are_refused(pairs: DataStream, arguments: Any, error: type[Exception], message: str) -> None:
    with_stream = (pairs if arguments[0] is None else arguments[0], *arguments[1:])
    with pytest.raises(error, match=message):
        AsyncDataStream.unordered_wait(*with_stream)


def test_retries_need_a_strategy_and_a_time_out(pairs: DataStream) -> None:
    with pytest.raises(TypeError, match="AsyncRetryStrategy"):
        AsyncDataStream.unordered_wait_with_retry(pairs, Looks(), Time.seconds(1), 3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="more than 0"):
        AsyncDataStream.unordered_wait_with_retry(pairs, Looks(), Time.seconds(0), RETRY)


def test_strategies_check_their_numbers() -> None:
    assert not NoRetryStrategy[Any]().can_retry(1)
    assert FixedDelayRetryStrategy[Any](3, 5, None, None).can_retry(2)
    assert not FixedDelayRetryStrategy[Any](3, 5, None, None).can_retry(3)
    with pytest.raises(ValueError, match="max_attempts"):
        AsyncRetryStrategy.fixed_delay(0, 5, None, None)
    with pytest.raises(ValueError, match="multiplier"):
        AsyncRetryStrategy.exponential_backoff(3, 5, 50, 0.5, None, None)
    with pytest.raises(ValueError, match="max_retry_delay"):
        AsyncRetryStrategy.exponential_backoff(3, 50, 5, 2.0, None, None)
    with pytest.raises(TypeError, match="result_predicate"):
        AsyncRetryStrategy.fixed_delay(3, 5, "empty", None)  # type: ignore[arg-type]

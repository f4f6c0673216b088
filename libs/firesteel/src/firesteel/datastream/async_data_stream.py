"""``AsyncDataStream``: functions that wait for others, many records at a time. PyFlink's names and signatures."""

from __future__ import annotations

import inspect
from typing import Any

from firesteel.common.time import Span, whole_millis
from firesteel.common.typeinfo import TypeDescriptor
from firesteel.datastream import checks
from firesteel.datastream.data_stream import DataStream
from firesteel.functions.async_functions import AsyncFunction, AsyncRetryStrategy
from firesteel.graph.specs import OperatorKind

__all__ = ["AsyncDataStream"]

_NAME = "async wait operator"


class AsyncDataStream:
    """Puts an ``AsyncFunction`` behind a stream.

    The coroutines of an operator's records run side by side on an asyncio loop in a thread of its own; ``capacity``
    bounds how many, results that wait for their turn included. When it is reached the operator takes no more records.
    Results carry the timestamps of their records, and none of them passes a watermark.

    Examples:
        ```python
        from firesteel.common import Time
        from firesteel.datastream import AsyncDataStream, AsyncFunction, StreamExecutionEnvironment


        class Price(AsyncFunction):
            async def async_invoke(self, value):
                return [(value, len(value))]  # await a request here


        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
        goods = env.from_collection(["tea", "milk"])
        priced = AsyncDataStream.ordered_wait(goods, Price(), Time.seconds(5), capacity=100)
        print(list(priced.execute_and_collect()))
        ```

        ```text
        [('tea', 3), ('milk', 4)]
        ```
    """

    @staticmethod
    def unordered_wait(
        data_stream: DataStream,
        async_function: AsyncFunction[Any, Any],
        timeout: Span,
        capacity: int = 100,
        output_type: TypeDescriptor | None = None,
    ) -> DataStream:
        """Results leave as soon as they are there.

        Args:
            data_stream: the records.
            async_function: called for each of them.
            timeout: for a record; then ``AsyncFunction.timeout`` is called. 0 = none.
            capacity: records that are being worked on at once, at most.
            output_type: of the results.

        Raises:
            TypeError, ValueError: an argument is not what it has to be.
        """
        return _wait(data_stream, async_function, timeout, capacity, output_type, None, ordered=False)

    @staticmethod
    def unordered_wait_with_retry(
        data_stream: DataStream,
        async_function: AsyncFunction[Any, Any],
        timeout: Span,
        async_retry_strategy: AsyncRetryStrategy[Any],
        capacity: int = 100,
        output_type: TypeDescriptor | None = None,
    ) -> DataStream:
        """Like ``unordered_wait``; calls that failed are tried again.

        The timeout is for all calls of a record together, and must be more than 0.
        """
        retry = _checked_retry(async_retry_strategy, timeout)
        return _wait(data_stream, async_function, timeout, capacity, output_type, retry, ordered=False)

    @staticmethod
    def ordered_wait(
        data_stream: DataStream,
        async_function: AsyncFunction[Any, Any],
        timeout: Span,
        capacity: int = 100,
        output_type: TypeDescriptor | None = None,
    ) -> DataStream:
        """Results leave in the order of their records; otherwise as ``unordered_wait``."""
        return _wait(data_stream, async_function, timeout, capacity, output_type, None, ordered=True)

    @staticmethod
    def ordered_wait_with_retry(
        data_stream: DataStream,
        async_function: AsyncFunction[Any, Any],
        timeout: Span,
        async_retry_strategy: AsyncRetryStrategy[Any],
        capacity: int = 100,
        output_type: TypeDescriptor | None = None,
    ) -> DataStream:
        """Results leave in the order of their records; otherwise as ``unordered_wait_with_retry``."""
        retry = _checked_retry(async_retry_strategy, timeout)
        return _wait(data_stream, async_function, timeout, capacity, output_type, retry, ordered=True)


def _checked_retry(strategy: Any, timeout: Any) -> AsyncRetryStrategy[Any]:
    if not isinstance(strategy, AsyncRetryStrategy):
        raise TypeError(
            "async_retry_strategy is an AsyncRetryStrategy such as AsyncRetryStrategy.fixed_delay(...), "
            f"not {type(strategy).__name__}"
        )
    if whole_millis("timeout", timeout) == 0:
        raise ValueError("with retries the timeout must be more than 0: it is what ends them")
    return strategy


def _wait(
    stream: Any,
    function: Any,
    timeout: Any,
    capacity: Any,
    output_type: TypeDescriptor | None,
    retry: AsyncRetryStrategy[Any] | None,
    *,
    ordered: bool,
) -> DataStream:
    if not isinstance(stream, DataStream):
        raise TypeError(f"data_stream is a DataStream, not {type(stream).__name__}")
    method = "ordered_wait" if ordered else "unordered_wait"
    checks.check_class(method, function, AsyncFunction)
    if not inspect.iscoroutinefunction(function.async_invoke):
        raise TypeError(
            f"{type(function).__name__}.async_invoke has to be a coroutine function: async def async_invoke(self, "
            "value); a function that blocks belongs in map() or flat_map() with blocking = True"
        )
    declared = checks.declared_type("output_type", output_type)
    extra = {
        "ordered": ordered,
        "capacity": checks.whole_number("the capacity", capacity, 1),
        "timeout_ms": checks.whole_number("the timeout in ms", whole_millis("timeout", timeout), 0),
        "retry": retry,
    }
    return stream._environment._add_stream(
        _NAME,
        OperatorKind.ASYNC_WAIT,
        function,
        (stream._inputs,),
        declared,
        coerce_to=checks.coerced(declared),
        extra=extra,
    )

"""Asynchronous look-ups: what the modules that a program imports weigh, asked for many at a time.

The function waits for each answer without keeping others from being asked for (here a thread looks at the file system;
a client of a database or a service goes into the same place). A look-up that fails is tried again, and one that takes
too long gives an answer of its own. A counter and a distribution tell how it went, as metrics of the operator.

Run it with ``python examples/async_lookup.py [MODULE ...]``.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import sys

from firesteel.common import Time, Types
from firesteel.datastream import AsyncDataStream, AsyncFunction, AsyncRetryStrategy, StreamExecutionEnvironment
from firesteel.datastream.functions import RuntimeContext

MODULES = ["argparse", "ast", "csv", "inspect", "json", "logging", "no_such_module", "random", "sys", "tarfile"]


class ServiceError(Exception):
    """The first question about a name gets no answer, as with a service that is just starting."""


class SizeOf(AsyncFunction[str, tuple[str, int]]):
    """Name of a module -> name and size in bytes; -1 if it has no source."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.asked: set[str] = set()
        group = runtime_context.get_metrics_group()
        self.failed, self.sizes = group.counter("failed"), group.distribution("sizes")

    async def async_invoke(self, value: str) -> list[tuple[str, int]]:
        if value not in self.asked:
            self.asked.add(value)
            self.failed.inc()
            raise ServiceError(f"no answer about {value}")
        size = await asyncio.to_thread(_size, value)
        self.sizes.update(size)
        return [(value, size)]

    def timeout(self, value: str) -> list[tuple[str, int]]:
        return [(value, -2)]


def _size(name: str) -> int:
    spec = importlib.util.find_spec(name)
    origin = None if spec is None else spec.origin
    return os.stat(origin).st_size if origin is not None and os.path.exists(origin) else -1


def main(names: list[str]) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    again: AsyncRetryStrategy[tuple[str, int]] = AsyncRetryStrategy.fixed_delay(
        max_attempts=3,
        backoff_time_millis=10,
        result_predicate=None,
        exception_predicate=lambda error: isinstance(error, ServiceError),
    )
    asked = AsyncDataStream.ordered_wait_with_retry(
        env.from_collection(names, Types.STRING()),
        SizeOf(),
        Time.seconds(30),
        again,
        capacity=5,
        output_type=Types.TUPLE([Types.STRING(), Types.LONG()]),
    )
    asked.set_parallelism(1)  # each subtask keeps the order of what it was given
    with asked.execute_and_collect("Look-ups") as results:
        for name, size in results:
            print(f"{name}: {'no source' if size < 0 else f'{size} bytes'}")


if __name__ == "__main__":
    main(sys.argv[1:] or MODULES)

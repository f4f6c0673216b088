"""Asynchronous functions and metrics of user functions in real slots."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest

from firesteel.common.time import Time
from firesteel.core.errors import JobFailedError
from firesteel.datastream import AsyncDataStream, AsyncFunction, AsyncRetryStrategy, RuntimeContext
from firesteel.datastream.async_retry_predicates import has_exception_predicate
from tests.integration.embedded.programs import ended, new_environment, rest_of

pytestmark = pytest.mark.usefixtures("cluster")


class Looks(AsyncFunction[int, tuple[int, int]]):
    """Answers out of order; the first call for each seventh number fails."""

    def open(self, runtime_context: RuntimeContext) -> None:
        asyncio.get_running_loop()
        group = runtime_context.get_metrics_group().add_group("lookup")
        self.calls = group.counter("calls")
        self.sizes = group.distribution("size")
        group.gauge("pid", os.getpid)
        self.failed: set[int] = set()

    async def async_invoke(self, value: int) -> list[tuple[int, int]]:
        self.calls.inc()
        self.sizes.update(value)
        await asyncio.sleep((value % 3) / 1000)
        if value % 7 == 0 and value not in self.failed:
            self.failed.add(value)
            raise ConnectionError(value)
        return [(value, value * value)]


RETRY: AsyncRetryStrategy[Any] = AsyncRetryStrategy.fixed_delay(3, 1, None, has_exception_predicate)


@pytest.mark.parametrize("ordered", [True, pytest.param(False, marks=pytest.mark.long)])
def test_all_results_arrive(ordered: bool) -> None:
    env = new_environment(2)
    numbers = env.from_sequence(1, 500)
    wait = AsyncDataStream.ordered_wait_with_retry if ordered else AsyncDataStream.unordered_wait_with_retry
    squares = wait(numbers, Looks(), Time.seconds(60), RETRY, 20)
    with squares.map(lambda pair: pair).execute_and_collect() as results:
        assert sorted(results) == [(n, n * n) for n in range(1, 501)]


class Refuses(AsyncFunction[int, int]):
    async def async_invoke(self, value: int) -> list[int]:
        raise LookupError(f"no customer {value}")


def test_what_a_call_raises_reaches_the_program() -> None:
    env = new_environment()
    AsyncDataStream.unordered_wait(env.from_collection([17]), Refuses(), Time.seconds(60)).print()
    with pytest.raises(JobFailedError, match="no customer 17"):
        env.execute()


class Hangs(AsyncFunction[int, int]):
    async def async_invoke(self, value: int) -> list[int]:
        await asyncio.Event().wait()
        return []


def test_a_time_out_reaches_the_program() -> None:
    env = new_environment()
    AsyncDataStream.unordered_wait(env.from_collection([18]), Hangs(), Time.milliseconds(20)).print()
    with pytest.raises(JobFailedError, match="did not return in time for 18"):
        env.execute()


def test_metrics_of_functions_are_in_flinks_paths() -> None:
    env = new_environment(2)
    looked = AsyncDataStream.unordered_wait_with_retry(
        env.from_sequence(1, 100), Looks(), Time.seconds(60), RETRY, output_type=None
    )
    looked.name("look up").print("metrics")
    job = env.execute_async()
    ended(job)
    (vertex,) = [v for v in rest_of(job)["vertices"] if "look up" in v["name"]]
    where = f"/vertices/{vertex['id']}"
    name = "look_up.lookup.calls"
    assert {"id": f"0.{name}"} in rest_of(job, f"{where}/metrics")
    plain = rest_of(job, f"{where}/metrics?get=0.{name},1.{name}")
    calls = 100 + 100 // 7
    assert job.get_accumulators().result() == {name: calls}
    assert job.get_job_execution_result().result().get_accumulator_result(name) == calls
    assert sum(int(metric["value"]) for metric in plain) == calls
    (total,) = rest_of(job, f"{where}/subtasks/metrics?get={name}&agg=sum,max")
    assert (total["sum"], set(total)) == (calls, {"id", "sum", "max"})
    (size,) = rest_of(job, f"{where}/subtasks/metrics?get=look_up.lookup.size_max&agg=max")
    assert size["max"] == 100
    assert rest_of(job, f"{where}/subtasks/metrics?get={name},nobody") == []
    assert rest_of(job, f"{where}/subtasks/0/metrics?get=look_up.lookup.pid") != []

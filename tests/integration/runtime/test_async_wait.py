"""``AsyncDataStream``'s operator in a task: order, capacity, time-outs, retries, failures, cancel."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from firesteel.core.clock import SystemClock
from firesteel.functions.async_functions import (
    AsyncFunction,
    AsyncRetryStrategy,
    ExponentialBackoffDelayRetryStrategy,
    empty_result_predicate,
    exception_type_predicate,
    has_exception_predicate,
)
from firesteel.functions.checkpointed import CheckpointedFunction, CheckpointListener
from firesteel.functions.functions import KeySelector
from firesteel.graph.execution_states import ExecutionState as E
from firesteel.graph.specs import OperatorKind, OutputSpec, PartitionerKind
from firesteel.runtime.chain.chain import ChainPlan
from firesteel.runtime.chain.partitioners import SingleOutput
from firesteel.runtime.loop.interrupts import CancelToken, InterruptGuard
from firesteel.runtime.loop.loop import TaskLoop
from firesteel.runtime.operator_base.context import OperatorContext
from firesteel.runtime.records.batch import END_OF_INPUT, Barrier, Batch, InBand, Watermark
from firesteel.runtime.task.channel_inputs import ChannelInputs
from firesteel.runtime.task.task import StreamTask
from tests.unit.runtime.support import INFO, FakeInput, FakeOutput, Reports, line, spec

DEADLINE = 60.0


class Bench:
    """A task whose chain is: asynchronous call, then a map that writes down what passes."""

    def __init__(
        self,
        function: AsyncFunction[Any, Any],
        *,
        ordered: bool = False,
        capacity: int = 100,
        timeout_ms: int = 0,
        retry: AsyncRetryStrategy[Any] | None = None,
        key: Any = None,
    ) -> None:
        clock = SystemClock()
        self.loop, self.reports, self.token = TaskLoop(clock), Reports(), CancelToken()
        extra = {"ordered": ordered, "capacity": capacity, "timeout_ms": timeout_ms, "retry": retry}
        wait = spec(OperatorKind.ASYNC_WAIT, function, name="call", extra=extra)
        edge = OutputSpec(1, 0, PartitionerKind.FORWARD)
        outputs = [edge] if key is None else [edge, OutputSpec(0, 1, PartitionerKind.HASH, key_selector=key)]
        self.plan = ChainPlan(line(wait, spec(OperatorKind.MAP, lambda value: value), outputs=outputs))
        self.input, self.output = FakeInput(), FakeOutput()
        self.plan.stage_of[1].outlet.outputs.append(SingleOutput("op", [self.output]))
        inputs = ChannelInputs([(self.input, 0)], on_readable=lambda: self.task.wake())
        context = OperatorContext(INFO, clock)
        guard = InterruptGuard()
        self.task = StreamTask(
            INFO, self.plan, inputs, [(self.output, 100)], context, self.loop, guard, self.token, self.reports
        )
        self.task.start()

    def give(self, *items: Batch | InBand) -> None:
        self.input.give(*items)

    def until(self, condition: Callable[[], bool]) -> None:
        """Run the loop until something holds; the deadline is for a broken operator only."""
        deadline = time.monotonic() + DEADLINE
        tick = self.loop.call_later
        while not condition():
            assert time.monotonic() < deadline, "it never came"
            handle = tick(0.02, lambda: None)
            self.loop.run_once()
            handle.cancel()

    def finish(self) -> list[Any]:
        self.until(lambda: self.task.ended)
        self.loop.close()
        return self.output.values

    def cancel(self) -> None:
        self.task.cancel()
        self.loop.close()


class Gates(AsyncFunction[Any, Any]):
    """Each call waits until the test opens its gate."""

    def __init__(self) -> None:
        self.entered: list[Any] = []
        self.left: list[Any] = []
        self.events: dict[Any, asyncio.Event] = {}
        self.opened_in = self.closed_in = ""

    def open(self, runtime_context: Any) -> None:
        self.loop = asyncio.get_running_loop()
        self.opened_in = threading.current_thread().name

    def close(self) -> None:
        assert asyncio.get_running_loop() is self.loop
        self.closed_in = threading.current_thread().name

    async def async_invoke(self, value: Any) -> list[Any]:
        event = self.events[value] = asyncio.Event()
        self.entered.append(value)
        try:
            await event.wait()
        finally:
            self.left.append(value)
        return [f"r{value}"]

    def let(self, *values: Any) -> None:
        for value in values:
            self.loop.call_soon_threadsafe(self.events[value].set)


class Doubles(AsyncFunction[Any, Any]):
    async def async_invoke(self, value: Any) -> list[Any]:
        await asyncio.sleep(0)
        return [value, value]


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("capacity", [1, 7, 1000])
def test_all_results_come(ordered: bool, capacity: int) -> None:
    bench = Bench(Doubles(), ordered=ordered, capacity=capacity)
    bench.give(Batch(list(range(300)), list(range(300))), Batch(list(range(300, 500)), None), END_OF_INPUT)
    values = bench.finish()
    expected = [number for number in range(500) for _ in range(2)]
    assert (values if ordered else sorted(values)) == expected
    stamps = bench.output.timestamps
    assert sorted(s for s in stamps if s is not None) == [number for number in range(300) for _ in range(2)]
    by_value = {value: stamp for value, stamp in zip(values, stamps, strict=True)}
    assert all(by_value[number] == (number if number < 300 else None) for number in range(500))
    assert bench.reports.states[-1] is E.FINISHED


def test_unordered_results_overtake() -> None:
    gates = Gates()
    bench = Bench(gates)
    bench.give(Batch([1, 2, 3], None))
    bench.until(lambda: len(gates.entered) == 3)
    gates.let(3)
    bench.until(lambda: bench.output.values == ["r3"])
    gates.let(1)
    bench.until(lambda: bench.output.values == ["r3", "r1"])
    bench.give(END_OF_INPUT)
    gates.let(2)
    assert bench.finish() == ["r3", "r1", "r2"]


def test_ordered_results_wait_for_the_first() -> None:
    gates = Gates()
    bench = Bench(gates, ordered=True)
    bench.give(Batch([1, 2, 3], None))
    bench.until(lambda: len(gates.entered) == 3)
    gates.let(3, 2)
    bench.until(lambda: len(gates.left) == 2)
    assert bench.output.values == []
    gates.let(1)
    bench.give(END_OF_INPUT)
    assert bench.finish() == ["r1", "r2", "r3"]


def test_capacity_bounds_calls_and_holds_back_the_input() -> None:
    gates = Gates()
    bench = Bench(gates, capacity=2)
    bench.give(Batch([1, 2, 3], None), Batch([4], None), Batch([5], None))
    bench.until(lambda: len(gates.entered) == 2)
    bench.until(lambda: not bench.task.runnable)
    assert gates.entered == [1, 2]
    assert bench.input.items, "the input was read although nothing more could be begun"
    gates.let(2)
    bench.until(lambda: len(gates.entered) == 3)  # its thread may be ahead of what the task does with the result
    bench.until(lambda: bench.output.values == ["r2"])
    assert gates.entered == [1, 2, 3]
    gates.let(1, 3)
    bench.until(lambda: len(gates.entered) == 5)
    gates.let(4, 5)
    bench.give(END_OF_INPUT)
    assert sorted(bench.finish()) == ["r1", "r2", "r3", "r4", "r5"]


def test_a_full_output_holds_back_the_calls() -> None:
    bench = Bench(Doubles(), capacity=3)
    bench.output.writable = False
    bench.give(Batch(list(range(50)), None), END_OF_INPUT)
    bench.until(lambda: len(bench.output.values) >= 1)
    seen = len(bench.output.values)
    assert seen <= 6, "a full output was written to"
    bench.output.open_up()
    assert len(bench.finish()) == 100


def test_open_and_close_are_on_the_loop() -> None:
    gates = Gates()
    bench = Bench(gates)
    bench.give(END_OF_INPUT)
    bench.finish()
    assert gates.opened_in == gates.closed_in == "firesteel-async call"


class Life(KeySelector[Any, Any]):
    """Writes down what becomes of it."""

    def __init__(self) -> None:
        self.log: list[str] = []

    def open(self, runtime_context: Any) -> None:
        self.log.append(f"open {threading.current_thread().name}")

    def close(self) -> None:
        self.log.append(f"close {threading.current_thread().name}")

    def get_key(self, value: Any) -> Any:
        return value


@pytest.mark.parametrize("raises", [False, True])
def test_a_key_selector_behind_it_is_opened_and_closed(raises: bool) -> None:
    class Closes(Doubles):
        def close(self) -> None:
            if raises:
                raise OSError("while closing")

    selector = Life()
    bench = Bench(Closes(), key=selector)
    here = threading.current_thread().name
    assert selector.log == [f"open {here}"]
    bench.give(END_OF_INPUT)
    bench.finish()
    assert selector.log == [f"open {here}", f"close {here}"]
    assert bench.reports.states[-1] is (E.FAILED if raises else E.FINISHED)


class Coroutines(AsyncFunction[Any, Any]):
    """Its connection is made and left by coroutines."""

    def __init__(self) -> None:
        self.connected, self.log = False, list[str]()

    async def open(self, runtime_context: Any) -> None:  # type: ignore[override]
        await asyncio.sleep(0)
        self.connected = True
        self.log.append("open")

    async def close(self) -> None:  # type: ignore[override]
        await asyncio.sleep(0)
        self.log.append("close")

    async def async_invoke(self, value: Any) -> list[Any]:
        assert self.connected
        return [value]


def test_open_and_close_may_be_coroutine_functions() -> None:
    function = Coroutines()
    bench = Bench(function)
    bench.give(Batch([1], None), END_OF_INPUT)
    assert bench.finish() == [1]
    assert function.log == ["open", "close"]


def test_calls_are_awaited_in_a_task_that_is_cancelled() -> None:
    function = Coroutines()
    bench = Bench(function)
    bench.give(Batch([1], None))
    bench.cancel()
    assert function.log == ["open", "close"]


class Buffering(Doubles, CheckpointedFunction, CheckpointListener):
    def __init__(self) -> None:
        self.log: list[str] = []

    def initialize_state(self, context: Any) -> None:
        self.note("initialize")

    def open(self, runtime_context: Any) -> None:
        self.note("open")

    def snapshot_state(self, context: Any) -> None:
        self.note("snapshot")

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self.note(f"complete {checkpoint_id}")

    def note(self, what: str) -> None:
        assert asyncio.get_running_loop()
        self.log.append(what)


def test_the_operator_takes_part_in_checkpoints() -> None:
    function = Buffering()
    bench = Bench(function)
    bench.give(Barrier(1, 0))
    bench.until(lambda: "snapshot" in function.log)
    bench.task.checkpoint_complete(1)
    bench.until(lambda: "complete 1" in function.log)
    assert function.log == ["initialize", "open", "snapshot", "complete 1"]
    bench.cancel()


async def cancelled_future() -> None:
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    await future


async def exits_in_a_task() -> None:
    async def exits() -> None:
        raise SystemExit(3)

    await asyncio.create_task(exits())


async def stops_the_loop() -> None:
    asyncio.get_running_loop().stop()
    await asyncio.Event().wait()


async def exits() -> None:
    raise SystemExit(3)


@pytest.mark.parametrize(
    ("what", "error", "operator"),
    [
        (cancelled_future, "ProgramError", "call"),
        (exits_in_a_task, "SystemExit", None),
        (stops_the_loop, "ProgramError", "call"),
        (exits, "SystemExit", "call"),
    ],
)
def test_whatever_a_call_raises_fails_the_task(what: Any, error: str, operator: str | None) -> None:
    class Raises(AsyncFunction[Any, Any]):
        closed = False

        def close(self) -> None:
            self.closed = True

        async def async_invoke(self, value: Any) -> list[Any]:
            await what()
            return []

    function = Raises()
    bench = Bench(function)
    bench.give(Batch(["x"], None))
    bench.finish()
    failure = bench.reports.failure
    assert failure is not None
    assert failure.error_class.endswith(error)
    if operator is not None:
        assert failure.operator == operator
    assert function.closed


@pytest.mark.parametrize("error", [SystemExit(3), asyncio.CancelledError()], ids=repr)
def test_whatever_open_raises_fails_the_task(error: BaseException) -> None:
    class Raises(Doubles):
        async def open(self, runtime_context: Any) -> None:  # type: ignore[override]
            raise error

    bench = Bench(Raises())
    bench.finish()
    assert bench.reports.states[-1] is E.FAILED


class Fails(AsyncFunction[Any, Any]):
    async def async_invoke(self, value: Any) -> list[Any]:
        if value == "bad":
            raise LookupError("no such customer")
        return [value]


def test_an_exception_names_operator_and_record() -> None:
    bench = Bench(Fails())
    bench.give(Batch(["good", "bad"], None))
    bench.finish()
    failure = bench.reports.failure
    assert failure is not None
    assert (failure.kind, failure.error_class, failure.message) == ("user", "LookupError", "no such customer")
    assert (failure.operator, failure.record) == ("call", "'bad'")
    assert "async_invoke" in failure.traceback
    assert "calls.py" not in failure.traceback


class FailsToOpen(AsyncFunction[Any, Any]):
    def open(self, runtime_context: Any) -> None:
        raise ConnectionError("nobody there")

    async def async_invoke(self, value: Any) -> list[Any]:
        return []


def test_open_that_raises_fails_the_task() -> None:
    bench = Bench(FailsToOpen())
    bench.finish()
    assert bench.reports.failure is not None
    assert bench.reports.failure.message == "nobody there"


@pytest.mark.parametrize("results", [5, "text"])
def test_results_have_to_be_a_list(results: Any) -> None:
    class Wrong(AsyncFunction[Any, Any]):
        async def async_invoke(self, value: Any) -> Any:
            return results

    bench = Bench(Wrong())
    bench.give(Batch([1], None))
    bench.finish()
    assert bench.reports.failure is not None
    assert "async_invoke returned" in bench.reports.failure.message


def test_cancel_ends_the_calls() -> None:
    gates = Gates()
    bench = Bench(gates, capacity=2)
    bench.give(Batch([1, 2, 3], None))
    bench.until(lambda: len(gates.entered) == 2)
    bench.cancel()
    assert sorted(gates.left) == [1, 2], "the coroutines saw no CancelledError"
    assert gates.closed_in
    assert bench.reports.states[-1] is E.CANCELED


class Never(AsyncFunction[Any, Any]):
    async def async_invoke(self, value: Any) -> list[Any]:
        await asyncio.Event().wait()
        return []


def test_a_time_out_fails_the_task() -> None:
    bench = Bench(Never(), timeout_ms=10)
    bench.give(Batch(["slow"], None))
    bench.finish()
    failure = bench.reports.failure
    assert failure is not None
    assert failure.error_class == "TimeoutError"
    assert "'slow'" in failure.message
    assert failure.record == "'slow'"


@pytest.mark.parametrize("as_coroutine", [True, False])
def test_a_time_out_may_give_results(as_coroutine: bool) -> None:
    class Falls(Never):
        def timeout(self, value: Any) -> Any:
            return self.later(value) if as_coroutine else [f"late {value}"]

        async def later(self, value: Any) -> list[Any]:
            return [f"late {value}"]

    bench = Bench(Falls(), timeout_ms=10)
    bench.give(Batch([1], None), END_OF_INPUT)
    assert bench.finish() == ["late 1"]


def test_a_time_out_of_the_function_itself_is_its_own() -> None:
    class Own(AsyncFunction[Any, Any]):
        async def async_invoke(self, value: Any) -> list[Any]:
            raise TimeoutError("the server said so")

        def timeout(self, value: Any) -> list[Any]:
            return ["never"]

    bench = Bench(Own(), timeout_ms=60_000)
    bench.give(Batch([1], None))
    bench.finish()
    assert bench.reports.failure is not None
    assert bench.reports.failure.message == "the server said so"


class Flaky(AsyncFunction[Any, Any]):
    """Fails until it was called so often for a record."""

    def __init__(self, good_at: int, error: Exception | None = None) -> None:
        self.good_at, self.error = good_at, error
        self.calls = 0

    async def async_invoke(self, value: Any) -> list[Any]:
        self.calls += 1
        if self.calls < self.good_at:
            if self.error is not None:
                raise self.error
            return []
        return [f"{value} at {self.calls}"]


def test_retry_on_exceptions() -> None:
    retry: AsyncRetryStrategy[Any] = AsyncRetryStrategy.fixed_delay(5, 1, None, has_exception_predicate)
    bench = Bench(Flaky(3, ConnectionError("gone")), timeout_ms=60_000, retry=retry)
    bench.give(Batch(["x"], None), END_OF_INPUT)
    assert bench.finish() == ["x at 3"]


def test_retry_on_results_until_no_more_may_be_made() -> None:
    retry = ExponentialBackoffDelayRetryStrategy[Any](2, 1, 4, 2.0, empty_result_predicate, None)
    function = Flaky(3)
    bench = Bench(function, timeout_ms=60_000, retry=retry)
    bench.give(Batch(["x"], None), END_OF_INPUT)
    assert bench.finish() == []
    assert function.calls == 2


def test_other_exceptions_are_final() -> None:
    expected = partial(exception_type_predicate, expected_error_type=ConnectionError)
    retry: AsyncRetryStrategy[Any] = AsyncRetryStrategy.fixed_delay(5, 1, None, expected)
    function = Flaky(3, KeyError("k"))
    bench = Bench(function, timeout_ms=60_000, retry=retry)
    bench.give(Batch(["x"], None))
    bench.finish()
    assert function.calls == 1
    assert bench.reports.failure is not None
    assert bench.reports.failure.error_class == "KeyError"


def test_the_time_out_ends_retries() -> None:
    retry: AsyncRetryStrategy[Any] = AsyncRetryStrategy.fixed_delay(1_000_000, 1, empty_result_predicate, None)
    bench = Bench(Flaky(1_000_000_000), timeout_ms=50, retry=retry)
    bench.give(Batch(["x"], None))
    bench.finish()
    assert bench.reports.failure is not None
    assert bench.reports.failure.error_class == "TimeoutError"


def test_pauses_grow() -> None:
    strategy = ExponentialBackoffDelayRetryStrategy[Any](9, 100, 1000, 3.0, None, None)
    assert [strategy.get_backoff_time_millis(n) for n in range(1, 6)] == [100, 300, 900, 1000, 1000]


@pytest.mark.parametrize("ordered", [True, False])
def test_watermarks_keep_their_place(ordered: bool) -> None:
    gates = Gates()
    bench = Bench(gates, ordered=ordered)
    bench.give(Batch([1, 2], [10, 20]), Watermark(20), Batch([3], [30]), Watermark(30), Watermark(30, True))
    bench.until(lambda: len(gates.entered) == 3)
    gates.let(3)
    bench.until(lambda: 3 in gates.left)
    gates.let(2)
    bench.until(lambda: 2 in gates.left)
    assert bench.output.elements == []
    gates.let(1)
    bench.until(lambda: len(bench.output.elements) == 3)
    assert bench.output.elements == [(2, Watermark(20)), (3, Watermark(30)), (3, Watermark(30, True))]
    assert bench.output.values == (["r1", "r2", "r3"] if ordered else ["r2", "r1", "r3"])
    bench.cancel()

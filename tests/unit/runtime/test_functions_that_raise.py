"""Whatever a function of the user raises, ``StopIteration`` above all: an error, never fewer results."""

from __future__ import annotations

import ast
import builtins
import os
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from firesteel.common import Configuration, Encoder, Time, TimestampAssigner, Types, WatermarkStrategy
from firesteel.common.watermark_strategy import WatermarkGenerator
from firesteel.core.call_each import call_each
from firesteel.datastream import (
    AggregateFunction,
    AsyncFunction,
    BroadcastProcessFunction,
    CoFlatMapFunction,
    CoGroupFunction,
    CoMapFunction,
    CoProcessFunction,
    DataStream,
    JoinFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    KeyedStream,
    OutputTag,
    ProcessFunction,
    ProcessJoinFunction,
    ProcessWindowFunction,
    SinkFunction,
    StreamExecutionEnvironment,
    WindowFunction,
)
from firesteel.datastream.connectors.file_system import FileSink
from firesteel.datastream.state import MapStateDescriptor
from firesteel.datastream.window import (
    CountEvictor,
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from firesteel.graph.specs import OperatorKind
from firesteel.protocol.deployment import TaskFailure
from firesteel.protocol.stages import failure_in
from firesteel.runtime.operator_base.failures import describe_failure
from tests.unit.runtime.support import INFO, line, opened, run, spec
from tests.unit.runtime.test_bounded import Spark
from tests.unit.runtime.whole_graphs import WholeGraph

BAD = 7
COUNT = 20
TAG = OutputTag("odd", Types.INT())
RULES = MapStateDescriptor("rules", Types.INT(), Types.INT())
RAISES: list[Callable[[], None]] = []
"""What ``checked`` does at the bad record; the last one counts."""


def checked(value: Any, *_: Any) -> Any:
    if value == BAD:
        RAISES[-1]()
    return value


def stop() -> None:
    next(iter(()))


def leave() -> None:
    raise SystemExit("a user's exit")


def interrupt() -> None:
    raise KeyboardInterrupt


def end_generator() -> None:
    raise GeneratorExit


def second(value: Any, *more: Any) -> Any:
    return checked(more[0])


class Assigner(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(checked(value))


class Plain(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value)


class Generator(WatermarkGenerator):  # type: ignore[misc,type-arg,unused-ignore]
    def on_event(self, event: Any, event_timestamp: int, output: Any) -> None:
        checked(event)

    def on_periodic_emit(self, output: Any) -> None: ...


class Aggregation(AggregateFunction):  # type: ignore[type-arg]
    def __init__(self, where: str) -> None:
        self.where = where

    def create_accumulator(self) -> Any:
        return checked(BAD if self.where == "create" else 0)

    def add(self, value: Any, accumulator: Any) -> Any:
        return checked(value) if self.where == "add" else value

    def get_result(self, accumulator: Any) -> Any:
        return checked(BAD) if self.where == "result" else accumulator

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        return checked(BAD) if self.where == "merge" else acc_a


class Windowed(WindowFunction):  # type: ignore[type-arg]
    def apply(self, key: Any, window: Any, inputs: Any) -> Any:
        return [checked(value) for value in inputs]


class WindowedLazily(ProcessWindowFunction):  # type: ignore[type-arg]
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        for value in elements:
            yield checked(value)


class Process(ProcessFunction):  # type: ignore[type-arg]
    def process_element(self, value: Any, ctx: Any) -> Any:
        checked(value)
        return [value]


class KeyedProcess(KeyedProcessFunction):  # type: ignore[type-arg]
    def process_element(self, value: Any, ctx: Any) -> Any:
        checked(value)
        yield value


class KeyedPass(KeyedProcessFunction):  # type: ignore[type-arg]
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value


class Timers(KeyedProcessFunction):  # type: ignore[type-arg]
    def process_element(self, value: Any, ctx: Any) -> None:
        ctx.timer_service().register_event_time_timer(value)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        checked(timestamp)
        return [timestamp]


class Sides(ProcessFunction):  # type: ignore[type-arg]
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield TAG, checked(value)


class CoMap(CoMapFunction):  # type: ignore[type-arg]
    map1 = map2 = staticmethod(checked)


class CoFlatMap(CoFlatMapFunction):  # type: ignore[type-arg]
    def flat_map1(self, value: Any) -> Any:
        return [checked(value)]

    def flat_map2(self, value: Any) -> Any:
        yield checked(value)


class CoProcess(CoProcessFunction):  # type: ignore[type-arg]
    def process_element1(self, value: Any, ctx: Any) -> Any:
        return [checked(value)]

    def process_element2(self, value: Any, ctx: Any) -> Any:
        yield value


class KeyedCoProcess(KeyedCoProcessFunction):  # type: ignore[type-arg]
    def process_element1(self, value: Any, ctx: Any) -> Any:
        yield value

    def process_element2(self, value: Any, ctx: Any) -> Any:
        return [checked(value)]


class Broadcast(BroadcastProcessFunction):  # type: ignore[type-arg]
    def __init__(self, side: int) -> None:
        self.side = side

    def process_element(self, value: Any, ctx: Any) -> Any:
        return [checked(value) if self.side == 0 else value]

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
        yield checked(value) if self.side == 1 else value


class Join(JoinFunction):  # type: ignore[type-arg]
    def join(self, first: Any, second: Any) -> Any:
        return checked(first)


class CoGroup(CoGroupFunction):  # type: ignore[type-arg]
    def co_group(self, first: Any, second: Any) -> Any:
        return [checked(value) for value in first]


class Pairs(ProcessJoinFunction):  # type: ignore[type-arg]
    def process_element(self, left: Any, right: Any, ctx: Any) -> Any:
        yield checked(left)


class Async(AsyncFunction):  # type: ignore[type-arg]
    async def async_invoke(self, value: Any) -> list[Any]:
        return [checked(value)]


class Invoke(SinkFunction):  # type: ignore[type-arg]
    def invoke(self, value: Any, context: Any) -> None:
        checked(value)


ASYNC = {"capacity": 100, "ordered": True, "timeout_ms": 0, "retry": None}


def even(value: Any) -> int:
    return int(value) % 2


def timed(stream: DataStream) -> DataStream:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Plain())
    return stream.assign_timestamps_and_watermarks(strategy)


def keyed(stream: DataStream) -> KeyedStream:
    return timed(stream).key_by(even)


TUMBLING = TumblingEventTimeWindows.of(Time.milliseconds(10))
SESSIONS = EventTimeSessionWindows.with_gap(Time.milliseconds(3))
SLIDING = SlidingEventTimeWindows.of(Time.milliseconds(10), Time.milliseconds(5))
FUNCTIONS: dict[str, Callable[[DataStream], Any]] = {
    "map": lambda s: s.map(checked),
    "map with a type": lambda s: s.map(checked, Types.INT()),
    "keyed map": lambda s: s.key_by(even).map(checked),
    "filter": lambda s: s.filter(checked),
    "keyed filter": lambda s: s.key_by(even).filter(checked),
    "flat_map": lambda s: s.flat_map(lambda value: [checked(value)]),
    "flat_map that generates": lambda s: s.flat_map(lambda value: (checked(item) for item in (value,))),
    "chained": lambda s: s.map(checked).name("guilty").map(str).map(str),
    "reduce": lambda s: s.key_by(even).reduce(second),
    "map_batches": lambda s: s.map(lambda v: (v,), Types.ROW_NAMED(["v"], [Types.INT()])).map_batches(
        lambda batch: checked(BAD), Types.ROW_NAMED(["v"], [Types.INT()])
    ),
    "timestamps": lambda s: s.assign_timestamps_and_watermarks(
        WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Assigner())
    ),
    "watermarks": lambda s: s.assign_timestamps_and_watermarks(
        WatermarkStrategy.for_generator(lambda context=None: Generator())  # type: ignore[misc]
    ),
    "key selector of a window": lambda s: timed(s).key_by(checked).window(TUMBLING).reduce(lambda a, b: a),
    "reduce of a window": lambda s: keyed(s).window(TUMBLING).reduce(second),
    "reduce of sessions": lambda s: keyed(s).window(SESSIONS).reduce(second),
    "create_accumulator": lambda s: keyed(s).window(TUMBLING).aggregate(Aggregation("create")),
    "add": lambda s: keyed(s).window(TUMBLING).aggregate(Aggregation("add")),
    "add, sliding": lambda s: keyed(s).window(SLIDING).aggregate(Aggregation("add")),
    "get_result": lambda s: keyed(s).window(TUMBLING).aggregate(Aggregation("result")),
    "merge": lambda s: timed(s.map(lambda v: v * 11 % COUNT)).key_by(lambda v: 0).window(SESSIONS).aggregate(
        Aggregation("merge")
    ),
    "apply of a window": lambda s: keyed(s).window(TUMBLING).apply(Windowed()),
    "process of a window": lambda s: keyed(s).window(TUMBLING).process(WindowedLazily()),
    "evicting window": lambda s: keyed(s).window(TUMBLING).evictor(CountEvictor.of(50)).apply(Windowed()),
    "process": lambda s: s.process(Process()),
    "keyed process": lambda s: s.key_by(even).process(KeyedProcess()),
    "timers": lambda s: keyed(s).process(Timers()),
    "side output": lambda s: s.process(Sides()),
    "co-map": lambda s: s.connect(s).map(CoMap()),
    "co-flat-map": lambda s: s.connect(s).flat_map(CoFlatMap()),
    "co-process": lambda s: s.connect(s).process(CoProcess()),
    "keyed co-process": lambda s: s.connect(s).key_by(even, even).process(KeyedCoProcess()),
    "key selectors of two": lambda s: s.connect(s).key_by(even, checked).process(KeyedCoProcess()),
    "broadcast": lambda s: s.connect(s.broadcast(RULES)).process(Broadcast(0)),
    "broadcast side": lambda s: s.connect(s.broadcast(RULES)).process(Broadcast(1)),
    "join": lambda s: timed(s).join(timed(s)).where(even).equal_to(even).window(TUMBLING).apply(Join()),
    "key selector of a join": lambda s: (
        timed(s).join(timed(s)).where(even).equal_to(checked).window(TUMBLING).apply(Join())
    ),
    "co-group": lambda s: timed(s).co_group(timed(s)).where(even).equal_to(even).window(TUMBLING).apply(CoGroup()),
    "interval join": lambda s: keyed(s)
    .interval_join(keyed(s)).between(Time.milliseconds(-2), Time.milliseconds(2)).process(Pairs()),
    "sink function": lambda s: s.add_sink(Invoke()),
    "encoder": lambda s: s.sink_to(
        FileSink.for_row_format(os.getcwd(), Encoder(lambda value: str(checked(value)).encode())).build()
    ),
}  # fmt: skip
"""Each with the operator that runs it last."""
PARTITIONED: dict[str, Callable[[DataStream], Any]] = {
    "key_by": lambda s: s.key_by(checked).process(KeyedPass()),
    "keyed reduce": lambda s: s.key_by(checked).reduce(lambda a, b: a),
    "keyed sum": lambda s: s.map(lambda v: (v, 1)).name("pairs").key_by(lambda v: checked(v[0])).sum(1),
    "selector of partition_custom": lambda s: s.partition_custom(lambda key, count: 0, checked).map(str),
    "partitioner": lambda s: s.partition_custom(lambda key, count: checked(key) % count, lambda v: v).map(str),
}
"""Each of them runs at the edge behind the operator before it, if there is one, or in the operator."""
BEFORE = {
    "key selector of a window": ("Timestamps",),
    "key selectors of two": ("before",),
    "key selector of a join": ("Tag input 2",),
}
"""Operators that run a function in front of an edge."""
OF_WINDOWS = ("get_result", "apply of a window", "process of a window", "join", "co-group")
"""They are called for a window, which is told in place of a record."""
OTHERS = {leave: "SystemExit", interrupt: "KeyboardInterrupt", end_generator: "GeneratorExit"}
"""What else a function may raise that is no ``Exception``."""
ENGINE = (
    *(
        f"firesteel/src/firesteel/{room}"
        for room in (
            "runtime", "state", "windowing", "functions", "connectors", "datastream", "common", "expressions", "graph",
        )
    ),
    *(f"firesteel-{plugin}" for plugin in ("formats", "jdbc", "kafka", "rocksdb")),
)  # fmt: skip
"""Folders in ``libs`` with what handles records."""
SAFE = {
    "convert", "decode", "inner", "of_element", "write_element",
    "self._channels.__getitem__",
    "self._look_up",  # calls a key's __hash__: the results are counted
    "self._readers[number]", "self._writers[number]",
}  # fmt: skip
"""What ``map`` and ``filter`` may call beside functions of modules: it never calls the user's code."""


@pytest.fixture(autouse=True)
def raising() -> Iterator[None]:
    RAISES.append(stop)
    yield
    RAISES.clear()


def environment(parallelism: int) -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment(Configuration()).set_parallelism(parallelism)


def streaming(env: StreamExecutionEnvironment) -> TaskFailure:
    """The failure of a program that runs as a stream; it has to fail."""
    try:
        WholeGraph(env._stream_graph(None)).run()
    except BaseException as error:
        return describe_failure(error, INFO)
    raise AssertionError("the job ended as if all were well")


def bounded(env: StreamExecutionEnvironment) -> TaskFailure:
    """The failure of a program in batch mode; it has to fail."""
    with pytest.raises(RuntimeError) as caught:
        Spark(None, env).run()
    failure = failure_in(str(caught.value))
    assert failure is not None, caught.value
    return TaskFailure.from_plain(failure.failure)


Run = Callable[[StreamExecutionEnvironment], TaskFailure]


def failure_of(name: str, run_job: Run) -> TaskFailure:
    """What comes of a program of ``FUNCTIONS``; its operator and record are checked."""
    env = environment(1)
    stream = env.from_collection(list(range(COUNT))).map(int).name("before")
    end = FUNCTIONS[name](stream)
    end.name("guilty")
    if isinstance(end, DataStream):
        end.print()
    failure = run_job(env)
    assert failure.kind == "user", failure
    assert any(part in failure.operator for part in ("guilty", *BEFORE.get(name, ()))), failure
    assert failure.record is not None, failure
    if name in OF_WINDOWS:
        assert re.fullmatch(r"TimeWindow\(start=0, end=10\) of key \d", failure.record), failure
    return failure


@pytest.mark.parametrize("run_job", [streaming, bounded])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_stop_iteration_ends_no_list_of_records(
    name: str, run_job: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "merge" and run_job is bounded:
        return  # sorted by time, sessions are never merged
    monkeypatch.chdir(tmp_path)  # files go there
    failure = failure_of(name, run_job)
    assert failure.error_class == "StopIteration"
    assert "next(iter(()))" in failure.traceback
    assert "in checked" in failure.traceback
    assert "RuntimeError" not in failure.traceback
    assert "next(iterator, default)" in failure.message


@pytest.mark.parametrize("run_job", [streaming, bounded])
@pytest.mark.parametrize("parallelism", [1, 2, 3])
@pytest.mark.parametrize("name", PARTITIONED)
def test_stop_iteration_loses_no_record_at_an_edge(name: str, parallelism: int, run_job: Run) -> None:
    env = environment(parallelism)
    PARTITIONED[name](env.from_collection(list(range(COUNT))).rebalance().map(int).name("before")).print()
    failure = run_job(env)
    assert (failure.kind, failure.error_class) == ("user", "StopIteration")
    assert failure.record in (str(BAD), f"({BAD}, 1)"), failure
    assert "next(iter(()))" in failure.traceback


@pytest.mark.parametrize("run_job", [streaming, bounded])
@pytest.mark.parametrize("name", ["map", "flat_map that generates", "add", "process of a window", "sink function"])
@pytest.mark.parametrize("other", OTHERS)
def test_what_is_no_exception_is_a_failure_too(other: Any, name: str, run_job: Run) -> None:
    RAISES.append(other)
    failure = failure_of(name, run_job)
    assert failure.error_class == OTHERS[other]
    assert f"in {other.__name__}" in failure.traceback


def test_asynchronous_calls() -> None:
    plan = opened(line(spec(OperatorKind.ASYNC_WAIT, Async(), name="guilty", extra=ASYNC), spec(OperatorKind.PRINT)))
    (stage,) = plan.async_stages
    there = threading.Event()
    stage.operator.on_results = there.set
    try:
        with pytest.raises(RuntimeError) as caught:  # noqa: PT012 - the error may be there before all is put in
            run(plan, list(range(BAD, COUNT)))
            assert there.wait(10)
            stage.operator.take()
    finally:
        stage.operator.close()
    failure = describe_failure(caught.value, INFO)
    assert (failure.operator, failure.record, failure.error_class) == ("guilty", str(BAD), "StopIteration")
    assert "in checked" in failure.traceback


def test_a_generator_of_the_user_keeps_its_meaning() -> None:
    """An iterator that a function returns ends as any iterator does; only a call may not."""
    env = environment(1)
    env.from_collection([3]).flat_map(lambda count: map(checked, range(BAD + count))).print()
    with pytest.raises(AssertionError, match="all were well"):
        streaming(env)


def test_each_value_has_its_result() -> None:
    assert call_each(str, range(3)) == ["0", "1", "2"]
    assert call_each(str, []) == []
    with pytest.raises(RuntimeError, match="function raised StopIteration") as caught:
        call_each(checked, list(range(COUNT)))
    assert isinstance(caught.value.__cause__, StopIteration)


@pytest.mark.parametrize("part", ENGINE)
def test_no_map_over_a_function_of_the_user(part: str) -> None:
    """``map`` and ``filter`` take a ``StopIteration`` for the end: ``call_each``, or a comprehension, does not."""
    root = Path(__file__).parents[3] / "libs"
    unknown = []
    files = sorted((root / part).rglob("*.py"))
    assert files
    for file in files:
        if file.name == "sizes.py":
            continue  # it measures records, and makes none
        module = ast.parse(file.read_text())
        for call in ast.walk(module):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in ("map", "filter"):
                function = ast.unparse(call.args[0])
                if function not in SAFE and not _is_of_a_module(function, module):
                    unknown.append(f"{file.relative_to(root)}:{call.lineno}: {function}")
    assert unknown == [], "use firesteel.core.call_each, or add what never calls the user's code to SAFE"


def _is_of_a_module(function: str, module: ast.Module) -> bool:
    """Whether it is a builtin, defined in the module, or imported at its top."""
    name, last = function.partition(".")[0].partition("'")[0], function.rpartition(".")[2]
    known = set(dir(builtins)) | {"b", "None"}
    methods = {node.name for node in ast.walk(module) if isinstance(node, ast.FunctionDef)}
    for node in module.body:
        if isinstance(node, ast.ClassDef):
            known.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            known |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            known |= {target.id for target in targets if isinstance(target, ast.Name)}
    return name in known or last in methods

"""Each operator kind, alone behind a fake output."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest

from firesteel.common.printing import text_of
from firesteel.common.typeinfo import ExternalTypeInfo, Types
from firesteel.common.types import Row, RowKind
from firesteel.core.errors import KeyTypeError, ProgramError, TypeMismatchError, UnsupportedFeatureError
from firesteel.functions.functions import (
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    FilterFunction,
    FlatMapFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    ProcessFunction,
    ReduceFunction,
    SinkFunction,
)
from firesteel.functions.sink import Sink, SinkWriter
from firesteel.functions.sink_stages import SinkStage, StageFactory
from firesteel.functions.state import ValueState, ValueStateDescriptor
from firesteel.functions.two_phase import Committer, TwoPhaseCommitSink, TwoPhaseWriter
from firesteel.graph.specs import OperatorKind, OutputSpec, PartitionerKind
from firesteel.runtime.chain.chain import ChainPlan
from firesteel.runtime.chain.partitioners import SingleOutput
from firesteel.runtime.operators import OPERATORS
from tests.unit.runtime.support import FakeOutput, line, opened, run, spec

FORWARD = OutputSpec(0, 0, PartitionerKind.FORWARD)
first = lambda value: value[0]  # noqa: E731


def plan_of(kind: OperatorKind, function: Any = None, **more: Any) -> tuple[ChainPlan, FakeOutput]:
    """One operator whose results go to a fake output."""
    plan = opened(line(spec(kind, function, **more), outputs=[FORWARD]))
    out = FakeOutput()
    plan.root.outlet.outputs.append(SingleOutput("op", [out]))
    return plan, out


def results(kind: OperatorKind, function: Any, values: list[Any], **more: Any) -> list[Any]:
    """What an operator gives for these records."""
    plan, out = plan_of(kind, function, **more)
    run(plan, values)
    return out.values


def test_there_is_an_operator_for_every_kind() -> None:
    assert set(OPERATORS) == set(OperatorKind)


class Double(MapFunction[int, int]):
    def map(self, value: int) -> int:
        return value * 2


class Odd(FilterFunction[int]):
    def filter(self, value: int) -> bool:
        return value % 2 == 1


class Twice(FlatMapFunction[int, int]):
    def flat_map(self, value: int) -> Iterator[int]:
        yield value
        yield value


@pytest.mark.parametrize("function", [Double(), lambda n: n * 2])
def test_map_takes_a_class_or_a_callable(function: Any) -> None:
    assert results(OperatorKind.MAP, function, [1, 2]) == [2, 4]


def test_a_map_function_that_is_also_callable_is_used_as_map_function() -> None:
    class Both(Double):
        def __call__(self, value: int) -> int:
            raise AssertionError

    assert results(OperatorKind.MAP, Both(), [1]) == [2]


def test_map_may_give_none() -> None:
    assert results(OperatorKind.MAP, lambda n: None, [1, 2]) == [None, None]


def test_filter() -> None:
    assert results(OperatorKind.FILTER, Odd(), [1, 2, 3]) == [1, 3]
    assert results(OperatorKind.FILTER, lambda n: n > 1, [1, 2, 3]) == [2, 3]


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (Twice(), [1, 1, 2, 2]),
        (lambda n: [n, -n], [1, -1, 2, -2]),
        (lambda n: (i for i in range(n)), [0, 0, 1]),
        (lambda n: "ab" if n == 1 else None, ["a", "b"]),
        (lambda n: {n: 0}, [1, 2]),
        (lambda n: None, []),
    ],
)
def test_flat_map_takes_whatever_can_be_iterated(function: Any, expected: list[Any]) -> None:
    assert results(OperatorKind.FLAT_MAP, function, [1, 2]) == expected


def test_flat_map_that_returns_no_iterable_says_so() -> None:
    with pytest.raises(ProgramError, match=r"flat_map returned 5 \(int\); it has to return an iterable"):
        results(OperatorKind.FLAT_MAP, lambda n: n, [5])


def test_a_type_error_of_the_users_own_generator_passes() -> None:
    def generator(value: int) -> Iterator[int]:
        yield value
        raise TypeError("mine")

    with pytest.raises(TypeError, match="mine"):
        results(OperatorKind.FLAT_MAP, generator, [5])


def test_results_are_coerced_to_the_declared_type() -> None:
    assert results(OperatorKind.MAP, lambda n: n, [43878], output_type=Types.SHORT()) == [-21658]
    assert results(OperatorKind.FLAT_MAP, lambda n: [n], [43878], output_type=Types.SHORT()) == [-21658]
    assert results(OperatorKind.SOURCE, None, [43878], output_type=Types.SHORT()) == [-21658]


def test_strict_integers_refuse_what_does_not_fit() -> None:
    with pytest.raises(TypeMismatchError, match="Short"):
        results(OperatorKind.MAP, lambda n: n, [43878], output_type=Types.SHORT(), strict_integers=True)


def test_process_sees_timestamps() -> None:
    class Stamp(ProcessFunction[int, Any]):
        def process_element(self, value: int, ctx: ProcessFunction.Context) -> Any:
            yield value, ctx.timestamp()

    plan, out = plan_of(OperatorKind.PROCESS, Stamp())
    run(plan, [1, 2], [10, 20])
    run(plan, [3])
    assert out.values == [(1, 10), (2, 20), (3, None)]
    assert out.timestamps == [10, 20, None]


class Count(KeyedProcessFunction[str, tuple[str, int], Any]):
    def open(self, runtime_context: Any) -> None:
        self.count: ValueState[int] = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: tuple[str, int], ctx: KeyedProcessFunction.Context) -> Any:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        if count == 3:
            self.count.clear()
        yield ctx.get_current_key(), count


def test_keyed_process_keeps_state_for_each_key() -> None:
    records = [("a", 0), ("b", 0), ("a", 0), ("a", 0), ("a", 0), ("b", 0)]
    assert results(OperatorKind.KEYED_PROCESS, Count(), records, key_selectors=(first,)) == [
        ("a", 1),
        ("b", 1),
        ("a", 2),
        ("a", 3),
        ("a", 1),
        ("b", 2),
    ]


def test_a_key_selector_class_works_too() -> None:
    class First(KeySelector[Any, Any]):
        def get_key(self, value: Any) -> Any:
            return value[0]

    assert results(OperatorKind.KEYED_PROCESS, Count(), [("a", 0)], key_selectors=(First(),)) == [("a", 1)]


def test_a_type_that_cannot_be_a_key_is_refused() -> None:
    with pytest.raises(KeyTypeError, match="list"):
        results(OperatorKind.KEYED_PROCESS, Count(), [(["a"], 0)], key_selectors=(first,))
    with pytest.raises(KeyTypeError, match="object"):
        results(OperatorKind.KEYED_PROCESS, Count(), [(object(), 0)], key_selectors=(first,))


class Seen(MapFunction[Any, Any], FilterFunction[Any], FlatMapFunction[Any, Any]):
    """Uses keyed state from a plain function."""

    def open(self, runtime_context: Any) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.BOOLEAN()))

    def filter(self, value: Any) -> bool:
        new = not self.seen.value()
        self.seen.update(True)
        return new

    def map(self, value: Any) -> Any:
        return value[0], self.filter(value)

    def flat_map(self, value: Any) -> Any:
        return [value[0]] if self.filter(value) else None


def test_keyed_map_filter_and_flat_map_use_state() -> None:
    records = [("a", 1), ("a", 2), ("b", 3)]
    keys = {"key_selectors": (first,)}
    assert results(OperatorKind.KEYED_MAP, Seen(), records, **keys) == [("a", True), ("a", False), ("b", True)]
    assert results(OperatorKind.KEYED_FILTER, Seen(), records, **keys) == [("a", 1), ("b", 3)]
    assert results(OperatorKind.KEYED_FLAT_MAP, Seen(), records, **keys) == ["a", "b"]


def test_state_on_a_stream_without_key_is_refused() -> None:
    with pytest.raises(ProgramError, match=r"not on a keyed stream: call key_by\(\)"):
        plan_of(OperatorKind.FILTER, Seen())


class Sum(ReduceFunction[Any]):
    def reduce(self, value1: Any, value2: Any) -> Any:
        return value1[0], value1[1] + value2[1]


@pytest.mark.parametrize("function", [Sum(), lambda a, b: (a[0], a[1] + b[1])])
def test_reduce_gives_each_step(function: Any) -> None:
    records = [("a", 1), ("b", 10), ("a", 2), ("a", 3)]
    assert results(OperatorKind.REDUCE, function, records, key_selectors=(first,)) == [
        ("a", 1),
        ("b", 10),
        ("a", 3),
        ("a", 6),
    ]


def test_reduce_state_may_be_none() -> None:
    assert results(OperatorKind.REDUCE, lambda a, b: None, [("a", 1), ("a", 2)], key_selectors=(first,)) == [
        ("a", 1),
        None,
    ]


class Sides(CoMapFunction[Any, Any, Any], CoFlatMapFunction[Any, Any, Any], CoProcessFunction[Any, Any, Any]):
    def map1(self, value: Any) -> Any:
        return ("one", value)

    def map2(self, value: Any) -> Any:
        return None if value == 0 else ("two", value)

    def flat_map1(self, value: Any) -> Any:
        yield "one", value

    def flat_map2(self, value: Any) -> Any:
        return [("two", value)] * 2

    def process_element1(self, value: Any, ctx: Any) -> Any:
        return [("one", value, ctx.timestamp())]

    def process_element2(self, value: Any, ctx: Any) -> Any:
        yield "two", value, ctx.timestamp()


@pytest.mark.parametrize(
    ("kind", "keyed_kind", "expected"),
    [
        (OperatorKind.CO_MAP, OperatorKind.KEYED_CO_MAP, [("one", 7), ("two", 8)]),
        (
            OperatorKind.CO_FLAT_MAP,
            OperatorKind.KEYED_CO_FLAT_MAP,
            [("one", 7), ("two", 0), ("two", 0), ("two", 8), ("two", 8)],
        ),
        (OperatorKind.CO_PROCESS, None, [("one", 7, None), ("two", 0, None), ("two", 8, None)]),
    ],
)
def test_connected_streams(kind: OperatorKind, keyed_kind: OperatorKind | None, expected: list[Any]) -> None:
    identity = lambda value: value  # noqa: E731
    for each, keys in ((kind, ()), (keyed_kind, (identity, identity))):
        if each is None:
            continue
        plan, out = plan_of(each, Sides(), key_selectors=keys)
        run(plan, [7], input_index=0)
        run(plan, [0, 8], input_index=1)
        assert out.values == expected


def test_both_sides_of_a_key_share_state() -> None:
    class Join(KeyedCoProcessFunction[Any, Any, Any, Any]):
        def open(self, runtime_context: Any) -> None:
            self.last = runtime_context.get_state(ValueStateDescriptor("last", Types.STRING()))

        def process_element1(self, value: Any, ctx: Any) -> Any:
            self.last.update(value[1])

        def process_element2(self, value: Any, ctx: Any) -> Any:
            yield ctx.get_current_key(), self.last.value()

    plan, out = plan_of(OperatorKind.KEYED_CO_PROCESS, Join(), key_selectors=(first, lambda value: value))
    run(plan, [("a", "x"), ("b", "y")], input_index=0)
    run(plan, ["b", "c", "a"], input_index=1)
    assert out.values == [("b", "y"), ("c", None), ("a", "x")]


def test_sink_function_gets_each_record_and_its_timestamp() -> None:
    values_seen: list[Any] = []

    class Take(SinkFunction[int]):
        def invoke(self, value: int, context: SinkFunction.Context) -> None:
            values_seen.append((value, context.timestamp()))

    plan = opened(line(spec(OperatorKind.SINK_FUNCTION, Take())))
    run(plan, [1, 2], [10, 20])
    assert values_seen == [(1, 10), (2, 20)]


@pytest.mark.parametrize(("identifier", "expected"), [(None, "2> a\n2> None\n"), ("id", "id:2> a\nid:2> None\n")])
def test_print_has_flinks_prefix(identifier: str | None, expected: str) -> None:
    written: list[str] = []
    plan = opened(line(spec(OperatorKind.PRINT, extra={"identifier": identifier})), write_stdout=written.append)
    run(plan, ["a", None])
    assert written == [expected]


def test_runtime_context_tells_where_a_function_runs() -> None:
    seen: dict[str, Any] = {}

    class Look(MapFunction[Any, Any]):
        def open(self, runtime_context: Any) -> None:
            seen.update(
                name=runtime_context.get_task_name_with_subtasks(),
                index=runtime_context.get_index_of_this_subtask(),
                parallelism=runtime_context.get_number_of_parallel_subtasks(),
                attempt=runtime_context.get_attempt_number(),
                color=runtime_context.get_job_parameter("color", "blue"),
                size=runtime_context.get_job_parameter("size", "none"),
            )

        def map(self, value: Any) -> Any:
            return value

    plan_of(OperatorKind.MAP, Look())
    assert seen == {
        "name": "Map -> Sink (2/4)#2",
        "index": 1,
        "parallelism": 4,
        "attempt": 2,
        "color": "red",
        "size": "none",
    }


class Tens(KeySelector[int, int]):
    """Needs its ``open``."""

    log: list[str] = []

    def open(self, runtime_context: Any) -> None:
        self.size = 10
        self.log.append("open")

    def get_key(self, value: int) -> int:
        return value // self.size

    def close(self) -> None:
        self.log.append("close")


def test_key_selectors_are_opened_before_and_closed_after_the_records() -> None:
    Tens.log.clear()
    selector = Tens()
    behind = OutputSpec(0, 0, PartitionerKind.HASH, key_selector=selector)  # type: ignore[arg-type]
    keyed = spec(OperatorKind.REDUCE, lambda number, other: number + other, key_selectors=(selector,))
    plan = opened(line(keyed, outputs=[behind]))
    assert Tens.log == ["open"], "one instance that serves twice is opened once"
    out = FakeOutput()
    plan.root.outlet.outputs.append(SingleOutput("op", [out]))
    run(plan, [11, 12, 25])
    assert out.values == [11, 23, 25]
    for operator in plan.operators:
        operator.close()
        operator.close()
    assert Tens.log == ["open", "close"]


@pytest.mark.parametrize(
    ("type_info", "value", "text"),
    [
        (None, ("a", 1, None), "('a', 1, None)"),
        (Types.STRING(), "x y", "x y"),
        (Types.BOOLEAN(), True, "true"),
        (Types.ROW([Types.INT(), Types.STRING()]), Row(1, "x"), "+I[1, x]"),
        (Types.ROW([Types.INT()]), Row.of_kind(RowKind.DELETE, None), "-D[null]"),
        (Types.TUPLE([Types.STRING(), Types.INT()]), ("a", 1), "(a,1)"),
        (Types.LIST(Types.BOOLEAN()), [True, False], "[true, false]"),
        (Types.MAP(Types.STRING(), Types.TUPLE([Types.INT()])), {"a": (1,)}, "{a=(1)}"),
        (Types.FLOAT(), 163.3000030517578125, "163.3"),
        (Types.FLOAT(), 3.4028234663852886e38, "3.4028235e+38"),
        (Types.FLOAT(), 1.401298464324817e-45, "1.4013e-45"),
        (Types.ROW([Types.LIST(Types.FLOAT()), Types.FLOAT()]), Row([0.10000000149011612], None), "+I[[0.1], null]"),
        (Types.DOUBLE(), 163.3000030517578125, "163.3000030517578"),
        (Types.LIST(Types.DOUBLE()), [math.nan, math.inf, -math.inf, -0.0], "[NaN, Infinity, -Infinity, -0.0]"),
        (ExternalTypeInfo(Types.BOOLEAN()), True, "true"),
    ],
)
def test_typed_records_are_printed_as_pyflink_prints_them(type_info: Any, value: Any, text: str) -> None:
    assert text_of(type_info)(value) == text


class _Passes(StageFactory):
    name = "Passes"

    def create(self, context: Any) -> SinkStage:
        return _PassesOn()


class _PassesOn(SinkStage):
    def open(self, states: Any) -> None: ...

    def write(self, values: list[Any], timestamps: Any) -> list[bytes]:
        return values

    def prepare(self, *, end_of_input: bool) -> list[bytes]:
        return []

    def snapshot(self) -> list[bytes]:
        return []

    def close(self) -> None: ...


class _Life(KeySelector[Any, Any]):
    """Writes down what becomes of it; its ``close`` raises if that is wanted."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.log: list[str] = []

    def open(self, runtime_context: Any) -> None:
        self.log.append("open")

    def close(self) -> None:
        self.log.append("close")
        if self.error is not None:
            raise self.error

    def get_key(self, value: Any) -> Any:
        return value


@pytest.mark.parametrize(
    "operator",
    [spec(OperatorKind.SINK_STAGE, _Passes()), spec(OperatorKind.FLAT_MAP, lambda value: [value])],
    ids=["stage of a sink", "flat map"],
)
def test_key_selectors_behind_an_operator_live_as_long_as_it(operator: Any) -> None:
    selector: Any = _Life()
    plan = opened(line(operator, outputs=[OutputSpec(0, 0, PartitionerKind.HASH, key_selector=selector)]))
    assert selector.log == ["open"]
    plan.operators[0].close()
    assert selector.log == ["open", "close"]


def test_every_function_of_an_operator_is_closed_whatever_one_of_them_raises() -> None:
    first, second, third = _Life(OSError("first")), _Life(OSError("second")), _Life()
    selectors: list[Any] = [third, second, first]
    edges = [OutputSpec(0, n, PartitionerKind.HASH, key_selector=selector) for n, selector in enumerate(selectors)]
    plan = opened(line(spec(OperatorKind.MAP, lambda value: value), outputs=edges))
    with pytest.raises(OSError, match="first"):
        plan.operators[0].close()
    assert [selector.log for selector in (first, second, third)] == [["open", "close"]] * 3


class _Sink(Sink[Any]):
    def __init__(self, writer: Any) -> None:
        self.writer = writer

    def create_writer(self, context: Any) -> Any:
        return self.writer()


class _AsyncWriter(SinkWriter[Any]):
    async def write(self, values: Any, timestamps: Any) -> None: ...  # type: ignore[override]


class _TwoPhase(TwoPhaseCommitSink[Any]):
    def create_writer(self, context: Any) -> Any:
        return _Prepares()

    def create_committer(self, context: Any) -> Any:
        return _AsyncCommitter()


class _Prepares(TwoPhaseWriter[Any]):
    def write(self, values: Any, timestamps: Any) -> None: ...

    def prepare_commit(self, *, end_of_input: bool) -> Any:
        return []


class _AsyncCommitter(Committer):
    async def commit(self, committables: Any) -> Any: ...  # type: ignore[override]


class _AsyncStages(_Passes):
    def create(self, context: Any) -> SinkStage:
        return _AsyncStage()


class _AsyncStage(_PassesOn):
    async def close(self) -> None: ...  # type: ignore[override]


@pytest.mark.parametrize(
    ("kind", "function", "name"),
    [
        (OperatorKind.SINK, _Sink(_AsyncWriter), "_AsyncWriter.write"),
        (OperatorKind.SINK, _TwoPhase(), "_AsyncCommitter.commit"),
        (OperatorKind.SINK_STAGE, _AsyncStages(), "_AsyncStage.close"),
    ],
)
def test_coroutine_functions_of_what_is_made_in_the_slot_are_refused(
    kind: OperatorKind, function: Any, name: str
) -> None:
    with pytest.raises(UnsupportedFeatureError, match=rf"{name}\(\) is a coroutine function"):
        opened(line(spec(kind, function)))


class _Decorated(MapFunction[Any, Any]):
    """``open`` looks like an ordinary method."""

    def open(self, runtime_context: Any) -> Any:
        return self._later()

    async def _later(self) -> None: ...

    def map(self, value: Any) -> Any:
        return value


def test_what_an_ordinary_open_gives_to_await_is_refused() -> None:
    with pytest.raises(UnsupportedFeatureError, match=r"_Decorated.open\(\) gave coroutine, which nobody awaits"):
        opened(line(spec(OperatorKind.MAP, _Decorated())))

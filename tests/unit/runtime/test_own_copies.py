"""Functions may change records in place: what the runtime holds, or gives to several, is not changed by that."""

from __future__ import annotations

import array
import dataclasses
import pickle
from collections import Counter, OrderedDict, UserDict, defaultdict, deque
from collections.abc import Callable, Iterator
from time import localtime
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

from firesteel.common.own_copies import own_copy
from firesteel.common.time import Time
from firesteel.common.types import Row, RowKind
from firesteel.core.errors import SerializationError
from firesteel.datastream.functions import ProcessJoinFunction
from firesteel.datastream.joined_streams import TaggedUnion
from firesteel.datastream.window import (
    ContinuousEventTimeTrigger,
    CountEvictor,
    CountTrigger,
    EventTimeSessionWindows,
    EventTimeTrigger,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from firesteel.functions.functions import ProcessFunction
from firesteel.functions.output_tag import OutputTag
from firesteel.functions.window_functions import AggregateFunction, ProcessWindowFunction
from firesteel.graph.specs import ChainSpec, OperatorKind, OutputSpec, PartitionerKind
from firesteel.runtime.chain.chain import ChainPlan
from firesteel.runtime.chain.partitioners import BroadcastOutput, SingleOutput
from firesteel.runtime.records.batch import Batch
from firesteel.windowing.spec import WindowGathering, WindowSpec
from tests.unit.runtime.support import FakeOutput, line, opened, run, spec
from tests.unit.windowing.harness import Rig

FORWARD = OutputSpec(0, 0, PartitionerKind.FORWARD)


@dataclasses.dataclass
class Sale:
    shop: str
    amount: int


@dataclasses.dataclass(slots=True)
class Slotted:
    shop: str
    amount: int

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)

    def __setitem__(self, name: str, value: Any) -> None:
        setattr(self, name, value)


class Pair(NamedTuple):
    shop: str
    lines: list[Any]


@dataclasses.dataclass(frozen=True)
class Frozen:
    shop: str
    lines: list[Any]


@dataclasses.dataclass(frozen=True, slots=True)
class FrozenSlotted:
    shop: str
    lines: list[Any]


class Basket(list[Any]):
    """Its own methods are not called for a copy."""

    def __init__(self, *items: Any) -> None:
        super().__init__(items)

    def append(self, item: Any) -> None:
        raise AssertionError("not by a copy")

    extend = append


class Attributes(dict[str, Any]):
    __slots__ = ("__dict__", "slot")


class Tagged(tuple[Any, ...]):
    """A tuple with attributes."""


MAKE: dict[str, Callable[[str, int], Any]] = {
    "dict": lambda shop, amount: {"shop": shop, "amount": amount},
    "Row": lambda shop, amount: Row(shop=shop, amount=amount),
    "list": lambda shop, amount: [shop, amount],
    "dataclass": Sale,
    "slotted dataclass": Slotted,
    "tuple of list": lambda shop, amount: ([shop, amount],),
    "named tuple": lambda shop, amount: Pair(shop, [shop, amount]),
    "record of a join": lambda shop, amount: TaggedUnion(0, [shop, amount]),
    "frozen dataclass": lambda shop, amount: Frozen(shop, [shop, amount]),
    "frozen slotted dataclass": lambda shop, amount: FrozenSlotted(shop, [shop, amount]),
    "derived list": Basket,
    "derived dict": lambda shop, amount: Attributes(shop=shop, amount=amount),
    "deque": lambda shop, amount: deque([shop, amount]),
    "OrderedDict": lambda shop, amount: OrderedDict(shop=shop, amount=amount),
    "defaultdict": lambda shop, amount: defaultdict(int, shop=shop, amount=amount),
    "Counter": lambda shop, amount: Counter(amount=amount),
    "numpy array": lambda shop, amount: np.array([0, amount]),
    "numpy array of objects": lambda shop, amount: np.array([shop, amount], object),
    "array": lambda shop, amount: array.array("q", [0, amount]),
    "tree with parents": lambda shop, amount: parent_of([shop, amount]),
}


def parent_of(lines: list[Any]) -> dict[str, Any]:
    parent: dict[str, Any] = {"amount": lines[1], "children": []}
    parent["children"].append({"parent": parent})
    return parent


FORMS = pytest.mark.parametrize("form", list(MAKE))


def parts(value: Any) -> tuple[Any, Any]:
    """Of any form: what holds the fields, and the key of the amount."""
    if isinstance(value, Pair | Frozen | FrozenSlotted):
        return value.lines, 1
    if isinstance(value, tuple):
        return value[-1], 1
    if isinstance(value, list | deque | np.ndarray | array.array):
        return value, 1
    return (value.__dict__ if isinstance(value, Sale) else value), "amount"


def amount(value: Any) -> int:
    holder, key = parts(value)
    return int(holder[key])


def into_first(first: Any, second: Any) -> Any:
    holder, key = parts(first)
    holder[key] += amount(second)
    return first


def into_second(first: Any, second: Any) -> Any:
    return into_first(second, first)


REDUCES = pytest.mark.parametrize("reduce", [into_first, into_second])


# -- copies


@FORMS
def test_a_copy_is_equal_and_shares_nothing(form: str) -> None:
    value = MAKE[form]("a", 1)
    copied = own_copy(value)
    assert repr(copied) == repr(value)
    assert type(copied) is type(value)
    into_first(copied, copied)
    assert amount(value) == 1


def test_what_collections_has() -> None:
    originals = [defaultdict(list, {"a": [1]}), Counter("aab"), OrderedDict(b=[1], a=[2]), deque([[1], [2]], 5)]
    copies = own_copy(originals)
    assert copies == originals
    assert [type(item) for item in copies] == [type(item) for item in originals]
    assert (copies[0]["new"], list(copies[2]), copies[3].maxlen) == ([], ["b", "a"], 5)
    copies[0]["a"].append(2)
    copies[1]["c"] += 1
    copies[2]["b"].append(2)
    copies[3][0].append(2)
    assert originals == [{"a": [1]}, Counter("aab"), OrderedDict(b=[1], a=[2]), deque([[1], [2]], 5)]


def test_attributes_of_derived_containers_are_copied_too() -> None:
    basket: Any = Basket([1])
    attributes: Any = Attributes(a=[1])
    tagged: Any = Tagged(([1], 2))
    basket.note, attributes.note, attributes.slot, tagged.note = {"x"}, [basket], [2], [3]
    for value in (basket, attributes, tagged):
        copied = own_copy(value)
        assert type(copied) is type(value)
        assert copied == value
        assert copied.__dict__ == value.__dict__
        assert copied.note is not value.note
    assert own_copy(attributes).slot == [2]
    assert own_copy(attributes).slot is not attributes.slot
    assert list.__getitem__(own_copy(basket), 0) is not list.__getitem__(basket, 0)


def test_what_records_share_and_hold_of_themselves_is_so_in_the_copy() -> None:
    shared = [1]
    record: dict[str, Any] = {"a": shared, "b": (shared, {"c": shared})}
    record["self"] = [record]
    copied = own_copy(record)
    assert copied["a"] is copied["b"][0] is copied["b"][1]["c"]
    assert copied["a"] is not shared
    assert copied["self"][0] is copied
    frozen = Frozen("a", [])
    frozen.lines.append(frozen)
    assert own_copy(frozen).lines[0].lines[0].lines is not frozen.lines
    of_tuple: Any = ([],)
    of_tuple[0].append(of_tuple)
    again = own_copy(of_tuple)
    assert again[0][0][0] is again[0]
    assert again[0] is not of_tuple[0]
    objects = np.array([None, [1]], object)
    objects[0] = objects
    assert own_copy(objects)[0][1] is not objects[1]


def test_what_is_shared_twice_at_each_of_many_levels_is_copied_once() -> None:
    value: Any = [1]
    for _ in range(100):
        value = [value, value]
    assert own_copy(value)[0] is not value[0]


@pytest.mark.parametrize(
    "nest",
    [lambda inner: [inner], lambda inner: {"a": inner}, lambda inner: Sale(inner, 1), lambda inner: ([inner],)],
    ids=["list", "dict", "dataclass", "list in a tuple"],
)
def test_records_may_be_nested_to_any_depth(nest: Callable[[Any], Any]) -> None:
    value: Any = 1
    for _ in range(10_000):
        value = nest(value)
    copied = own_copy(value)
    depth = 0
    while copied != 1:
        assert copied is not value
        copied, value = (
            (nested.shop if isinstance(nested, Sale) else nested["a"] if isinstance(nested, dict) else nested[0])
            for nested in (copied, value)
        )
        depth += 1
    assert depth in (10_000, 20_000)


def test_tuples_are_copied_as_deep_as_pickle_takes_them_and_refused_by_type_then() -> None:
    def nested(depth: int) -> Any:
        value: Any = [1]
        for _ in range(depth):
            value = (value,)
        return value

    depth = 0
    while True:
        try:
            pickle.dumps(nested(depth + 50))
        except RecursionError:
            break
        depth += 50
    assert own_copy(nested(depth - 50)) is not None
    with pytest.raises(SerializationError, match="tuple can't be copied: it holds tuples in tuples"):
        own_copy(nested(2000))


def test_classes_that_say_how_they_are_copied_are_left_alone() -> None:
    class Own(list[Any]):
        def __reduce__(self) -> Any:
            return list, ()

    now = localtime(0)
    for value in (Own([[1]]), now, UserDict(a=1), np.array([1]).astype(">i8").view(np.recarray).copy().dtype):
        assert own_copy(value) is value
    fixed = np.array([1])
    fixed.flags.writeable = False
    assert own_copy(fixed) is fixed


def test_frames_of_pandas_are_copied() -> None:
    class DataFrame:
        """Stands for that of pandas, which is no dependency: it is known by its name."""

        def copy(self) -> DataFrame:
            return DataFrame()

    DataFrame.__module__ = "pandas.core.frame"
    value = DataFrame()
    assert own_copy(value) is not value
    assert own_copy((value,))[0] is not value


def test_what_can_not_be_changed_or_copied_is_itself() -> None:
    frozen = dataclasses.make_dataclass("Frozen", ["x"], frozen=True)(1)
    for value in (1, "a", None, (1, "a"), (1, ("x", (2,))), frozen, SimpleNamespace(x=1), object()):
        assert own_copy(value) is value
    row = Row.of_kind(RowKind.DELETE, a=[1], b=(2, {"x": {3}}))
    copied = own_copy(row)
    assert copied == row
    assert copied.a is not row.a
    assert copied.b[1]["x"] is not row.b[1]["x"]


# -- results that wait


def test_a_running_reduce_gives_what_was_so_far() -> None:
    for form in MAKE:
        for reduce in (into_first, into_second):
            plan = opened(line(spec(OperatorKind.REDUCE, reduce, key_selectors=(lambda value: 0,)), outputs=[FORWARD]))
            out = FakeOutput()
            plan.root.outlet.outputs.append(SingleOutput("op", [out]))
            run(plan, [MAKE[form]("a", 1) for _ in range(4)])
            assert [amount(value) for value in out.values] == [1, 2, 3, 4], (form, reduce)


def again_and_again(value: int) -> Iterator[Any]:
    mine = {"amount": 0}
    for _ in range(value):
        mine["amount"] += 1
        yield mine


def through(kind: OperatorKind, function: Any, values: list[Any], stamps: list[int] | None = None, **more: Any) -> Any:
    plan = opened(line(spec(kind, function, **more), outputs=[FORWARD]))
    out = FakeOutput()
    plan.root.outlet.outputs.append(SingleOutput("op", [out]))
    run(plan, values, stamps)
    return out.values


def test_what_is_given_again_and_again_is_what_it_was() -> None:
    assert through(OperatorKind.FLAT_MAP, again_and_again, [3]) == [{"amount": 1}, {"amount": 2}, {"amount": 3}]
    assert through(OperatorKind.FLAT_MAP, again_and_again, [2], [5]) == [{"amount": 1}, {"amount": 2}]
    mine = [0]
    counted = through(OperatorKind.MAP, lambda value: mine.__setitem__(0, value) or mine, list(range(100)))
    assert counted == [[number] for number in range(100)]


def test_with_object_reuse_nothing_is_copied() -> None:
    results = through(OperatorKind.FLAT_MAP, again_and_again, [3], object_reuse=True)
    assert results == [{"amount": 3}] * 3
    assert results[0] is results[2]


# -- several readers


def changing(name: str) -> Any:
    def change(value: Any) -> Any:
        value["by"].append(name)
        return value

    return spec(OperatorKind.MAP, change, name=name)


def forked(*, reuse: bool) -> list[list[Any]]:
    head = spec(OperatorKind.MAP, lambda value: (value, {"by": []})[1], name="head", object_reuse=reuse)
    edges = [OutputSpec(index, index, PartitionerKind.FORWARD) for index in range(3)]
    plan = ChainPlan(ChainSpec([head, changing("one"), changing("two")], [[1, 2], [], []], edges))
    outs = []
    for index in range(3):
        outs.append(FakeOutput(index))
        plan.stage_of[index].outlet.outputs.append(SingleOutput("op", [outs[-1]]))
    run(plan, [1, 2])
    return [out.values for out in outs]


def test_readers_of_one_stream_do_not_see_each_others_changes() -> None:
    assert forked(reuse=False) == [[{"by": []}] * 2, [{"by": ["one"]}] * 2, [{"by": ["two"]}] * 2]
    assert forked(reuse=True)[0] == [{"by": ["one", "two"]}] * 2


def test_broadcast_records_are_different_objects() -> None:
    channels = [FakeOutput(0), FakeOutput(1)]
    for channel, batch in BroadcastOutput("op", channels).route(Batch([{"by": []}, ("x", 1)])):
        channel.write(batch)
    channels[0].values[0]["by"].append("x")
    assert channels[1].values == [{"by": []}, ("x", 1)]


def test_side_outputs_and_results_are_different_objects() -> None:
    tag: OutputTag[Any] = OutputTag("side")

    class Both(ProcessFunction[Any, Any]):
        def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
            mine = {"by": [value]}
            yield tag, mine
            mine["by"].append("later")
            yield mine

    plan = ChainPlan(
        ChainSpec(
            [spec(OperatorKind.PROCESS, Both(), extra={"side_outputs": {"side": tag.type_info}})],
            [[]],
            [FORWARD, OutputSpec(0, 1, PartitionerKind.FORWARD, tag="side")],
        )
    )
    plan = opened(plan.spec)
    main, side = FakeOutput(0), FakeOutput(1)
    plan.root.outlet.outputs.append(SingleOutput("op", [main]))
    plan.root.side("side").outputs.append(SingleOutput("op", [side]))
    run(plan, [1])
    assert (main.values, side.values) == ([{"by": [1, "later"]}], [{"by": [1]}])


# -- windows


def key_of(value: Any) -> Any:
    return 0


def sliding(**more: Any) -> WindowSpec:
    assigner = SlidingEventTimeWindows.of(Time.milliseconds(20), Time.milliseconds(10))
    return WindowSpec(assigner, more.pop("trigger", EventTimeTrigger.create()), **more)


@FORMS
@REDUCES
@pytest.mark.parametrize("kind", [OperatorKind.ALIGNED_WINDOW, OperatorKind.WINDOW])
def test_a_reduce_in_place_does_not_spoil_sliding_windows(form: str, reduce: Any, kind: OperatorKind) -> None:
    rig = Rig(sliding(gathering=WindowGathering.REDUCE, gather_function=reduce), kind, key=key_of)
    rig.records([(MAKE[form]("a", 1), time) for time in (1, 5, 11, 12, 15, 21)])
    outputs = [(amount(out.value), out.timestamp) for out in rig.watermark(100)]
    assert outputs == [(2, 9), (5, 19), (4, 29), (1, 39)]


@REDUCES
@pytest.mark.parametrize("kind", [OperatorKind.ALIGNED_WINDOW, OperatorKind.WINDOW])
def test_results_are_not_changed_by_late_records(reduce: Any, kind: OperatorKind) -> None:
    assigner = TumblingEventTimeWindows.of(Time.milliseconds(10))
    window_spec = WindowSpec(
        assigner,
        EventTimeTrigger.create(),
        allowed_lateness=100,
        gathering=WindowGathering.REDUCE,
        gather_function=reduce,
    )
    rig = Rig(window_spec, kind, key=key_of)
    rig.records([({"amount": 1}, 1), ({"amount": 1}, 2)])
    outputs = rig.watermark(20) + rig.records([({"amount": 1}, 3), ({"amount": 1}, 4)])
    assert [out.value for out in outputs] == [{"amount": 2}, {"amount": 3}, {"amount": 4}]


@pytest.mark.parametrize("gathering", [WindowGathering.REDUCE, WindowGathering.AGGREGATE])
@pytest.mark.parametrize("trigger", [CountTrigger.of(1), ContinuousEventTimeTrigger.of(Time.milliseconds(1))])
def test_results_are_not_changed_by_what_comes_behind_an_early_one(gathering: WindowGathering, trigger: Any) -> None:
    class Itself(AggregateFunction[Any, Any, Any]):
        def create_accumulator(self) -> Any:
            return {"amount": 0}

        def add(self, value: Any, accumulator: Any) -> Any:
            return into_first(accumulator, value)

        def get_result(self, accumulator: Any) -> Any:
            return accumulator

        def merge(self, acc_a: Any, acc_b: Any) -> Any:
            return into_first(acc_a, acc_b)

    function = into_first if gathering is WindowGathering.REDUCE else Itself()
    window_spec = WindowSpec(
        TumblingEventTimeWindows.of(Time.milliseconds(100)), trigger, gathering=gathering, gather_function=function
    )
    rig = Rig(window_spec, key=key_of)
    outputs = []
    for time in (1, 2, 3):
        outputs += rig.records([({"amount": 1}, time)])
        outputs += rig.watermark(time)
    amounts = [out.value["amount"] for out in outputs]
    assert amounts in ([1, 2, 3], [2, 3]), "of each firing the records so far"


def test_sessions_that_go_on() -> None:
    window_spec = WindowSpec(
        EventTimeSessionWindows.with_gap(Time.milliseconds(10)),
        EventTimeTrigger.create(),
        allowed_lateness=100,
        gathering=WindowGathering.REDUCE,
        gather_function=into_first,
    )
    rig = Rig(window_spec, OperatorKind.SESSION_WINDOW, key=key_of)
    rig.records([({"amount": 1}, 1)])
    outputs = rig.watermark(50) + rig.records([({"amount": 1}, 2)]) + rig.records([({"amount": 1}, 3)])
    assert [out.value for out in outputs] == [{"amount": 1}, {"amount": 2}, {"amount": 3}]


class Spoils(ProcessWindowFunction[Any, Any, Any, Any]):
    def process(self, key: Any, context: Any, elements: Any) -> Iterator[Any]:
        for element in elements:
            holder, name = parts(element)
            holder[name] += 100
        yield [amount(element) for element in elements]


@FORMS
@pytest.mark.parametrize("kind", [OperatorKind.ALIGNED_WINDOW, OperatorKind.WINDOW])
def test_a_window_function_does_not_spoil_the_records_of_other_windows(form: str, kind: OperatorKind) -> None:
    rig = Rig(sliding(window_function=Spoils()), kind, key=key_of)
    rig.records([(MAKE[form]("a", number), time) for number, time in ((1, 1), (2, 11), (3, 12))])
    assert [out.value for out in rig.watermark(100)] == [[101], [101, 102, 103], [102, 103]]


def test_an_evicted_window_is_combined_anew_each_time() -> None:
    window_spec = WindowSpec(
        TumblingEventTimeWindows.of(Time.milliseconds(100)),
        CountTrigger.of(1),
        evictor=CountEvictor.of(10),
        gathering=WindowGathering.REDUCE,
        gather_function=into_first,
    )
    rig = Rig(window_spec, key=key_of)
    outputs = rig.records([({"amount": 1}, time) for time in (1, 2, 3)])
    assert [out.value for out in outputs] == [{"amount": 1}, {"amount": 2}, {"amount": 3}]


def test_an_interval_join_hands_out_records_of_their_own() -> None:
    class Join(ProcessJoinFunction[Any, Any, Any]):
        def process_element(self, left: Any, right: Any, ctx: Any) -> Iterator[Any]:
            yield into_first(left, right)

    rig = Rig(Join(), OperatorKind.INTERVAL_JOIN, inputs=2, key=key_of, lower=-5, upper=5, late_tags=(None, None))
    rig.records([({"amount": 1}, 10)], 0)
    outputs = rig.records([({"amount": 10}, 11), ({"amount": 20}, 12)], 1)
    outputs += rig.records([({"amount": 2}, 10)], 0)
    assert [out.value for out in outputs] == [{"amount": number} for number in (11, 21, 12, 22)]

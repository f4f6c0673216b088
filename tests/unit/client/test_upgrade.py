"""``firesteel upgrade --dry-run`` over a table of edits: what it says is right, and what a restore then does."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

from firesteel.client.upgrade import StateVerdict, Verdict
from firesteel.common import Row, Time, Types
from firesteel.datastream import DataStream
from firesteel.datastream.functions import AggregateFunction
from firesteel.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateMigration,
    StateTtlConfig,
    ValueStateDescriptor,
)
from firesteel.runtime.records.batch import MAX_WATERMARK
from tests.unit.client import upgrades
from tests.unit.client.upgrades import KEYS, ROW, Build, Lists, Program, keeps

T = Types
RESTORED, MIGRATED, KEPT, NEW, DROPPED, INCOMPATIBLE, UNKNOWN = (
    Verdict.RESTORED, Verdict.MIGRATED, Verdict.KEPT, Verdict.NEW, Verdict.DROPPED, Verdict.INCOMPATIBLE,
    Verdict.UNKNOWN,
)  # fmt: skip


@dataclass
class Edit:
    """A program before and after, and what becomes of its states.

    Attributes:
        states: verdict and a part of ``how``, by name of the state.
        found: of a state: what is read first for each key when the job goes on.
        records: that the program reads, before and now.
        ignores: ``-n``.
        parallelism: before and now.
    """

    name: str
    before: Build
    after: Build
    states: dict[str, tuple[Verdict, str]]
    contents: dict[str, Any] = field(default_factory=dict)
    ignores: bool = False
    parallelism: tuple[int, int] = (1, 1)
    max_parallelism: tuple[int, int] = (128, 128)
    operator: tuple[str, Verdict, str] | None = None
    works: bool | None = None
    records: tuple[Any, Any] = (upgrades.RECORDS, upgrades.RECORDS)


NESTED = [(number % KEYS, (number,), [number, None]) for number in range(12)]


def type_edit(
    old: Any, was: Any, new: Any, now: Any, verdict: Verdict, how: str = "", contents: Any = None, **more: Any
) -> Edit:
    """The value of a state is of another type."""
    descriptor = ValueStateDescriptor("s", new)
    if "migration" in more:
        descriptor.enable_state_migration(more.pop("migration"))
    expected = {} if contents is None else {"s": contents}
    name = f"{old} to {new}{' with ' + more.pop('note') if 'note' in more else ''}"
    return Edit(
        name,
        keeps((ValueStateDescriptor("s", old), was)),
        keeps((descriptor, now)),
        {"s": (verdict, how)},
        expected,
        **more,
    )


def descriptor(state_descriptor: Any, migration: StateMigration) -> Any:
    state_descriptor.enable_state_migration(migration)
    return state_descriptor


def versioned(version: int, type_info: Any, name: str = "s") -> ValueStateDescriptor:
    state_descriptor = ValueStateDescriptor(name, type_info)
    state_descriptor.enable_state_migration(StateMigration(version))
    return state_descriptor


def named(*fields: tuple[str, Any]) -> Any:
    return T.ROW_NAMED([name for name, _ in fields], [type_info for _, type_info in fields])


def with_ttl(state_descriptor: Any) -> Any:
    state_descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.hours(1)).build())
    return state_descriptor


class Sum(AggregateFunction[Any, Any, Any]):
    def create_accumulator(self) -> Any:
        return 0

    def add(self, value: Any, accumulator: Any) -> Any:
        return accumulator + value

    def get_result(self, accumulator: Any) -> Any:
        return accumulator

    def merge(self, a: Any, b: Any) -> Any:
        return a + b


def lists(state_descriptor: Any, value: Any, union: bool = False) -> Build:
    return lambda stream: (
        stream.key_by(lambda r: r[0], T.INT()).process(Lists(state_descriptor, value, union), ROW).uid("op")
    )


def columns(*aggregates: Any, key: str = "f0") -> Build:
    return lambda stream: stream.key_by(key).aggregate(*aggregates).uid("op")


def windows(*aggregates: Any, size: int = 100) -> Build:
    from firesteel.datastream.window import TumblingEventTimeWindows

    def build(stream: DataStream) -> Any:
        windowed = stream.key_by("f0").window(TumblingEventTimeWindows.of(Time.milliseconds(size)))
        return windowed.aggregate(*aggregates).uid("op")

    return build


def nested(kind: Any) -> Build:
    """The last of rows and of lists that hold such values; its records are those of ``NESTED``."""
    from firesteel import expressions

    row_type = named(("f0", T.INT()), ("row", named(("x", kind))), ("list", T.LIST(kind)))

    def build(stream: DataStream) -> Any:
        rows = stream.map(lambda record: record, row_type)
        last = (expressions.last(name).alias(name) for name in ("row", "list"))
        return rows.key_by("f0").aggregate(*last).uid("op")

    return build


def aggregates() -> Any:
    from firesteel import expressions

    return expressions


PRICE = named(("id", T.INT()), ("price", T.DOUBLE()))
NOTED = named(("id", T.INT()), ("price", T.DOUBLE()), ("note", T.STRING()))
ROW_1 = Row(id=1, price=2.5)
V = ValueStateDescriptor
TWO = [(V("s", T.INT()), 1), (V("t", T.INT()), 2)]
e = aggregates()
TYPES = [
    type_edit(T.INT(), 5, T.INT(), 6, RESTORED, "", 5),
    type_edit(T.INT(), 5, T.LONG(), 6, MIGRATED, "widened from INT to LONG", 5),
    type_edit(T.SHORT(), 5, T.INT(), 6, MIGRATED, "widened from SHORT to INT", 5),
    type_edit(T.INT(), 5, T.DOUBLE(), 6.5, MIGRATED, "widened from INT to DOUBLE", 5.0),
    type_edit(T.FLOAT(), 0.5, T.DOUBLE(), 6.5, MIGRATED, "widened from FLOAT to DOUBLE", 0.5),
    type_edit(T.LONG(), 5, T.BIG_INT(), 6, MIGRATED, "widened from LONG to BIG_INT", 5),
    type_edit(T.LONG(), 5, T.INT(), 6, INCOMPATIBLE, "it was LONG and is INT now"),
    type_edit(T.LONG(), 5, T.DOUBLE(), 6.5, INCOMPATIBLE, "it was LONG and is DOUBLE now"),
    type_edit(T.DOUBLE(), 5.5, T.LONG(), 6, INCOMPATIBLE, "it was DOUBLE and is LONG now"),
    type_edit(T.STRING(), "a", T.LONG(), 6, INCOMPATIBLE, "it was STRING and is LONG now"),
    type_edit(T.STRING(), "a", T.PICKLED_BYTE_ARRAY(), 6, INCOMPATIBLE, "it was STRING"),
    type_edit(T.PICKLED_BYTE_ARRAY(), {1, 2}, T.PICKLED_BYTE_ARRAY(), 6, RESTORED, "", {1, 2}),
    type_edit(T.CHAR(), "a", T.STRING(), "b", MIGRATED, "widened from CHAR to STRING", "a"),
    type_edit(T.BOOLEAN(), True, T.INT(), 6, INCOMPATIBLE, "it was BOOLEAN"),
    type_edit(PRICE, ROW_1, PRICE, ROW_1, RESTORED, "", ROW_1),
    type_edit(
        PRICE, ROW_1, NOTED, Row(id=1, price=1.0, note=""),
        MIGRATED, "note: added", Row(id=1, price=2.5, note=None),
    ),
    type_edit(
        PRICE, ROW_1, NOTED, Row(id=1, price=1.0, note=""),
        MIGRATED, "note: added, 'none' where it was not", Row(id=1, price=2.5, note="none"),
        migration=StateMigration().add_default("note", "none"), note="a default",
    ),
    type_edit(PRICE, ROW_1, named(("price", T.DOUBLE())), Row(price=1.0), MIGRATED, "id: removed", Row(price=2.5)),
    type_edit(
        PRICE, ROW_1, named(("price", T.DOUBLE()), ("id", T.INT())), Row(price=1.0, id=1),
        MIGRATED, "its fields are in another order", Row(price=2.5, id=1),
    ),
    type_edit(
        PRICE, ROW_1, named(("id", T.LONG()), ("price", T.DOUBLE())), ROW_1, MIGRATED,
        "id: widened from INT to LONG", ROW_1,
    ),
    type_edit(
        PRICE, ROW_1, named(("n", T.INT()), ("id", T.LONG())), Row(n=1, id=1), MIGRATED,
        "n: added; id: widened from INT to LONG; price: removed", Row(n=None, id=1),
    ),
    type_edit(
        PRICE, ROW_1, named(("id", T.INT()), ("price", T.STRING())), Row(id=1, price=""), INCOMPATIBLE,
        "price: it was DOUBLE and is STRING now",
    ),
    type_edit(
        named(("a", PRICE)), Row(a=ROW_1), named(("a", named(("id", T.INT()), ("x", T.INT())))), Row(a=Row(id=1, x=1)),
        MIGRATED, "a.x: added, 7 where it was not", Row(a=Row(id=1, x=7)),
        migration=StateMigration().add_default("a.x", 7), note="a nested default",
    ),
    type_edit(T.TUPLE([T.INT()]), (1,), T.TUPLE([T.INT(), T.INT()]), (1, 2), MIGRATED, "f1: added", (1, None)),
    type_edit(T.TUPLE([T.INT(), T.INT()]), (1, 2), T.TUPLE([T.LONG()]), (1,), MIGRATED, "f1: removed", (1,)),
    type_edit(T.TUPLE([T.INT()]), (1,), T.TUPLE([T.STRING()]), ("",), INCOMPATIBLE, "f0: it was INT and is STRING now"),
    type_edit(T.LIST(T.INT()), [1], T.LIST(T.LONG()), [2], MIGRATED, "widened from INT to LONG", [1]),
    type_edit(T.MAP(T.STRING(), T.INT()), {"a": 1}, T.MAP(T.STRING(), T.DOUBLE()), {}, MIGRATED, "[value]", {"a": 1.0}),
    type_edit(T.MAP(T.STRING(), T.INT()), {"a": 1}, T.MAP(T.INT(), T.INT()), {}, INCOMPATIBLE, "[key]"),
    type_edit(
        T.STRING(), "5", T.LONG(), 6, MIGRATED, "by the program's steps from version 0 to 1", 5,
        migration=StateMigration(1).add_step(0, int), note="a step",
    ),
    type_edit(
        PRICE, ROW_1, T.LONG(), 6, MIGRATED, "from version 0 to 2", 250,
        migration=StateMigration(2).add_step(0, lambda row: row.price).add_step(1, lambda p: round(p * 100)),
        note="two steps",
    ),
    type_edit(
        T.STRING(), "5", T.LONG(), 6, INCOMPATIBLE, "has no step from version 1",
        migration=StateMigration(2).add_step(0, int), note="a step missing",
    ),
    type_edit(
        T.INT(), 5, T.LONG(), 6, MIGRATED, "widened from INT to LONG", 5,
        migration=StateMigration(3), note="a version only",
    ),
]  # fmt: skip
STATES = [
    Edit(
        "an older version of the program", keeps((versioned(2, T.INT()), 1)), keeps((versioned(1, T.INT()), 1)),
        {"s": (INCOMPATIBLE, "it was written by version 2 of the state, and the program has version 1")},
    ),
    Edit(
        "steps begin at the version that was written", keeps((versioned(1, T.INT()), 1)),
        keeps((descriptor(V("s", T.INT()), StateMigration(2).add_step(1, lambda n: n + 10)), 1)),
        {"s": (MIGRATED, "from version 1 to 2")}, {"s": 11},
    ),
    Edit("a state is added", keeps(TWO[0]), keeps(*TWO), {"s": (RESTORED, ""), "t": (NEW, "")}, {"s": 1, "t": None}),
    Edit("a state is not asked for", keeps(*TWO), keeps(TWO[0]), {"s": (RESTORED, ""), "t": (KEPT, "")}, {"s": 1}),
    Edit("a state is renamed", keeps(TWO[0]), keeps(TWO[1]), {"s": (KEPT, ""), "t": (NEW, "")}, {"t": None}),
    Edit(
        "value to list", keeps(TWO[0]), keeps((ListStateDescriptor("s", T.INT()), [1])),
        {"s": (INCOMPATIBLE, "it was value state and is list state now")},
    ),
    Edit(
        "elements become wider", keeps((ListStateDescriptor("s", T.INT()), [1, 2])),
        keeps((ListStateDescriptor("s", T.DOUBLE()), [1.0])), {"s": (MIGRATED, "widened")}, {"s": [1.0, 2.0]},
    ),
    Edit(
        "each element goes through a step", keeps((ListStateDescriptor("s", T.STRING()), ["1", "2"])),
        keeps((descriptor(ListStateDescriptor("s", T.INT()), StateMigration(1).add_step(0, int)), [1])),
        {"s": (MIGRATED, "steps")}, {"s": [1, 2]},
    ),
    Edit(
        "keys of a map", keeps((MapStateDescriptor("s", T.STRING(), T.INT()), {"a": 1})),
        keeps((MapStateDescriptor("s", T.LONG(), T.INT()), {1: 1})), {"s": (INCOMPATIBLE, "[key]: it was STRING")},
    ),
    Edit(
        "keys of a map, by a step", keeps((MapStateDescriptor("s", T.STRING(), T.INT()), {"a": 1})),
        keeps((descriptor(MapStateDescriptor("s", T.LONG(), T.INT()), StateMigration(1).add_step(0, dict)), {1: 1})),
        {"s": (INCOMPATIBLE, "types of keys can't be changed")},
    ),
    Edit(
        "a map goes through a step", keeps((MapStateDescriptor("s", T.STRING(), T.INT()), {"a": 1})),
        keeps((
            descriptor(
                MapStateDescriptor("s", T.STRING(), T.STRING()),
                StateMigration(1).add_step(0, lambda old: {key: str(value) for key, value in old.items()}),
            ), {},
        )), {"s": (MIGRATED, "steps")}, {"s": {"a": "1"}},
    ),
    Edit(
        "reducing", keeps((ReducingStateDescriptor("s", max, T.INT()), 5)),
        keeps((ReducingStateDescriptor("s", max, T.LONG()), 3)), {"s": (MIGRATED, "widened")}, {"s": 5},
    ),
    Edit(
        "aggregating", keeps((AggregatingStateDescriptor("s", Sum(), T.INT()), 2)),
        keeps((AggregatingStateDescriptor("s", Sum(), T.LONG()), 2)), {"s": (MIGRATED, "widened")}, {"s": 8},
    ),
    Edit(
        "an accumulator of another type", keeps((AggregatingStateDescriptor("s", Sum(), T.INT()), 2)),
        keeps((AggregatingStateDescriptor("s", Sum(), T.STRING()), "2")), {"s": (INCOMPATIBLE, "it was INT")},
    ),
    Edit(
        "a time-to-live comes", keeps(TWO[0]), keeps((with_ttl(V("s", T.INT())), 1)),
        {"s": (MIGRATED, "its time-to-live begins now")}, {"s": 1},
    ),
    Edit(
        "a time-to-live goes", keeps((with_ttl(V("s", T.INT())), 1)), keeps(TWO[0]),
        {"s": (MIGRATED, "it has no time-to-live now")}, {"s": 1},
    ),
    Edit(
        "a list of the operator", lists(ListStateDescriptor("l", T.INT()), 1),
        lists(ListStateDescriptor("l", T.LONG()), 1),
        {"l": (MIGRATED, "widened")}, {"l": 1},
    ),
    Edit(
        "a list of the operator, of another type", lists(ListStateDescriptor("l", T.INT()), 1),
        lists(ListStateDescriptor("l", T.STRING()), "1"), {"l": (INCOMPATIBLE, "it was INT and is STRING now")},
    ),
    Edit(
        "split to union", lists(ListStateDescriptor("l", T.INT()), 1),
        lists(ListStateDescriptor("l", T.INT()), 1, union=True),
        {"l": (INCOMPATIBLE, "it was split state and is union state now")},
    ),
]  # fmt: skip
OPERATORS = [
    Edit(
        "an operator goes", keeps(TWO[0]), keeps(TWO[0], uid="other"), {"s": (DROPPED, "")}, works=False,
        operator=("op", INCOMPATIBLE, "-n drops its state"),
    ),
    Edit(
        "an operator goes, with -n", keeps(TWO[0]), keeps(TWO[0], uid="other"), {"s": (DROPPED, "")}, ignores=True,
        operator=("op", DROPPED, ""), works=True,
    ),
    Edit(
        "an operator comes", keeps(TWO[0]),
        lambda stream: keeps(TWO[1], uid="new")(keeps(TWO[0])(stream)), {"s": (RESTORED, "")}, {"s": 1, "t": None},
        operator=("new", NEW, ""), works=True,
    ),
    Edit("more subtasks", keeps(TWO[0]), keeps(TWO[0]), {"s": (RESTORED, "")}, {"s": 1}, parallelism=(2, 3)),
    Edit("fewer subtasks", keeps(TWO[0]), keeps(TWO[0]), {"s": (RESTORED, "")}, {"s": 1}, parallelism=(3, 1)),
    Edit(
        "another maximum parallelism", keeps(TWO[0]), keeps(TWO[0]), {"s": (UNKNOWN, "")}, max_parallelism=(128, 64),
        operator=("op", INCOMPATIBLE, "set_max_parallelism(128)"), works=False,
    ),
    Edit(
        "rows to columns", keeps(TWO[0]), columns(e.count().alias("n")), {"s": (UNKNOWN, "")},
        operator=("op", INCOMPATIBLE, ""), works=False,
    ),
]  # fmt: skip
RUNNING, WINDOWS = "_running_aggregates", "_column_windows"
A, B = e.sum_("f1").alias("a"), e.max_("f1").alias("b")
COLUMNS = [
    Edit(
        "the same aggregates", columns(A), columns(A), {RUNNING: (RESTORED, "")},
    ),
    Edit(
        "an aggregate is added", columns(A), columns(A, B),
        {RUNNING: (MIGRATED, "b: added, begins empty")},
    ),
    Edit(
        "an aggregate is removed", columns(A, B), columns(A),
        {RUNNING: (MIGRATED, "b: removed")},
    ),
    Edit(
        "an aggregate is another one", columns(A), columns(e.max_("f1").alias("a")),
        {RUNNING: (INCOMPATIBLE, "a: it was computed from")},
    ),
    Edit(
        "another key", columns(A), columns(A, key="f2"),
        {RUNNING: (INCOMPATIBLE, "its keys were ['int32'], and are ['double']")},
    ),
    Edit(
        "numbers in rows and lists of columns are wider", nested(T.INT()), nested(T.LONG()),
        {RUNNING: (MIGRATED, "row.last: struct<x: int32> -> struct<x: int64>; list.last: list<item: int32> -> list")},
        records=(NESTED, NESTED),
    ),
    Edit(
        "numbers in rows of columns are text", nested(T.INT()), nested(T.STRING()),
        {RUNNING: (INCOMPATIBLE, "row.last.x: its values were int32, and are to be string")},
        records=(NESTED, [(key, ("a",), ["a"]) for key in range(KEYS)]),
    ),
    Edit(
        "the same windows", windows(A), windows(A), {WINDOWS: (RESTORED, "")},
    ),
    Edit(
        "an aggregate of a window is added", windows(A),
        windows(e.min_("f1").alias("b"), A), {WINDOWS: (MIGRATED, "b: added, begins empty")},
    ),
    Edit(
        "an aggregate of a window is removed", windows(A, e.avg("f1").alias("b")),
        windows(e.avg("f1").alias("b")), {WINDOWS: (MIGRATED, "a: removed")},
    ),
    Edit(
        "an aggregate of a window is another one", windows(A), windows(e.max_("f1").alias("a")),
        {WINDOWS: (INCOMPATIBLE, "a: it was")},
    ),
    Edit(
        "windows of another size", windows(A), windows(A, size=200),
        {WINDOWS: (INCOMPATIBLE, "windows were TumblingEventTimeWindows")},
    ),
]  # fmt: skip
TABLE = [*TYPES, *STATES, *OPERATORS, *COLUMNS]


@pytest.mark.parametrize("edit", TABLE, ids=lambda edit: edit.name)
def test_an_edit_has_the_verdict_that_its_restore_bears_out(edit: Edit) -> None:
    before = Program(edit.before, edit.parallelism[0], edit.max_parallelism[0])
    after = Program(edit.after, edit.parallelism[1], edit.max_parallelism[1])
    before.records, after.records = edit.records
    metadata = before.savepoint()
    said = after.upgrade(metadata, edit.ignores)
    states: dict[str, StateVerdict] = {state.name: state for operator in said.operators for state in operator.states}
    for name, (verdict, how) in edit.states.items():
        assert (states[name].verdict, how in states[name].how) == (verdict, True), states[name]
    if edit.operator is not None:
        uid, verdict, how = edit.operator
        operator = next(candidate for candidate in said.operators if candidate.uid == uid)
        assert (operator.verdict, how in operator.how) == (verdict, True), operator
    works = edit.works
    if works is None:
        works = not any(verdict is INCOMPATIBLE for verdict, _ in edit.states.values())
    refused = _refused(after, metadata, edit.ignores)
    assert said.works is works, said.to_lines()
    assert (refused == "") is works, refused
    for name, value in edit.contents.items():
        first: dict[Any, Any] = {}
        for state, key, value_seen in upgrades.SEEN:
            if state == name:
                first.setdefault(key, value_seen)
        assert first == dict.fromkeys(range(KEYS) if None not in first else [None], value)
    lines = "\n".join(said.to_lines())
    assert all(name in lines for name in edit.states)


@pytest.mark.parametrize(
    ("before", "after", "verdict", "how"),
    [
        (True, True, RESTORED, ""),
        (False, False, RESTORED, ""),
        (False, True, MIGRATED, "row.last: struct<x: int32 not null> -> struct<x: int32>"),
        (True, False, INCOMPATIBLE, "row.last.x: it could be null, and can't be any more"),
    ],
)
def test_nulls_of_nested_fields_are_judged_as_their_restore_does(
    before: bool, after: bool, verdict: Verdict, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fields of types that programs declare may be null; those of operators of others, as they like."""
    real = pa.struct

    def nullable(may_be: bool) -> None:
        monkeypatch.setattr(
            pa, "struct", lambda fields: real([pa.field(*struct_field, nullable=may_be) for struct_field in fields])
        )

    nullable(before)
    program = Program(nested(T.INT()))
    program.records = NESTED
    metadata = program.savepoint()
    nullable(after)
    program = Program(nested(T.INT()))
    program.records = NESTED
    said = program.upgrade(metadata)
    (state,) = (state for operator in said.operators for state in operator.states)
    assert (state.verdict, how in state.how) == (verdict, True), state
    works = verdict is not INCOMPATIBLE
    assert said.works is works
    refused = program.restored(metadata)
    assert (refused == "") is works, refused
    assert works or ("'row.last.x'" in refused and "it could be null, and can't be any more" in refused)


def _refused(program: Program, metadata: Any, ignores: bool) -> str:
    try:
        return program.restored(metadata, ignores)
    except Exception as error:  # RestorePoint refuses as a whole
        return str(error) or type(error).__name__


def _printed(before: Build, after: Build) -> list[str]:
    """What a program prints that goes on from another one's savepoint, sorted."""
    metadata = Program(before).savepoint()
    program = Program(after)
    program.watermark = MAX_WATERMARK
    assert program.restored(metadata) == ""
    return sorted("".join(upgrades.PRINTED).splitlines())


def test_an_aggregate_of_a_window_that_is_added_begins_empty_and_the_others_go_on() -> None:
    numbers = [sum(n for _, n, _ in upgrades.RECORDS if n % KEYS == key) for key in range(KEYS)]
    added = _printed(windows(A), windows(e.count().alias("n"), e.min_("f1").alias("low"), A))
    once = len(upgrades.RECORDS) // KEYS
    assert added == [f"+I[{key}, 0, 100, {once}, {key}, {2 * numbers[key]}]" for key in range(KEYS)]
    without = _printed(windows(A, B), windows(B))
    assert without == ["+I[0, 0, 100, 9]", "+I[1, 0, 100, 10]", "+I[2, 0, 100, 11]"]


def test_a_null_stands_where_an_aggregate_that_was_added_has_seen_nothing() -> None:
    only = upgrades.RECORDS[:KEYS]
    metadata = Program(windows(A)).savepoint()
    program = Program(windows(A, e.min_("f1").alias("low"), e.avg("f1").alias("mean")))
    program.watermark, program.records = MAX_WATERMARK, only[:1]
    assert program.restored(metadata) == ""
    printed = sorted("".join(upgrades.PRINTED).splitlines())
    assert printed == ["+I[0, 0, 100, 18, 0, 0.0]", "+I[1, 0, 100, 22, null, null]", "+I[2, 0, 100, 26, null, null]"]


def test_a_running_aggregate_that_is_added_begins_empty_and_the_others_go_on() -> None:
    printed = _printed(columns(A), columns(A, B, e.count().alias("n")))
    assert "+I[0, 18, 0, 1]" in printed  # the sum goes on at 18; the first row is 0
    assert "+I[2, 28, 2, 1]" in printed


def test_steps_are_called_once_for_each_key_and_what_they_raise_fails_the_restore() -> None:
    calls: list[Any] = []
    metadata = Program(keeps((V("s", T.STRING()), "5"))).savepoint()

    def step(old: str) -> int:
        calls.append(old)
        return int(old)

    migration = StateMigration(1).add_step(0, step)
    after = keeps((descriptor(V("s", T.LONG()), migration), 6))
    program = Program(after)
    program.upgrade(metadata)
    assert calls == [], "nothing is read for a dry run"
    assert program.restored(metadata) == ""
    assert calls == ["5"] * KEYS
    wrong = StateMigration(1).add_step(0, lambda old: old * 2)
    refused = Program(keeps((descriptor(V("s", T.LONG()), wrong), 6))).restored(metadata)
    assert "a step of its StateMigration gave something else" in refused
    with pytest.raises(ValueError, match="a step begins at a version from 0 to 0"):
        migration.add_step(1, int)


def test_many_edits_are_tried_and_have_names_of_their_own() -> None:
    assert len(TABLE) >= 50
    assert len({edit.name for edit in TABLE}) == len(TABLE)

"""Schemas beside typed state: what becomes of values when types change."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from firesteel.common.coerce import make_coercer
from firesteel.common.time import Time
from firesteel.common.typeinfo import Types
from firesteel.common.types import Row
from firesteel.core.errors import StateMigrationError
from firesteel.functions.state import ListStateDescriptor, MapStateDescriptor, StateTtlConfig, ValueStateDescriptor
from firesteel.state.heap import HeapKeyedState
from firesteel.state.schema import SchemaCompatibility, compare, schema_of, text_of
from tests.unit.state.handles import handle, handles, written_state

INT, LONG, DOUBLE, STRING = Types.INT(), Types.LONG(), Types.DOUBLE(), Types.STRING()


@pytest.mark.parametrize(
    ("old", "new", "answer", "field"),
    [
        (INT, INT, SchemaCompatibility.AS_IS, ""),
        (Types.ROW([INT]), Types.ROW_NAMED(["f0"], [INT]), SchemaCompatibility.AS_IS, ""),
        (INT, LONG, SchemaCompatibility.MIGRATE, ""),
        (LONG, INT, SchemaCompatibility.INCOMPATIBLE, ""),
        (LONG, DOUBLE, SchemaCompatibility.INCOMPATIBLE, ""),
        (INT, STRING, SchemaCompatibility.INCOMPATIBLE, ""),
        (Types.PICKLED_BYTE_ARRAY(), INT, SchemaCompatibility.INCOMPATIBLE, ""),
        (Types.LIST(INT), Types.LIST(LONG), SchemaCompatibility.MIGRATE, "[]"),
        (Types.LIST(INT), Types.OBJECT_ARRAY(INT), SchemaCompatibility.INCOMPATIBLE, ""),
        (Types.PRIMITIVE_ARRAY(Types.BYTE()), Types.PRIMITIVE_ARRAY(INT), SchemaCompatibility.INCOMPATIBLE, ""),
        (Types.MAP(STRING, INT), Types.MAP(STRING, STRING), SchemaCompatibility.INCOMPATIBLE, "[value]"),
        (Types.ROW_NAMED(["a"], [INT]), Types.ROW_NAMED(["a", "b"], [INT, INT]), SchemaCompatibility.MIGRATE, "b"),
        (Types.ROW_NAMED(["a", "b"], [INT, INT]), Types.ROW_NAMED(["a"], [INT]), SchemaCompatibility.MIGRATE, "b"),
        (
            Types.ROW_NAMED(["a", "b"], [INT, INT]),
            Types.ROW_NAMED(["b", "a"], [INT, INT]),
            SchemaCompatibility.MIGRATE,
            "",
        ),
        (Types.TUPLE([INT, INT]), Types.TUPLE([INT, STRING]), SchemaCompatibility.INCOMPATIBLE, "f1"),
        (
            Types.ROW_NAMED(["a"], [Types.LIST(Types.TUPLE([INT]))]),
            Types.ROW_NAMED(["a"], [Types.LIST(Types.TUPLE([STRING]))]),
            SchemaCompatibility.INCOMPATIBLE,
            "a[].f0",
        ),
    ],
)
def test_three_answers_with_the_field(old: Any, new: Any, answer: SchemaCompatibility, field: str) -> None:
    before, after = json.loads(json.dumps(schema_of(old))), schema_of(new)
    comparison = compare(before, after)
    assert (comparison.answer, comparison.field) == (answer, field)
    assert bool(comparison.reason) == (answer is not SchemaCompatibility.AS_IS)


@pytest.mark.parametrize(
    ("old", "value", "new", "migrated"),
    [
        (INT, 3, DOUBLE, 3.0),
        (INT, 3, Types.BIG_DEC(), Decimal(3)),
        (Types.LIST(INT), [1, None], Types.LIST(DOUBLE), [1.0, None]),
        (Types.MAP(STRING, INT), {"a": 1, "b": None}, Types.MAP(STRING, DOUBLE), {"a": 1.0, "b": None}),
        (Types.TUPLE([INT, STRING]), (1, "x"), Types.TUPLE([DOUBLE]), (1.0,)),
        (
            Types.ROW_NAMED(["a", "b"], [INT, STRING]),
            Row(a=1, b="x"),
            Types.ROW_NAMED(["c", "a"], [STRING, DOUBLE]),
            Row(c=None, a=1.0),
        ),
    ],
)
def test_values_are_migrated(old: Any, value: Any, new: Any, migrated: Any) -> None:
    keyed = HeapKeyedState()
    keyed.key = 1
    keyed.get_state(ValueStateDescriptor("s", old)).update(value)
    snapshot = keyed.snapshot()
    chunks = [chunk for part in snapshot for chunk in part]
    later = HeapKeyedState()
    later.restore([handle(snapshot.states, chunks)])
    later.key = 1
    migrated_value = later.get_state(ValueStateDescriptor("s", new)).value()
    assert migrated_value == migrated
    assert repr(migrated_value) == repr(migrated)


def test_elements_and_entries_are_migrated() -> None:
    keyed = HeapKeyedState()
    keyed.key = 1
    keyed.get_list_state(ListStateDescriptor("l", INT)).add_all([1, 2])
    keyed.get_map_state(MapStateDescriptor("m", STRING, INT)).put_all({"b": 1, "a": 2})
    snapshot = keyed.snapshot()
    chunks = [chunk for part in snapshot for chunk in part]
    later = HeapKeyedState()
    later.restore([handle(snapshot.states, chunks)])
    later.key = 1
    with pytest.raises(StateMigrationError, match="it was list state and is value state now"):
        later.get_state(ValueStateDescriptor("l", INT))
    fresh = HeapKeyedState()
    fresh.restore([handle(snapshot.states, chunks)])
    fresh.key = 1
    assert repr(fresh.get_list_state(ListStateDescriptor("l", DOUBLE)).get()) == "[1.0, 2.0]"
    assert list(fresh.get_map_state(MapStateDescriptor("m", STRING, DOUBLE)).items()) == [("b", 1.0), ("a", 2.0)]


def test_errors_name_state_and_field() -> None:
    error = StateMigrationError("order", "price", "it was STRING and is INT now")
    assert str(error).startswith("field 'price' of state 'order' can't be read with its type of now: it was STRING")
    assert text_of(schema_of(Types.ROW_NAMED(["a"], [Types.LIST(INT)]))) == "row(a: list<INT>)"
    assert text_of(schema_of(Types.MAP(STRING, Types.TUPLE([LONG])))) == "map<STRING, tuple(f0: LONG)>"


BASIC = st.sampled_from(
    [Types.BYTE(), Types.SHORT(), INT, LONG, Types.FLOAT(), DOUBLE, STRING, Types.BIG_INT(), Types.BIG_DEC()]
)
TYPES = st.recursive(
    BASIC,
    lambda inner: st.one_of(
        inner.map(Types.LIST),
        st.lists(inner, min_size=1, max_size=3).map(Types.TUPLE),
        st.lists(st.tuples(st.sampled_from("abcd"), inner), min_size=1, max_size=4, unique_by=lambda f: f[0]).map(
            lambda fields: Types.ROW_NAMED([name for name, _ in fields], [t for _, t in fields])
        ),
        inner.map(lambda value: Types.MAP(STRING, value)),
    ),
    max_leaves=6,
)


def some_value(type_info: Any, number: int) -> Any:
    """A value of a type, the same each time."""
    schema = schema_of(type_info)
    if schema["type"] == "basic":
        by_type = {"STRING": str(number), "FLOAT": 0.5, "DOUBLE": 0.25, "BIG_DEC": Decimal(number)}
        return by_type.get(schema["of"], number)
    if schema["type"] == "list":
        return [some_value(type_info.element_type, number + 1), None]
    if schema["type"] == "map":
        return {"k": some_value(type_info.value_type, number + 1)}
    values = [some_value(t, number + i) for i, t in enumerate(type_info.field_types)]
    if schema["type"] == "tuple":
        return tuple(values)
    return Row(**dict(zip(type_info.field_names, values, strict=True)))


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(TYPES, TYPES)
def test_whatever_is_not_refused_fits_the_new_type(old: Any, new: Any) -> None:
    comparison = compare(schema_of(old), schema_of(new))
    if comparison.answer is SchemaCompatibility.INCOMPATIBLE:
        return
    value = some_value(old, 1)
    migrated = value if comparison.convert is None else comparison.convert(value)
    coerce = make_coercer(new, strict_integers=True)
    assert coerce is not None
    assert repr(coerce(migrated)) == repr(migrated)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(TYPES)
def test_a_type_is_compatible_with_itself_and_with_its_schema_as_text(type_info: Any) -> None:
    schema = schema_of(type_info)
    assert compare(json.loads(json.dumps(schema)), schema).answer is SchemaCompatibility.AS_IS


def subtask_of(
    type_info: Any, key: int | None, value: Any, restored: Any = None, ttl: bool = False, namespace: Any = None
) -> Any:
    """A snapshot of a subtask that has met a record, or, with ``key`` None, none since it was restored."""
    keyed = HeapKeyedState()
    if restored is not None:
        keyed.restore(handles(restored))
    if key is not None:
        keyed.key = key
        value_of(keyed, type_info, ttl, namespace).update(value)
    snapshot = keyed.snapshot()
    return list(snapshot.states), [chunk for part in snapshot for chunk in part]


def value_of(keyed: HeapKeyedState, type_info: Any, ttl: bool = False, namespace: Any = None) -> Any:
    descriptor = ValueStateDescriptor("s", type_info)
    if ttl:
        descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.days(1)).build())
    return keyed.store(namespace).get_state(descriptor)


@pytest.mark.parametrize("namespace", [None, "w"])
@pytest.mark.parametrize("ttl", [False, True])
@pytest.mark.parametrize("order", [1, -1])
def test_only_some_subtasks_have_asked_for_a_state_since_its_type_is_another(
    order: int, ttl: bool, namespace: Any
) -> None:
    declared = subtask_of(LONG, 1, 2**40, subtask_of(INT, 2, 20, namespace=namespace), ttl=ttl, namespace=namespace)
    not_asked = subtask_of(LONG, None, None, subtask_of(INT, 3, 30, namespace=namespace), namespace=namespace)
    snapshots = [declared, not_asked][::order]
    for again in range(2):
        keyed = HeapKeyedState()
        keyed.restore(handles(*snapshots))
        if not again:  # nobody asks for it, and it is written as it was
            running = keyed.snapshot()
            snapshots = [(list(running.states), [chunk for part in running for chunk in part])]
    state = value_of(keyed, LONG, ttl, namespace)
    values = []
    for keyed.key in (1, 2, 3):
        values.append(state.value())
    assert values == [2**40, 20, 30]
    keyed.key = 3
    state.update(31)
    assert state.value() == 31


def test_types_that_do_not_become_that_of_now_are_refused_still() -> None:
    keyed = HeapKeyedState()
    keyed.restore(handles(subtask_of(LONG, 1, 10), subtask_of(STRING, 2, "x")))
    with pytest.raises(StateMigrationError, match="it was STRING and is LONG"):
        value_of(keyed, LONG)


@pytest.mark.parametrize("ttl", [False, True])
def test_keys_of_a_map_that_become_one_are_refused(ttl: bool) -> None:
    def descriptor(key: Any) -> MapStateDescriptor:
        descriptor = MapStateDescriptor("m", key, INT)
        if ttl:
            descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.days(1)).build())
        return descriptor

    keyed = HeapKeyedState()
    keyed.key = 1
    keyed.get_map_state(descriptor(Types.TUPLE([INT, INT]))).put_all({(1, 1): 1, (1, 2): 2})
    snapshot = keyed.snapshot()
    later = HeapKeyedState()
    later.restore([written_state(snapshot)])
    later.key = 1
    with pytest.raises(StateMigrationError, match=r"field '\[key\]' of state 'm' .*: removed, which makes several"):
        later.get_map_state(descriptor(Types.TUPLE([INT])))

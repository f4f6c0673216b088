from __future__ import annotations

import array
import datetime
import enum
import math
import pickle
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from firesteel.common import Instant, Row, RowKind, Types
from firesteel.common.coerce import make_coercer
from firesteel.common.typeinfo import ExternalTypeInfo, LocalTimeTypeInfo, TypeInformation
from firesteel.core.errors import TypeMismatchError

INTEGERS = [(Types.BYTE(), 8), (Types.SHORT(), 16), (Types.INT(), 32), (Types.LONG(), 64)]
BERLIN = datetime.timezone(datetime.timedelta(hours=1))
NOON = datetime.datetime(2024, 5, 1, 12, 0, 0, 5)


def fit(type_info: TypeInformation, value: Any, strict: bool = False) -> Any:
    coercer = make_coercer(type_info, strict_integers=strict)
    assert coercer is not None
    return coercer(value)


class Colour(str, enum.Enum):  # noqa: UP042 - str with Enum is what older programs write
    RED = "red"


@pytest.mark.parametrize(
    ("type_info", "value", "expected"),
    [
        (Types.STRING(), "a", "a"),
        (Types.STRING(), np.str_("a"), "a"),
        (Types.STRING(), Colour.RED, "red"),
        (Types.CHAR(), "x", "x"),
        (Types.BOOLEAN(), np.bool_(True), True),
        (Types.BOOLEAN(), 0, False),
        (Types.INT(), np.int64(5), 5),
        (Types.INT(), True, 1),
        (Types.INT(), np.bool_(True), 1),
        (Types.SHORT(), 43878, -21658),
        (Types.BYTE(), 200, -56),
        (Types.DOUBLE(), 3, 3.0),
        (Types.DOUBLE(), np.float32(0.5), 0.5),
        (Types.DOUBLE(), Decimal("0.25"), 0.25),
        (Types.FLOAT(), 1.1, 1.100000023841858),
        (Types.FLOAT(), 1e300, math.inf),
        (Types.FLOAT(), 2, 2.0),
        (Types.BIG_INT(), 10**30, 10**30),
        (Types.BIG_DEC(), 2, Decimal(2)),
        (Types.BIG_DEC(), 0.1, Decimal("0.1")),
        (Types.INSTANT(), Instant(1, 2), Instant(1, 2)),
        (Types.INSTANT(), datetime.datetime(1970, 1, 1, 1, 0, 1, tzinfo=BERLIN), Instant(1, 0)),
        (Types.INSTANT(), datetime.datetime(1969, 12, 31, 23, 59, 59, 5, tzinfo=datetime.UTC), Instant(-1, 5000)),
        (Types.SQL_DATE(), NOON, NOON.date()),
        (Types.SQL_TIME(), NOON.time(), NOON.time()),
        (Types.SQL_TIMESTAMP(), NOON, NOON),
        (LocalTimeTypeInfo(LocalTimeTypeInfo.TimeType.LOCAL_DATE), NOON, NOON.date()),
        (Types.PRIMITIVE_ARRAY(Types.BYTE()), bytearray(b"ab"), b"ab"),
        (Types.PRIMITIVE_ARRAY(Types.BYTE()), [97, -1], b"a\xff"),
        (Types.PRIMITIVE_ARRAY(Types.INT()), array.array("i", [1, 2]), [1, 2]),
        (Types.PRIMITIVE_ARRAY(Types.LONG()), np.array([1, 2]), [1, 2]),
        (Types.BASIC_ARRAY(Types.STRING()), ("a", None), ["a", None]),
        (Types.OBJECT_ARRAY(Types.ROW([Types.INT()])), [(1,), None], [Row(f0=1), None]),
        (Types.LIST(Types.SHORT()), (1, 43878, None), [1, -21658, None]),
        (Types.MAP(Types.STRING(), Types.BYTE()), {"a": 200, "b": None}, {"a": -56, "b": None}),
        (Types.TUPLE([Types.STRING(), Types.INT()]), ["a", 1], ("a", 1)),
        (Types.TUPLE([Types.STRING(), Types.INT()]), (None, 1), (None, 1)),
        (Types.ROW([Types.INT(), Types.STRING()]), (1, "hi"), Row(f0=1, f1="hi")),
        (Types.ROW([Types.INT(), Types.STRING()]), [1, None], Row(f0=1, f1=None)),
        (Types.ROW([Types.INT(), Types.STRING()]), Row(1, "hi"), Row(f0=1, f1="hi")),
        (Types.ROW([Types.INT(), Types.STRING()]), Row(x=1, y="hi"), Row(f0=1, f1="hi")),
        (Types.ROW_NAMED(["a", "b"], [Types.INT(), Types.STRING()]), Row(b="hi", a=1), Row(a=1, b="hi")),
        (Types.ROW_NAMED(["a", "b"], [Types.INT(), Types.STRING()]), {"b": "hi"}, Row(a=None, b="hi")),
        (Types.ROW([Types.ROW([Types.SHORT()])]), ((43878,),), Row(f0=Row(f0=-21658))),
        (Types.ROW([Types.PICKLED_BYTE_ARRAY()]), ({1},), Row(f0={1})),
        (Types.ROW([]), (), Row().__class__()),
        (ExternalTypeInfo(Types.SHORT()), 43878, -21658),
    ],
)
def test_values_become_what_the_type_says(type_info: TypeInformation, value: Any, expected: Any) -> None:
    fitted = fit(type_info, value)
    if type_info == Types.ROW([]):
        assert isinstance(fitted, Row)
        assert len(fitted) == 0
        return
    assert fitted == expected
    assert type(fitted) is type(expected)
    assert fit(type_info, fitted) == expected


def test_any_object_needs_no_coercer() -> None:
    assert make_coercer(Types.PICKLED_BYTE_ARRAY()) is None


def test_values_that_fit_pass_unchanged() -> None:
    row_type = Types.ROW([Types.INT(), Types.STRING(), Types.FLOAT(), Types.LIST(Types.INT())])
    row = fit(row_type, (1, "a", 0.5, [1]))
    assert fit(row_type, row) is row
    pair = ("a", 1)
    assert fit(Types.TUPLE([Types.STRING(), Types.INT()]), pair) is pair
    mapping = {"a": 1}
    assert fit(Types.MAP(Types.STRING(), Types.INT()), mapping) is mapping


def test_the_users_own_objects_are_not_changed() -> None:
    row, numbers = Row(43878), [43878]
    assert fit(Types.ROW([Types.SHORT()]), row) == Row(f0=-21658)
    assert fit(Types.LIST(Types.SHORT()), numbers) == [-21658]
    assert (row, numbers) == (Row(43878), [43878])
    source = [1]
    fitted = fit(Types.ROW([Types.INT()]), source)
    fitted[0] = 2
    assert source == [1]


def test_row_kinds_stay() -> None:
    for row in (Row.of_kind(RowKind.DELETE, 43878), Row.of_kind(RowKind.DELETE, f0=43878)):
        fitted = fit(Types.ROW([Types.SHORT()]), row)
        assert fitted == Row.of_kind(RowKind.DELETE, f0=-21658)


@pytest.mark.parametrize(
    ("type_info", "value", "field", "declared", "shown"),
    [
        (Types.INT(), "x", "", "Integer", "'x'"),
        (Types.INT(), 1.0, "", "Integer", "1.0"),
        (Types.STRING(), 5, "", "String", "5"),
        (Types.STRING(), None, "", "String", "None"),
        (Types.BOOLEAN(), 2, "", "Boolean", "2"),
        (Types.DOUBLE(), "1.0", "", "Double", "'1.0'"),
        (Types.DOUBLE(), 10**400, "", "Double", "100000"),
        (Types.CHAR(), "ab", "", "Character", "'ab'"),
        (Types.CHAR(), "\U0001f525", "", "Character", "'"),
        (Types.BIG_DEC(), float("nan"), "", "BigDecimal", "nan"),
        (Types.BIG_INT(), 1.5, "", "BigInteger", "1.5"),
        (Types.INSTANT(), NOON, "", "Instant", "datetime"),
        (Types.SQL_DATE(), "2024-01-01", "", "Date", "'2024-01-01'"),
        (Types.SQL_TIME(), NOON, "", "Time", "datetime"),
        (Types.SQL_TIMESTAMP(), NOON.date(), "", "Timestamp", "datetime.date"),
        (Types.TUPLE([Types.INT()]), (1, 2), "", "TupleTypeInfo(Integer)", "(1, 2)"),
        (Types.TUPLE([Types.INT()]), 5, "", "TupleTypeInfo(Integer)", "5"),
        (Types.TUPLE([Types.INT(), Types.INT()]), (1, "x"), "f1", "Integer", "'x'"),
        (Types.ROW([Types.INT()]), (), "", "RowTypeInfo(Integer)", "()"),
        (Types.ROW([Types.INT()]), None, "", "RowTypeInfo(Integer)", "None"),
        (Types.ROW_NAMED(["a"], [Types.INT()]), Row(b=1), "", "RowTypeInfo(a: Integer)", "Row(b=1)"),
        (Types.ROW_NAMED(["a"], [Types.INT()]), {"b": 1}, "", "RowTypeInfo(a: Integer)", "{'b': 1}"),
        (
            Types.ROW([Types.INT(), Types.ROW_NAMED(["price"], [Types.INT()])]),
            (1, ("x",)),
            "f1.price",
            "Integer",
            "'x'",
        ),
        (Types.ROW([Types.LIST(Types.INT())]), ([1, "x"],), "f0[1]", "Integer", "'x'"),
        (Types.LIST(Types.TUPLE([Types.INT()])), [(1,), ("x",)], "[1].f0", "Integer", "'x'"),
        (Types.LIST(Types.INT()), {1}, "", "ListTypeInfo<Integer>", "{1}"),
        (Types.PRIMITIVE_ARRAY(Types.INT()), [1, None], "[1]", "Integer", "None"),
        (Types.PRIMITIVE_ARRAY(Types.BYTE()), ["a"], "[0]", "Byte", "'a'"),
        (Types.MAP(Types.STRING(), Types.INT()), {"a": "x"}, "['a']", "Integer", "'x'"),
        (Types.MAP(Types.STRING(), Types.INT()), {1: 1}, "[key]", "String", "1"),
        (Types.MAP(Types.STRING(), Types.INT()), {None: 1}, "[key]", "String", "None"),
        (Types.MAP(Types.STRING(), Types.INT()), [1], "", "MapTypeInfo<String, Integer>", "[1]"),
    ],
)
def test_misfits_name_field_type_and_value(
    type_info: TypeInformation, value: Any, field: str, declared: str, shown: str
) -> None:
    with pytest.raises(TypeMismatchError) as caught:
        fit(type_info, value)
    error = caught.value
    assert (error.field, error.declared) == (field, declared)
    assert shown in error.value
    assert error.reason
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_long_and_broken_values_are_shown_short() -> None:
    with pytest.raises(TypeMismatchError) as caught:
        fit(Types.INT(), "x" * 10_000)
    assert len(caught.value.value) < 220

    class Broken:
        def __repr__(self) -> str:
            raise RuntimeError

    with pytest.raises(TypeMismatchError, match="holds <Broken instance at"):
        fit(Types.INT(), Broken())


def test_strict_integers_raise_instead_of_wrapping() -> None:
    with pytest.raises(TypeMismatchError, match="-32768 to 32767"):
        fit(Types.SHORT(), 43878, strict=True)
    with pytest.raises(TypeMismatchError, match="strict"):
        fit(Types.ROW([Types.INT()]), (2**31,), strict=True)
    assert fit(Types.SHORT(), 32767, strict=True) == 32767


@pytest.mark.parametrize(("type_info", "bits"), INTEGERS, ids=str)
def test_ranges_end_where_javas_do(type_info: TypeInformation, bits: int) -> None:
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    for value, expected in [(low, low), (high, high), (low - 1, high), (high + 1, low)]:
        assert fit(type_info, value) == expected
        assert fit(Types.TUPLE([type_info]), (value,)) == (expected,)


@given(st.integers(-(2**70), 2**70), st.sampled_from(INTEGERS))
def test_wrapping_is_twos_complement(value: int, kind: tuple[TypeInformation, int]) -> None:
    type_info, bits = kind
    expected = int.from_bytes((value & ((1 << bits) - 1)).to_bytes(bits // 8, "big"), "big", signed=True)
    assert fit(type_info, value) == expected
    assert fit(Types.ROW([type_info]), (value,)) == Row(f0=expected)
    assert fit(Types.TUPLE([type_info]), (value,)) == (expected,)


@given(st.floats(width=64))
def test_floats_round_to_32_bits_as_numpy_does(value: float) -> None:
    with np.errstate(over="ignore", under="ignore"):
        expected = float(np.float32(value))
    for fitted in (fit(Types.FLOAT(), value), fit(Types.TUPLE([Types.FLOAT()]), (value,))[0]):
        assert fitted == expected or (math.isnan(fitted) and math.isnan(expected))


BASIC = {
    "STRING": st.text(max_size=5),
    "INT": st.integers(-(2**40), 2**40),
    "BYTE": st.integers(-300, 300),
    "DOUBLE": st.floats(allow_nan=False),
    "FLOAT": st.floats(allow_nan=False),
    "BOOLEAN": st.booleans(),
    "BIG_DEC": st.decimals(allow_nan=False, allow_infinity=False),
    "SQL_DATE": st.dates(),
    "SQL_TIMESTAMP": st.datetimes(),
}


def _typed(depth: int) -> st.SearchStrategy[tuple[TypeInformation, Any]]:
    basic = st.sampled_from(sorted(BASIC)).flatmap(lambda name: st.tuples(st.just(getattr(Types, name)()), BASIC[name]))
    if depth == 0:
        return basic
    inner = _typed(depth - 1)
    fields = st.lists(inner, min_size=1, max_size=4)
    return st.one_of(
        basic,
        fields.map(lambda fs: (Types.ROW([t for t, _ in fs]), tuple(v for _, v in fs))),
        fields.map(lambda fs: (Types.ROW([t for t, _ in fs]), Row(*[v for _, v in fs]))),
        fields.map(lambda fs: (Types.TUPLE([t for t, _ in fs]), [v for _, v in fs])),
        inner.map(lambda f: (Types.LIST(f[0]), [f[1], None])),
        inner.map(lambda f: (Types.MAP(Types.STRING(), f[0]), {"k": f[1]})),
    )


@given(_typed(2))
def test_fitting_twice_changes_nothing_more(case: tuple[TypeInformation, Any]) -> None:
    type_info, value = case
    once = fit(type_info, value)
    assert fit(type_info, once) is once or fit(type_info, once) == once
    assert pickle.loads(pickle.dumps(once)) == once


@given(st.lists(st.tuples(st.sampled_from(sorted(BASIC)), st.integers(0, 3)), min_size=1, max_size=5), st.data())
def test_quick_check_of_rows_agrees_with_field_by_field(fields: list[tuple[str, int]], data: st.DataObject) -> None:
    """The compiled check may only let pass what the fields' own coercers leave alone."""
    types = [getattr(Types, name)() for name, _ in fields]
    values = [None if null == 0 else data.draw(BASIC[name]) for name, null in fields]
    expected = tuple(v if v is None else fit(t, v) for t, v in zip(types, values, strict=True))
    assert fit(Types.TUPLE(types), tuple(values)) == expected

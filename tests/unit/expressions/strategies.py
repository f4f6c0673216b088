"""Types with columns and their values, and when two values are the same."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from firesteel.common.time import Instant
from firesteel.common.typeinfo import LocalTimeTypeInfo, TypeInformation, Types
from firesteel.common.types import Row, make_row

EPOCH = datetime.datetime(1970, 1, 1)


def moment(value: Instant) -> datetime.datetime:
    return EPOCH + datetime.timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)


def instant(value: datetime.datetime) -> Instant:
    micros = (value - EPOCH) // datetime.timedelta(microseconds=1)
    return Instant(micros // 10**6, micros % 10**6 * 1000)


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
INSTANTS = st.integers(-(2**63), 2**63 - 1).map(lambda us: Instant(us // 10**6, us % 10**6 * 1000))
DECIMALS = st.decimals(allow_nan=False, allow_infinity=False) | st.sampled_from(
    [Decimal("1.10"), Decimal("-0.00"), Decimal("1E+5"), Decimal("1E-400"), Decimal(10**90)]
)


def unfolded(moment: Any) -> Any:
    """``fold`` says something about local time; columns do not keep it, and equality does not look at it."""
    return moment.replace(fold=0)


def whole(bits: int) -> st.SearchStrategy[int]:
    half = 1 << (bits - 1)
    return st.sampled_from([-half, half - 1, 0]) | st.integers(-half, half - 1)


PLAIN: list[tuple[TypeInformation, st.SearchStrategy[Any]]] = [
    (Types.BOOLEAN(), st.booleans()),
    (Types.BYTE(), whole(8)),
    (Types.SHORT(), whole(16)),
    (Types.INT(), whole(32)),
    (Types.LONG(), whole(64)),
    (Types.FLOAT(), st.floats(width=32)),
    (Types.DOUBLE(), st.floats()),
    (Types.STRING(), TEXT),
    (Types.CHAR(), st.characters(max_codepoint=0xD7FF)),
    (Types.BIG_INT(), st.integers(-(10**76) + 1, 10**76 - 1)),
    (Types.BIG_DEC(), DECIMALS),
    (Types.INSTANT(), INSTANTS),
    (Types.SQL_DATE(), st.dates()),
    (Types.SQL_TIME(), st.times().map(unfolded)),
    (Types.SQL_TIMESTAMP(), st.datetimes().map(unfolded)),
    (LocalTimeTypeInfo(LocalTimeTypeInfo.TimeType.LOCAL_DATE_TIME), st.datetimes().map(unfolded)),
    (Types.PRIMITIVE_ARRAY(Types.BYTE()), st.binary(max_size=5)),
]
HASHABLE = [pair for pair in PLAIN if pair[0] not in (Types.DOUBLE(), Types.FLOAT())]


@st.composite
def typed(draw: st.DrawFn, depth: int = 2) -> tuple[TypeInformation, st.SearchStrategy[Any]]:
    """A type and its values, nulls among them."""
    kind = draw(st.sampled_from(["plain"] * 3 + (["list", "map", "row", "named", "tuple"] if depth else [])))
    if kind == "plain":
        type_info, values = draw(st.sampled_from(PLAIN))
    elif kind == "list":
        inner, parts = draw(typed(depth - 1))
        make = draw(st.sampled_from([Types.LIST, Types.OBJECT_ARRAY]))
        type_info, values = make(inner), st.lists(parts, max_size=3)
    elif kind == "map":
        key, keys = draw(st.sampled_from(HASHABLE))
        inner, parts = draw(typed(depth - 1))
        type_info, values = Types.MAP(key, inner), st.dictionaries(keys, parts, max_size=3)
    else:
        fields = draw(st.lists(typed(depth - 1), max_size=3))
        types, parts = [type_info for type_info, _ in fields], st.tuples(*[part for _, part in fields])
        if kind == "tuple":
            type_info, values = Types.TUPLE(types), parts
        else:
            names = [f"n{i}" for i in range(len(types))] if kind == "named" else [f"f{i}" for i in range(len(types))]
            type_info = Types.ROW_NAMED(names, types) if kind == "named" else Types.ROW(types)
            values = parts.map(lambda values_of_row: make_row(tuple(names), list(values_of_row)))
    return type_info, st.none() | values


def same(value: Any, other: Any) -> bool:
    """Equal and of the same types; NaN is NaN, zeros keep their sign, decimal numbers their digits."""
    if type(value) is not type(other):
        return False
    if isinstance(value, float):
        return (math.isnan(value) and math.isnan(other)) or (
            value == other and math.copysign(1, value) == math.copysign(1, other)
        )
    if isinstance(value, list | tuple | Row):
        names = not isinstance(value, Row) or (value._fields or ()) == (other._fields or ())
        return names and len(value) == len(other) and all(map(same, value, other))
    if isinstance(value, dict):
        return len(value) == len(other) and all(map(same, list(value.items()), list(other.items())))
    return str(value) == str(other) if isinstance(value, Decimal) else bool(value == other)

"""Keys that Python holds equal have the same bytes, others have others."""

from __future__ import annotations

import datetime
import enum
import uuid
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from firesteel.common.types import Row
from firesteel.windowing.windows import TimeWindow
from firesteel_rocksdb.key_bytes import decode, decode_exactly, encode, encode_exactly


class Pair(NamedTuple):
    first: int
    second: str


class Color(enum.Enum):
    RED = 1


class Level(enum.IntEnum):
    LOW = 1


class Name(enum.StrEnum):
    A = "a"


@dataclass(frozen=True)
class Point:
    x: int
    y: float


UTC = datetime.UTC
HOUR = datetime.timezone(datetime.timedelta(hours=1))
NOON = datetime.datetime(2020, 1, 1, 12, tzinfo=UTC)
EQUAL: list[tuple[Any, ...]] = [
    (1, 1.0, True, Decimal(1), Fraction(1), np.int64(1), np.float32(1), Level.LOW, np.bool_(True)),
    (0, 0.0, -0.0, False, Decimal("-0")),
    (0.5, Decimal("0.5"), Fraction(1, 2), np.float64(0.5)),
    (Fraction(1, 3), Fraction(2, 6)),
    (Decimal("0.1"), Fraction(1, 10)),
    (float("inf"), Decimal("Infinity")),
    (2**70, float(2**70), Decimal(2**70)),
    ("a", Name.A, np.str_("a")),
    (b"a", np.bytes_(b"a")),
    ((1, "a"), (1.0, "a"), Pair(1, "a")),
    (NOON, datetime.datetime(2020, 1, 1, 13, tzinfo=HOUR)),
    (Point(1, 2.0), Point(1, 2)),
    (Row(a=1, b=2), Row(a=1.0, b=2)),
    ((5, 10), TimeWindow(5, 10)),
]
DIFFERENT: list[Any] = [
    *(group[0] for group in EQUAL),
    None,
    "",
    b"",
    (),
    ((),),
    "1",
    (1, "a", None),
    ("a", 1),
    ((1,), "a"),
    (1, ("a",)),
    2**63,
    -(2**63),
    -(2**63) - 1,
    0.1,
    datetime.datetime(2020, 1, 1, 12),
    datetime.date(2020, 1, 1),
    datetime.time(12),
    datetime.timedelta(1),
    uuid.UUID(int=1),
    Color.RED,
    Row(1, 2),
    Row(b=1, a=2),
    Point(2, 1.0),
]


@pytest.mark.parametrize("group", EQUAL, ids=lambda group: repr(group[0]))
def test_equal_keys_have_the_same_bytes(group: tuple[Any, ...]) -> None:
    assert len(set(group)) == 1
    assert len({encode(key)[0] for key in group}) == 1


def test_different_keys_have_different_bytes() -> None:
    assert len({encode(key)[0] for key in DIFFERENT}) == len(DIFFERENT)


@pytest.mark.parametrize("key", [key for group in EQUAL for key in group] + DIFFERENT, ids=repr)
def test_the_very_key_comes_back(key: Any) -> None:
    data, exact = encode(key)
    decoded = decode(data) if exact else decode_exactly(encode_exactly(key))
    assert decoded == key
    assert type(decoded) is type(key)


PLAIN = st.recursive(
    st.none() | st.integers() | st.text() | st.binary() | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3).map(tuple),
    max_leaves=6,
)


@given(PLAIN, PLAIN)
def test_bytes_are_equal_as_keys_are(key: Any, other: Any) -> None:
    assert (encode(key)[0] == encode(other)[0]) == (key == other)
    data, exact = encode(key)
    if exact:
        assert repr(decode(data)) == repr(key)


def test_the_bytes_are_those_of_version_1() -> None:
    assert encode(1)[0].hex() == "690000000000000001"
    assert encode(("a", None))[0].hex() == "740000000273610000" + "00014e"
    assert encode(0.5)[0].hex() == "663fe0000000000000"
    assert encode(2**64)[0].hex() == "49010000000000000000"

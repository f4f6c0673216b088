from __future__ import annotations

import datetime
import enum
import math
import re
import subprocess
import sys
import uuid
import zlib
from collections import namedtuple
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from firesteel.common import Row, RowKind
from firesteel.core.errors import KeyTypeError
from firesteel.graph.key_hash import KEY_HASH_VERSION, key_group, murmur, stable_hash
from firesteel.graph.key_hash_columns import hash_column, murmur_array

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "key-hash.md"
UTC = datetime.UTC
ONE = datetime.timezone(datetime.timedelta(hours=1))
BERLIN = ZoneInfo("Europe/Berlin")

Point = namedtuple("Point", "x y")


class Colour(enum.Enum):
    RED = 1
    CRIMSON = 1
    BLUE = 2


class Size(enum.IntEnum):
    BIG = 3


class Word(enum.StrEnum):
    HI = "hi"


class Old(str, enum.Enum):  # noqa: UP042 - str with Enum is what older programs write
    HI = "hi"


class Ratio(float, enum.Enum):
    HALF = 0.5


class Access(enum.IntFlag):
    READ = 1
    WRITE = 2


@dataclass(frozen=True)
class Order:
    id: int
    name: str
    note: str = field(default="", compare=False)


@dataclass(frozen=True)
class Special(Order):
    pass


@pytest.mark.parametrize(
    "equal",
    [
        [
            1,
            1.0,
            True,
            Decimal(1),
            Decimal("1.00"),
            Fraction(1),
            np.int8(1),
            np.uint64(1),
            np.float16(1),
            np.bool_(True),
        ],
        [0, 0.0, -0.0, False, Decimal("-0")],
        [-1, -1.0, Decimal(-1), np.int64(-1)],
        [0.5, Fraction(1, 2), Decimal("0.5"), np.float32(0.5), Ratio.HALF],
        [2**61 - 1, 0.0],
        [10**30, Decimal(10) ** 30, Fraction(10**30)],
        [math.inf, Decimal("inf"), np.float64("inf")],
        [3, Size.BIG, 3.0, Access.READ | Access.WRITE],
        ["hi", Word.HI, Old.HI, np.str_("hi")],
        [b"ab", np.bytes_(b"ab")],
        [math.nan, float("nan"), Decimal("nan"), Decimal("snan"), np.float32("nan")],
        [(1, "a"), (1.0, "a"), (True, np.str_("a"))],
        [(1, 2), Point(1, 2), Point(1.0, 2.0)],
        [Colour.RED, Colour.CRIMSON, Colour(1)],
        [Order(1, "a"), Order(1, "a", "differs"), Order(True, "a")],
        [Row(1, "a"), Row(1.0, "a")],
        [Row(a=1, b=2), Row(b=2, a=1)],
        [datetime.date(2024, 5, 1), datetime.date.fromisoformat("2024-05-01")],
        [
            datetime.datetime(2024, 5, 1, 12, tzinfo=UTC),
            datetime.datetime(2024, 5, 1, 13, tzinfo=ONE),
            datetime.datetime(2024, 5, 1, 14, tzinfo=BERLIN),
        ],
        [
            datetime.datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN),
            datetime.datetime(2024, 10, 27, 2, 30, fold=1, tzinfo=BERLIN),
        ],
        [datetime.time(12, tzinfo=UTC), datetime.time(13, tzinfo=ONE)],
        [datetime.time(12), datetime.time(12, fold=1)],
        [datetime.timedelta(hours=1), datetime.timedelta(seconds=3600)],
        [uuid.UUID(int=5), uuid.UUID("00000000-0000-0000-0000-000000000005")],
    ],
    ids=repr,
)
def test_equal_keys_hash_equal(equal: list[Any]) -> None:
    assert len({stable_hash(key) for key in equal}) == 1
    assert len({key_group(key, 128) for key in equal}) == 1


@pytest.mark.parametrize(
    ("key", "other"),
    [
        ((1, 2), (2, 1)),
        ((), (1,)),
        (((1,), 2), (1, (2,))),
        (Row(1), (1,)),
        (Row(1), Row(f0=1)),
        (Row(a=1), Row(b=1)),
        (Row(1), Row.of_kind(RowKind.DELETE, 1)),
        (Colour.RED, Colour.BLUE),
        (Order(1, "a"), Special(1, "a")),
        (Order(1, "a"), Order(2, "a")),
        (None, 0),
        ("", 0.5),
        ("a", "b"),
        (datetime.date(2024, 5, 1), datetime.datetime(2024, 5, 1)),
        (datetime.time(1), datetime.time(2)),
        (datetime.timedelta(1), datetime.timedelta(2)),
        (1, 2),
        (1.5, 1.25),
    ],
    ids=repr,
)
def test_keys_that_differ_hash_apart(key: Any, other: Any) -> None:
    assert stable_hash(key) != stable_hash(other)


@dataclass
class Loose:
    a: int


@dataclass(frozen=True, eq=False)
class ByIdentity:
    a: int


@dataclass(frozen=True)
class OwnEquality:
    a: int

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 1


class Text(str):
    def __eq__(self, other: object) -> bool:
        return str(self).lower() == str(other).lower()

    def __hash__(self) -> int:
        return hash(self.lower())


class Plain:
    pass


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ([1], "list.*use a tuple"),
        ({1: 2}, "dict.*use a tuple"),
        ({1}, "set.*sorted tuple"),
        (frozenset({1}), "frozenset.*sorted tuple"),
        (bytearray(b"a"), "bytearray.*use bytes"),
        (1j, "complex"),
        (Plain(), r"Plain can't be a key\. Allowed are None, bool"),
        (Loose(1), "frozen=True"),
        (ByIdentity(1), "eq=True"),
        (OwnEquality(1), "eq=True"),
        (Text("a"), "__eq__ differs from that of str"),
        (np.datetime64("2020-01-01"), "Python value"),
        (np.timedelta64(1, "s"), "Python value"),
        (np.array([1]), "Python value"),
        (np.longdouble(1), "Python value"),
        ((1, [2]), "list.*use a tuple"),
        (Row([1]), "list"),
        (Order([1], "a"), "list"),  # type: ignore[arg-type]
    ],
    ids=lambda value: type(value).__name__,
)
def test_other_keys_are_refused_by_type(key: Any, hint: str) -> None:
    for _ in range(2):
        with pytest.raises(KeyTypeError, match=hint):
            stable_hash(key)


def vectors() -> list[tuple[str, int, int]]:
    """The table of the page: expression, hash, key group of 128."""
    rows = re.findall(r"^\| `(.+?)` \| (\d+) \| (\d+) \|$", PAGE.read_text("utf-8"), re.MULTILINE)
    return [(text, int(hashed), int(group)) for text, hashed, group in rows]


def test_the_published_vectors_hold() -> None:
    table = vectors()
    assert len(table) >= 40
    assert f"Version {KEY_HASH_VERSION}" in PAGE.read_text("utf-8")
    names = {
        "Decimal": Decimal, "Fraction": Fraction, "UUID": uuid.UUID, "Row": Row, "Colour": Colour, "Order": Order,
        "date": datetime.date, "time": datetime.time, "datetime": datetime.datetime, "UTC": UTC, "nan": math.nan,
        "timedelta": datetime.timedelta, "timezone": datetime.timezone, "RowKind": RowKind, "inf": math.inf,
    }  # fmt: skip
    for text, hashed, group in table:
        key = eval(text, names)
        assert (text, stable_hash(key), key_group(key, 128)) == (text, hashed, group)


def test_the_hash_is_the_same_in_every_process() -> None:
    keys = "['a', b'b', (1, 'x', None), 2.5, -7]"
    program = f"from firesteel.graph.key_hash import stable_hash as h; print([h(k) for k in {keys}])"
    runs = {
        subprocess.run(
            [sys.executable, "-c", program], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert runs == {f"{[stable_hash(key) for key in eval(keys)]}\n"}


def test_flinks_murmur() -> None:
    assert [murmur(h) for h in (0, 1, 42, -1)] == [593689054, 68075478, 1134849565, 1982413648]
    assert [murmur(h) % 128 for h in (0, 1, 42, -1)] == [94, 86, 29, 80]
    assert murmur(0xFFFFFFFF) == murmur(-1)


@given(st.integers(0, 2**32 - 1))
@example(2205091669)  # the smallest 32-bit integer, which has no absolute value
def test_murmur_is_never_negative_and_has_a_twin_for_columns(h: int) -> None:
    assert 0 <= murmur(h) < 2**31
    assert murmur_array(np.array([h], np.uint32)).tolist() == [murmur(h)]


@given(st.one_of(st.integers(), st.floats(), st.fractions(), st.decimals()))
def test_numbers_follow_pythons_numeric_hash(key: Any) -> None:
    if (isinstance(key, Decimal) and key.is_nan()) or key != key:
        expected = stable_hash(math.nan)
    else:
        bits = hash(key) & (2**64 - 1)
        expected = (bits ^ (bits >> 32)) & 0xFFFFFFFF
    assert stable_hash(key) == expected


@given(st.integers(-(2**63), 2**63 - 1))
def test_ints_floats_and_numpy_agree_wherever_they_are_equal(value: int) -> None:
    assert stable_hash(value) == stable_hash(np.int64(value)) == stable_hash(Decimal(value))
    if float(value) == value:
        assert stable_hash(value) == stable_hash(float(value)) == stable_hash(np.float64(value))


@given(st.datetimes(), st.integers(-23, 23), st.integers(-23, 23))
def test_equal_instants_hash_equal(moment: datetime.datetime, offset: int, other_offset: int) -> None:
    zones = [datetime.timezone(datetime.timedelta(hours=hours)) for hours in (offset, other_offset)]
    try:
        twins = [moment.replace(tzinfo=UTC).astimezone(zone) for zone in zones]
    except OverflowError:
        return
    assert twins[0] == twins[1]
    assert stable_hash(twins[0]) == stable_hash(twins[1])


INT64 = st.one_of(st.integers(-(2**63), 2**63 - 1), st.sampled_from([2**61 - 1, 2**61, -(2**61 - 1), -(2**63), -1, -2]))


@given(st.lists(st.one_of(st.none(), INT64)))
def test_int_columns_agree_with_rows(values: list[int | None]) -> None:
    assert hash_column(pa.array(values, pa.int64())).tolist() == [stable_hash(v) for v in values]


@given(st.lists(st.one_of(st.none(), st.floats(), INT64.map(float))))
@example([5e-324, -5e-324, 1.7976931348623157e308, -math.inf, math.nan, -0.0, -1.0, 2.0**61, 0.1])
def test_float_columns_agree_with_rows(values: list[float | None]) -> None:
    column = pa.array(values, pa.float64(), from_pandas=False)
    assert hash_column(column).tolist() == [stable_hash(v) for v in values]


@given(st.lists(st.one_of(st.none(), st.text())), st.integers(0, 3))
def test_string_columns_agree_with_rows(values: list[str | None], start: int) -> None:
    expected = [stable_hash(v) for v in values][start:]
    for kind in (pa.string(), pa.large_string()):
        column = pa.array(values, kind).slice(start)
        assert hash_column(column).tolist() == expected
        assert hash_column(column.dictionary_encode()).tolist() == expected


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.bool_(), [True, None, False]),
        (pa.int8(), [1, -1, -128, None]),
        (pa.uint64(), [0, 2**64 - 1, None]),
        (pa.uint8(), [255, None]),
        (pa.float32(), [0.5, None, math.inf]),
        (pa.float16(), [0.5, None, 2.0]),
        (pa.binary(), [b"a", None, b""]),
        (pa.null(), [None, None]),
        (pa.date32(), [datetime.date(2024, 5, 1), None]),
        (pa.timestamp("us"), [datetime.datetime(2024, 5, 1, 1), None]),
        (pa.timestamp("us", "UTC"), [datetime.datetime(2024, 5, 1, 1, tzinfo=UTC)]),
        (pa.decimal128(10, 2), [Decimal("1.50"), None]),
        (pa.int64(), []),
        (pa.string(), []),
        (pa.string(), [None, None]),
        (pa.string(), ["", ""]),
    ],
    ids=str,
)
def test_columns_of_other_types_agree_with_rows(kind: Any, values: list[Any]) -> None:
    column = pa.array(values, kind)
    expected = [stable_hash(v) for v in values]
    hashes = hash_column(column)
    assert hashes.tolist() == expected
    assert hashes.dtype == np.uint32
    assert hash_column(pa.chunked_array([column, column], kind)).tolist() == expected * 2
    assert hash_column(pa.chunked_array([], kind)).tolist() == []


@pytest.mark.parametrize("unit", ["s", "ms", "us"])
@given(st.lists(st.none() | st.integers(-62_135_596_800, 253_402_300_799)), st.integers(0, 3))
def test_columns_of_times_agree_with_rows(unit: str, seconds: list[int | None], start: int) -> None:
    factor = {"s": 1, "ms": 1000, "us": 1_000_000}[unit]
    numbers = pa.array([n if n is None else n * factor + n % factor for n in seconds], pa.int64()).slice(start)
    time_of_day = pa.array([n if n is None else n % 86_400 * factor for n in seconds], pa.int64()).slice(start)
    kinds = [pa.timestamp(unit), pa.timestamp(unit, "UTC"), pa.timestamp(unit, "+01:30"), pa.duration(unit)]
    columns = [numbers.view(kind) for kind in kinds]
    columns.append(
        time_of_day.cast(pa.int64() if unit == "us" else pa.int32()).cast(
            pa.time64(unit) if unit == "us" else pa.time32(unit)
        )
    )
    for column in columns:
        try:
            values = column.to_pylist()
        except (OverflowError, ValueError):  # the zone moves it out of Python's range
            continue
        assert hash_column(column).tolist() == [stable_hash(value) for value in values]


def test_columns_of_days_agree_with_rows() -> None:
    days = [datetime.date.min, None, datetime.date(1969, 12, 31), datetime.date(1970, 1, 1), datetime.date.max]
    column = pa.array(days, pa.date32())
    assert hash_column(column).tolist() == [stable_hash(day) for day in days]


def test_columns_of_lists_are_refused() -> None:
    with pytest.raises(KeyTypeError, match="list"):
        hash_column(pa.array([[1], [2]]))


@pytest.mark.parametrize("kind", [pa.int64(), pa.uint64()])
@given(values=st.lists(st.one_of(st.integers(0, 2**61 - 2), st.integers(0, 100)), max_size=20))
@example(values=[2**61 - 2])
def test_whole_numbers_below_the_modulus_hash_alike_in_columns(kind: pa.DataType, values: list[int]) -> None:
    assert hash_column(pa.array(values, kind)).tolist() == [stable_hash(value) for value in values]


@given(st.lists(st.one_of(st.none(), st.text("aü", max_size=2)), min_size=65, max_size=80))
def test_many_texts_hash_as_one_by_one(values: list[str | None]) -> None:
    expected = [stable_hash(value) for value in values]
    for column in (pa.array(values, pa.string()), pa.array(values, pa.large_string())):
        assert hash_column(column).tolist() == expected
        assert hash_column(column.dictionary_encode()).tolist() == expected
        assert hash_column(column.slice(3)).tolist() == expected[3:]


_ODD = st.sampled_from([b"", b"\0", b"\0" * 9])
_BYTES = st.one_of(st.binary(max_size=20), st.binary(min_size=60, max_size=70), _ODD)


@given(st.lists(st.one_of(st.none(), _BYTES), min_size=1, max_size=40), st.integers(1, 300), st.integers(0, 9))
@example([b"a" * length for length in range(1, 70)], 400, 1)
@example([b"x" * 100, b""], 300, 0)
def test_thousands_of_texts_hash_as_one_by_one(values: list[bytes | None], times: int, start: int) -> None:
    many = (values * (times * 8))[:20_000]
    once = {value: stable_hash(value) for value in values}
    column = pa.array(many, pa.binary()).slice(start)
    assert hash_column(column).tolist() == [once[value] for value in many[start:]]


def test_texts_hash_as_ever_whatever_block_they_are_in() -> None:
    words = [f"{number:x}"[-(1 + number % 8) :] * (1 + number % 7) for number in range(40_000)]
    expected = [zlib.crc32(word.encode()) for word in words]
    assert hash_column(pa.array(words)).tolist() == expected
    assert hash_column(pa.array(words, pa.large_string())).tolist() == expected
    dictionary = pa.DictionaryArray.from_arrays(pa.array(range(40_000)), pa.array(words))
    assert hash_column(dictionary).tolist() == expected

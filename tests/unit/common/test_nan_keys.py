"""NaN in keys: one object stands for all, so that dicts find it again."""

from __future__ import annotations

import dataclasses
import pickle
import sys
from collections.abc import Callable
from decimal import Decimal
from enum import Enum
from typing import Any, NamedTuple

import numpy as np
import pytest

from firesteel.common.nan_keys import NAN, with_named_nan, with_one_nan
from firesteel.common.types import Row, RowKind
from firesteel.core.errors import ProgramError


@dataclasses.dataclass(frozen=True)
class Place:
    at: float
    name: str
    seen: int = dataclasses.field(default=0, compare=False)


@dataclasses.dataclass(frozen=True, eq=False)
class Apart:
    """Compares its field by itself, as dataclasses of Python 3.13 do."""

    at: float

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Apart) and self.at == other.at

    def __hash__(self) -> int:
        return hash(self.at)


class Pair(NamedTuple):
    one: float
    other: str


class Colour(Enum):
    GREY = float("nan")


def nan() -> float:
    return float("nan")


KEYS: list[Callable[[], Any]] = [
    nan,
    lambda: (nan(), 1),
    lambda: (1, ("a", (nan(),))),
    lambda: Row(nan(), 1),
    lambda: Row(a=nan(), b=Row(nan())),
    lambda: Row.of_kind(RowKind.DELETE, nan()),
    *([lambda: Place(nan(), "x")] if sys.version_info < (3, 13) else []),
    lambda: Pair(nan(), "x"),
    lambda: Decimal("NaN"),
    lambda: (Decimal("NaN"),),
    lambda: np.float64("nan"),
    lambda: np.float32("nan"),
    lambda: np.float16("nan"),
]


@pytest.mark.parametrize("make", KEYS)
def test_keys_that_differ_in_the_object_of_nan_only_are_one(make: Callable[[], Any]) -> None:
    assert len({make(): 0, make(): 0}) == 2, "Python holds them apart"
    positions = {with_one_nan(make()): position for position in range(3)}
    assert list(positions.values()) == [2]


def test_what_a_key_is_stays() -> None:
    pair = with_one_nan(Pair(nan(), "x"))
    assert (type(pair), pair.one, pair.other) == (Pair, NAN, "x")
    row = with_one_nan(Row.of_kind(RowKind.DELETE, a=nan(), b=2))
    assert (row.get_row_kind(), row.b, row.a is NAN) == (RowKind.DELETE, 2, True)
    if sys.version_info < (3, 13):
        place = with_one_nan(Place(nan(), "x", 7))
        assert (place.at is NAN, place.name, place.seen) == (True, "x", 7)
    assert with_one_nan(Decimal("sNaN")).is_qnan()


def test_the_record_that_a_key_was_taken_from_is_not_changed() -> None:
    row = Row(nan(), 1)
    assert with_one_nan(row) is not row
    assert row[0] is not NAN


@pytest.mark.parametrize(
    "key", [1, 1.5, "a", (), (1, "a"), (1.5, (2.5,)), Row(1.5), Place(0.5, "x"), Pair(1.0, "x"), Colour.GREY, None]
)
def test_other_keys_are_the_same_objects(key: Any) -> None:
    assert with_one_nan(key) is key


def test_classes_that_hold_nan_apart_are_refused_as_keys() -> None:
    with pytest.raises(ProgramError, match=r"no Apart with NaN equals another one .* use a tuple"):
        with_one_nan((1, Apart(nan())))
    with pytest.raises(ProgramError, match="no Apart with NaN"):
        with_named_nan(Apart(nan()))
    if sys.version_info >= (3, 13):
        with pytest.raises(ProgramError, match="no Place with NaN"):
            with_one_nan(Place(nan(), "x"))
    key = Apart(1.0)
    assert with_one_nan(key) is key


def test_zero_has_no_sign_as_a_key() -> None:
    assert len({with_one_nan(0.0): 0, with_one_nan(-0.0): 0}) == 1


@pytest.mark.parametrize("make", KEYS)
def test_a_dict_with_named_nan_finds_it_again_when_it_was_pickled(make: Callable[[], Any]) -> None:
    again = pickle.loads(pickle.dumps({with_named_nan(make()): 1}))
    again[with_named_nan(make())] = 2
    assert list(again.values()) == [2]
    (key,) = again
    again[with_named_nan(key)] = 3
    assert list(again.values()) == [3]
    assert {with_one_nan(key): 0} == {with_one_nan(make()): 0}


def test_other_keys_of_maps_are_the_same_objects() -> None:
    no_time = np.datetime64("NaT", "s")
    for key in (1, "a", 1.5, ("a", 1.5), Place(1.0, "x"), Place, frozenset({1}), no_time, Colour.GREY):
        assert with_named_nan(key) is key

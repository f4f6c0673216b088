from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from firesteel.common.types import Row, RowKind
from firesteel.core.errors import KeyTypeError
from firesteel.graph import key_groups
from firesteel.graph.key_groups import KeyGroupAssigner, default_max_parallelism, key_group_range, operator_index
from firesteel.graph.key_hash import key_group, stable_hash
from firesteel.graph.key_hash_columns import hash_values
from firesteel.runtime.operator_base.key_check import KeyCheck

PARALLELISMS = st.integers(1, 32768).flatmap(
    lambda groups: st.tuples(st.integers(1, min(groups, 300)), st.just(groups))
)


def test_default_max_parallelism_is_flinks() -> None:
    given_and_expected = {1: 128, 85: 128, 86: 256, 200: 512, 400: 1024, 21845: 32768, 32768: 32768}
    assert {p: default_max_parallelism(p) for p in given_and_expected} == given_and_expected


def test_ranges_are_flinks() -> None:
    assert [key_group_range(i, 3, 128) for i in range(3)] == [(0, 42), (43, 85), (86, 127)]
    assert [operator_index(group, 4, 128) for group in (81, 98, 121, 22)] == [2, 3, 3, 0]


@given(PARALLELISMS)
def test_ranges_partition_the_groups_and_agree_with_the_index(case: tuple[int, int]) -> None:
    parallelism, groups = case
    ranges = [key_group_range(i, parallelism, groups) for i in range(parallelism)]
    assert ranges[0][0] == 0
    assert ranges[-1][1] == groups - 1
    for (_, last), (first, _) in itertools.pairwise(ranges):
        assert first == last + 1
    for index, (first, last) in enumerate(ranges):
        assert first <= last
        assert operator_index(first, parallelism, groups) == operator_index(last, parallelism, groups) == index


@pytest.mark.parametrize("case", [(3, 3, 128), (-1, 3, 128), (0, 129, 128), (0, 0, 128)])
def test_impossible_ranges_are_refused(case: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="must hold"):
        key_group_range(*case)


KEYS = st.one_of(st.integers(), st.text(), st.none(), st.floats(), st.tuples(st.integers(), st.text()), st.booleans())


@given(st.lists(KEYS, max_size=50), PARALLELISMS)
def test_the_assigner_finds_the_owner(keys: list[object], case: tuple[int, int]) -> None:
    parallelism, groups = case
    expected = [operator_index(key_group(key, groups), parallelism, groups) for key in keys]
    assigner = KeyGroupAssigner(parallelism, groups)
    assert assigner.assign(keys) == expected
    assert assigner.assign(keys) == expected
    assert [assigner(key) for key in keys] == expected


def test_equal_keys_share_a_channel_whoever_comes_first() -> None:
    assigner = KeyGroupAssigner(7, 128)
    assert len({assigner(key) for key in (1, 1.0, True)}) == 1


def test_the_memory_of_keys_is_bounded() -> None:
    assigner = KeyGroupAssigner(4, 128, capacity=10)
    for start in range(0, 1000, 5):
        assigner.assign(range(start, start + 5))
        assert len(assigner._cache) <= 10
    assert assigner.assign(range(100)) == KeyGroupAssigner(4, 128).assign(range(100))


def test_columns_go_where_rows_go() -> None:
    assigner = KeyGroupAssigner(5, 640)
    for values in ([1, None, -5, 2**40], ["a", None, "user-1"], [0.5, 1.0, None]):
        assert assigner.assign_array(pa.array(values)).tolist() == assigner.assign(values)


@pytest.mark.parametrize("key", [[1], (1, [2]), {1: 2}, ((1, {2}),)])
def test_keys_that_can_change_are_refused_by_type(key: object) -> None:
    assigner = KeyGroupAssigner(4, 128)
    with pytest.raises(KeyTypeError, match="can't be a key"):
        assigner(key)
    with pytest.raises(KeyTypeError, match="can't be a key"):
        assigner.assign([1, key])


@dataclass(frozen=True)
class Link:
    inner: object


@pytest.mark.parametrize("nest", [lambda key: (key,), Link], ids=["tuples", "dataclasses"])
def test_keys_that_are_nested_too_deep_are_refused_by_type(nest: Any) -> None:
    key: Any = 1
    for _ in range(700):
        key = nest(key)
    assigner = KeyGroupAssigner(4, 128)
    with pytest.raises(KeyTypeError, match=f"{type(key).__name__} can't be a key: its tuples .* nested deeper"):
        assigner(key)
    with pytest.raises(KeyTypeError, match="nested deeper"):
        assigner.assign([1, key])
    with pytest.raises(KeyTypeError, match="nested deeper"):
        KeyCheck()(key)


def test_more_channels_than_groups_are_refused() -> None:
    with pytest.raises(ValueError, match="129"):
        KeyGroupAssigner(129, 128)


ROWS = [
    st.builds(Row, st.integers(), st.text()),
    st.builds(lambda a, b: Row(b=b, a=a), st.floats(), st.binary()),
    st.builds(lambda a: Row.of_kind(RowKind.DELETE, a), st.integers()),
    st.builds(Row, st.one_of(st.none(), st.text())),
]
ALIKE = st.one_of(
    *(
        st.lists(strategy, min_size=1, max_size=80)
        for strategy in (
            st.integers(),
            st.integers(-(2**63), 2**63 - 1),
            st.floats(),
            st.text(st.characters()),
            st.text(st.characters(categories=["Cs", "Ll"]), max_size=3),
            st.binary(),
            st.booleans(),
            st.tuples(st.integers(0, 9), st.text(), st.tuples(st.floats())),
            st.tuples(st.integers() | st.none()),
            *ROWS,
            st.one_of(*ROWS),
            KEYS,
        )
    )
)


@given(ALIKE)
def test_many_keys_hash_as_each_does(keys: list[Any]) -> None:
    hashes = hash_values(keys)
    if hashes is not None:
        assert hashes.tolist() == [stable_hash(key) for key in keys]


@pytest.mark.parametrize(
    "make",
    [int, str, float, lambda i: (i, str(i)), lambda i: Row(i, "x"), lambda i: Row(b=str(i), a=i), lambda i: b"%d" % i],
)
def test_more_keys_than_are_remembered_are_hashed_together(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [make(number) for number in range(200)]
    expected = [operator_index(key_group(key, 128), 3, 128) for key in keys]
    assigner = KeyGroupAssigner(3, 128, capacity=100)
    assert [assigner(key) for key in keys] == expected
    hashed: list[Any] = []

    def counting(key: Any) -> int:
        hashed.append(key)
        return stable_hash(key)

    monkeypatch.setattr(key_groups, "stable_hash", counting)
    assert assigner.assign(keys) == expected
    assert hashed == []
    assert assigner.assign(keys[:10]) == expected[:10], "few are looked for one after the other"
    assert hashed == keys[:10]


def test_keys_that_are_refused_are_named_also_among_many() -> None:
    assigner = KeyGroupAssigner(3, 128, capacity=10)
    assigner.assign(list(range(100)))
    for keys in ([("a", [number]) for number in range(100)], [Row([number]) for number in range(100)]):
        with pytest.raises(KeyTypeError, match=r"list can't be a key"):
            assigner.assign(keys)

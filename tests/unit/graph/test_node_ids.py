from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firesteel.core.errors import GraphError
from firesteel.graph.node_ids import murmur3_128, operator_ids
from firesteel.graph.specs import PartitionerKind
from tests.examples import examples
from tests.unit.graph.graphs import Program, programs, via


@pytest.mark.parametrize(
    ("data", "digest"),
    [
        # SMHasher's x64 variant with seed 0; each half in little-endian order.
        (b"", "00000000000000000000000000000000"),
        (b"The quick brown fox jumps over the lazy dog", "6c1b07bc7bbc4be347939ac4a93c437a"),
        # Known from any Flink job: the first source without and with a chained operator.
        (bytes(4), "bc764cd8ddf7a0cff126f51c16239658"),
        (bytes(8), "cbc357ccb763df2852fee8c4fc7d55f2"),
    ],
)
def test_murmur_vectors(data: bytes, digest: str) -> None:
    assert murmur3_128(data).hex() == digest


@given(st.binary(max_size=80), st.binary(max_size=80))
def test_different_data_has_different_digests(first: bytes, second: bytes) -> None:
    assert (murmur3_128(first) == murmur3_128(second)) == (first == second)
    assert len(murmur3_128(first)) == 16


def test_ids_are_those_of_flink_for_source_and_unchained_map() -> None:
    program = Program()
    program.map(program.source(parallelism=1), parallelism=2)
    assert list(operator_ids(program.graph()).values()) == [
        "bc764cd8ddf7a0cff126f51c16239658",
        "0a448493b4782967b150582570326227",
    ]


def test_a_uid_is_hashed() -> None:
    program = Program()
    program.map(program.source(), uid="count")
    assert operator_ids(program.graph())[2] == murmur3_128(b"count").hex()


def test_a_uid_hash_is_taken_as_it_is_and_wins_over_the_uid() -> None:
    program = Program()
    program.map(program.source(), uid="count", uid_hash="00ff" * 8)
    assert operator_ids(program.graph())[2] == "00ff" * 8


def test_a_malformed_uid_hash_is_refused() -> None:
    program = Program()
    program.map(program.source(), name="m", uid_hash="XYZ")
    with pytest.raises(GraphError, match="'m': the uid hash 'XYZ' is not 32"):
        operator_ids(program.graph())


def test_a_duplicate_uid_is_refused_naming_both() -> None:
    program = Program()
    program.map(program.map(program.source(), name="first", uid="u"), name="second", uid="u")
    with pytest.raises(GraphError, match=r"'first' \(node 2\) and 'second' \(node 3\) have the same uid 'u'"):
        operator_ids(program.graph())


def test_a_duplicate_uid_hash_is_refused() -> None:
    program = Program()
    program.map(program.source(uid_hash="0" * 32), uid_hash="0" * 32)
    with pytest.raises(GraphError, match="have the same id"):
        operator_ids(program.graph())


def test_a_uid_can_be_demanded() -> None:
    program = Program()
    source = program.source(uid="in")
    program.map(source, name="nameless")
    with pytest.raises(GraphError, match="'nameless' has no uid"):
        operator_ids(program.graph(auto_generate_uids=False))


def test_a_demanded_uid_is_not_demanded_of_the_apis_own_operators() -> None:
    program = Program()
    program.map(program.source(uid="in"), internal=True)
    assert len(operator_ids(program.graph(auto_generate_uids=False))) == 2


def test_the_id_of_an_input_counts() -> None:
    def ids(uid: str) -> list[str]:
        program = Program()
        program.map(program.source(uid=uid), parallelism=1)
        return list(operator_ids(program.graph()).values())

    assert ids("a")[1] != ids("b")[1]


def test_chaining_counts() -> None:
    def ids(**settings: Any) -> list[str]:
        program = Program()
        program.map(program.source())
        return list(operator_ids(program.graph(**settings)).values())

    assert ids()[0] != ids(chaining=False)[0]


@settings(max_examples=examples(50))
@given(programs())
def test_ids_are_deterministic_unique_and_know_nothing_of_names_and_functions(program: Program) -> None:
    before = operator_ids(program.graph(max_parallelism=128))
    assert len(set(before.values())) == len(before) == len(program.graph(max_parallelism=128).nodes)
    for transformation in program.made:
        transformation.name = f"renamed {transformation.id}"
        transformation.description = "other"
        if transformation.inputs:
            transformation.function = len
    assert operator_ids(program.graph(max_parallelism=128)) == before


@settings(max_examples=examples(50))
@given(programs(), st.integers(1, 50))
def test_ids_do_not_depend_on_what_was_built_before_in_the_environment(program: Program, shift: int) -> None:
    before = list(operator_ids(program.graph(max_parallelism=128)).values())
    for transformation in program.made:
        transformation.id += shift
    assert list(operator_ids(program.graph(max_parallelism=128)).values()) == before


@settings(max_examples=examples(50))
@given(programs(), st.data())
def test_a_uid_moves_with_its_operator(program: Program, data: st.DataObject) -> None:
    chosen = data.draw(st.sampled_from([t for t in program.made if t.inputs]))
    chosen.uid = "mine"
    before = operator_ids(program.graph(max_parallelism=128))[chosen.id]
    program.map(via(program.source(), PartitionerKind.SHUFFLE))
    assert operator_ids(program.graph(max_parallelism=128))[chosen.id] == before == murmur3_128(b"mine").hex()

"""Snapshots that consist of files: a backend that takes such ones keeps the contract."""

from __future__ import annotations

from pathlib import Path

import pytest

from firesteel.core.errors import StateRestoreError
from firesteel.state.backend import KeyedStateParameters
from firesteel.state.heap import HeapKeyedState
from firesteel.state.snapshots import Purpose
from firesteel.testing.snapshots import SnapshotContents, take_snapshot
from firesteel.testing.state_conformance import check_state_backend
from tests.examples import examples
from tests.unit.state.file_backend import DONE, FileBackend, FileKeyedState


def test_the_backend_on_files_keeps_the_contract() -> None:
    check_state_backend(FileBackend(), seeds=range(examples(6)))
    assert DONE["put"]
    assert DONE["kept"]
    assert DONE["fetched"]


def test_the_kit_finds_what_is_left_in_the_directory() -> None:
    class Untidy(FileKeyedState):
        def close(self) -> None:
            self._directory.mkdir(parents=True, exist_ok=True)

    class UntidyBackend(FileBackend):
        def create_keyed_state(self, parameters: KeyedStateParameters) -> HeapKeyedState:
            return Untidy(parameters)

    with pytest.raises(AssertionError, match=r"close\(\) leaves"):
        check_state_backend(UntidyBackend(), seeds=())


def test_only_what_is_not_there_yet_is_stored(tmp_path: Path) -> None:
    keyed = FileKeyedState(KeyedStateParameters(directory=str(tmp_path / "a")))
    keyed.table("same")["k"] = [1]
    keyed.table("other")["k"] = [1]
    first = take_snapshot(keyed.snapshot(purpose=Purpose(1, True)))
    keyed.table("other")["k"] = [2]
    second = take_snapshot(keyed.snapshot(purpose=Purpose(2, True, 1)), base=first)
    assert len(first.files) == len(second.files) == 3
    assert len(first.files.keys() & second.files.keys()) == 2, "the manifest, and the table that is the same"
    later = FileKeyedState(KeyedStateParameters(directory=str(tmp_path / "b")))
    later.restore([second.of(range(1))])
    assert (later.table("same")["k"], later.table("other")["k"]) == ([1], [2])


def test_a_job_may_come_with_the_chunks_of_hashmap_and_not_go_to_it(tmp_path: Path) -> None:
    before = HeapKeyedState()
    before.table("t")["k"] = 1
    keyed = FileKeyedState(KeyedStateParameters(directory=str(tmp_path / "a")))
    keyed.restore([take_snapshot(before.snapshot()).of(range(1))])
    assert keyed.table("t")["k"] == 1
    written: SnapshotContents = take_snapshot(keyed.snapshot())
    with pytest.raises(StateRestoreError, match="in files of another state backend"):
        HeapKeyedState().restore([written.of(range(1))])

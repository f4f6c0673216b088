"""Savepoints of earlier versions: they are read, and one of which a bit was changed is refused by name."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from firesteel.checkpoint.metadata import VERSION, CheckpointMetadata
from firesteel.checkpoint.reader import inspect, read_savepoint
from firesteel.core.errors import CheckpointCorruptedError

FIXTURES = [
    path.parent
    for path in sorted((Path(__file__).parents[2] / "fixtures" / "checkpoints").glob("*/checkpoint/_metadata"))
    if CheckpointMetadata.from_bytes(path.read_bytes(), str(path)).properties.get("savepoint") is not None
]


def test_there_is_one_of_the_format_of_now() -> None:
    assert any(path.parent.name.startswith(f"v{VERSION}-") for path in FIXTURES)


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda path: str(path.parent.name))
def test_all_of_it_is_read(fixture: Path) -> None:
    description = inspect(str(fixture))
    assert (description["type"], description["format"], description["stop"]) == ("savepoint", "CANONICAL", "suspend")
    states = [(operator, state) for operator in description["operators"] for state in operator["states"]]
    assert {state["kind"] for _, state in states} >= {
        "value", "list", "map", "reducing", "aggregating", "timers", "columns", "split", "union", "broadcast",
    }  # fmt: skip
    assert not any(state["in-files"] for _, state in states)
    savepoint = read_savepoint(str(fixture))
    for operator, state in states:
        if state["kind"] == "columns":
            rows = sum(b.num_rows for b in savepoint.operator(operator["id"]).state(state["name"]).batches())
            assert rows == state["entries"]


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda path: str(path.parent.name))
def test_a_bit_flipped_in_any_file_is_refused_by_name(fixture: Path, tmp_path: Path) -> None:
    place = tmp_path / "savepoint"
    shutil.copytree(fixture, place)
    files = sorted(place.iterdir())
    assert len(files) > 1
    for path in files:
        whole = path.read_bytes()
        for part in range(8):
            at = min(part * len(whole) // 7, len(whole) - 1)
            damaged = bytearray(whole)
            damaged[at] ^= 1 << part
            path.write_bytes(damaged)
            with pytest.raises(CheckpointCorruptedError, match=path.name):
                inspect(str(place))
        path.write_bytes(whole)
        path.rename(tmp_path / "gone")
        with pytest.raises(CheckpointCorruptedError, match=path.name):
            inspect(str(place))
        (tmp_path / "gone").rename(path)

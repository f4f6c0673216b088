"""A savepoint that no job has written: a program begins with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from firesteel.checkpoint.reader import inspect
from firesteel.checkpoint.savepoints import read_savepoint_metadata
from firesteel.client.savepoint_reader import read_savepoint
from firesteel.client.savepoint_writer import (
    KeyedStateBootstrapFunction,
    OperatorIdentifier,
    OperatorTransformation,
    SavepointWriter,
)
from firesteel.common import Types
from firesteel.core.errors import CheckpointStorageError, ProgramError
from firesteel.datastream.state import MapStateDescriptor, ValueStateDescriptor
from tests.unit.client import upgrades
from tests.unit.client.upgrades import KEYS, Program, keeps

TOTAL = ValueStateDescriptor("total", Types.LONG())
BY_NAME = MapStateDescriptor("by name", Types.STRING(), Types.LONG())


class Totals(KeyedStateBootstrapFunction):
    def open(self, runtime_context: Any) -> None:
        self.total = runtime_context.get_state(TOTAL)
        self.by_name = runtime_context.get_map_state(BY_NAME)

    def process_element(self, value: Any, ctx: KeyedStateBootstrapFunction.Context) -> None:
        assert ctx.get_current_key() == value.id
        self.total.update((self.total.value() or 0) + value.amount)
        self.by_name.put(value.name, value.amount)


TABLE = pa.table({"id": [0, 1, 2, 0], "name": ["a", "b", "c", "d"], "amount": [10, 20, 30, 1]})


def written(path: Path, uid: str = "op") -> str:
    transformation = OperatorTransformation.bootstrap_with(TABLE).key_by(lambda row: row.id).transform(Totals())
    return (
        SavepointWriter.new_savepoint().with_operator(OperatorIdentifier.for_uid(uid), transformation).write(str(path))
    )


@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_program_begins_with_it(parallelism: int, tmp_path: Path) -> None:
    location = written(tmp_path / "begin")
    program = Program(keeps((TOTAL, 5), (BY_NAME, {"x": 1})), parallelism)
    metadata = read_savepoint_metadata(location)
    assert program.upgrade(metadata).works
    assert program.restored(metadata) == ""
    first: dict[Any, Any] = {}
    for state, key, value in upgrades.SEEN:
        first.setdefault((state, key), value)
    assert [first["total", key] for key in range(KEYS)] == [11, 20, 30]
    assert [first["by name", key] for key in range(KEYS)] == [{"a": 10, "d": 1}, {"b": 20}, {"c": 30}]


def test_a_written_savepoint_can_be_looked_into_and_is_whole(tmp_path: Path) -> None:
    location = written(tmp_path / "begin")
    assert dict(read_savepoint(location).operator("op").state("total")) == {0: 11, 1: 20, 2: 30}
    description = inspect(location)
    assert (description["type"], description["format"], description["operators"][0]["max-parallelism"]) == (
        "savepoint",
        "CANONICAL",
        128,
    )
    with pytest.raises(CheckpointStorageError, match="can't be made"):
        written(tmp_path / "begin")


def test_another_one_with_more_and_less(tmp_path: Path) -> None:
    first = written(tmp_path / "first", "one")
    two, other = OperatorIdentifier.for_uid("two"), OperatorIdentifier.for_uid("one")
    rows = OperatorTransformation.bootstrap_with(TABLE).key_by(lambda row: row.id).transform(Totals())
    both = SavepointWriter.from_existing_savepoint(first).with_operator(two, rows).write(str(tmp_path / "both"))
    assert set(read_savepoint(both).operators) == {"one", "two"}
    for path in (tmp_path / "first").iterdir():
        path.unlink()
    assert dict(read_savepoint(both).operator("one").state("total")) == {0: 11, 1: 20, 2: 30}
    less = SavepointWriter.from_existing_savepoint(both).remove_operator(other).write(str(tmp_path / "less"))
    assert set(read_savepoint(less).operators) == {"two"}
    with pytest.raises(ProgramError, match="call remove_operator"):
        SavepointWriter.from_existing_savepoint(both).with_operator(two, rows)


def test_nothing_is_left_of_one_that_fails(tmp_path: Path) -> None:
    class Fails(Totals):
        def process_element(self, value: Any, ctx: KeyedStateBootstrapFunction.Context) -> None:
            raise RuntimeError("of the user")

    rows = OperatorTransformation.bootstrap_with(TABLE).key_by(lambda row: row.id).transform(Fails())
    writer = SavepointWriter.new_savepoint().with_operator(OperatorIdentifier.for_uid("op"), rows)
    with pytest.raises(RuntimeError, match="of the user"):
        writer.write(str(tmp_path / "begin"))
    assert list(tmp_path.iterdir()) == []

"""Checkpoints of earlier formats are read: a job goes on from each, and its results are those of a whole run.

When this fails after a change of what checkpoints, state or splits look like, the format has changed. Don't make the
fixture anew: people have such checkpoints. Give what has changed a new version (``firesteel.checkpoint.metadata``, or
that of the state or split), read both, and add a fixture of the new one beside the old::

    python -m tests.fixtures.checkpoints.make <what is new>
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from firesteel.checkpoint.handles import FileState, InlineState
from firesteel.checkpoint.metadata import VERSION, CheckpointMetadata
from firesteel.common import Configuration
from tests.fixtures.checkpoints.make import HERE, PLACE, moved
from tests.fixtures.checkpoints.program import build, committed, expected
from tests.integration.embedded.programs import new_environment

FIXTURES = sorted(path.parent.parent for path in HERE.glob("*/checkpoint/_metadata"))


def test_there_is_a_fixture_of_the_format_of_now_with_all_kinds_of_state() -> None:
    versions = {int(version[1]) for path in FIXTURES if (version := re.match(r"v(\d+)-", path.name))}
    assert versions >= set(range(2, VERSION + 1)), "see the head of this module"
    path = FIXTURES[-1] / "checkpoint" / "_metadata"
    metadata = CheckpointMetadata.from_bytes(path.read_bytes(), str(path))
    assert {type(handle) for handle in metadata.handles()} == {InlineState, FileState}
    subtasks = [subtask for operator in metadata.operators for subtask in operator.subtasks.values()]
    assert {kind for s in subtasks if s.operator for kind in s.operator.kinds()} >= {"split", "union", "broadcast"}
    kinds = {str(state["kind"]) for s in subtasks for keyed in s.keyed.values() for state in keyed.states}
    assert kinds >= {"value", "list", "map", "reducing", "aggregating", "timers"}, kinds
    assert any(s.splits for s in subtasks)
    assert any(s.committables for s in subtasks)
    assert any(operator.finished for operator in metadata.operators)


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda path: str(path.name))
def test_a_job_goes_on_from_it(fixture: Path, tmp_path: Path) -> None:
    place = tmp_path / "place"
    shutil.copytree(fixture, place)
    metadata = place / "checkpoint" / "_metadata"
    metadata.write_bytes(moved(metadata.read_bytes(), PLACE, str(place)))
    before = committed(place / "ledger")
    assert before
    assert before < expected()
    env = new_environment(2)
    settings = {
        "execution.checkpointing.interval": "200 ms",
        "execution.checkpointing.dir": str(tmp_path / "checkpoints"),
        "execution.state-recovery.path": str(place / "checkpoint"),
        "state.backend.type": "rocksdb" if "rocksdb" in fixture.name else "hashmap",
    }
    env.configure(Configuration.from_dict(settings))
    build(env, place / "lines.txt", place / "ledger", slow=False)
    env.execute("from a fixture")
    counts = committed(place / "ledger")
    assert counts - expected() == {}, "something is doubled or wrong"
    assert expected() - counts == {}, "something is lost"

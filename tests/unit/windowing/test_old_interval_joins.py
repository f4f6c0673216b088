"""What interval joins of earlier versions have kept is read by all later ones.

Fixtures ``v1-*`` hold all records of a side and key in one value, ``v2-*`` those of a time. A change of what is kept
needs another format (``firesteel.state.timelines.FORMAT``), which reads all before, and a fixture beside the old, of
each backend::

    python -m tests.unit.windowing.test_old_interval_joins v3
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import pytest

from firesteel.datastream.functions import ProcessJoinFunction
from firesteel.graph.specs import OperatorKind
from firesteel.runtime.operator_base.context import TaskInfo
from firesteel.runtime.operator_base.keyed_base import state_parameters
from firesteel.state.backend import load_state_backend
from firesteel.state.snapshots import Purpose
from firesteel.state.timelines import FORMAT
from firesteel.testing.snapshots import SnapshotContents, take_snapshot
from tests.unit.state.kept import keep, names_in, stored_contents
from tests.unit.windowing.harness import Clock, Rig
from tests.unit.windowing.test_restore import MAX_PARALLELISM, subtask_of

FIXTURES: Final = Path(__file__).parents[2] / "fixtures" / "interval_join"
KEYS: Final = ("a", 7, ("t", 1.5), True, None)
LOWER, UPPER, NOW = -30, 20, -25
EVERYTHING: Final = range(MAX_PARALLELISM)


class Pair(ProcessJoinFunction[Any, Any, Any]):
    def process_element(self, left: Any, right: Any, ctx: Any) -> Any:
        yield left[1], right[1]


def rig_of(backend: str, folder: Path, written: list[SnapshotContents], subtask: int = 0, parallelism: int = 1) -> Rig:
    """The operator of a subtask that has been restored."""
    info = TaskInfo("1" * 32, "job", "v_0_0", "JOIN", subtask, parallelism, MAX_PARALLELISM, 0)

    def before_open(operator: Any) -> None:
        parameters = state_parameters(operator.spec, info, Clock(), 1, str(folder / str(subtask)))
        operator.use_backend(load_state_backend(backend), parameters)
        operator.keyed.restore([state.of(operator.key_groups) for state in written])

    extra: dict[str, Any] = {"lower": LOWER, "upper": UPPER, "late_tags": (None, None)}
    return Rig(Pair(), OperatorKind.INTERVAL_JOIN, inputs=2, info=info, before_open=before_open, **extra)


def records_of(side: int) -> list[tuple[Any, int]]:
    """Before and behind the beginning of time, in no order, some at one time."""
    return [
        ((key, f"{'lr'[side]}{number}.{position}"), (number * 7 + position + side) % 61 - 24)
        for position, key in enumerate(KEYS)
        for number in range(24)
    ]


def kept_of(side: int, now: int = NOW) -> list[tuple[Any, int]]:
    """Those that the fixtures still hold at a watermark."""
    latest = max((UPPER, -LOWER)[side], 0)
    return [(value, time) for value, time in records_of(side) if time + latest > now]


def make(name: str) -> None:
    """Write fixtures of the format of now."""
    for backend in ("hashmap", "rocksdb"):
        with tempfile.TemporaryDirectory() as folder:
            rig = rig_of(backend, Path(folder), [])
            for side in (0, 1):
                rig.records(records_of(side), side)
            rig.watermark(NOW)
            keep(
                take_snapshot(rig.operator.keyed.snapshot(purpose=Purpose(1)), EVERYTHING),
                FIXTURES / f"{name}-{backend}",
            )
            rig.operator.close()


NAMES = names_in(FIXTURES)


def partners_of(side: int, time: int, key: Any) -> list[str]:
    """What a record of this time meets, by plain Python."""
    lower, upper = ((LOWER, UPPER), (-UPPER, -LOWER))[side]
    others = kept_of(1 - side)
    return sorted(value[1] for value, at in others if value[0] == key and time + lower <= at <= time + upper)


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize(
    ("name", "backend"),
    [(name, backend) for name in NAMES for backend in ("hashmap", "rocksdb") if backend in name or "hashmap" in name],
)
def test_all_of_it_is_there(name: str, backend: str, parallelism: int, tmp_path: Path) -> None:
    contents = stored_contents(FIXTURES / name, EVERYTHING)
    rigs = [rig_of(backend, tmp_path, [contents], subtask, parallelism) for subtask in range(parallelism)]
    for rig in rigs:
        rig.watermark(NOW)
    for key in KEYS:
        rig = rigs[subtask_of(key, parallelism)]
        for side in (0, 1):
            for time in range(NOW, 60, 5):
                expected = partners_of(side, time, key)
                probe = (key, f"probe {side} {time}")
                pairs = [out.value for out in rig.records([(probe, time)], side)]
                met = sorted(pair[1 - side] for pair in pairs)
                assert [call for call in met if not call.startswith("probe")] == expected
    for rig in rigs:
        rig.watermark(1_000)
        rig.operator.close()


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_there_is_one_of_each_format(backend: str) -> None:
    states = [info for name in NAMES if backend in name for info in stored_contents(FIXTURES / name, EVERYTHING).states]
    formats = {info.schema.get("format", 1) for info in states if info.name == "left-buffer"}
    assert formats == set(range(1, FORMAT + 1)), "see the head of this module"


if __name__ == "__main__":
    make(sys.argv[1])

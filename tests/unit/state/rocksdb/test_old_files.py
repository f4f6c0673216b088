"""Files of RocksDB that earlier versions have written are read by all later ones.

When this fails after a change of what entries or timers look like, the format has changed: give it another number
(``firesteel_rocksdb.backend.FORMAT_WITH_TIMERS``, ``key_bytes.VERSION``), read both, and add a fixture beside the
old::

    python -m tests.unit.state.rocksdb.test_old_files NAME
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import pytest

from firesteel.common import Types
from firesteel.functions.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from firesteel.state.backend import KeyedStateParameters
from firesteel.state.snapshots import Purpose
from firesteel.testing.snapshots import take_snapshot
from firesteel_rocksdb.backend import CONTENTS, FORMAT_WITH_TIMERS, RocksDBKeyedState
from firesteel_rocksdb.settings import RocksDBSettings
from firesteel_rocksdb.timers import RocksTimerQueue
from tests.unit.state.kept import keep, names_in, stored_contents

FIXTURES: Final = Path(__file__).parents[3] / "fixtures" / "rocksdb"
GROUPS: Final = 8
KEYS: Final = (*range(40), "a word", 1.5, ("a", 2), b"bytes", None)


def group_of(key: Any) -> int:
    """Any will do that is always the same."""
    return len(repr(key)) % GROUPS


def opened(directory: Path, groups: range = range(GROUPS)) -> RocksDBKeyedState:
    """New state whose timers are on disk, but for a few."""
    parameters = KeyedStateParameters(
        key_group_of=group_of, key_groups=groups, max_parallelism=GROUPS, operator="old", memory=1,
        directory=str(directory),
    )  # fmt: skip
    return RocksDBKeyedState(parameters, RocksDBSettings())


def states_of(keyed: RocksDBKeyedState) -> tuple[Any, Any, Any]:
    """One of each layout."""
    return (
        keyed.get_state(ValueStateDescriptor("value", Types.STRING())),
        keyed.get_list_state(ListStateDescriptor("list", Types.LONG())),
        keyed.get_map_state(MapStateDescriptor("map", Types.STRING(), Types.LONG())),
    )


def timers_of(number: int, key: Any) -> list[tuple[int, Any, Any]]:
    """Of a key: before and behind the beginning of time, with and without a namespace."""
    return [(1000 * number - 7000, key, None), (10_000_000 + number, key, ("window", number))]


def fill(keyed: RocksDBKeyedState) -> None:
    """What every fixture holds."""
    value, elements, mapping = states_of(keyed)
    queue = keyed.timers("timers")
    for number, key in enumerate(KEYS):
        keyed.key = key
        value.update(f"value {number}")
        elements.update([number, number + 1])
        mapping.put("m", number)
        for timer in timers_of(number, key):
            queue.add(*timer)


def make(name: str) -> None:
    """Write a fixture of the format of now."""
    with tempfile.TemporaryDirectory() as folder:
        keyed = opened(Path(folder) / "attempt")
        fill(keyed)
        contents = take_snapshot(keyed.snapshot(purpose=Purpose(1)), range(GROUPS))
        keyed.close()
    keep(contents, FIXTURES / name)


NAMES = names_in(FIXTURES)


def test_there_is_one_of_the_format_of_now() -> None:
    formats = {json.loads((FIXTURES / name / CONTENTS).read_text())["format"] for name in NAMES}
    assert FORMAT_WITH_TIMERS in formats, "see the head of this module"


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("name", NAMES)
def test_all_of_it_is_there(name: str, parts: int, tmp_path: Path) -> None:
    contents, values, timers = stored_contents(FIXTURES / name, range(GROUPS)), {}, set()
    for part in range(parts):
        groups = range(part * GROUPS // parts, (part + 1) * GROUPS // parts)
        keyed = opened(tmp_path / str(part), groups)
        keyed.restore([contents.of(groups)])
        value, elements, mapping = states_of(keyed)
        for key in KEYS:
            keyed.key = key
            if group_of(key) in groups:
                values[key] = value.value(), list(elements.get()), dict(mapping.items())
        queue = keyed.timers("timers")
        assert isinstance(queue, RocksTimerQueue)
        due = [tuple(timer) for timer in queue.due(1 << 60)]
        assert [timer[0] for timer in due] == sorted(timer[0] for timer in due)
        timers |= set(due)
        keyed.close()
    assert values == {key: (f"value {n}", [n, n + 1], {"m": n}) for n, key in enumerate(KEYS)}
    assert timers == {timer for number, key in enumerate(KEYS) for timer in timers_of(number, key)}


if __name__ == "__main__":
    make(sys.argv[1])

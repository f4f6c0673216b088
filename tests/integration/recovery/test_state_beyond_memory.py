"""State ten times as large as the memory for it, for an hour: memory and disks stay within what they are given.

``FIRESTEEL_TEST_MINUTES`` says how long (60 if nothing is said), ``FIRESTEEL_TEST_RATE`` how many records come in a
second. What was seen is printed each minute.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from firesteel.client.embedded import stop_embedded_cluster
from firesteel.common import Types, WatermarkStrategy
from firesteel.datastream import KeyedProcessFunction
from firesteel.datastream.connectors.data_generator import DataGeneratorSource, RateLimiterStrategy
from firesteel.datastream.state import ValueStateDescriptor
from tests.integration.embedded.programs import ended, new_environment, proportional, rest_of, running, state_of
from tests.waiting import wait_until

MINUTES = float(os.environ.get("FIRESTEEL_TEST_MINUTES") or 60)
RATE = int(os.environ.get("FIRESTEEL_TEST_RATE") or 2_500)
pytestmark = [pytest.mark.long, pytest.mark.timeout(int(MINUTES * 60) + 1_200)]
MANAGED_MB, VALUE = 24, 1_000
KEYS: Final = 10 * (MANAGED_MB << 20) // VALUE
STATE: Final = KEYS * (VALUE + 40)
"""Bytes: values that can't be compressed, with keys and what a pickle has around them."""
SLOT_MB = 256
"""What a slot may use in all; a TaskManager kills those that use more."""
SHOWN = 50
"""Every so manieth record is told of."""


def key_of(number: int) -> int:
    """Each key once, then any."""
    return (number if number < KEYS else random.Random(number).randrange(KEYS)) * 2654435761 % (1 << 40)


def value_of(key: int, count: int) -> bytes:
    """What is kept after so many records of a key."""
    return count.to_bytes(8, "big") + random.Random(key ^ count << 41).randbytes(VALUE - 8)


class Kept(KeyedProcessFunction[Any, Any, Any]):
    """Counts, and looks at every byte of what it has kept."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def open(self, runtime_context: Any) -> None:
        self.kept = runtime_context.get_state(ValueStateDescriptor("kept", Types.PICKLED_BYTE_ARRAY()))
        Path(self.folder, f"pid-{os.getpid()}").touch()
        self.told = Path(self.folder, "told").open("a", buffering=1)  # noqa: SIM115 # until close

    def process_element(self, value: int, ctx: Any) -> Iterator[Any]:
        key, before = ctx.get_current_key(), self.kept.value()
        count = 0 if before is None else int.from_bytes(before[:8], "big")
        if before is not None and before != value_of(key, count):
            raise AssertionError(f"state of key {key} is not what was written behind record {count}")
        self.kept.update(value_of(key, count + 1))
        if value % SHOWN == 0:
            self.told.write(f"{value} {count + 1}\n")
        yield from ()

    def close(self) -> None:
        self.told.close()


def on_disk(folder: Path) -> int:
    """Bytes of files, each once however many links it has; temporary ones may vanish meanwhile."""
    sizes: dict[int, int] = {}
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                status = os.stat(os.path.join(root, name))
            except FileNotFoundError:
                continue
            sizes[status.st_ino] = status.st_size
    return sum(sizes.values())


def test_memory_and_disks_stay_within_their_bounds(tmp_path: Path) -> None:
    local, stored, seen = (tmp_path / name for name in ("local", "checkpoints", "seen"))
    for folder in (local, seen):
        folder.mkdir()
    env = new_environment(
        taskmanager__memory__task__heap__size=f"{SLOT_MB - MANAGED_MB - 16}m",
        taskmanager__memory__managed__size=f"{MANAGED_MB}m",
        taskmanager__memory__network__min="16m",
        taskmanager__memory__network__max="16m",
        state__backend__type="rocksdb",
        state__backend__rocksdb__localdir=str(local),
        # levels as much smaller than the state as those of the defaults are than one of gigabytes
        state__backend__rocksdb__compaction__level__max_size_level_base="16mb",
        state__backend__rocksdb__compaction__level__target_file_size_base="4mb",
        execution__checkpointing__dir=str(stored),
        execution__checkpointing__incremental="true",
        execution__checkpointing__interval="10 s",
        restart_strategy__type="none",
    )
    source = DataGeneratorSource(
        lambda number: number, 1 << 40, RateLimiterStrategy.per_second(RATE), Types.LONG()
    )  # it is stopped
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    numbers.key_by(key_of).process(Kept(str(seen))).print()
    job = env.execute_async("state beyond memory")
    peaks = dict.fromkeys(("memory", "local", "stored"), 0)
    try:
        running(job)
        began, shown = time.monotonic(), 0
        while time.monotonic() < began + MINUTES * 60:
            assert state_of(job) == "RUNNING", rest_of(job, "/exceptions")
            pids = [int(path.name[4:]) for path in seen.glob("pid-*")]
            now = {
                "memory": max(map(proportional, pids), default=0),
                "local": on_disk(local),
                "stored": on_disk(stored),
            }
            peaks = {name: max(peaks[name], size) for name, size in now.items()}
            if time.monotonic() > began + 60 * shown:
                shown += 1
                counts = rest_of(job, "/checkpoints")["counts"]
                memory = {name: f"{now[name] >> 20} (at most {peaks[name] >> 20})" for name in now}
                print(f"{shown - 1} min, MiB: {memory}; state {STATE >> 20}; checkpoints {counts}", flush=True)
            time.sleep(2)
        counts = rest_of(job, "/checkpoints")["counts"]
        job.stop_with_savepoint(False, str(tmp_path / "savepoint")).result()
        assert ended(job, 600) == "FINISHED"
    finally:
        stop_embedded_cluster()
    told_of = (line.split() for line in (seen / "told").read_text().splitlines())
    lines = [(int(number), int(count)) for number, count in told_of]
    assert [number for number, _ in lines] == list(range(0, len(lines) * SHOWN, SHOWN))
    records = lines[-1][0] + 1
    print(f"{records} records, {KEYS} keys; {peaks}; {counts}", flush=True)
    expected: dict[int, int] = {}
    expected_by_number = dict(lines)
    for number in range(records):
        key = key_of(number)
        expected[key] = expected.get(key, 0) + 1
        if number % SHOWN == 0:
            assert expected_by_number[number] == expected[key], f"record {number} of key {key}"
    assert records > 2 * KEYS or MINUTES * 60 * RATE < 3 * KEYS, "too slow to have all of the state"
    assert counts["completed"] > MINUTES
    assert counts["failed"] == 0
    assert MANAGED_MB << 20 < peaks["memory"] <= SLOT_MB << 20
    assert peaks["local"] <= 2 * STATE
    assert peaks["stored"] <= 3 * STATE  # two checkpoints while the second is taken, each of up to 1.5 of it
    wait_until(lambda: not list(local.iterdir()), lambda: f"local files are removed: {list(local.iterdir())}")


if __name__ == "__main__":
    raise SystemExit(pytest.main([__file__, "-m", "long", "-n0", "-s", "-q"]))

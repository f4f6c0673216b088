"""State of ten times the memory of a slot: the process stays small, and all of it is there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import json, os, sys
import numpy as np, pyarrow as pa
from firesteel.common.typeinfo import Types
from firesteel.functions.state import ValueStateDescriptor
from firesteel.state.backend import KeyedStateParameters
from firesteel_rocksdb.backend import RocksDBKeyedState
from firesteel_rocksdb.settings import RocksDBSettings
from firesteel.state.snapshots import SnapshotFiles

BUDGET = 16 << 20

class Nowhere(SnapshotFiles):
    known = {}
    size = 0
    def keep(self, name): raise AssertionError(name)
    def put(self, name, path): self.size += os.path.getsize(path)

def memory():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("VmRSS"))

def made(name):
    parameters = KeyedStateParameters(operator=name, memory=BUDGET, directory=os.path.join(sys.argv[1], name))
    return RocksDBKeyedState(parameters, RocksDBSettings())

def checkpointed(keyed):
    files, snapshot = Nowhere(), keyed.snapshot()
    for _ in snapshot:
        pass
    snapshot.write_files(files)
    snapshot.close()
    return files.size

rows, columns = made("rows"), made("columns")
state = rows.get_state(ValueStateDescriptor("bytes", Types.PICKLED_BYTE_ARRAY()))
counts = columns.columns("counts", [pa.int64()])
count = counts.column("count", pa.int64())
random = np.random.default_rng(5)
rows.key = 0
state.update(b"")
counts.slots([pa.array([0])])
before, most = memory(), 0
for step in range(170):
    data = random.bytes(1 << 20)
    for at in range(1024):
        rows.key = step * 1024 + at
        state.update(data[at << 10 : (at + 1) << 10])
    keys = random.integers(0, 1 << 40, 10_000)
    slots = counts.slots([pa.array(keys)])
    counts.touch(slots)
    count.set(slots, keys)
    if step % 50 == 49:
        size = checkpointed(rows) + checkpointed(columns)
    most = max(most, memory())
wrong = sum(len(state.value() or b"") != 1024 for rows.key in range(0, 170 * 1024, 101))
slots = counts.find([pa.array(keys)])
wrong += int((count.get(slots) != keys).sum())
print(json.dumps({"state": size, "grown": most - before, "wrong": wrong}))
rows.close()
columns.close()
"""


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_state_of_ten_times_the_memory_of_a_slot(tmp_path: Path) -> None:
    ran = subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True, timeout=1100)
    assert ran.returncode == 0, ran.stderr
    figures = json.loads(ran.stdout)
    assert figures["wrong"] == 0
    assert figures["state"] > 10 * (16 << 20)
    # the budget, filters and indexes of 1.9 million keys, and what the C library keeps
    assert figures["grown"] < (16 << 20) + (100 << 20), figures
    assert list(tmp_path.iterdir()) == []

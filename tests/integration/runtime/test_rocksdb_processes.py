"""RocksDB and processes: those that are forked, and those that are killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from firesteel.state.attempt_directories import remove_abandoned
from firesteel.state.backend import KeyedStateParameters
from firesteel_rocksdb.backend import RocksDBKeyedState
from firesteel_rocksdb.settings import RocksDBSettings


def test_a_process_that_was_forked_behind_a_database_says_so(tmp_path: Path) -> None:
    program = """
import os, sys
from firesteel_rocksdb.database import RocksDatabase
from firesteel_rocksdb.settings import RocksDBSettings, memory_of
settings = RocksDBSettings()
memory = memory_of(settings, 0)
database = RocksDatabase(sys.argv[1] + "/a", "one", settings, memory)
database.close()
if os.fork() == 0:
    try:
        RocksDatabase(sys.argv[1] + "/b", "two", settings, memory)
    except Exception as error:
        print(error, flush=True)
    os._exit(0)
os.wait()
"""
    ran = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert "forked" in ran.stdout, ran
    assert "'two'" in ran.stdout


def test_local_directories_of_processes_that_were_killed_are_removed(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    program = """
import os, sys
from firesteel.state.attempt_directories import attempt_directory
made = attempt_directory([sys.argv[1]], "one")
open(os.path.join(made, "000001.sst"), "w").close()
os.kill(os.getpid(), 9)
"""
    subprocess.run([sys.executable, "-c", program, str(disk)], timeout=60)
    (abandoned,) = disk.iterdir()
    (disk / "of-somebody-else").mkdir()
    keyed = RocksDBKeyedState(KeyedStateParameters(), RocksDBSettings(directories=(str(disk),)))
    keyed.table("rows")["a"] = 1
    assert not abandoned.exists()
    assert (disk / "of-somebody-else").exists()
    (own,) = [path for path in disk.iterdir() if path.name.startswith("firesteel-state-")]
    remove_abandoned(str(disk))
    assert (own / "db").is_dir()
    keyed.close()
    assert [path.name for path in disk.iterdir()] == ["of-somebody-else"]


def test_a_disk_that_takes_no_more_fails_by_name_and_the_checkpoint_before_is_whole(tmp_path: Path) -> None:
    program = """
import resource, signal, sys
from firesteel.common.typeinfo import Types
from firesteel.core.errors import StateDatabaseError
from firesteel.functions.state import ValueStateDescriptor
from firesteel.state.backend import KeyedStateParameters
from firesteel_rocksdb.backend import RocksDBKeyedState
from firesteel_rocksdb.settings import RocksDBSettings
from firesteel.testing.snapshots import take_snapshot

def made(name):
    parameters = KeyedStateParameters(operator="counting", memory=1 << 20, directory=sys.argv[1] + name)
    keyed = RocksDBKeyedState(parameters, RocksDBSettings())
    return keyed

def fill(keyed, keys):
    state = keyed.get_state(ValueStateDescriptor("text", Types.STRING()))
    for key in keys:
        keyed.key = key
        state.update(str(key) * 20)

keyed = made("/one")
fill(keyed, range(2000))
taken = take_snapshot(keyed.snapshot())
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, resource.RLIM_INFINITY))
try:
    for start in range(2000, 400_000, 1000):
        fill(keyed, range(start, start + 1000))
    take_snapshot(keyed.snapshot())
except StateDatabaseError as error:
    print("failed:", error, flush=True)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
keyed.close()
later = made("/two")
later.restore([taken.of(range(1))])
later.key = 1999
print("restored:", later.get_state(ValueStateDescriptor("text", Types.STRING())).value()[:8], flush=True)
later.close()
"""
    ran = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, timeout=120)
    failed, restored = ran.stdout.splitlines()
    assert failed.startswith(f"failed: the state of operator 'counting' in {tmp_path}/one can't be used: IO error"), ran
    assert restored == "restored: 19991999"
    assert list(tmp_path.iterdir()) == []

"""RocksDB and processes: those that are forked, and those that are killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from firesteel.state.backend import KeyedStateParameters
from firesteel.state.rocksdb.backend import RocksDBKeyedState
from firesteel.state.rocksdb.directories import remove_abandoned
from firesteel.state.rocksdb.settings import RocksDBSettings


def test_a_process_that_was_forked_behind_a_database_says_so(tmp_path: Path) -> None:
    program = """
import os, sys
from firesteel.state.rocksdb.database import Database
from firesteel.state.rocksdb.settings import RocksDBSettings, memory_of
settings = RocksDBSettings()
memory = memory_of(settings, 0)
database = Database(sys.argv[1] + "/a", "one", settings, memory)
database.close()
if os.fork() == 0:
    try:
        Database(sys.argv[1] + "/b", "two", settings, memory)
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
from firesteel.state.rocksdb.directories import attempt_directory
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
    (own,) = [path for path in disk.iterdir() if path.name.startswith("firesteel-rocksdb-")]
    remove_abandoned(str(disk))
    assert (own / "db").is_dir()
    keyed.close()
    assert [path.name for path in disk.iterdir()] == ["of-somebody-else"]

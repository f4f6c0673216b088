"""Jobs that go on with more and fewer subtasks, from savepoints and checkpoints: nothing is lost or doubled."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.recovery.places import Embedded
from tests.integration.recovery.trials import ALIGNED, SAVEPOINT, UNALIGNED, WAYS, Trial

pytestmark = pytest.mark.timeout(600)
PARALLELISMS = (3, 5, 1, 4, 3)
ROWS = ["keyed", "timers", "windows", "joins"]
COLUMNS = ["aggregates", "column-windows"]
BROADCAST = ["broadcast"]
"""An unaligned checkpoint of these is for the same parallelism, as in Flink."""


@pytest.mark.long  # one step of it: embedded/test_rocksdb.py
def test_rocksdb(here: Embedded, folder: Path) -> None:
    trial = Trial(here, folder, [*ROWS, *COLUMNS, *BROADCAST], "rocksdb", rate=500)
    trial.rescale(PARALLELISMS, [ALIGNED, SAVEPOINT, ALIGNED, SAVEPOINT])


@pytest.mark.long  # of state in memory, unit/state/test_rescaling.py is the proof
def test_hashmap(here: Embedded, folder: Path) -> None:
    trial = Trial(here, folder, [*ROWS, *COLUMNS], "hashmap", rate=500)
    trial.rescale(PARALLELISMS, [UNALIGNED, ALIGNED, UNALIGNED, SAVEPOINT])


@pytest.mark.long
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_each_way_on_each_backend(here: Embedded, folder: Path, backend: str, way: str) -> None:
    programs = [*ROWS, *COLUMNS, *([] if way == UNALIGNED else BROADCAST)]
    settings = {"execution.checkpointing.incremental": "true", "state.backend.rocksdb.memory.fixed-per-slot": "2 mb"}
    rate = 200 if way == UNALIGNED else 500  # joins with so little memory fall behind, and more and more is in flight
    Trial(here, folder, programs, backend, rate=rate, settings=settings).rescale(PARALLELISMS, [way] * 4)

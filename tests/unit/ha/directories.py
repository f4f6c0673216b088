"""Stores in a directory that belong to no cluster; whoever opens one again follows the process that had it before."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from firesteel.checkpoint.store import CompletedCheckpointStore
from firesteel.ha.checkpoint_cells import CellCheckpointStore
from firesteel.ha.directory_cells import DirectoryCells
from firesteel.ha.disk import Disk
from firesteel.ha.payloads import DirectoryPayloads
from firesteel.ha.retrieval import of_job

JOB = "ab" * 16


class NoSyncDisk(Disk):
    """For tests that lose no power: a sync takes a hundred times as long as the rest."""

    def sync(self, path: Path) -> None:
        pass


def lead(cells: DirectoryCells, component: str) -> int:
    """Follow whoever leads; returns the epoch."""
    cells.depose(component)
    epoch = cells.campaign(component)
    assert epoch is not None
    return epoch


def checkpoint_store(directory: Path, disk: Disk | None = None) -> CompletedCheckpointStore:
    """The completed checkpoints of a job."""
    cells = DirectoryCells(directory, disk or Disk(), directory / "jobs")
    payloads = DirectoryPayloads(directory / "jobs", disk)
    return CellCheckpointStore(cells, payloads, of_job(JOB), lead(cells, of_job(JOB)), f"checkpoints/{JOB}")


def kinds_of_records(directory: Path) -> set[str]:
    """What there is in the cell of the job."""
    names = DirectoryCells(directory, Disk(), directory / "jobs").names(of_job(JOB))
    return {name.partition(".")[0] for name in names}


def edit_record(directory: Path, name: str, edit: Callable[[bytes], bytes], component: str = of_job(JOB)) -> bytes:
    """Have somebody change the line of a record; returns what it was."""
    path = records_file(directory, component)
    header, index, *lines = path.read_bytes().split(b"\n")
    position = [record for record, _ in json.loads(index)["records"]].index(name)
    before = lines[position]
    lines[position] = edit(before)
    path.write_bytes(b"\n".join([header, index, *lines]))
    return before


def records_file(directory: Path, component: str = of_job(JOB)) -> Path:
    """The file with the records of a cell."""
    (revision,) = (directory / "cells" / component).iterdir()
    return revision / "records"

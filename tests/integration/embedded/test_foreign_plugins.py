"""Plug-ins from outside the tree, installed and found by their names: those that the pages "Write your own" show."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import zlib
from collections import defaultdict
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.distributions import files_of, install

PAGES = Path(__file__).parents[3] / "docs" / "write-your-own"
PROGRAM = Path(__file__).with_name("foreign_program.py")
COUNT, KEYS = 400, 7


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A directory for the path of Python in which the distributions of these pages are installed."""
    target = tmp_path / "site"
    for page in ("source", "sink", "file-system", "state-backend", "checkpoint-storage"):
        project = tmp_path / page
        project.mkdir()
        for name, text in files_of((PAGES / f"{page}.md").read_text(encoding="utf-8")).items():
            (project / name).write_text(text, encoding="utf-8")
        install(project, target)
    return target


def rows(database: Path, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(database)) as connection:
        return connection.execute(query).fetchall()


@pytest.mark.timeout(180)
def test_a_job_of_foreign_plug_ins_fails_and_counts_each_record_once(tmp_path: Path, site: Path) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    command = [sys.executable, "-P", str(PROGRAM), str(folder), str(COUNT), "sqlite", "sqlite"]
    environment = {**os.environ, "PYTHONPATH": str(site)}
    process = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=170)
    assert process.returncode == 0, process.stderr
    assert (folder / "failed").exists(), "the job has not gone on from a checkpoint"

    totals = [json.loads(value) for (value,) in rows(folder / "totals.db", "select value from result")]
    assert sorted(number for number, _ in totals) == list(range(COUNT))
    of_key: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for number, total in totals:
        of_key[number % KEYS].append((total, number + 1))
    for key, sums in of_key.items():
        before = 0
        for total, amount in sorted(sums):  # each sum is the one before and its own record: none was lost or doubled
            assert total == before + amount, f"key {key}: {total} behind {before}"
            before = total
    parts = rows(folder / "totals.sqlar", "select sz, data from sqlar")
    texts = [data if len(data) == size else zlib.decompress(data) for size, data in parts]
    assert sorted(int(line) for text in texts for line in text.split()) == list(range(COUNT))
    assert rows(folder / "totals.sqlar", "select count(*) from part") == [(0,)]

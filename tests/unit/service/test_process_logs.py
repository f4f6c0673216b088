"""Logs of a process: files beside its own, and what is kept in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from firesteel.service.measured import JOBMANAGER, TASKMANAGER, Measured
from firesteel.service.process_logs import ProcessLogs, TextRing, UnknownLogError
from firesteel.service.process_metrics import process_values


def test_a_ring_keeps_the_end() -> None:
    ring = TextRing(10)
    ring.write("abcdef")
    ring.write("ghijkl")
    assert ring.size == 12
    assert (ring.read(0, 100).offset, ring.read(0, 100).data) == (2, b"cdefghijkl")
    assert ring.read(-3, 100).data == b"jkl"
    assert ring.read(5, 2).data == b"fg"
    assert ring.read(99, 5).data == b""
    ring.write("x" * 50)
    assert ring.read(0, 100).data == b"x" * 10


def test_files_of_others_are_not_shown(tmp_path: Path) -> None:
    main = tmp_path / "firesteel-me-taskmanager-0-host.log"
    for name in (
        main.name,
        main.name + ".1",
        "firesteel-me-taskmanager-0-host.out",
        "other.log",
        "executor-host-1.log",
    ):
        (tmp_path / name).write_text(f"text of {name}")
    (tmp_path / (main.name + ".link")).symlink_to("/etc/passwd")
    logs = ProcessLogs(lambda name: name.startswith("executor-host-"), main)
    logs.ring("slot-0.out").write("printed")
    names = [file.name for file in logs.listed()]
    assert names == sorted(["executor-host-1.log", main.name, main.name + ".1", logs.stdout, "slot-0.out"])
    assert (logs.main, logs.stdout) == (main.name, "firesteel-me-taskmanager-0-host.out")
    assert logs.read(main.name, 8, 9).data == b"firesteel"
    part = logs.read(main.name, -4, 100)
    assert (part.data, part.size, part.offset) == (b".log", part.size, part.size - 4)
    assert logs.read("slot-0.out", 0, 100).data == b"printed"
    for wrong in ("other.log", "../" + main.name, main.name + ".link", ""):
        with pytest.raises(UnknownLogError):
            logs.read(wrong, 0, 10)


def test_metrics_of_a_process_have_flinks_names() -> None:
    measured = [
        Measured(("taskmanager", "Status", "JVM"), "Memory_Heap_Used", 7.0),
        Measured(("taskmanager",), "numThings", 1.0),
        Measured(("taskmanager", "job", "task"), "numRecordsIn", 2.0),
        Measured(("taskmanager", "Status"), "sizes", 3.0, quantiles={0.5: 1.0}),
    ]
    values = process_values(measured, TASKMANAGER)
    assert (values["Status.JVM.Memory.Heap.Used"], values["Status.JVM.Memory.Heap.Committed"]) == (7.0, 7.0)
    assert values["numThings"] == 1.0
    assert "numRecordsIn" not in values
    assert not [name for name in values if "sizes" in name]
    assert values["Status.JVM.Memory.Heap.Max"] > 1 << 20
    assert "Status.JVM.Memory.Heap.Used" not in process_values(measured, JOBMANAGER)

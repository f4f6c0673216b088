"""A slot in the interpreter of a job."""

from __future__ import annotations

from pathlib import Path

from firesteel.protocol.fleet import SlotLaunch, SlotOutcome
from firesteel.runtime.slot.slot_process import run_in


def test_functions_find_the_jobs_interpreter_in_the_environment(tmp_path: Path) -> None:
    interpreter = tmp_path / "python"
    interpreter.write_text(f'#!/bin/sh\nprintf %s "$python" > {tmp_path}/told\n')
    interpreter.chmod(0o700)
    launch = SlotLaunch("a", "tm", "executor", "/socket")
    order = {"python": str(interpreter), "environment": "e", "path": [], "directory": str(tmp_path)}
    assert run_in(launch, 0, order) == (SlotOutcome.RETURNED, "")
    assert (tmp_path / "told").read_text() == str(interpreter)

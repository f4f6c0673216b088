"""A slot whose task waits for its state: the other tasks, and a cancel, do not."""

from __future__ import annotations

import os
from pathlib import Path

from firesteel.checkpoint.assign import OperatorRestore, TaskRestore
from firesteel.checkpoint.handles import FileState
from firesteel.checkpoint.subtask_state import OperatorListState
from firesteel.graph.specs import OperatorKind
from tests.integration.runtime.chains import line, numbers, spec, split
from tests.integration.runtime.slot_process import SlotProcess


def test_a_restore_that_hangs_holds_up_nobody(slot: SlotProcess, tmp_path: Path) -> None:
    pipe = tmp_path / "state"  # who opens it to read waits until somebody writes
    os.mkfifo(pipe)
    written = OperatorListState((), (FileState(str(pipe), 10, "0" * 32, 0),))
    restore = TaskRestore(3, False, {"0" * 32: OperatorRestore(operator=(written,))})
    chain = line(numbers(0, 0), spec(OperatorKind.MAP, lambda n: n), spec(OperatorKind.COLLECT))
    waiting, other = slot.deploy([chain, chain], restores={0: restore})
    slot.wait_for_state("RUNNING", other)
    slot.give_splits([split(0, 3)], other)
    assert slot.collect_all(other) == [0, 1, 2]
    slot.wait_for_state("FINISHED", other)
    assert slot.collect(waiting, 5, wait_ms=1)[1]["error"] is None
    slot.send({"type": "cancel", "execution_ids": [waiting], "interval_ms": 60_000})
    slot.wait_for_state("CANCELED", waiting)
    assert not [m for m, _ in slot.messages if m["type"] == "task_state" and m["state"] == "RUNNING"]
    with pipe.open("wb"):  # the thread can end
        assert slot.release() == "OUTCOME RETURNED"

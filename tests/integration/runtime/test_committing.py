"""A committer that does not come back: the other tasks of its slot, the control channel and a cancel do not wait."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from firesteel.checkpoint.assign import OperatorRestore, TaskRestore
from firesteel.checkpoint.handles import InlineState
from firesteel.checkpoint.subtask_state import Committables
from firesteel.functions.two_phase import (
    COMMITTED,
    CommitResult,
    Committable,
    Committer,
    TwoPhaseCommitSink,
    TwoPhaseWriter,
)
from firesteel.graph.specs import OperatorKind
from tests.integration.runtime.chains import line, numbers, spec, split
from tests.integration.runtime.slot_process import SlotProcess


class Sums(TwoPhaseCommitSink[int]):
    """Commits one number; its committer waits for somebody at the other end of a pipe, or for ever."""

    def __init__(self, pipe: str | None) -> None:
        self.pipe = pipe

    def create_writer(self, context: Any) -> TwoPhaseWriter[int]:
        return SumWriter()

    def create_committer(self, context: Any) -> Committer:
        return SumCommitter(self.pipe)


class SumWriter(TwoPhaseWriter[int]):
    def __init__(self) -> None:
        self.sum = 0

    def write(self, values: Sequence[int], timestamps: Any) -> None:
        self.sum += sum(values)

    def prepare_commit(self, *, end_of_input: bool) -> Sequence[bytes]:
        return [str(self.sum).encode()]


class SumCommitter(Committer):
    def __init__(self, pipe: str | None) -> None:
        self.pipe = pipe

    def commit(self, committables: Sequence[Committable]) -> Sequence[CommitResult]:
        print(f"committing {[committable.data for committable in committables]}")
        if self.pipe is None:
            while True:
                time.sleep(0.01)
        with open(self.pipe, "rb") as pipe:  # waits until somebody writes
            pipe.read()
        print("committed")
        return [COMMITTED] * len(committables)

    def close(self) -> None:
        print("closed")


def wait_for_print(slot: SlotProcess, text: str) -> None:
    while text not in slot.printed():
        assert slot.pump(100), slot.logs()


def commit(slot: SlotProcess, task: str, checkpoint: int = 1) -> None:
    """What the JobMaster does at the end of a job: it stores what is to be committed, and says so."""
    named = {"execution_ids": [task], "checkpoint_id": checkpoint}
    slot.send({"type": "trigger_checkpoint", "timestamp_ms": 0, "options": {}, **named})
    slot.wait_for("acknowledge_checkpoint", lambda message: message["execution_id"] == task)
    slot.send({"type": "checkpoint_complete", **named})


def other_task_works(slot: SlotProcess, other: str) -> None:
    slot.give_splits([split(0, 3)], other)
    assert slot.collect_all(other) == [0, 1, 2]
    slot.wait_for("end_of_data", lambda message: message["execution_id"] == other)
    commit(slot, other, 4)
    slot.wait_for_state("FINISHED", other)


def test_a_slow_committer_holds_up_nobody(slot: SlotProcess, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    sums, other = slot.deploy(
        [
            line(numbers(0, 0), spec(OperatorKind.SINK, Sums(str(pipe)))),
            line(numbers(0, 0), spec(OperatorKind.COLLECT)),
        ],
        needs_commit=True,
    )
    slot.give_splits([split(0, 4)], sums)
    slot.wait_for("end_of_data", lambda message: message["execution_id"] == sums)
    commit(slot, sums)
    wait_for_print(slot, "committing [b'6']")
    other_task_works(slot, other)
    assert not [m for m, _ in slot.messages if m["type"] == "task_state" and m["state"] == "FINISHED"]
    pipe.write_bytes(b"now")
    slot.wait_for_state("FINISHED", sums)
    assert slot.printed() == "committing [b'6']\ncommitted\nclosed\n"
    assert slot.release() == "OUTCOME RETURNED"


def test_a_committer_that_commits_again_before_the_first_record_holds_up_nobody(
    slot: SlotProcess, tmp_path: Path
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    restore = TaskRestore(
        3, False, {"0" * 32: OperatorRestore(committables=(Committables(3, 1, (InlineState(b"9"),)),))}
    )
    sums, other = slot.deploy(
        [
            line(spec(OperatorKind.SINK, Sums(str(pipe)))),
            line(numbers(0, 0), spec(OperatorKind.COLLECT)),
        ],
        needs_commit=True,
        restores={0: restore},
    )
    wait_for_print(slot, "committing [b'9']")
    other_task_works(slot, other)
    slot.wait_for_state("RUNNING", other)
    running = [m for m, _ in slot.messages if m["type"] == "task_state" and m["state"] == "RUNNING"]
    assert not running, "no record may come before that"
    pipe.write_bytes(b"now")
    wait_for_print(slot, "committed")
    slot.wait_for_state("RUNNING", sums)
    assert slot.release() == "OUTCOME RETURNED"


def test_a_commit_that_never_returns_is_interrupted_by_a_cancel(slot: SlotProcess) -> None:
    sums, other = slot.deploy(
        [
            line(numbers(0, 0), spec(OperatorKind.SINK, Sums(None))),
            line(numbers(0, 0), spec(OperatorKind.COLLECT)),
        ],
        needs_commit=True,
    )
    slot.give_splits([split(0, 4)], sums)
    slot.wait_for("end_of_data", lambda message: message["execution_id"] == sums)
    commit(slot, sums)
    wait_for_print(slot, "committing [b'6']")
    other_task_works(slot, other)
    slot.send({"type": "cancel", "execution_ids": [sums], "interval_ms": 60_000})
    slot.wait_for_state("CANCELED", sums)
    assert "closed" in slot.printed()
    assert slot.release() == "OUTCOME RETURNED"

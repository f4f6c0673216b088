"""The process of an enumerator that its author wrote is killed: each record comes once, embedded and elsewhere."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from firesteel.common import WatermarkStrategy
from firesteel.core.errors import JobFailedError
from firesteel.datastream.connectors.base import (
    Boundedness,
    Chunk,
    ReaderContext,
    Source,
    Split,
    SplitCursor,
    SplitEnumerator,
    SplitEnumeratorContext,
    SplitQueueReader,
    Wait,
)
from tests.integration.embedded.programs import new_environment

SPLITS, LENGTH = 12, 60


class Killed(Source[int]):
    """Its enumerator writes down what it does, and kills its process once: when it has given out half, and some of that
    is in a checkpoint. Readers are slow until then.
    """

    def __init__(self, folder: Path, broken: bool = False) -> None:
        self.folder, self.broken = folder, broken

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.BOUNDED

    def create_enumerator(self, context: SplitEnumeratorContext) -> SplitEnumerator:
        return KilledEnumerator(context, self, [str(number) for number in range(SPLITS)])

    def restore_enumerator(self, context: SplitEnumeratorContext, checkpoint: Any) -> SplitEnumerator:
        return KilledEnumerator(context, self, checkpoint)

    def create_reader(self, context: ReaderContext) -> SplitQueueReader[int]:
        return SlowReader(self.folder)


class KilledEnumerator(SplitEnumerator):
    def __init__(self, context: SplitEnumeratorContext, source: Killed, left: list[str]) -> None:
        self.context, self.source, self.left = context, source, left
        self.mark = source.folder / "killed"
        self.checkpoints = 0
        self.note("begins with", *left)

    def note(self, *words: object) -> None:
        with open(self.source.folder / "story", "a", encoding="utf-8") as story:
            print(*words, file=story)

    def handle_split_request(self, subtask_id: int, requester_hostname: str | None) -> None:
        if self.source.broken:
            raise ValueError(f"nothing for {subtask_id}")
        if not self.left:
            self.context.signal_no_more_splits(subtask_id)
            return
        self.context.assign_split(Split(self.left.pop(0), {}), subtask_id)
        if len(self.left) <= SPLITS // 2 and self.checkpoints and not self.mark.exists():
            self.mark.write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGKILL)

    def add_splits_back(self, splits: Sequence[Split], subtask_id: int) -> None:
        self.note("back", *(split.id for split in splits))
        self.left += [split.id for split in splits]

    def snapshot_state(self, checkpoint_id: int) -> Any:
        return self.left

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self.checkpoints += 1

    def close(self) -> None:
        self.note("closed")


class SlowReader(SplitQueueReader[int]):
    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def open_split(self, split: Split) -> SplitCursor[int]:
        return SlowCursor(split, self.folder / "killed")


class SlowCursor(SplitCursor[int]):
    def __init__(self, split: Split, mark: Path) -> None:
        self.number, self.mark = int(split.id), mark
        self.position = int(str(split.position or 0))
        self.waits = False

    def read(self, max_records: int) -> Chunk[int] | Wait:
        self.waits = not self.waits and not self.mark.exists()
        if self.waits:
            return Wait(0.01)
        last = min(LENGTH, self.position + 5)
        values = [self.number * 1000 + i for i in range(self.position, last)]
        self.position = last
        return Chunk(values, last, last == LENGTH)


@pytest.mark.usefixtures("anywhere")
def test_the_process_of_the_enumerator_is_killed(tmp_path: Path, place: Mapping[str, str]) -> None:
    env = new_environment(
        2, restart_strategy__type="fixed-delay", restart_strategy__fixed_delay__attempts="3",
        restart_strategy__fixed_delay__delay="50 ms",
    )  # fmt: skip
    env.enable_checkpointing(50)
    numbers = env.from_source(Killed(tmp_path), WatermarkStrategy.no_watermarks(), "numbers")
    with numbers.key_by(lambda n: n % 7).map(lambda n: n).execute_and_collect() as results:
        counts = Counter(results)
    expected = Counter(number * 1000 + i for number in range(SPLITS) for i in range(LENGTH))
    assert counts == expected, f"lost: {expected - counts}, doubled: {counts - expected}"
    assert (tmp_path / "killed").exists(), "it was killed on the way"
    begins = [line for line in (tmp_path / "story").read_text().splitlines() if line.startswith("begins")]
    assert len(begins) == 2
    assert len(begins[1].split()) < len(begins[0].split()), "it went on from its checkpoint"


@pytest.mark.usefixtures("cluster")
def test_what_it_raises_names_the_place(tmp_path: Path) -> None:
    env = new_environment(1)
    env.from_source(Killed(tmp_path, broken=True), WatermarkStrategy.no_watermarks(), "numbers").print()
    with pytest.raises(JobFailedError, match=r"(?s)'SplitEnumerator: Source: numbers'.*nothing for 0"):
        env.execute("broken")
    assert (tmp_path / "story").read_text().splitlines()[-1] == "closed"

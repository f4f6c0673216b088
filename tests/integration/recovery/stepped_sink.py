"""The file sink, with the steps of a commit at which somebody dies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from firesteel.common import Encoder
from firesteel.datastream.connectors.file_system import BucketAssigner, FileSink, RollingPolicy
from firesteel.functions.sink import WriterContext
from firesteel.functions.two_phase import CommitResult, Committable, Committer, TwoPhaseCommitSink, TwoPhaseWriter
from tests.integration.recovery import steps


class SteppedSink(TwoPhaseCommitSink[Any]):
    """Writes lines of text.

    Args:
        folder: of the orders; the files are in a folder below it.
        name: of that folder.
        parts_go_on: parts are closed when they are large, else at each checkpoint.
    """

    def __init__(self, folder: Path, name: str, parts_go_on: bool = False) -> None:
        self._folder = folder
        builder = FileSink.for_row_format(str(folder / "out" / name), Encoder.simple_string_encoder())
        rolling = RollingPolicy.on_checkpoint_rolling_policy()
        if parts_go_on:
            rolling = RollingPolicy.default_rolling_policy(part_size=10_000)
        self._sink = (
            builder.with_rolling_policy(rolling)
            .with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
            .build()
        )

    def create_writer(self, context: WriterContext) -> TwoPhaseWriter[Any]:
        return self._sink.create_writer(context)

    def create_committer(self, context: WriterContext) -> Committer:
        return _SteppedCommitter(self._sink.create_committer(context), self._folder)

    def check(self) -> None:
        self._sink.check()


class _SteppedCommitter(Committer):
    def __init__(self, committer: Committer, folder: Path) -> None:
        self._committer, self._folder = committer, folder

    def commit(self, committables: Sequence[Committable]) -> Sequence[CommitResult]:
        steps.at(self._folder, steps.BEFORE_COMMIT)
        half = (len(committables) + 1) // 2
        results = list(self._committer.commit(committables[:half]))
        steps.at(self._folder, steps.WITHIN_COMMIT)
        if committables[half:]:
            results += self._committer.commit(committables[half:])
        steps.at(self._folder, steps.AFTER_COMMIT)
        return results

    def close(self) -> None:
        self._committer.close()


def written(folder: Path, name: str) -> Counter[str]:
    """The lines that are visible.

    Raises:
        AssertionError: something invisible is left.
    """
    files = [path for path in (folder / "out" / name).rglob("*") if path.is_file()]
    hidden = [path.name for path in files if path.name.startswith(".")]
    assert not hidden, f"left in {name}: {hidden}"
    return Counter(line for path in files for line in path.read_text().splitlines())

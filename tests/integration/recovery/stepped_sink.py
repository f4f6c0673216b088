"""The file sink, with the steps of a commit at which somebody dies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from firesteel.common import Encoder
from firesteel.datastream.connectors.file_system import BucketAssigner, FileSink, RollingPolicy
from firesteel.functions.sink import Sink, SinkWriter, WriterContext
from firesteel.functions.source import Plain
from firesteel.functions.two_phase import CommitResult, Committable, Committer, TwoPhaseCommitSink, TwoPhaseWriter
from tests.integration.recovery import steps


class Stepped(TwoPhaseCommitSink[Any]):
    """A sink with the steps.

    Args:
        folder: of the orders.
        sink: that writes.
    """

    def __init__(self, folder: Path, sink: TwoPhaseCommitSink[Any]) -> None:
        self._folder, self._sink = folder, sink
        self.commits_quickly = sink.commits_quickly

    def create_writer(self, context: WriterContext) -> TwoPhaseWriter[Any]:
        return self._sink.create_writer(context)

    def create_committer(self, context: WriterContext) -> Committer:
        return _SteppedCommitter(self._sink.create_committer(context), self._folder)

    def check(self) -> None:
        self._sink.check()


class SteppedSink(Stepped):
    """Writes lines of text.

    Args:
        folder: of the orders; the files are in a folder below it.
        name: of that folder.
        parts_go_on: parts are closed when they are large, else at each checkpoint.
        out: where that folder is; None = in a folder beside the orders.
    """

    def __init__(self, folder: Path, name: str, parts_go_on: bool = False, out: str | None = None) -> None:
        builder = FileSink.for_row_format(f"{out or folder / 'out'}/{name}", Encoder.simple_string_encoder())
        rolling = RollingPolicy.on_checkpoint_rolling_policy()
        if parts_go_on:
            rolling = RollingPolicy.default_rolling_policy(part_size=10_000)
        buckets = BucketAssigner.base_path_bucket_assigner()
        super().__init__(folder, builder.with_rolling_policy(rolling).with_bucket_assigner(buckets).build())


class _SteppedCommitter(Committer):
    def __init__(self, committer: Committer, folder: Path) -> None:
        self._committer, self._folder = committer, folder

    def commit(self, committables: Sequence[Committable]) -> Sequence[CommitResult]:
        return self._step_by_step(self._committer.commit, committables)

    def recommit(self, committables: Sequence[Committable]) -> Sequence[CommitResult]:
        return self._step_by_step(self._committer.recommit, committables)

    def _step_by_step(
        self, commit: Callable[[Sequence[Committable]], Sequence[CommitResult]], committables: Sequence[Committable]
    ) -> Sequence[CommitResult]:
        steps.at(self._folder, steps.BEFORE_COMMIT)
        half = (len(committables) + 1) // 2
        results = list(commit(committables[:half]))
        steps.at(self._folder, steps.WITHIN_COMMIT)
        if committables[half:]:
            results += commit(committables[half:])
        steps.at(self._folder, steps.AFTER_COMMIT)
        return results

    def close(self) -> None:
        self._committer.close()


class SteppedAtEnd(Sink[Any]):
    """Writes lines of text, which are shown at the end of a job without checkpoints."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._out = folder, folder / "out" / name

    def create_writer(self, context: WriterContext) -> SinkWriter[Any]:
        return _AtEnd(self._folder, self._out, context)


class _AtEnd(SinkWriter[Any]):
    def __init__(self, folder: Path, out: Path, context: WriterContext) -> None:
        self._folder, self._out, self._context = folder, out, context
        self._lines: list[str] = []

    def write(self, values: Sequence[Any], timestamps: Sequence[int] | None) -> None:
        self._lines += map(str, values)

    def finish(self) -> list[Plain]:
        self._out.mkdir(parents=True, exist_ok=True)
        name = f"{self._context.subtask_index}-{self._context.attempt}"
        file = self._out / f".{name}"
        self._context.register_temporary_file(str(file))
        file.write_text("\n".join(self._lines))
        return [[str(file), str(self._out / name)]]

    def commit(self, committables: Sequence[Any]) -> None:
        steps.at(self._folder, steps.BEFORE_COMMIT)
        for hidden, visible in committables:
            if Path(hidden).exists():
                Path(hidden).rename(visible)
            assert Path(visible).exists(), f"{hidden} has gone"
            self._context.forget_temporary_file(hidden)
        steps.at(self._folder, steps.AFTER_COMMIT)

    def abort(self) -> None:
        for file in self._out.glob(f".{self._context.subtask_index}-{self._context.attempt}"):
            file.unlink()


def written(folder: Path, name: str) -> Counter[str]:
    """The lines that are visible.

    Raises:
        AssertionError: something invisible is left.
    """
    files = [path for path in (folder / "out" / name).rglob("*") if path.is_file()]
    hidden = [path.name for path in files if path.name.startswith(".")]
    assert not hidden, f"left in {name}: {hidden}"
    return Counter(line for path in files for line in path.read_text().splitlines())

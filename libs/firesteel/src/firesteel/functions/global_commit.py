"""Two-phase sinks with one committer (``TwoPhaseCommitSink.commits_globally``), built from a stage and a sink.

The writers are a stage in front of the sink: their committables are sent as records, ahead of the barrier at which they
were prepared, to one subtask. So the checkpoint contains them, and the committer gets all of them in one call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from typing_extensions import override

from firesteel.functions.coroutines import refuse_coroutines
from firesteel.functions.sink import WriterContext
from firesteel.functions.sink_stages import SinkStage, StageFactory
from firesteel.functions.two_phase import (
    CommitResult,
    Committable,
    Committer,
    TwoPhaseCommitSink,
    TwoPhaseWriter,
    WriterState,
)

_VERSION_BYTES: Final = 4


class GlobalCommitSink(TwoPhaseCommitSink[bytes]):
    """The last operator of such a sink, of parallelism 1: it receives committables as records and commits them.

    Args:
        sink: the program's sink.
    """

    def __init__(self, sink: TwoPhaseCommitSink[Any]) -> None:
        self._sink = sink
        self.commits_quickly = sink.commits_quickly

    @override
    def check(self) -> None:
        self._sink.check()

    def stages(self) -> Sequence[StageFactory]:
        """Return the stages of the program's sink, followed by its writers as a stage."""
        return (*self._sink.stages(), _Writers(self._sink))

    @override
    def create_writer(self, context: WriterContext) -> TwoPhaseWriter[bytes]:
        return _Gathering()

    @override
    def create_committer(self, context: WriterContext) -> Committer:
        committer = self._sink.create_committer(context)
        refuse_coroutines("a committer", committer)
        return _Unwrapping(committer)


class _Writers(StageFactory):
    name = "Writers"
    blocking = True
    """The stage gets a thread of its own: whether a writer blocks is not known before it is made."""

    def __init__(self, sink: TwoPhaseCommitSink[Any]) -> None:
        self._sink = sink

    def create(self, context: WriterContext) -> SinkStage:
        writer = self._sink.create_writer(context)
        refuse_coroutines("a writer", writer)
        return _WriterStage(writer, self._sink.version)


class _WriterStage(SinkStage):
    """A stage around one writer of the program's sink: it emits the writer's committables as records."""

    def __init__(self, writer: TwoPhaseWriter[Any], version: int) -> None:
        self._writer, self._version = writer, version
        self._ended = False

    def open(self, states: Sequence[bytes]) -> None:
        if states:
            self._writer.restore_state([WriterState(*_unwrapped(state)) for state in states])
        self._writer.open()

    def write(self, values: list[Any], timestamps: Sequence[int] | None) -> list[bytes]:
        self._ended = False  # records may follow although a source has declared the end of its input
        self._writer.write(values, timestamps)
        return []

    def prepare(self, *, end_of_input: bool) -> list[bytes]:
        if self._ended:
            return []
        self._ended = end_of_input
        return [_wrapped(self._version, data) for data in self._writer.prepare_commit(end_of_input=end_of_input)]

    def snapshot(self) -> list[bytes]:
        return [_wrapped(self._version, state) for state in self._writer.snapshot_state()]

    def close(self) -> None:
        try:
            if not self._ended:
                self._writer.abort()
        finally:
            self._writer.close()


class _Gathering(TwoPhaseWriter[bytes]):
    """Writer that returns each record as a committable."""

    def __init__(self) -> None:
        self._gathered: list[bytes] = []

    def write(self, values: Sequence[bytes], timestamps: Sequence[int] | None) -> None:
        self._gathered += values

    def prepare_commit(self, *, end_of_input: bool) -> Sequence[bytes]:
        gathered, self._gathered = self._gathered, []
        return gathered


class _Unwrapping(Committer):
    def __init__(self, committer: Committer) -> None:
        self._committer = committer

    def commit(self, committables: Sequence[Committable]) -> Sequence[CommitResult]:
        return self._committer.commit(list(map(_user_committable, committables)))

    def restore_committables(self, committables: Sequence[Committable]) -> None:
        self._committer.restore_committables(list(map(_user_committable, committables)))

    def recommit(self, committables: Sequence[Committable]) -> Sequence[CommitResult]:
        return self._committer.recommit(list(map(_user_committable, committables)))

    def close(self) -> None:
        self._committer.close()


def _user_committable(wrapped: Committable) -> Committable:
    """Return the committable as the user's writer made it, from its wrapping with a version."""
    return Committable(*_unwrapped(wrapped.data), wrapped.checkpoint_id)


def _wrapped(version: int, data: bytes) -> bytes:
    return version.to_bytes(_VERSION_BYTES, "little") + data


def _unwrapped(wrapped: bytes) -> tuple[bytes, int]:
    return wrapped[_VERSION_BYTES:], int.from_bytes(wrapped[:_VERSION_BYTES], "little")

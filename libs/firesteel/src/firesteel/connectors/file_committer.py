"""Makes the part files of a file sink visible."""

from __future__ import annotations

import json
from collections.abc import Sequence

from firesteel.connectors.filesystems.file_system import FileSystems, PartCommitter, scheme_of
from firesteel.functions.sink import WriterContext
from firesteel.functions.two_phase import CommitOutcome, CommitResult, Committable, Committer


class FileCommitter(Committer):
    """Has each file system commit its parts.

    A committable is JSON, and names its file system by the path ``uri``, or ``to`` for local files.

    Args:
        context: context of the subtask.
    """

    def __init__(self, context: WriterContext) -> None:
        self._context, self._files = context, FileSystems(context.settings)
        self._committers: dict[str, PartCommitter] = {}

    def commit(self, committables: Sequence[Committable]) -> Sequence[CommitResult]:
        """Make parts visible. Idempotent."""
        return self._commit_all(committables, again=False)

    def recommit(self, committables: Sequence[Committable]) -> Sequence[CommitResult]:
        """Make parts of a restored checkpoint visible; readers may have removed those that were visible before."""
        return self._commit_all(committables, again=True)

    def _commit_all(self, committables: Sequence[Committable], *, again: bool) -> list[CommitResult]:
        results: list[CommitResult | None] = [None] * len(committables)
        by_scheme: dict[str, list[tuple[int, dict[str, object]]]] = {}
        for number, committable in enumerate(committables):
            if committable.version != 1:
                reason = f"a committable of version {committable.version} was written by a later release"
                results[number] = CommitResult(CommitOutcome.FAILED, reason)
                continue
            plain = json.loads(committable.data)
            path = str(plain.get("uri") or plain["to"])
            if scheme_of(path) not in self._committers:
                self._committers[scheme_of(path)] = self._files.of(path).committer(self._context)
            by_scheme.setdefault(scheme_of(path), []).append((number, plain))
        for scheme, numbered in by_scheme.items():
            answers = self._committers[scheme].commit([plain for _, plain in numbered], again=again)
            for (number, _), answer in zip(numbered, answers, strict=True):
                results[number] = answer
        return [result for result in results if result is not None]

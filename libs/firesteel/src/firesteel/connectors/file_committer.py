"""Shows the part files of a file sink: they get their names."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from firesteel.connectors.part_files import sync_folders
from firesteel.functions.sink import WriterContext
from firesteel.functions.two_phase import (
    ALREADY_COMMITTED,
    COMMITTED,
    CommitOutcome,
    CommitResult,
    Committable,
    Committer,
)

logger = logging.getLogger(__name__)


class FileCommitter(Committer):
    """Gives parts their names, then removes what they stand for: parts that were joined, or that they go on from.

    A committable is JSON: ``from`` and ``to``; ``size``, if it is known; ``remove``, paths.

    Args:
        context: of the subtask.
    """

    def __init__(self, context: WriterContext) -> None:
        self._context = context

    def commit(self, committables: Sequence[Committable]) -> Sequence[CommitResult]:
        """By renaming, which is done or not done. A file that was in a part is there until the part is visible."""
        return self._commit_all(committables, again=False)

    def recommit(self, committables: Sequence[Committable]) -> Sequence[CommitResult]:
        """The same; whoever reads visible files may have taken them away since they were committed."""
        return self._commit_all(committables, again=True)

    def _commit_all(self, committables: Sequence[Committable], *, again: bool) -> list[CommitResult]:
        renamed: set[Path] = set()
        results = [self._commit(committable, renamed, again=again) for committable in committables]
        if renamed:
            self._context.make_durable(partial(sync_folders, renamed))
        return results

    def _commit(self, committable: Committable, renamed: set[Path], *, again: bool) -> CommitResult:
        if committable.version != 1:
            reason = f"a committable of version {committable.version} was written by a later release"
            return CommitResult(CommitOutcome.FAILED, reason)
        plain = json.loads(committable.data)
        hidden, visible, size = plain["from"], plain["to"], plain.get("size", 0)
        try:
            if os.stat(hidden).st_size < size:
                return CommitResult(CommitOutcome.FAILED, f"part file {hidden} is shorter than {size} bytes")
            os.replace(hidden, visible)
        except FileNotFoundError:
            result = ALREADY_COMMITTED
            if not os.path.exists(visible):
                if not again:
                    return CommitResult(CommitOutcome.FAILED, f"part file {hidden} has vanished")
                logger.warning(
                    "part file %s is gone, and %s is hidden no more: it was committed before the restart, and somebody "
                    "has taken it away",
                    visible, hidden,
                )  # fmt: skip
        except OSError as error:
            return CommitResult(CommitOutcome.UNKNOWN, f"{hidden} could not be renamed: {error}")
        else:
            result = COMMITTED
        renamed.add(Path(visible).parent)
        self._context.forget_temporary_file(hidden)
        try:
            for path in plain.get("remove", ()):
                Path(path).unlink(missing_ok=True)
                self._context.forget_temporary_file(path)
        except OSError as error:
            return CommitResult(CommitOutcome.UNKNOWN, f"{error.filename} could not be removed: {error.strerror}")
        return result

"""Hidden files that are being written. Their names say who needs them, so that orphans can be found and removed."""

from __future__ import annotations

import hashlib
import os
import re
import uuid
from collections.abc import Iterable
from pathlib import Path

from firesteel.functions.sink import WriterContext


def owner_of(context: WriterContext) -> str:
    """Identifies a job and an operator in names, by 16 hex digits."""
    identity = f"{context.job_id} {context.operator_id}".encode()
    return hashlib.blake2b(identity, digest_size=8).hexdigest()


def is_orphan(
    context: WriterContext, subtask: int, parallelism: int, checkpoint_id: int, attempt: int | None = None
) -> bool:
    """Whether a file that an attempt of this sink has begun is in no checkpoint, and no attempt works on it.

    Files of other subtasks are left alone, since they may be in use; but when the parallelism has changed, all former
    attempts have ended.

    Args:
        context: context of the asking task, which goes on from a checkpoint or starts without one.
        subtask: index of the subtask that began the file.
        parallelism: parallelism of the sink at that time.
        checkpoint_id: last checkpoint at that time.
        attempt: attempt that began the file; None = not known.
    """
    if checkpoint_id < context.checkpoint_id or (attempt is not None and attempt >= context.attempt):
        return False
    return parallelism != context.parallelism or subtask == context.subtask_index


class HiddenFiles:
    """Hidden files of one subtask of a sink.

    A name holds job and operator, the subtask, the last checkpoint before the file was begun, and the attempt that
    began it. So a task that goes on from a checkpoint knows that files which its former attempts began after it are in
    no checkpoint. A former attempt may still be alive, and late: it must not take files of this task for orphans.

    Args:
        context: context of the subtask.
    """

    def __init__(self, context: WriterContext) -> None:
        self._context = context
        self._owner = f".inprogress.{owner_of(context)}."
        self._name = re.compile(re.escape(self._owner) + r"(\d+)of(\d+)\.(\d+)(?:\.(\d+))?\.[0-9a-f]{32}$")
        """Names of earlier releases have no attempt."""

    def begin(self, folder: Path, name: str) -> Path:
        """Make a hidden path for a file of this name, and register it as temporary."""
        context = self._context
        folder.mkdir(parents=True, exist_ok=True)
        subtask = f"{context.subtask_index}of{context.parallelism}"
        hidden = folder / f".{name}{self._owner}{subtask}.{context.checkpoint_id}.{context.attempt}.{uuid.uuid4().hex}"
        context.register_temporary_file(str(hidden))
        return hidden

    def keep_restored(self, hidden: Path) -> None:
        """Keep a file of the restored checkpoint; files of another job's checkpoint belong to that job."""
        if self._owner in hidden.name:
            self._context.keep_temporary_file(str(hidden))

    def remove_own(self, paths: Iterable[str]) -> list[str]:
        """Remove those files that belong to this job, because no checkpoint of it needs them; returns the others."""
        foreign_paths: list[str] = []
        for path in paths:
            if self._owner in Path(path).name:
                Path(path).unlink(missing_ok=True)
                self._context.forget_temporary_file(path)
            else:
                foreign_paths.append(path)
        return foreign_paths

    def remove_orphans(self, base_path: Path) -> None:
        """Remove files that former attempts began after the checkpoint that the task goes on from."""
        context = self._context
        if context.attempt == 0:
            return
        for folder, _, names in os.walk(base_path):
            for name in names:
                match = self._name.search(name) if name.startswith(".") else None
                if match is None:
                    continue
                began = (int(match[1]), int(match[2]), int(match[3]))
                if is_orphan(context, *began, None if match[4] is None else int(match[4])):
                    Path(folder, name).unlink(missing_ok=True)

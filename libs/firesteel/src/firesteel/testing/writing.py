"""What the conformance kits of sinks share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from typing_extensions import override

from firesteel.functions.sink import WriterContext
from firesteel.testing.rules import require


class Context(WriterContext):
    """Of a writer under test.

    Attributes:
        temporary: files that are registered now.
    """

    def __init__(
        self, subtask: int, parallelism: int, attempt: int = 0, checkpoint_id: int = 0, *, checkpointing: bool = False
    ) -> None:
        self._subtask, self._parallelism, self._attempt = subtask, parallelism, attempt
        self._checkpointing, self._checkpoint_id = checkpointing, checkpoint_id
        self.temporary: set[str] = set()

    @property
    @override
    def subtask_index(self) -> int:
        return self._subtask

    @property
    @override
    def parallelism(self) -> int:
        return self._parallelism

    @property
    def attempt(self) -> int:
        """From 0."""
        return self._attempt

    @property
    def job_id(self) -> str:
        """The same for all."""
        return "0" * 32

    @property
    def checkpointing(self) -> bool:
        """Whether the job takes checkpoints."""
        return self._checkpointing

    @property
    def checkpoint_id(self) -> int:
        """Of the last one that was reached."""
        return self._checkpoint_id

    def reached(self, checkpoint_id: int) -> None:
        """A checkpoint is prepared."""
        self._checkpoint_id = checkpoint_id

    @override
    def register_temporary_file(self, path: str) -> None:
        self.temporary.add(path)

    @override
    def forget_temporary_file(self, path: str) -> None:
        self.temporary.discard(path)


def require_equal(seen: Iterable[Any], records: Sequence[Any], when: str = "") -> None:
    """Raise an ``AssertionError`` if these are not the same records, in any order."""
    visible = sorted(seen, key=repr)
    message = f"{len(visible)} records are visible instead of {len(records)} {when}"
    require(visible == sorted(records, key=repr), message.rstrip())

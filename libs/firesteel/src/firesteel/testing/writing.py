"""Context and comparison that the conformance kits of sinks share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from typing_extensions import override

from firesteel.functions.sink import WriterContext
from firesteel.testing.rules import require


class Context(WriterContext):
    """Context of a writer under test.

    Attributes:
        temporary: files that are registered as temporary at present.
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
        """Attempt number of the execution, from 0."""
        return self._attempt

    @property
    def job_id(self) -> str:
        """Id of the job, the same for all writers."""
        return "0" * 32

    @property
    def checkpointing(self) -> bool:
        """Whether the job takes checkpoints."""
        return self._checkpointing

    @property
    def checkpoint_id(self) -> int:
        """Id of the last checkpoint that was reached."""
        return self._checkpoint_id

    def reached(self, checkpoint_id: int) -> None:
        """Set the checkpoint whose barrier the writer has reached."""
        self._checkpoint_id = checkpoint_id

    @override
    def register_temporary_file(self, path: str) -> None:
        self.temporary.add(path)

    @override
    def forget_temporary_file(self, path: str) -> None:
        self.temporary.discard(path)


def require_equal(visible: Iterable[Any], records: Sequence[Any], when: str = "") -> None:
    """Raise an ``AssertionError`` unless the visible records are the expected ones, in any order."""
    in_order = sorted(visible, key=repr)
    message = f"{len(in_order)} records are visible instead of {len(records)} {when}"
    require(in_order == sorted(records, key=repr), message.rstrip())

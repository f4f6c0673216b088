"""The sink contract.

A writer runs in a slot. ``write`` takes whole batches. At the end of the input ``finish`` makes everything durable but
not yet visible, and returns what must be done to make it visible as plain data (committables); when all subtasks of
the job have got that far, ``commit`` is called in the same slot. ``abort`` is called instead when the job fails or is
cancelled. When a slot process dies, its TaskManager deletes the temporary files that the writer registered.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Generic, TypeVar

from firesteel.functions.source import Plain
from firesteel.functions.subtask import SubtaskContext

T = TypeVar("T")


class WriterContext(SubtaskContext):
    """What a writer may ask of the subtask that runs it."""

    @property
    @abstractmethod
    def attempt(self) -> int:
        """Attempt number of the execution, from 0."""

    @property
    @abstractmethod
    def job_id(self) -> str:
        """32 hex digits."""

    @abstractmethod
    def register_temporary_file(self, path: str) -> None:
        """This file is to be deleted if the slot process dies before it is committed or aborted."""

    @abstractmethod
    def forget_temporary_file(self, path: str) -> None:
        """The file was committed or removed."""


class SinkWriter(ABC, Generic[T]):
    """Writes the records of one subtask."""

    blocking: ClassVar[bool] = False
    """``write`` may wait for long: the chain gets a thread of its own."""

    def open(self) -> None:
        """Called once, before anything else."""

    @abstractmethod
    def write(self, values: Sequence[T], timestamps: Sequence[int] | None) -> None:
        """Take a batch."""

    def finish(self) -> list[Plain]:
        """End of input: make all durable, show nothing yet; return committables. Called at most once."""
        return []

    def commit(self, committables: Sequence[Plain]) -> None:
        """Make the results visible. Idempotent: it may be called again with the same committables."""

    def abort(self) -> None:
        """The job failed or was cancelled: remove what is not visible yet. Idempotent; what is gone is no error."""

    def close(self) -> None:
        """Release everything; called exactly once, last."""


class Sink(ABC, Generic[T]):
    """A sink; pickled into the chain of its vertex, so it holds configuration only."""

    @abstractmethod
    def create_writer(self, context: WriterContext) -> SinkWriter[T]:
        """A writer for one subtask. Called in the slot."""

    def check(self) -> None:
        """Called at the client when the graph is built.

        Raises:
            ProgramError: the sink can't work as configured.
        """

    def describe(self) -> dict[str, Any]:
        """What plan and logs show about it."""
        return {}

"""Stages: operators in front of a two-phase sink, which prepare the sink's records.

A stage takes records and emits ``bytes``. What it has emitted before a barrier reaches the next operator before that
barrier, and everything else is in its state. So a chain of stages passes each piece of work on exactly once, whatever
fails, like any records. The sink behind the last stage takes the bytes as its records.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from firesteel.functions.sink import WriterContext

__all__ = ["SinkStage", "StageFactory"]


class SinkStage(ABC):
    """One subtask of a stage."""

    @abstractmethod
    def open(self, states: Sequence[bytes]) -> None:
        """Prepare, and resume from states of ``snapshot``, perhaps of several former subtasks. Called once, first."""

    @abstractmethod
    def write(self, values: list[Any], timestamps: Sequence[int] | None) -> list[bytes]:
        """Process a batch of records, and return what is to be emitted now."""

    @abstractmethod
    def prepare(self, *, end_of_input: bool) -> list[bytes]:
        """Return what is to be emitted before the next barrier, or before the end of the input."""

    @abstractmethod
    def snapshot(self) -> list[bytes]:
        """Return the states that the stage keeps over a barrier. Called at each barrier, after ``prepare``."""

    def checkpoint_complete(self) -> None:  # noqa: B027 - may be left out
        """Called when a checkpoint is complete."""

    @abstractmethod
    def close(self) -> None:
        """Release everything, and remove work that is in no checkpoint and was not emitted. Called once, last."""


class StageFactory(ABC):
    """Makes the subtasks of a stage; pickled into the chain of its vertex, so it holds configuration only.

    Attributes:
        name: name of the operator, which follows the name of the sink.
        parallel: whether it has as many subtasks as the sink; else it has one, to which all records go.
    """

    name: ClassVar[str]
    parallel: ClassVar[bool] = True

    @abstractmethod
    def create(self, context: WriterContext) -> SinkStage:
        """Make a subtask of the stage. Called in the slot."""

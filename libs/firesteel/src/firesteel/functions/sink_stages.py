"""Operators in front of a two-phase sink: what they prepare goes on as records, to be committed by the sink.

A stage takes records and gives ``bytes``. What it gives in front of a barrier is with the next operator when that
barrier gets there; what it has not given is in its state. So a chain of stages passes on each piece of work once,
whatever fails, as records are. The sink behind the last stage takes the bytes as its records.
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
        """Get ready; go on from what ``snapshot`` gave, perhaps in several former subtasks. Called once, first."""

    @abstractmethod
    def write(self, values: list[Any], timestamps: Sequence[int] | None) -> list[bytes]:
        """Take a batch of records; what is to go on now."""

    @abstractmethod
    def prepare(self, *, end_of_input: bool) -> list[bytes]:
        """A barrier is about to be passed on, or no record comes any more: what is to go on in front of that."""

    @abstractmethod
    def snapshot(self) -> list[bytes]:
        """What the stage keeps over the barrier. Called at each, behind ``prepare``."""

    def checkpoint_complete(self) -> None:  # noqa: B027 - may be left out
        """A checkpoint is complete."""

    @abstractmethod
    def close(self) -> None:
        """Release everything, and remove what is in no checkpoint and was not passed on. Called once, last."""


class StageFactory(ABC):
    """Makes the subtasks of a stage; pickled into the chain of its vertex, so it holds configuration only.

    Attributes:
        name: of the operator, behind that of the sink.
        parallel: it has as many subtasks as the sink; else one, which all records of the stage before it come to.
    """

    name: ClassVar[str]
    parallel: ClassVar[bool] = True

    @abstractmethod
    def create(self, context: WriterContext) -> SinkStage:
        """A subtask. Called in the slot."""

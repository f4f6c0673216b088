"""What readers and writers may ask of the subtask that runs them."""

from __future__ import annotations

from abc import ABC, abstractmethod

from firesteel.config import Settings


class SubtaskContext(ABC):
    """Tells a reader or writer which subtask of its operator runs it, and with which options."""

    @property
    @abstractmethod
    def subtask_index(self) -> int:
        """The index of the subtask in its operator, counted from 0."""

    @property
    @abstractmethod
    def parallelism(self) -> int:
        """The number of subtasks of the operator."""

    @property
    def settings(self) -> Settings:
        """Options of the job that slots read, as those of object stores; the defaults where no task runs."""
        return Settings()

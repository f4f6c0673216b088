"""Access of readers and writers to the subtask that runs them."""

from __future__ import annotations

from abc import ABC, abstractmethod

from firesteel.config import Settings


class SubtaskContext(ABC):
    """Tells a reader or writer which subtask of its operator runs it, and with which options."""

    @property
    @abstractmethod
    def subtask_index(self) -> int:
        """Index of the subtask in its operator, from 0."""

    @property
    @abstractmethod
    def parallelism(self) -> int:
        """Number of subtasks of the operator."""

    @property
    def settings(self) -> Settings:
        """Options of the job that slots read, such as those of object stores; the defaults where no task runs."""
        return Settings()

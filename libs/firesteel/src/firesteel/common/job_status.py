"""``JobStatus``: the states of a job."""

from __future__ import annotations

from enum import Enum

__all__ = ["JobStatus"]


class JobStatus(Enum):
    """State of a job; names and spelling are Flink's (CANCELLING, but CANCELED).

    Examples:
        ```python
        from firesteel.common import JobStatus

        print(JobStatus.FINISHED.is_terminal_state(), JobStatus.RESTARTING.is_terminal_state())
        ```

        ```text
        True False
        ```
    """

    CREATED = 0
    RUNNING = 1
    FAILING = 2
    FAILED = 3
    CANCELLING = 4
    CANCELED = 5
    FINISHED = 6
    RESTARTING = 7
    SUSPENDED = 8
    RECONCILING = 9
    INITIALIZING = 10

    def is_globally_terminal_state(self) -> bool:
        """Returns whether the job has ended for good: FAILED, CANCELED or FINISHED."""
        return self in (JobStatus.FAILED, JobStatus.CANCELED, JobStatus.FINISHED)

    def is_terminal_state(self) -> bool:
        """Returns whether the job has ended here; SUSPENDED jobs may go on elsewhere."""
        return self.is_globally_terminal_state() or self is JobStatus.SUSPENDED

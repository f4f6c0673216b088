"""States of jobs and tasks, and their legal moves: Flink's names, Flink's tables. Any other move raises."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from firesteel.common.job_status import JobStatus

_J = JobStatus
JOB_MOVES: Mapping[JobStatus, frozenset[JobStatus]] = {
    _J.INITIALIZING: frozenset({_J.CREATED, _J.FAILING, _J.CANCELLING, _J.SUSPENDED}),
    _J.CREATED: frozenset({_J.RUNNING, _J.FAILING, _J.CANCELLING, _J.SUSPENDED}),
    _J.RUNNING: frozenset({_J.FINISHED, _J.FAILING, _J.CANCELLING, _J.RESTARTING, _J.SUSPENDED}),
    _J.FAILING: frozenset({_J.FAILED, _J.RESTARTING, _J.CANCELLING, _J.SUSPENDED}),
    _J.RESTARTING: frozenset({_J.CREATED, _J.RUNNING, _J.FAILING, _J.CANCELLING, _J.SUSPENDED}),
    _J.CANCELLING: frozenset({_J.CANCELED, _J.SUSPENDED}),
}
"""Moves of a job. FAILED, CANCELED, FINISHED and SUSPENDED are final; any state that is not may also be SUSPENDED::

    INITIALIZING --> CREATED --> RUNNING --------------------------> FINISHED
         |              |          |  ^
         |              |          v  |
         |              |      RESTARTING <------+
         |              |          |             |
         +--------------+----------+--> FAILING -+-----------------> FAILED
         |              |          |       |
         |              |          |       v
         +--------------+----------+--> CANCELLING ----------------> CANCELED
"""


class ExecutionState(Enum):
    """State of one attempt of one subtask (CANCELING with one L, as in Flink)."""

    CREATED = "CREATED"
    SCHEDULED = "SCHEDULED"
    DEPLOYING = "DEPLOYING"
    INITIALIZING = "INITIALIZING"
    RUNNING = "RUNNING"
    FINISHED = "FINISHED"
    CANCELING = "CANCELING"
    CANCELED = "CANCELED"
    FAILED = "FAILED"
    RECONCILING = "RECONCILING"

    __hash__ = object.__hash__  # that of Enum is Python code, and each move of each task looks states up

    @property
    def is_terminal(self) -> bool:
        """Whether the attempt has ended."""
        return self in TERMINAL_STATES


TERMINAL_STATES = frozenset({ExecutionState.FINISHED, ExecutionState.CANCELED, ExecutionState.FAILED})
_E = ExecutionState
EXECUTION_MOVES: Mapping[ExecutionState, frozenset[ExecutionState]] = {
    _E.CREATED: frozenset({_E.SCHEDULED, _E.CANCELED, _E.FAILED}),
    _E.SCHEDULED: frozenset({_E.DEPLOYING, _E.CANCELED, _E.FAILED}),
    _E.DEPLOYING: frozenset({_E.INITIALIZING, _E.FINISHED, _E.CANCELING, _E.CANCELED, _E.FAILED}),
    _E.INITIALIZING: frozenset({_E.RUNNING, _E.FINISHED, _E.CANCELING, _E.CANCELED, _E.FAILED}),
    _E.RUNNING: frozenset({_E.FINISHED, _E.CANCELING, _E.CANCELED, _E.FAILED}),
    _E.CANCELING: frozenset({_E.CANCELED, _E.FAILED}),
}
"""Moves of one attempt. FINISHED, CANCELED and FAILED are final; RECONCILING exists and is never entered.
FINISHED may follow DEPLOYING directly: messages of a short task overtake each other::

    CREATED --> SCHEDULED --> DEPLOYING --> INITIALIZING --> RUNNING
       |            |             |    |         |    |       |   |
       |            |             |    +---------|----+-------|---+--> FINISHED
       |            |             v              v            v
       |            |             +---------> CANCELING <-----+
       |            |             |              |
       +------------+-------------+--------------+-------------------> CANCELED
       |            |             |              |
       +------------+-------------+--------------+-------------------> FAILED
"""

_FORWARD = (_E.CREATED, _E.SCHEDULED, _E.DEPLOYING, _E.INITIALIZING, _E.RUNNING)


def progress_between(now: ExecutionState, reported: ExecutionState) -> list[ExecutionState]:
    """Return the states to walk through from ``now`` to the reported one; empty if the report is out of date."""
    if now not in _FORWARD or reported not in _FORWARD:
        return []
    return list(_FORWARD[_FORWARD.index(now) + 1 : _FORWARD.index(reported) + 1])


def aggregate_state(states: Mapping[ExecutionState, int], parallelism: int) -> ExecutionState:
    """The state of a vertex from the number of its subtasks in each state, by Flink's rule.

    FAILED, CANCELING, CANCELED, INITIALIZING and RUNNING win in this order over the others; FINISHED if all are,
    RUNNING if some are; everything earlier shows as CREATED.
    """
    for state in (_E.FAILED, _E.CANCELING, _E.CANCELED, _E.INITIALIZING, _E.RUNNING):
        if states.get(state, 0) > 0:
            return state
    finished = states.get(_E.FINISHED, 0)
    if finished > 0:
        return _E.FINISHED if finished == parallelism else _E.RUNNING
    return _E.CREATED

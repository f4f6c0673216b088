"""Metrics of a two-phase sink about its committables, under the names that Flink gives them."""

from __future__ import annotations

from collections.abc import Callable

from firesteel.functions.metrics import MetricGroup
from firesteel.functions.two_phase import CommitOutcome


class CommittableMetrics:
    """Counts the committables of one subtask since its attempt began.

    ``totalCommittables`` counts those prepared or restored, ``pendingCommittables`` those not committed yet;
    ``successfulCommittables``, ``alreadyCommittedCommittables`` and ``failedCommittables`` count how they have ended.
    ``retriedCommittables`` counts how often a commit had to be tried again, also because its outcome was unknown.

    Args:
        group: metric group of the operator.
        pending: returns the number of pending committables; called from any thread.
    """

    def __init__(self, group: MetricGroup, pending: Callable[[], int]) -> None:
        self._total = group.counter("totalCommittables")
        retried = group.counter("retriedCommittables")
        self._ended = {
            CommitOutcome.COMMITTED: group.counter("successfulCommittables"),
            CommitOutcome.ALREADY_COMMITTED: group.counter("alreadyCommittedCommittables"),
            CommitOutcome.FAILED: group.counter("failedCommittables"),
            CommitOutcome.RETRY: retried,
            CommitOutcome.UNKNOWN: retried,
        }
        group.gauge("pendingCommittables", pending)

    def received(self, count: int) -> None:
        """Count committables that were prepared or restored."""
        self._total.inc(count)

    def answered(self, outcome: CommitOutcome) -> None:
        """Count the committer's answer for one committable."""
        self._ended[outcome].inc()

"""What a two-phase sink shows of its committables, under Flink's names."""

from __future__ import annotations

from collections.abc import Callable

from firesteel.functions.metrics import MetricGroup
from firesteel.functions.two_phase import CommitOutcome


class CommittableMetrics:
    """Of one subtask, since its attempt began.

    ``totalCommittables`` were prepared, or restored; ``pendingCommittables`` of them are not committed yet;
    ``successfulCommittables``, ``alreadyCommittedCommittables`` and ``failedCommittables`` have ended in that way.
    ``retriedCommittables`` counts how often one had to be tried again, also because nobody knew what had become of it.

    Args:
        group: of the operator.
        pending: how many there are now; from any thread.
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
        """So many are to be committed some time."""
        self._total.inc(count)

    def answered(self, outcome: CommitOutcome) -> None:
        """The committer has said this of one."""
        self._ended[outcome].inc()

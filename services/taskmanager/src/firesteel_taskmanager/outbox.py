"""What is reported to one JobMaster: in order, without delay, in batches while a call is on its way."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from firesteel.core.backoff import pauses
from firesteel.core.clock import Clock
from firesteel.core.errors import PeerUnreachableError, RpcError, class_name
from firesteel.protocol import messages as m
from firesteel.protocol.checkpoint_messages import DeclineReason
from firesteel.protocol.deployment import TaskFailure
from firesteel.protocol.gateways import JobMasterGateway
from firesteel.protocol.message import RpcCode, RpcFault
from firesteel.rpc import RpcClient
from firesteel.service.lanes import Lane, Spawn
from firesteel.service.retries import Failure, PeerPatience, is_gone, repeated
from firesteel_taskmanager.instructions import (
    JobMasterRef,
    ReportCheckpoint,
    ReportEndOfData,
    ReportOperatorEvents,
    ReportSlotFailed,
    ReportTaskState,
)

logger = logging.getLogger(__name__)
Report = ReportTaskState | ReportEndOfData | ReportCheckpoint | ReportOperatorEvents | ReportSlotFailed
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
_LARGEST_BATCH = 1000
_LARGEST_BATCH_BYTES = 4 << 20
"""Bytes of state in acknowledgements that go in one call."""
_LONGEST_TRY = 12.0
"""Seconds that one failed call and the pause after it can take; what goes beyond was a stall of this process."""


class Outbox:
    """Delivers reports to one JobMaster in their order, one call at a time.

    Args:
        ref: the JobMaster.
        client: carries the calls.
        clock: measures patience.
        taskmanager_id: of this TaskManager.
        patience: seconds after which a JobMaster that does not answer is given up; stalls of this process don't count.
        on_lost: called with the cause when the JobMaster is given up, or does not know this TaskManager.
        spawn: runs the delivery in the background.
    """

    def __init__(
        self,
        ref: JobMasterRef,
        client: RpcClient,
        clock: Clock,
        taskmanager_id: str,
        patience: float,
        on_lost: Callable[[str], None],
        spawn: Spawn,
    ) -> None:
        self.ref = ref
        self.gateway = JobMasterGateway(client, ref.address, ref.token)
        self._clock, self._taskmanager_id, self._patience, self._on_lost = clock, taskmanager_id, patience, on_lost
        self._reports: Lane[_Batch] = Lane(f"reports of job {ref.job_id}", self._deliver, spawn, _one_call)
        self._metrics: Lane[dict[str, Any]] = Lane(
            f"metrics of job {ref.job_id}", self._send_metrics, spawn, lambda older, newer: {**older, **newer}
        )

    def report(self, report: Report) -> None:
        """Deliver a report after those before it."""
        self._reports.add(_Batch([report], _size(report)))

    def publish(self, metrics: dict[str, Any]) -> None:
        """Deliver totals; newer ones replace those that have not been sent yet."""
        self._metrics.add(metrics)

    @property
    def is_empty(self) -> bool:
        """Whether every report was delivered."""
        return self._reports.is_idle

    async def _deliver(self, batch: _Batch) -> None:
        if not await self._persist(batch.reports):
            self._reports.clear()

    async def _persist(self, batch: list[Report]) -> bool:
        """Deliver reports, however often that takes; returns False if the JobMaster is lost."""
        patience = PeerPatience(self._clock, self._patience, _LONGEST_TRY)

        async def send() -> None:
            patience.next_try()
            await self._send(batch)

        def goes_on(error: Failure) -> bool:
            return isinstance(error, PeerUnreachableError) and not patience.is_over

        try:
            await repeated(send, goes_on, pauses(_FIRST_PAUSE, _LONGEST_PAUSE))
        except RpcError as error:
            if isinstance(error, PeerUnreachableError):
                self._on_lost(f"its JobMaster does not answer: {error}")
                return False
            if is_gone(error):
                self._on_lost(f"its JobMaster has gone: {error}")
                return False
            logger.error("job %s: a report was refused: %s", self.ref.job_id, error)
            if len(batch) > 1 and isinstance(batch[0], ReportCheckpoint):  # perhaps for one of them
                for report in batch:
                    if not await self._persist([report]):
                        return False
                return True
            replacement = self._decline_of(batch[0], error)
            return replacement is None or await self._persist([replacement])
        return True

    def _decline_of(self, refused: Report, error: RpcError) -> ReportCheckpoint | None:
        """The decline in place of an acknowledgement that was refused: else the checkpoint would wait for it.

        State that stands in no file travels with an acknowledgement, and may be more than a message can hold.
        """
        message = refused.message if isinstance(refused, ReportCheckpoint) else None
        unknown = isinstance(error, RpcFault) and error.code is RpcCode.UNKNOWN_EXECUTION
        if not isinstance(message, m.AcknowledgeCheckpoint) or unknown:
            return None
        text = f"its acknowledgement of {len(message.state)} characters was refused: {error}"
        failure = TaskFailure("external", class_name(RpcError), text, text)
        reason = DeclineReason.ASYNC_EXCEPTION.value
        decline = m.DeclineCheckpoint(message.execution_id, message.checkpoint_id, reason, failure.to_plain())
        return ReportCheckpoint(self.ref, decline)

    async def _send(self, batch: list[Report]) -> None:
        first = batch[0]
        if isinstance(first, ReportTaskState):
            updates = tuple(report.update for report in batch if isinstance(report, ReportTaskState))
            await self.gateway.update_task_states(m.UpdateTaskStates(self._taskmanager_id, updates))
        elif isinstance(first, ReportEndOfData):
            await self.gateway.end_of_data(m.ExecutionRef(first.execution_id))
        elif isinstance(first, ReportOperatorEvents):
            await self.gateway.send_operator_events(first.message)
        elif isinstance(first, ReportCheckpoint):
            if isinstance(first.message, m.AcknowledgeCheckpoint):
                messages = [report.message for report in batch if isinstance(report, ReportCheckpoint)]
                acknowledgements = tuple(
                    message for message in messages if isinstance(message, m.AcknowledgeCheckpoint)
                )
                await self.gateway.acknowledge_checkpoints(m.AcknowledgeCheckpoints(acknowledgements))
            else:
                await self.gateway.decline_checkpoint(first.message)
        else:
            failed = m.FailSlot(self._taskmanager_id, first.allocation_id, first.cause, first.in_vain)
            await self.gateway.fail_slot(failed)

    async def _send_metrics(self, tasks: dict[str, Any]) -> None:
        try:
            await self.gateway.report_metrics(m.ReportMetrics(tasks))
        except RpcError as error:  # the next totals replace these
            logger.debug("job %s: totals were not delivered: %s", self.ref.job_id, error)


@dataclass(slots=True)
class _Batch:
    """Reports that go in one call, and the bytes of state in them."""

    reports: list[Report]
    size: int


def _one_call(earlier: _Batch, later: _Batch) -> _Batch | None:
    """Join two batches into one call, if they may travel together: states of tasks may, and acknowledgements."""
    if (
        not _go_together(earlier.reports[0], later.reports[0])
        or len(earlier.reports) + len(later.reports) > _LARGEST_BATCH
        or earlier.size + later.size > _LARGEST_BATCH_BYTES
    ):
        return None
    earlier.reports += later.reports
    earlier.size += later.size
    return earlier


def _go_together(earlier: Report, later: Report) -> bool:
    if isinstance(earlier, ReportCheckpoint) and isinstance(later, ReportCheckpoint):
        return isinstance(earlier.message, m.AcknowledgeCheckpoint) and isinstance(
            later.message, m.AcknowledgeCheckpoint
        )
    return isinstance(earlier, ReportTaskState) and isinstance(later, ReportTaskState)


def _size(report: Report) -> int:
    message = report.message if isinstance(report, ReportCheckpoint) else None
    return len(message.state) if isinstance(message, m.AcknowledgeCheckpoint) else 0

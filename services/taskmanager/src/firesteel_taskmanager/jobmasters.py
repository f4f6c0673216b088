"""The TaskManager's side of its bonds with JobMasters: reports and requests to them, and when one is given up.

A JobMaster is given up when it says that it does not know us, when it sends no heartbeats for ``heartbeat.timeout``, or
when reports to it could not be delivered for that long. One that is only slow is waited for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from itertools import chain, repeat
from typing import Any, Protocol

from firesteel.core.backoff import pauses
from firesteel.core.clock import Clock
from firesteel.core.errors import PeerUnreachableError, RpcError
from firesteel.protocol import messages as m
from firesteel.protocol.gateways import JobMasterGateway
from firesteel.protocol.method import DEFAULT_TIMEOUT
from firesteel.rpc import RpcClient
from firesteel.service.heartbeat import HeartbeatMonitor
from firesteel.service.lanes import Lane
from firesteel.service.retries import Failure, PeerPatience, is_gone, may_work_later, repeated
from firesteel_taskmanager import instructions as i
from firesteel_taskmanager.core import TaskManagerCore
from firesteel_taskmanager.outbox import Outbox, Report
from firesteel_taskmanager.settings import TaskManagerSettings

logger = logging.getLogger(__name__)
LAST_REPORTS_SECONDS = 2.0
_RETRY_PAUSES = (0.02, 0.1, 0.5, 1.0)
_Slots = dict[str, m.SlotOffer]
"""Slots to offer, by allocation id."""
_Alignments = dict[tuple[str, str, str], i.AskForAlignment]
"""The latest report of each source: by slot, task and group."""


class _Owner(Protocol):
    """What the links need of the TaskManager."""

    core: TaskManagerCore
    client: RpcClient
    taskmanager_id: str

    @property
    def address(self) -> str: ...

    @property
    def now(self) -> float:
        """The present time, in monotonic seconds."""

    @property
    def now_ms(self) -> int:
        """The present time, in milliseconds of the epoch."""

    def perform(self, instructions: Iterable[i.Instruction]) -> None: ...

    def spawn(self, coroutine: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any] | None:
        """Run in the background."""


class JobMasterLinks:
    """Links to all JobMasters that have slots here.

    Args:
        owner: the TaskManager.
        settings: timeouts.
        clock: monotonic time.
    """

    def __init__(self, owner: _Owner, settings: TaskManagerSettings, clock: Clock) -> None:
        self._owner, self._settings, self._clock = owner, settings, clock
        self._monitor = HeartbeatMonitor(clock, settings.heartbeat_timeout, failure_threshold=0)
        self.tick_seconds = self._monitor.tick_seconds
        self._outboxes: dict[str, Outbox] = {}
        self._left: list[Outbox] = []
        """Outboxes with undelivered reports, of JobMasters that have no slot here any more."""
        self._offers: dict[str, tuple[i.JobMasterRef, Lane[_Slots]]] = {}
        self._alignments: dict[str, tuple[i.JobMasterRef, Lane[_Alignments]]] = {}

    def report(self, report: Report) -> None:
        """Deliver a report to a JobMaster, after all earlier ones."""
        self._outbox(report.jobmaster).report(report)

    def publish(self, metrics: i.PublishMetrics) -> None:
        """Send a JobMaster the latest totals of tasks."""
        self._outbox(metrics.jobmaster).publish(dict(metrics.tasks))

    def offer(self, offer: i.Offer) -> None:
        """Offer slots to a JobMaster; slots that come while a call is on its way go with the next call."""
        ref = offer.jobmaster
        lane = self._offers.get(ref.job_id)
        if lane is None or lane[0] != ref:
            lane = self._offers[ref.job_id] = ref, self._lane(ref)
        lane[1].add({slot.allocation_id: slot for slot in offer.slots})

    def _lane(self, ref: i.JobMasterRef) -> Lane[_Slots]:
        async def send(slots: _Slots) -> None:
            await self._send_offers(ref, lane, slots)

        spawn, join = self._owner.spawn, lambda older, newer: {**older, **newer}
        lane: Lane[_Slots] = Lane(f"offers to job {ref.job_id}", send, spawn, join)
        return lane

    def heard(self, job_id: str) -> None:
        """The JobMaster of a job has sent a heartbeat."""
        self._monitor.heard(job_id)

    def tick(self) -> None:
        """Free the slots of JobMasters that have been silent for too long."""
        for job in self._monitor.tick():
            cause = f"its JobMaster sends no heartbeats for {self._settings.heartbeat_timeout:g} s"
            logger.warning("job %s: %s; its slots here are freed", job, cause)
            self._owner.perform(self._owner.core.jobmaster_lost(job, cause, self._owner.now))

    def forget(self, job_id: str) -> None:
        """The job has no slot here any more."""
        self._leave(self._outboxes.pop(job_id, None))
        self._offers.pop(job_id, None)
        self._alignments.pop(job_id, None)
        self._monitor.forget(job_id)

    def _leave(self, outbox: Outbox | None) -> None:
        self._left = [outbox_left for outbox_left in self._left if not outbox_left.is_empty]
        if outbox is not None and not outbox.is_empty:
            self._left.append(outbox)

    async def drain(self) -> None:
        """Wait until all reports are delivered, but not long for a JobMaster that does not answer."""
        deadline = self._owner.now + LAST_REPORTS_SECONDS
        while self._owner.now < deadline and not all(
            outbox.is_empty for outbox in [*self._outboxes.values(), *self._left]
        ):
            await asyncio.sleep(0.01)

    def lost(self, ref: i.JobMasterRef, cause: str) -> None:
        """Free the slots of a JobMaster that is given up, or does not know this TaskManager."""
        logger.warning("job %s: %s; its slots here are freed", ref.job_id, cause)
        self._owner.perform(self._owner.core.jobmaster_lost(ref.job_id, cause, self._owner.now, ref.token))

    def _outbox(self, ref: i.JobMasterRef) -> Outbox:
        outbox = self._outboxes.get(ref.job_id)
        if outbox is None or outbox.ref != ref:
            self._leave(outbox)
            outbox = self._outboxes[ref.job_id] = Outbox(
                ref, self._owner.client, self._clock, self._owner.taskmanager_id, self._settings.heartbeat_timeout,
                lambda cause: self.lost(ref, cause), self._owner.spawn,
            )  # fmt: skip
        return outbox

    async def _send_offers(self, ref: i.JobMasterRef, lane: Lane[_Slots], slots: _Slots) -> None:
        gateway, core = self._outbox(ref).gateway, self._owner.core

        async def send() -> m.AcceptedSlots:
            nonlocal slots
            offered = lane.with_next(slots)
            slots = {a: s for a, s in offered.items() if (slot := core.slots.find(a)) and slot.process}
            if not slots:
                return m.AcceptedSlots(())
            offer = m.OfferSlots(self._owner.taskmanager_id, self._owner.address, tuple(slots.values()))
            return await gateway.offer_slots(offer)

        def goes_on(error: Failure) -> bool:  # until the slots' deadlines end it
            logger.warning("job %s: slots could not be offered: %s", ref.job_id, error)
            return isinstance(error, PeerUnreachableError)

        try:
            answer = await repeated(send, goes_on, chain(_RETRY_PAUSES, repeat(_RETRY_PAUSES[-1])))
        except RpcError as error:
            if is_gone(error):
                self.lost(ref, f"its JobMaster does not want slots: {error}")
            else:
                logger.error("job %s: offered slots were refused: %s", ref.job_id, error)
                self._owner.perform(core.offer_answered(slots, (), self._owner.now))
        else:
            if slots and ref.job_id not in self._monitor:
                self._monitor.watch(ref.job_id)
            self._owner.perform(core.offer_answered(slots, answer.accepted, self._owner.now))

    async def ask_for_splits(self, ask: i.AskForSplits) -> None:
        """Ask for splits, again under the same number while the answer may be lost; a task that gets none fails."""
        core, timeout = self._owner.core, min(DEFAULT_TIMEOUT, self._settings.heartbeat_timeout)
        patience = PeerPatience(self._clock, self._settings.heartbeat_timeout, timeout + 2 * _RETRY_PAUSES[-1])
        gateway = JobMasterGateway(self._owner.client, ask.jobmaster.address, ask.jobmaster.token, timeout)
        message = m.RequestSplits(ask.execution_id, ask.number, ask.taken)

        def is_live() -> bool:
            return core.tasks.is_live(ask.allocation_id, ask.execution_id)

        async def request() -> m.Splits | None:
            patience.next_try()
            return await gateway.request_splits(message) if is_live() else None

        def goes_on(error: Failure) -> bool:
            if patience.is_over or not may_work_later(error):
                return False
            logger.warning("execution %s: no splits yet: %s", ask.execution_id, error)
            return True

        try:
            answer = await repeated(request, goes_on, pauses(_RETRY_PAUSES[0], _RETRY_PAUSES[-1]))
        except RpcError as error:
            if is_gone(error):
                self.lost(ask.jobmaster, f"its JobMaster gives no splits: {error}")
            else:
                self._splits_lost(ask, error)
        else:
            if answer is not None:
                self._owner.perform(core.tasks.splits_answered(ask, answer))

    def ask_for_alignment(self, ask: i.AskForAlignment) -> None:
        """Report the watermark of a source to its JobMaster.

        Where answers are slower than reports, only the latest report of each source waits: they may come every few
        milliseconds, each in a connection of its own, and would keep a slow JobMaster from ever answering.
        """
        ref = ask.jobmaster
        lane = self._alignments.get(ref.job_id)
        if lane is None or lane[0] != ref:
            name, join = f"watermark alignment of job {ref.job_id}", lambda older, newer: {**older, **newer}
            lane = self._alignments[ref.job_id] = ref, Lane(name, self._align, self._owner.spawn, join)
        report = ask.report
        lane[1].add({(ask.allocation_id, report.execution_id, report.group): ask})

    async def _align(self, asks: _Alignments) -> None:
        await asyncio.gather(*map(self._ask_for_alignment, asks.values()))

    async def _ask_for_alignment(self, ask: i.AskForAlignment) -> None:
        """Report a watermark; the source does so at every interval, so an answer that is lost does no harm."""
        timeout = min(DEFAULT_TIMEOUT, self._settings.heartbeat_timeout)
        gateway = JobMasterGateway(self._owner.client, ask.jobmaster.address, ask.jobmaster.token, timeout)
        try:
            answer = await gateway.report_watermark(ask.report)
        except RpcError as error:
            logger.debug("execution %s: its group's watermark is not known: %s", ask.report.execution_id, error)
            return
        tasks = self._owner.core.tasks
        self._owner.perform(tasks.group_watermark(ask.allocation_id, ask.report.execution_id, answer.watermark))

    def _splits_lost(self, ask: i.AskForSplits, error: RpcError) -> None:
        cause = f"the JobMaster was asked for splits, and what it answered may be lost: {error}"
        logger.error("execution %s: %s", ask.execution_id, cause)
        self._owner.perform(
            self._owner.core.tasks.splits_lost(ask.allocation_id, ask.execution_id, cause, self._owner.now)
        )

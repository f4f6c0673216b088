"""What the core has a slot do, as calls to its TaskManager."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from firesteel.core.backoff import pauses
from firesteel.core.errors import PeerUnreachableError, RpcError
from firesteel.protocol import messages as m
from firesteel.protocol.deployment import Deployment
from firesteel.protocol.gateways import TaskManagerGateway
from firesteel.protocol.message import RpcCode, RpcFault
from firesteel.protocol.split_messages import OperatorEvents
from firesteel.service.retries import FIRST_PAUSE, Failure, repeated
from firesteel_jobmaster import instructions as do
from firesteel_jobmaster.checkpoints.queue import in_a_thread
from firesteel_jobmaster.event_door import EventDoor
from firesteel_jobmaster.handover import HandoverNotes
from firesteel_jobmaster.slot_lanes import SlotLanes, Together
from firesteel_jobmaster.taskmanagers import TaskManagerLinks
from firesteel_jobmaster.traces import JobTraces

logger = logging.getLogger(__name__)
PACKED_AT_ONCE = 200
"""Slots up to which a placement is packed on the event loop."""
LONGEST_SUBMIT_DELAY = 5.0
"""Seconds between two tries to submit tasks."""


class SlotCalls:
    """Calls about slots; the core hears of those that did not work where that matters to it.

    Args:
        door: of the core.
        links: to the TaskManagers.
        lanes: order the calls.
        notes: of attempts, which are written before tasks are submitted.
        token: of the JobMaster.
        blob_address: where the job's blobs are, as of now.
        traces: of the job; None = there are none.
        meters: plain reporters to which meters of user functions export.
    """

    def __init__(
        self,
        door: EventDoor,
        links: TaskManagerLinks,
        lanes: SlotLanes,
        notes: HandoverNotes,
        token: str,
        blob_address: Callable[[], str],
        traces: JobTraces | None,
        meters: Sequence[Mapping[str, Any]],
    ) -> None:
        self._door, self._links, self._lanes, self._notes = door, links, lanes, notes
        self._job_id, self._token, self._blob_address = door.core.graph.job_graph.job_id, token, blob_address
        self._traces, self._meters = traces, list(meters)

    def perform(self, instruction: do.Instruction) -> None:
        """Call the TaskManager of a slot, after all earlier calls about the slot."""
        call, door = self._lanes.call, self._door
        match instruction:
            case do.SubmitSlot(tm, allocation, deployment):
                submit = self._submit
                call(tm, allocation, "submit", lambda gateway: submit(tm, gateway, allocation, deployment), once=True)
            case do.CancelSlotTasks(tm, allocation, ids):
                self._call_together(
                    tm,
                    allocation,
                    ids,
                    "cancel",
                    lambda gateway, tasks: gateway.cancel_tasks(
                        m.CancelTasks(self._job_id, tuple(id_ for of_slot in tasks.values() for id_ in of_slot))
                    ),
                )
            case do.PushSplits(tm, allocation, execution_id, push):
                assign = m.AssignSplits(execution_id, push.splits, push.no_more, push.serial, self._job_id, allocation)
                call(
                    tm,
                    allocation,
                    "assign splits",
                    lambda gateway: gateway.assign_splits(assign),
                    failed=lambda: door.handle(door.core.splits_lost, execution_id),
                )
            case do.SendOperatorEvents(tm, allocation, execution_id, number, events):
                message = OperatorEvents(execution_id, number, events, self._job_id, allocation)
                call(
                    tm,
                    allocation,
                    "operator events",
                    lambda gateway: gateway.send_operator_events(message),
                    failed=lambda: door.handle(door.core.operator_events_lost, execution_id),
                )
            case do.SendTriggerCheckpoint(tm, allocation, ids, checkpoint, timestamp_ms, options):
                self._call_together(
                    tm,
                    allocation,
                    ids,
                    f"trigger checkpoint {checkpoint} {dict(options)}",
                    lambda gateway, tasks: gateway.trigger_checkpoint(
                        m.TriggerCheckpoint(self._job_id, tasks, checkpoint, timestamp_ms, options)
                    ),
                    failed=lambda: door.handle(door.core.checkpoint_not_triggered, ids, checkpoint),
                )
            case do.NotifyCheckpointComplete(tm, allocation, ids, checkpoint):
                self._call_together(
                    tm,
                    allocation,
                    ids,
                    f"checkpoint {checkpoint} is complete",
                    lambda gateway, tasks: gateway.notify_checkpoint_complete(
                        m.NotifyCheckpoint(self._job_id, tasks, checkpoint)
                    ),
                )
            case do.NotifyCheckpointAborted(tm, allocation, ids, checkpoint):
                self._call_together(
                    tm,
                    allocation,
                    ids,
                    f"checkpoint {checkpoint} is aborted",
                    lambda gateway, tasks: gateway.notify_checkpoint_aborted(
                        m.NotifyCheckpoint(self._job_id, tasks, checkpoint)
                    ),
                )
            case do.ReleaseSlot(tm, allocation, cause, last_checkpoint):
                free = m.FreeSlot(allocation, cause, last_checkpoint)
                call(tm, allocation, "free", lambda gateway: gateway.free_slot(free))
            case _:
                raise AssertionError(instruction)

    def _call_together(
        self,
        taskmanager_id: str,
        allocation_id: str,
        execution_ids: tuple[str, ...],
        order: str,
        send: Together,
        *,
        failed: Callable[[], None] | None = None,
    ) -> None:
        """Give tasks of a slot an order that tasks in other slots of that TaskManager get in the same call."""
        lanes = self._lanes
        lanes.call(
            taskmanager_id,
            allocation_id,
            order,
            lambda gateway: lanes.together(gateway, taskmanager_id, allocation_id, execution_ids, order, send),
            failed=failed,
        )

    async def _submit(
        self, taskmanager_id: str, gateway: TaskManagerGateway, allocation: str, deployment: Deployment
    ) -> None:
        """Have tasks run. The call is repeated while its answer may be lost: a TaskManager takes tasks only once."""
        lanes, core = self._lanes, self._door.core
        trace = {} if self._traces is None else self._traces.for_slots()
        if self._meters:
            trace["metrics"] = self._meters
        await self._notes.written()  # a JobMaster that follows must not use the same numbers
        placement = deployment.placement
        if len(placement.peers) > PACKED_AT_ONCE:
            await in_a_thread(lambda: placement.id)  # which packs it
        if core.is_terminal or self._door.crashed.is_set():
            return
        ids = [task.execution_id for task in deployment.tasks]
        plain = {**deployment.to_plain(), "placement": placement.id, "trace": trace}
        message = m.SubmitTasks(self._job_id, allocation, self._token, plain, self._blob_address())

        async def submit() -> None:
            await lanes.share_placement(taskmanager_id, gateway, placement)
            await gateway.submit_tasks(message)

        def goes_on(error: Failure) -> bool:
            if isinstance(error, RpcFault) and error.code is RpcCode.UNKNOWN_PLACEMENT:
                lanes.placement_forgotten(taskmanager_id)
            elif isinstance(error, PeerUnreachableError):
                self._links.check(taskmanager_id)
            else:
                return False
            logger.warning("submit: %s", error)
            return lanes.is_watched(taskmanager_id) and core.awaits_submit(ids)

        try:
            await repeated(submit, goes_on, pauses(FIRST_PAUSE, LONGEST_SUBMIT_DELAY))
        except RpcError as error:
            self._door.handle(core.submit_failed, allocation, ids, str(error))
        else:
            self._door.handle(core.tasks_submitted, ids)

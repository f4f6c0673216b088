"""Carries out the instructions of a JobMaster's core."""

from __future__ import annotations

import asyncio

from typing_extensions import override

from firesteel.ha.retrieval import Attempts
from firesteel.service.output_queue import OutputQueue
from firesteel_jobmaster import instructions as do
from firesteel_jobmaster.checkpoints.queue import WorkQueue
from firesteel_jobmaster.dispatcher import DispatcherReporter
from firesteel_jobmaster.event_door import EventDoor, Performer
from firesteel_jobmaster.handover import HandoverNotes
from firesteel_jobmaster.resourcemanager import JobMasterResourceManagerLink
from firesteel_jobmaster.slot_calls import SlotCalls
from firesteel_jobmaster.slot_lanes import SlotLanes
from firesteel_jobmaster.stage_run_link import StageRunLink
from firesteel_jobmaster.taskmanagers import TaskManagerLinks

_STDOUT, _STDERR = OutputQueue("stdout"), OutputQueue("stderr")


class InstructionPerformer(Performer):
    """Knows for each instruction who carries it out.

    Args:
        door: of the core.
        notes: for the JobMaster that follows; while the end of the job is being noted, its slots stay.
        dispatcher, resourcemanager, taskmanagers: the peers of the JobMaster.
        lanes: order the calls about slots.
        slot_calls: to the TaskManagers, about single slots.
        stages: of a bounded job, which run in Spark.
        checkpoint_work: what is to be done in the storage.
    """

    def __init__(
        self,
        door: EventDoor,
        notes: HandoverNotes,
        dispatcher: DispatcherReporter,
        resourcemanager: JobMasterResourceManagerLink,
        taskmanagers: TaskManagerLinks,
        lanes: SlotLanes,
        slot_calls: SlotCalls,
        stages: StageRunLink,
        checkpoint_work: WorkQueue,
    ) -> None:
        self._door, self._notes, self._dispatcher, self._resourcemanager = door, notes, dispatcher, resourcemanager
        self._taskmanagers, self._lanes, self._slot_calls, self._stages = taskmanagers, lanes, slot_calls, stages
        self._checkpoint_work = checkpoint_work

    @override
    def perform(self, instruction: do.Instruction) -> None:
        if self._notes.holds_back(instruction):
            return
        match instruction:
            case do.ConnectResourceManager():
                self._resourcemanager.connect()
            case do.DeclareSlots(count, returned, most):
                self._resourcemanager.declare(count, returned, most)
            case do.DisconnectResourceManager():
                self._taskmanagers.close()
                self._resourcemanager.disconnect()
            case do.WatchTaskManager(taskmanager_id, address):
                self._taskmanagers.watch(taskmanager_id, address)
            case do.ForgetTaskManager(taskmanager_id):
                self._taskmanagers.forget(taskmanager_id)
            case do.CheckTaskManagers():
                self._taskmanagers.check_all()
            case do.ReportJobState(state, timestamps):
                self._dispatcher.state(state, timestamps)
            case do.ReportEnd():
                self._notes.report_end()
            case do.GoOn():
                asyncio.get_running_loop().call_soon(self._door.handle, self._door.core.go_on)
            case do.CheckpointWork(work):
                self._checkpoint_work.add(work)
            case do.StartStageRun():
                self._stages.run(instruction)
            case do.DropStages(run_id):
                self._stages.drop(run_id)
            case do.WriteOutput(text, is_error):
                (_STDERR if is_error else _STDOUT).write(text)
            case do.NoteAttempts(first_unused, taskmanagers):
                self._notes.note(Attempts(first_unused, taskmanagers))
            case do.SetTimer(name, seconds):
                self._door.set_timer(name, seconds)
            case do.ClearTimer(name):
                self._door.clear_timer(name)
            case _:
                self._slot_calls.perform(instruction)

    @override
    def fall_silent(self) -> None:
        self._taskmanagers.close()
        self._lanes.silence()
        self._stages.silence()
        self._dispatcher.silence()

    @override
    def hurry(self) -> None:
        self._notes.hurry()
        self._dispatcher.hurry()
        self._resourcemanager.hurry()
        self._lanes.hurry()

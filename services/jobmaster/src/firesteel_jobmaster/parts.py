"""The parts of a JobMaster's core, put together."""

from __future__ import annotations

from dataclasses import dataclass

from firesteel_jobmaster.deploying import Deploying
from firesteel_jobmaster.ending import Ending
from firesteel_jobmaster.failover import Failover
from firesteel_jobmaster.job_slots import JobSlots
from firesteel_jobmaster.job_state import JobState
from firesteel_jobmaster.losses import SlotLosses
from firesteel_jobmaster.sources import JobSources
from firesteel_jobmaster.splits import EnumeratorFactory
from firesteel_jobmaster.task_reports import TaskReports


@dataclass(frozen=True)
class JobParts:
    """All of them look at the same state, and each decides about one thing."""

    state: JobState
    slots: JobSlots
    deploying: Deploying
    ending: Ending
    losses: SlotLosses
    sources: JobSources
    tasks: TaskReports
    failover: Failover


def parts_of(state: JobState, create: EnumeratorFactory) -> JobParts:
    """Make the parts of a job; ``create`` makes the enumerators of its sources."""
    slots = JobSlots(state)
    ending = Ending(state, slots)
    losses = SlotLosses(state, slots, ending)
    sources = JobSources(state, create)
    tasks = TaskReports(state, slots, ending, losses, sources)
    failover = Failover(state, slots, ending, sources, tasks)
    state.failover = failover
    return JobParts(state, slots, Deploying(state), ending, losses, sources, tasks, failover)

"""Why a job does not get its slots, and what to do about it: all of it in words for people.

The ResourceManager finds the reason and sends it (``NotifyNoResources``, ``NotifyWaiting``, ``FailSlot``); the
JobMaster says it together with what the job needs. Both take their words from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

NO_RESOURCEMANAGER: Final = "The ResourceManager does not answer."
NO_TASKMANAGER: Final = "No TaskManager has registered: start one."


def job_lacks_slots(job: str, needed: int, groups: Mapping[str, int], present: str, reason: str = "") -> str:
    """The failure of a job that does not get its slots.

    Args:
        job: its name.
        needed: slots in all.
        groups: slot sharing group -> slots of the group.
        present: what there is; see ``came_in_time`` and ``there_are``.
        reason: why there are no more, one or more sentences; empty: nobody knows.
    """
    parts = ", ".join(f"{count} for group {name!r}" for name, count in groups.items())
    text = (
        f"Job {job!r} needs {needed} slots ({parts}) and {present}. "
        "Lower its parallelism, put operators into fewer slot sharing groups, wait for other jobs to end, "
        "or give the cluster more slots (taskmanager.numberOfTaskSlots, more TaskManagers)."
    )
    return f"{text} {reason}".strip()


def came_in_time(slots: int, seconds: float, option: str) -> str:
    """Reason for ``job_lacks_slots``: the job has waited as long as an option lets it."""
    return f"{slots} of them came within {seconds:g} s ({option})"


def there_are(total: int) -> str:
    """Reason for ``job_lacks_slots``: the cluster is too small."""
    return f"the cluster has {total} in all"


# Reasons of the ResourceManager: the cluster has fewer slots than the job needs


def more_are_needed(needed: int, total: int) -> str:
    """The job waits for TaskManagers that somebody else starts."""
    return (
        f"{needed} slots are needed, and the cluster has {total}. Start more TaskManagers, raise "
        "taskmanager.numberOfTaskSlots, or lower the parallelism."
    )


def larger_taskmanagers_are_needed(needed: int) -> str:
    """All TaskManagers have registered, and they are too small for the job."""
    return f"Set taskmanager.numberOfTaskSlots to {needed} or more, or lower the parallelism."


def no_more_are_started(most: int) -> str:
    """The ResourceManager may not start as many TaskManagers as the job needs."""
    return f"No more TaskManagers are started: slotmanager.number-of-slots.max is {most}."


# Reasons of the ResourceManager: the cluster has the slots, and can't give them


def too_few_are_free(missing: int, free: int, total: int) -> str:
    """Other jobs have the slots."""
    return f"Slots that are missing: {missing}; {free} of {total} are free."


def slots_are_refused(taskmanager_id: str, cause: str) -> str:
    """A TaskManager does not grant what the ResourceManager gives away."""
    return f"TaskManager {taskmanager_id} refuses its slots: {cause}"


def no_executor_starts(taskmanager_id: str, cause: str) -> str:
    """Slots of a TaskManager have no Spark executor to run on."""
    return f"TaskManager {taskmanager_id} can't start a Spark executor: {cause}"


def no_slot_starts(cause: str) -> str:
    """There is no fleet in which slots could be started."""
    return f"slots can't be started: {cause}"

"""Failures that the JobMaster itself finds, and which of several is the reason."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from firesteel.core.errors import (
    CheckpointError,
    CheckpointVersionError,
    FleetError,
    RpcError,
    StateAwayError,
    TaskManagerStoppedError,
    TaskMemoryExceededError,
    class_name,
)
from firesteel.graph.execution_graph import Execution, LogicalSlot
from firesteel.protocol.deployment import TaskFailure

_WORD = re.compile(r"[\w-]+")
_RANK = {"user": 0, "type": 0, "slot": 1, "internal": 2, "external": 3, "cancel": 4}
LAST_RANK = 5
_SLOT_LOST = class_name(FleetError)
_OTHER_RELEASE = class_name(CheckpointVersionError)
_STATE_AWAY = class_name(StateAwayError)
_STOPPED = class_name(TaskManagerStoppedError)
_CHECKPOINTS = class_name(CheckpointError)
_TOO_LARGE = class_name(TaskMemoryExceededError)
"""A slot that was killed for its memory says so before it is lost."""


def rank(failure: Mapping[str, Any], killing: bool = False) -> int:
    """Lower = rather the reason than a consequence.

    When a slot dies or a function raises, its neighbours see broken connections, and their reports may come first.

    Args:
        failure: plain ``TaskFailure``.
        killing: a slot that is lost now was probably killed because its tasks would not end.
    """
    kind = str(failure.get("kind"))
    if is_slot_lost(failure):
        return _RANK["cancel" if killing else "slot"]
    if failure.get("error_class") == _TOO_LARGE:
        return _RANK["slot"]
    return _RANK.get(kind, LAST_RANK)


def may_be_a_consequence(failure: Mapping[str, Any]) -> bool:
    """Whether a task that reported this failure may only have noticed that another one is gone."""
    return rank(failure) == _RANK["external"]


def cause_text(failure: Mapping[str, Any]) -> str:
    """A plain ``TaskFailure`` in one line: the operator and its record where a function of the user raised."""
    cause = f"{failure['error_class']}: {failure['message']}".rstrip(": ")
    if failure.get("kind") not in ("user", "type") or not failure.get("operator"):
        return cause
    record = "" if failure.get("record") is None else f" at the record {failure['record']}"
    subtask = int(failure.get("subtask", -1)) + 1  # people count from 1
    return f"operator {failure['operator']!r} (subtask {subtask}) raised {cause}{record}"


def is_of_infrastructure(failure: Mapping[str, Any]) -> bool:
    """Whether a slot, a peer or the machine is to blame, and nothing that the job does or needs."""
    return failure.get("kind") == "external" and failure.get("error_class") not in (_TOO_LARGE, _CHECKPOINTS)


def is_state_away(failure: Mapping[str, Any]) -> bool:
    """Whether a host can't read the state that a task goes on from: the storage is away there, which may pass."""
    return failure.get("error_class") == _STATE_AWAY


def is_of_another_release(failure: Mapping[str, Any]) -> bool:
    """Whether a task goes on from state in a format that this release does not know."""
    return failure.get("error_class") == _OTHER_RELEASE


def name_peers(failure: Mapping[str, Any], find: Callable[[str], LogicalSlot | None]) -> Mapping[str, Any]:
    """The failure, with the TaskManagers of the slots that its message names by their allocation ids."""
    message = str(failure.get("message"))
    named = [slot for word in dict.fromkeys(_WORD.findall(message)) if (slot := find(word)) is not None]
    if not named:
        return failure
    where = "; ".join(f"{s.allocation_id} is slot {where_is(s)}" for s in named)
    return {**failure, "message": f"{message} ({where})"}


def where_is(slot: LogicalSlot) -> str:
    """A slot, for people."""
    return f"{slot.slot_index} of TaskManager {slot.taskmanager_id} (process {slot.pid})"


def external(message: str, error: type[Exception], execution: Execution | None = None) -> TaskFailure:
    """A peer, a slot or the machine is to blame."""
    name = class_name(error)
    location = {}
    if execution is not None:
        location = {
            "vertex_name": execution.vertex.name,
            "subtask": execution.subtask,
            "attempt": execution.attempt,
        }
    return TaskFailure("external", name, message, f"{name}: {message}\n", **location)  # type: ignore[arg-type]


def slot_lost(slot_name: str, cause: str, execution: Execution | None) -> TaskFailure:
    """A slot is gone."""
    return external(f"Slot {slot_name} was lost: {cause}", FleetError, execution)


def is_slot_lost(failure: Mapping[str, Any]) -> bool:
    """Whether it is what ``slot_lost`` gives, or what tasks say of a TaskManager that stops."""
    return failure.get("kind") == "external" and failure.get("error_class") in (_SLOT_LOST, _STOPPED)


def is_stopped(failure: Mapping[str, Any]) -> bool:
    """Whether a task failed as its TaskManager was told to stop."""
    return failure.get("error_class") == _STOPPED


def slot_lost_since(failure: Mapping[str, Any], cause: str) -> Mapping[str, Any] | None:
    """The loss of a slot, now that it is known how its TaskManager has ended; None: the failure is something else."""
    if not is_slot_lost(failure):
        return None
    message = f"{cause} (first seen: {failure['message']})"
    return {**failure, "message": message, "stacktrace": f"{failure['error_class']}: {message}\n"}


def submit_failed(slot_name: str, cause: str, execution: Execution | None) -> TaskFailure:
    """A TaskManager did not take tasks."""
    return external(f"The tasks of slot {slot_name} could not be submitted: {cause}", RpcError, execution)


def checkpoints_fail(message: str) -> TaskFailure:
    """More checkpoints have failed in a row than the job tolerates."""
    return TaskFailure("external", _CHECKPOINTS, message, message)


def of_the_user(error: Exception) -> TaskFailure:
    """The program, or what it was told to start from, is wrong: no restart helps."""
    return TaskFailure("user", class_name(error), str(error), f"{error}\n", recoverable=False)


def internal(error: BaseException, doing: str, recoverable: bool = False) -> TaskFailure:
    """Our own bug, or one of a plug-in."""
    return TaskFailure(
        "internal",
        class_name(error),
        f"The JobMaster failed while {doing}: {error}",
        "".join(traceback.format_exception(error)),
        recoverable=recoverable,
    )


def from_report(plain: Mapping[str, Any] | None, execution: Execution) -> dict[str, Any]:
    """The failure that a slot reported, checked and completed."""
    if plain is None:
        return external("The task failed without saying why.", RuntimeError, execution).to_plain()
    try:
        failure = TaskFailure.from_plain(plain)
    except TypeError as error:
        text = f"The task failed; its report is malformed ({error}): {dict(plain)!r:.2000}"
        return external(text, RuntimeError, execution).to_plain()
    result = failure.to_plain()
    if not failure.vertex_name:
        result["vertex_name"] = execution.vertex.name
    if failure.subtask < 0:
        result["subtask"], result["attempt"] = execution.subtask, execution.attempt
    return result

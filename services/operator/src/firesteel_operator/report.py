"""The status of an object, as people and other programs read it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from firesteel_operator.decisions import (
    CREATING,
    ROLLED_BACK,
    ROLLING_BACK,
    UPGRADING,
    Status,
)
from firesteel_operator.specs import Spec

RECORD: Final = "record"
"""Key of ``reconciliationStatus`` with the operator's notes, which nobody else may change."""


def lifecycle(status: Status) -> str:
    """Flink's name for the state of an object."""
    if status.suspended:
        return "SUSPENDED"
    if not status.incarnation:
        return "CREATED"
    if status.state in (ROLLING_BACK, ROLLED_BACK):
        return status.state
    if status.step and not (status.step == CREATING and status.incarnation == 1):
        return "UPGRADING"
    if status.job == "FAILED":
        return "FAILED"
    return "DEPLOYED" if status.state == UPGRADING else "STABLE"


def status_of(status: Status, spec: Spec | None) -> dict[str, Any]:
    """The ``status`` of an object."""
    job: dict[str, Any] = {"state": status.job}
    if status.job_id:
        job["jobId"] = status.job_id
    if status.job_name:
        job["jobName"] = status.job_name
    if status.restore:
        job["upgradeSavepointPath"] = status.restore
    savepoint_info: dict[str, Any] = {}
    if status.savepoint is not None:
        savepoint_info["lastSavepoint"] = dict(status.savepoint)
    if status.operation is not None and status.operation.nonce is not None:
        savepoint_info |= {"triggerId": status.operation.id, "triggerTimestamp": int(status.operation.since * 1000)}
    if savepoint_info:
        job["savepointInfo"] = savepoint_info
    plain: dict[str, Any] = {
        "lifecycleState": lifecycle(status),
        "jobManagerDeploymentStatus": status.cluster,
        "observedGeneration": status.generation,
        "error": status.error,
        "reconciliationStatus": {"state": status.state, RECORD: status.to_plain()},
    }
    if spec is None or spec.job is not None:
        plain["jobStatus"] = job
    if spec is not None and spec.session:
        del plain["jobManagerDeploymentStatus"]
    return plain


def read_status(thing: Mapping[str, Any]) -> Status:
    """The operator's notes about an object."""
    record = ((thing.get("status") or {}).get("reconciliationStatus") or {}).get(RECORD)
    return Status.from_plain(record) if record else Status()


def now_text(seconds: float) -> str:
    """A time in the form of Kubernetes."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

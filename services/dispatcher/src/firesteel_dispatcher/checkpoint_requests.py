"""Requests for checkpoints and savepoints."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from firesteel.checkpoint import savepoint_places, savepoints
from firesteel.core.errors import ConfigurationError

_TYPES: Final = ("CONFIGURED", "FULL", "INCREMENTAL")
_ID: Final = re.compile(r"[0-9a-fA-F]{32}")


def read_trigger(body: Mapping[str, Any]) -> tuple[str, bool]:
    """The body of ``POST /jobs/:jobid/checkpoints``: ``{"checkpointType": ..., "triggerId": ...}``, all optional.

    Returns:
        the trigger id, a new one if the body has none; and whether the checkpoint has all state, not only the changes.

    Raises:
        ConfigurationError: the body is malformed, or names an unknown type.
    """
    kind = body.get("checkpointType") or "CONFIGURED"
    if kind not in _TYPES:
        raise ConfigurationError(f"checkpointType = {kind!r:.40} is none of {', '.join(_TYPES)}")
    if kind == "INCREMENTAL":
        raise ConfigurationError(
            "checkpointType = 'INCREMENTAL': checkpoints are incremental by execution.checkpointing.incremental of the "
            "job; ask for CONFIGURED, which follows that option, or FULL"
        )
    return _trigger_id(body), kind == "FULL"


@dataclass(frozen=True)
class SavepointRequest:
    """A user's request for a savepoint.

    Attributes:
        trigger_id: of the request; a new id if the request has none.
        target: the directory that the request names; empty = none.
        format: ``CANONICAL`` or ``NATIVE``.
        stop: as in ``m.TriggerJobSavepoint``.
    """

    trigger_id: str
    target: str
    format: str
    stop: str


def read_savepoint(body: Mapping[str, Any]) -> SavepointRequest:
    """The body of ``POST /jobs/:jobid/savepoints``, whose fields are all optional: ``target-directory``,
    ``cancel-job``, ``formatType``, ``triggerId``.

    Raises:
        ConfigurationError: the body is malformed; the text names the field.
    """
    stop = savepoints.CANCEL if _flag(body, "cancel-job") else ""
    return SavepointRequest(_trigger_id(body), _directory(body, "target-directory"), _format(body), stop)


def read_stop(body: Mapping[str, Any]) -> SavepointRequest:
    """The body of ``POST /jobs/:jobid/stop``, whose fields are all optional: ``targetDirectory``, ``drain``,
    ``formatType``, ``triggerId``.

    Raises:
        ConfigurationError: the body is malformed; the text names the field.
    """
    stop = savepoints.DRAIN if _flag(body, "drain") else savepoints.SUSPEND
    return SavepointRequest(_trigger_id(body), _directory(body, "targetDirectory"), _format(body), stop)


def read_disposal(body: Mapping[str, Any]) -> str:
    """The body of ``POST /savepoint-disposal``: ``{"savepoint-path": ...}``.

    Raises:
        ConfigurationError: the body is malformed; the text names the field.
    """
    path = _text(body, "savepoint-path")
    if not path:
        raise ConfigurationError("savepoint-path is missing: it names the savepoint that is to be removed")
    savepoint_places.read_target(path, "savepoint-path")
    return path


def _trigger_id(body: Mapping[str, Any]) -> str:
    trigger_id = body.get("triggerId")
    if trigger_id is None:
        return uuid.uuid4().hex
    if not isinstance(trigger_id, str) or not _ID.fullmatch(trigger_id):
        raise ConfigurationError(f"triggerId = {trigger_id!r:.80} is not 32 hex digits")
    return trigger_id.lower()


def _format(body: Mapping[str, Any]) -> str:
    snapshot_format = body.get("formatType")
    if snapshot_format is None:
        return savepoints.CANONICAL
    if snapshot_format not in savepoints.FORMATS:
        raise ConfigurationError(f"formatType = {snapshot_format!r:.40} is none of {', '.join(savepoints.FORMATS)}")
    return str(snapshot_format)


def _directory(body: Mapping[str, Any], name: str) -> str:
    text = _text(body, name)
    return savepoint_places.read_target(text, name) if text else ""


def _text(body: Mapping[str, Any], name: str) -> str | None:
    text = body.get(name)
    if text is not None and not isinstance(text, str):
        raise ConfigurationError(f"{name} = {text!r:.40} is no text")
    return text


def _flag(body: Mapping[str, Any], name: str) -> bool:
    flag = body.get(name)
    if flag is not None and not isinstance(flag, bool):
        raise ConfigurationError(f"{name} = {flag!r:.40} is neither true nor false")
    return bool(flag)

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
        the trigger id, a new one if none was given; and whether all state is wanted, not only what has changed.

    Raises:
        ConfigurationError: it is malformed, or asks for a type that there is not.
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
    """What somebody wants.

    Attributes:
        trigger_id: a new one if none was given.
        target: the directory that they have named; empty = none.
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
        ConfigurationError: it is malformed; names the field.
    """
    stop = savepoints.CANCEL if _flag(body, "cancel-job") else ""
    return SavepointRequest(_trigger_id(body), _directory(body, "target-directory"), _format(body), stop)


def read_stop(body: Mapping[str, Any]) -> SavepointRequest:
    """The body of ``POST /jobs/:jobid/stop``, whose fields are all optional: ``targetDirectory``, ``drain``,
    ``formatType``, ``triggerId``.

    Raises:
        ConfigurationError: it is malformed; names the field.
    """
    stop = savepoints.DRAIN if _flag(body, "drain") else savepoints.SUSPEND
    return SavepointRequest(_trigger_id(body), _directory(body, "targetDirectory"), _format(body), stop)


def read_disposal(body: Mapping[str, Any]) -> str:
    """The body of ``POST /savepoint-disposal``: ``{"savepoint-path": ...}``.

    Raises:
        ConfigurationError: it is malformed; names the field.
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
    found = body.get("formatType")
    if found is None:
        return savepoints.CANONICAL
    if found not in savepoints.FORMATS:
        raise ConfigurationError(f"formatType = {found!r:.40} is none of {', '.join(savepoints.FORMATS)}")
    return str(found)


def _directory(body: Mapping[str, Any], name: str) -> str:
    text = _text(body, name)
    return savepoint_places.read_target(text, name) if text else ""


def _text(body: Mapping[str, Any], name: str) -> str | None:
    found = body.get(name)
    if found is not None and not isinstance(found, str):
        raise ConfigurationError(f"{name} = {found!r:.40} is no text")
    return found


def _flag(body: Mapping[str, Any], name: str) -> bool:
    found = body.get(name)
    if found is not None and not isinstance(found, bool):
        raise ConfigurationError(f"{name} = {found!r:.40} is neither true nor false")
    return bool(found)

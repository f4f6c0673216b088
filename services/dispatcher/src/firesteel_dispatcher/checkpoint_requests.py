"""Requests for checkpoints and savepoints."""

from __future__ import annotations

import json
import re
import uuid
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import web

from firesteel.checkpoint import savepoint_places, savepoints
from firesteel.core.errors import ConfigurationError

_TYPES: Final = ("CONFIGURED", "FULL", "INCREMENTAL")
_ID: Final = re.compile(r"[0-9a-fA-F]{32}")


async def read_trigger(request: web.Request) -> tuple[str, bool]:
    """The body of ``POST /jobs/:jobid/checkpoints``: ``{"checkpointType": ..., "triggerId": ...}``, all optional.

    Returns:
        the trigger id, a new one if none was given; and whether all state is wanted, not only what has changed.

    Raises:
        ConfigurationError: it is malformed, or asks for a type that there is not.
    """
    body = await _read_body(request)
    kind = body.get("checkpointType", "CONFIGURED")
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


async def read_savepoint(request: web.Request) -> SavepointRequest:
    """The body of ``POST /jobs/:jobid/savepoints``, whose fields are all optional: ``target-directory``,
    ``cancel-job``, ``formatType``, ``triggerId``.

    Raises:
        ConfigurationError: it is malformed; names the field.
    """
    body = await _read_body(request)
    stop = savepoints.CANCEL if _flag(body, "cancel-job") else ""
    return SavepointRequest(_trigger_id(body), _directory(body, "target-directory"), _format(body), stop)


async def read_stop(request: web.Request) -> SavepointRequest:
    """The body of ``POST /jobs/:jobid/stop``, whose fields are all optional: ``targetDirectory``, ``drain``,
    ``formatType``, ``triggerId``.

    Raises:
        ConfigurationError: it is malformed; names the field.
    """
    body = await _read_body(request)
    stop = savepoints.DRAIN if _flag(body, "drain") else savepoints.SUSPEND
    return SavepointRequest(_trigger_id(body), _directory(body, "targetDirectory"), _format(body), stop)


async def read_disposal(request: web.Request) -> str:
    """The body of ``POST /savepoint-disposal``: ``{"savepoint-path": ...}``.

    Raises:
        ConfigurationError: it is malformed; names the field.
    """
    path = _text(await _read_body(request), "savepoint-path")
    if not path:
        raise ConfigurationError("savepoint-path is missing: it names the savepoint that is to be removed")
    savepoint_places.read_target(path, "savepoint-path")
    return path


async def _read_body(request: web.Request) -> dict[str, Any]:
    text = await request.text()
    try:
        body = json.loads(text) if text.strip() else {}
    except ValueError as error:
        raise ConfigurationError(f"the body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise ConfigurationError(f"the body has to be a JSON object, not {type(body).__name__}")
    return body


def _trigger_id(body: dict[str, Any]) -> str:
    trigger_id = body.get("triggerId")
    if trigger_id is None:
        return uuid.uuid4().hex
    if not isinstance(trigger_id, str) or not _ID.fullmatch(trigger_id):
        raise ConfigurationError(f"triggerId = {trigger_id!r:.80} is not 32 hex digits")
    return trigger_id.lower()


def _format(body: dict[str, Any]) -> str:
    found = body.get("formatType")
    if found is None:
        return savepoints.CANONICAL
    if found not in savepoints.FORMATS:
        raise ConfigurationError(f"formatType = {found!r:.40} is none of {', '.join(savepoints.FORMATS)}")
    return str(found)


def _directory(body: dict[str, Any], name: str) -> str:
    text = _text(body, name)
    return savepoint_places.read_target(text, name) if text else ""


def _text(body: dict[str, Any], name: str) -> str | None:
    found = body.get(name)
    if found is not None and not isinstance(found, str):
        raise ConfigurationError(f"{name} = {found!r:.40} is no text")
    return found


def _flag(body: dict[str, Any], name: str) -> bool:
    found = body.get(name)
    if found is not None and not isinstance(found, bool):
        raise ConfigurationError(f"{name} = {found!r:.40} is neither true nor false")
    return bool(found)

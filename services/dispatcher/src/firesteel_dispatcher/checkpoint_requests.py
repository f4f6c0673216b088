"""Requests for checkpoints."""

from __future__ import annotations

import json
import re
import uuid
from typing import Final

from aiohttp import web

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
    text = await request.text()
    try:
        body = json.loads(text) if text.strip() else {}
    except ValueError as error:
        raise ConfigurationError(f"the body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise ConfigurationError(f"the body has to be a JSON object, not {type(body).__name__}")
    kind = body.get("checkpointType", "CONFIGURED")
    if kind not in _TYPES:
        raise ConfigurationError(f"checkpointType = {kind!r:.40} is none of {', '.join(_TYPES)}")
    if kind == "INCREMENTAL":
        raise ConfigurationError(
            "checkpointType = 'INCREMENTAL': checkpoints are incremental by execution.checkpointing.incremental of the "
            "job; ask for CONFIGURED, which follows that option, or FULL"
        )
    trigger_id = body.get("triggerId")
    if trigger_id is None:
        return uuid.uuid4().hex, kind == "FULL"
    if not isinstance(trigger_id, str) or not _ID.fullmatch(trigger_id):
        raise ConfigurationError(f"triggerId = {trigger_id!r:.80} is not 32 hex digits")
    return trigger_id.lower(), kind == "FULL"

"""Who asked for what: a line of the log for each request that changes something, or would have."""

from __future__ import annotations

import json
import logging

from aiohttp import web

from firesteel.rest.endpoints import CallerRights, Endpoint, flink_name

logger = logging.getLogger(__name__)


def is_audited(endpoint: Endpoint) -> bool:
    """Whether requests to an endpoint are logged: it changes something, and programs do not ask it all the time."""
    return endpoint.access is not CallerRights.READ and not endpoint.polled


def log_request(request: web.Request, caller: str, endpoint: Endpoint, outcome: str) -> None:
    """Logs a request.

    Args:
        request: as it came. Its peer may be a proxy, which then names the client.
        caller: by what token the caller was known.
        endpoint: what was asked for.
        outcome: what came of it.
    """
    subject = "".join(f", {flink_name(part)} {request.match_info[part][:80]!r}" for part in endpoint.parts)
    forwarded = request.headers.get("X-Forwarded-For")
    peer = request.remote or "an unknown address"
    logger.info(
        "%s %s (%s%s), asked by %s from %s: %s",
        endpoint.method,
        endpoint.flink_path,
        endpoint.what,
        subject,
        caller,
        f"{peer} for {forwarded[:100]!r}" if forwarded else peer,
        outcome,
    )


def outcome_of(response: web.StreamResponse) -> str:
    """The status of an answer, with the job that was made, or with the error."""
    body = response.body if isinstance(response, web.Response) else None
    if not isinstance(body, bytes) or response.content_type != "application/json":
        return str(response.status)
    answer = json.loads(body)
    job = answer.get("jobid") or str(answer.get("jobUrl", "")).rpartition("/")[2]
    error = str(next(iter(answer.get("errors", ())), "")).partition("\n")[0]
    return ", ".join(filter(None, (str(response.status), job and f"job {job}", error and f"{error[:200]!r}")))

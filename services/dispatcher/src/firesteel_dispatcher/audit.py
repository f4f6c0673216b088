"""The audit log: a line for each request that changes something, or was refused and would have."""

from __future__ import annotations

import json
import logging

from aiohttp import web

from firesteel.rest.endpoints import CallerRights, Endpoint, flink_name

logger = logging.getLogger(__name__)


def is_audited(endpoint: Endpoint) -> bool:
    """Whether requests to an endpoint are logged: those that change something, unless programs poll it."""
    return endpoint.access is not CallerRights.READ and not endpoint.polled


def caller_text(request: web.Request, caller: str) -> str:
    """Who has made a request, and from where, for people: a proxy names the client.

    Args:
        request: the request.
        caller: the token by which the caller is known.
    """
    forwarded = request.headers.get("X-Forwarded-For")
    peer = request.remote or "an unknown address"
    return f"{caller} from {peer} for {forwarded[:100]!r}" if forwarded else f"{caller} from {peer}"


def log_request(request: web.Request, caller: str, endpoint: Endpoint, outcome: str) -> None:
    """Log a request.

    Args:
        request: the request.
        caller: the token by which the caller is known.
        endpoint: of the request.
        outcome: status, with the job or the error.
    """
    subject = "".join(f", {flink_name(part)} {request.match_info[part][:80]!r}" for part in endpoint.parts)
    logger.info(
        "%s %s (%s%s), asked by %s: %s",
        endpoint.method,
        endpoint.flink_path,
        endpoint.what,
        subject,
        caller_text(request, caller),
        outcome,
    )


def outcome_of(response: web.StreamResponse) -> str:
    """The status of an answer, with the id of the new job, or with the error."""
    body = response.body if isinstance(response, web.Response) else None
    if not isinstance(body, bytes) or response.content_type != "application/json":
        return str(response.status)
    answer = json.loads(body)
    job = answer.get("jobid") or str(answer.get("jobUrl", "")).rpartition("/")[2]
    error = str(next(iter(answer.get("errors", ())), "")).partition("\n")[0]
    return ", ".join(filter(None, (str(response.status), job and f"job {job}", error and f"{error[:200]!r}")))

"""Client of a Dispatcher's REST API."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import aiohttp

from firesteel.checkpoint.savepoints import CANONICAL
from firesteel.client.bars import CountedBytes
from firesteel.core.clock import Clock, SystemClock
from firesteel.core.errors import (
    CheckpointError,
    GraphError,
    JobError,
    JobNotFoundError,
    PeerUnreachableError,
    ProtocolError,
    RpcError,
    UnauthorizedError,
)
from firesteel.graph.job_graph import JobGraph
from firesteel.rpc.client import STALL_SECONDS

POLL_SECONDS: Final = 0.2
"""Seconds between two requests for the state of an operation."""
_CALL_SECONDS: Final = 60.0
_REFUSED: Final = frozenset({400, 409, 413})
"""Status codes with which the cluster refuses a request: its message is shown to the caller as it is."""
_SLOWEST_UPLOAD: Final = 1 << 20
"""Bytes per second: a slower upload is given up."""


@dataclass(frozen=True)
class CollectedResults:
    """One answer to a pull of results.

    Attributes:
        offset: number of the first result in ``data``, from 0.
        count: how many results ``data`` holds.
        end: nothing comes after these.
        state: the job's state.
        data: pickled list of results; empty when there are none.
    """

    offset: int
    count: int
    end: bool
    state: str
    data: bytes


@dataclass(frozen=True)
class ClientPatience:
    """Seconds for which a client tries to reach a cluster again. Every request is idempotent, so it may be repeated.

    Attributes:
        total: from the first failure on; 0 = the first one counts.
        pause: between attempts.
    """

    total: float = 0.0
    pause: float = 2.0


class RestClient:
    """One Dispatcher.

    Args:
        base_url: such as ``http://127.0.0.1:8081``.
        token: for what changes the cluster or brings results; None = there is none.
        token_origin: where the token comes from, for the message when it is refused.
        patience: for a Dispatcher that does not answer for a while.
        clock: measures the patience.

    All methods raise ``PeerUnreachableError`` when the Dispatcher does not answer, ``UnauthorizedError`` when it
    refuses the token, ``RpcError`` when it answers with another error.
    """

    def __init__(
        self,
        base_url: str,
        token: str | None,
        *,
        token_origin: str = "",
        patience: ClientPatience | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.base_url = base_url
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._token_origin = token_origin
        self._patience = patience or ClientPatience()
        self._clock = clock or SystemClock()
        self._session: aiohttp.ClientSession | None = None

    def dashboard_url(self, job_id: str = "") -> str:
        """Address of the dashboard, or of a job's page in it."""
        return f"{self.base_url}/#/jobs/{job_id}" if job_id else f"{self.base_url}/"

    async def contact(self) -> dict[str, Any]:
        """The answer of ``GET /config``, requested once, to check that a Dispatcher of Firesteel listens there.

        Raises:
            ProtocolError: it is no cluster of Firesteel.
        """
        status, body, _ = await self._once("GET", "/config", None, 15.0)
        if status == 401:
            self._check(status, body)
        try:
            answer = json.loads(body) if status == 200 else None
        except ValueError:
            answer = None
        if not isinstance(answer, dict) or "firesteel-version" not in answer:
            server = (
                f"Flink {answer['flink-version']}" if isinstance(answer, dict) and "flink-version" in answer else ""
            )
            raise ProtocolError(self.base_url, f"{server or 'what answers there'} is no Firesteel cluster")
        return answer

    async def date(self) -> str | None:
        """Time of the cluster's clock: the header ``Date`` of an answer; None if there is none."""
        _, _, headers = await self._request("GET", "/config", timeout_s=15.0)
        return headers.get("Date")

    async def submit(
        self, graph: JobGraph, blobs: Mapping[str, bytes], sent: Callable[[int, int], None] = lambda done, total: None
    ) -> None:
        """Submit a job. Submitting the same graph again is harmless.

        Args:
            graph: the job.
            blobs: the files that it needs, by their SHA-256.
            sent: hears how many bytes of the blobs have been sent, and of how many.

        Raises:
            GraphError: the Dispatcher refuses the graph, or it is too large, or another job has its id.
        """
        request = {
            "executionPlanFileName": "plan.json",
            "jobArtifactFileNames": [{"entryName": name, "fileName": name} for name in blobs],
        }
        plan = json.dumps(graph.to_plain())

        total = sum(map(len, blobs.values()))

        def form() -> aiohttp.FormData:
            done = 0

            def count(size: int) -> None:
                nonlocal done
                done += size
                sent(done, total)

            form = aiohttp.FormData()
            form.add_field("request", json.dumps(request), content_type="application/json")
            form.add_field("file_0", plan, filename="plan.json", content_type="application/json")
            for number, (name, content) in enumerate(blobs.items(), start=1):
                stream = CountedBytes(content, count)
                form.add_field(f"file_{number}", stream, filename=name, content_type="application/octet-stream")
            return form

        limit = _CALL_SECONDS + (len(plan) + total) / _SLOWEST_UPLOAD
        status, body, _ = await self._request("POST", "/jobs", form=form, timeout_s=limit)
        if status in (400, 413):
            raise GraphError(_first_error(body))
        if status == 409:
            raise GraphError(f"{_first_error(body)} (the client chooses the id: the next run takes another)")
        self._check(status, body)

    async def get(self, path: str, timeout_s: float = 30.0) -> Any:
        """The JSON answer of a GET.

        Raises:
            JobNotFoundError: 404.
        """
        status, body, _ = await self._request("GET", path, timeout_s=timeout_s)
        if status == 404:
            raise JobNotFoundError(_first_error(body))
        self._check(status, body)
        return json.loads(body)

    async def put(self, path: str, body: Any) -> Any:
        """The JSON answer of a PUT.

        Raises:
            JobNotFoundError: 404.
        """
        status, answer, _ = await self._request("PUT", path, json_body=body)
        if status == 404:
            raise JobNotFoundError(_first_error(answer))
        self._check(status, answer)
        return json.loads(answer)

    async def part(self, path: str, start: int) -> tuple[bytes, int]:
        """Read a text from byte ``start`` on; returns it and its end, which is below ``start`` if the text is shorter.

        Raises:
            JobNotFoundError: 404.
        """
        headers = {"Range": f"bytes={start}-"}
        status, body, answered = await self._request("GET", path, headers=headers, timeout_s=120.0)
        if status == 404:
            raise JobNotFoundError(_first_error(body))
        if status == 416:  # there is nothing from there on
            size = answered.get("Content-Range", "").rpartition("/")[2]
            return b"", int(size) if size.isdecimal() else start
        self._check(status, body)
        if status != 206:  # the whole text, from its beginning
            return body[start:], len(body)
        first = answered.get("Content-Range", "").partition(" ")[2].partition("-")[0]
        begin = int(first) if first.isdecimal() else start
        return body, begin + len(body)

    async def execution_result(self, job_id: str, wait_ms: int) -> dict[str, Any] | None:
        """The result of a job, or None if it has not ended after ``wait_ms``."""
        answer = await self.get(f"/jobs/{job_id}/execution-result?wait-ms={wait_ms}", timeout_s=wait_ms / 1000 + 30)
        result = answer.get("job-execution-result")
        return dict(result) if answer["status"]["id"] == "COMPLETED" else None

    async def cancel(self, job_id: str) -> bool:
        """Cancel a job; returns False if it has ended already.

        Raises:
            JobNotFoundError: there is no such job.
        """
        status, body, _ = await self._request("PATCH", f"/jobs/{job_id}?mode=cancel")
        if status == 404:
            raise JobNotFoundError(_first_error(body), job_id)
        if status != 409:
            self._check(status, body)
        return status != 409

    async def shut_down_cluster(self) -> None:
        """End the cluster with its jobs; returns when the cluster has begun to end.

        Raises:
            RpcError: the cluster refused, or does not answer.
        """
        status, body, _ = await self._request("DELETE", "/cluster")
        self._check(status, body)

    async def trigger_checkpoint(self, job_id: str, trigger_id: str, full: bool) -> None:
        """Trigger a checkpoint; ``checkpoint_result`` returns its outcome.

        Args:
            job_id: of the job.
            trigger_id: 32 hex digits, new for each checkpoint: a repeat with the same one changes nothing.
            full: all state, also where checkpoints are incremental.

        Raises:
            JobNotFoundError: there is no such job.
            RpcError: it has ended, or the cluster refuses.
        """
        body = {"checkpointType": "FULL" if full else "CONFIGURED", "triggerId": trigger_id}
        status, answer, _ = await self._request("POST", f"/jobs/{job_id}/checkpoints", json_body=body)
        if status == 404:
            raise JobNotFoundError(_first_error(answer), job_id)
        self._check(status, answer)

    async def checkpoint_result(self, job_id: str, trigger_id: str) -> dict[str, Any] | None:
        """The ``operation`` of a triggered checkpoint; None while it is under way."""
        answer = await self.get(f"/jobs/{job_id}/checkpoints/{trigger_id}")
        return dict(answer["operation"]) if answer["status"]["id"] == "COMPLETED" else None

    async def trigger_savepoint(
        self, job_id: str, trigger_id: str, directory: str | None, format_type: str = CANONICAL, *, cancel: bool = False
    ) -> None:
        """Trigger a savepoint; ``savepoint_result`` returns its outcome.

        Args:
            job_id: of the job.
            trigger_id: as in ``trigger_checkpoint``.
            directory: below which it is to be; None = as the cluster is configured.
            format_type: ``CANONICAL`` or ``NATIVE``.
            cancel: the job is cancelled when it is complete.

        Raises:
            JobNotFoundError: there is no such job.
            RpcError: it has ended, or the cluster refuses.
        """
        body = {"target-directory": directory, "cancel-job": cancel, "formatType": format_type, "triggerId": trigger_id}
        await self._operation(job_id, "savepoints", body)

    async def stop(
        self, job_id: str, trigger_id: str, directory: str | None, format_type: str = CANONICAL, *, drain: bool = False
    ) -> None:
        """Stop a job with a savepoint; ``savepoint_result`` returns the outcome.

        Args:
            job_id, trigger_id, directory, format_type: as there.
            drain: event time ends before the savepoint.
        """
        body = {"targetDirectory": directory, "drain": drain, "formatType": format_type, "triggerId": trigger_id}
        await self._operation(job_id, "stop", body)

    async def _operation(self, job_id: str, path: str, body: dict[str, Any]) -> None:
        status, answer, _ = await self._request("POST", f"/jobs/{job_id}/{path}", json_body=body)
        if status == 404:
            raise JobNotFoundError(_first_error(answer), job_id)
        self._check(status, answer)

    async def savepoint_result(self, job_id: str, trigger_id: str) -> dict[str, Any] | None:
        """The ``operation`` of a triggered savepoint or stop; None while it is under way."""
        answer = await self.get(f"/jobs/{job_id}/savepoints/{trigger_id}")
        return dict(answer["operation"]) if answer["status"]["id"] == "COMPLETED" else None

    async def savepoint_location(self, job_id: str, trigger_id: str) -> str:
        """Wait for the end of a triggered savepoint or stop; returns the savepoint's location.

        Raises:
            CheckpointError: there is none.
        """
        result = None
        while result is None:
            try:
                result = await self.savepoint_result(job_id, trigger_id)
            except JobNotFoundError as error:
                raise CheckpointError(
                    f"The cluster knows nothing of the savepoint of job {job_id} any more ({error}): its JobMaster was "
                    "replaced. What is complete is in its directory; else ask again"
                ) from error
            if result is None:
                await asyncio.sleep(POLL_SECONDS)
        failure = result.get("failure-cause")
        if failure is not None:
            raise CheckpointError(failure_text(failure))
        return str(result["location"])

    async def dispose_savepoint(self, path: str) -> None:
        """Remove a savepoint, and wait until it is gone.

        Raises:
            CheckpointError: it could not be.
        """
        status, answer, _ = await self._request("POST", "/savepoint-disposal", json_body={"savepoint-path": path})
        self._check(status, answer)
        trigger_id = json.loads(answer)["request-id"]
        operation = None
        while operation is None:
            operation = (await self.get(f"/savepoint-disposal/{trigger_id}"))["operation"]
            if operation is None:
                await asyncio.sleep(POLL_SECONDS)
        if "failure-cause" in operation:
            raise CheckpointError(failure_text(operation["failure-cause"]))

    async def client_heartbeat(self, job_id: str, expires_ms: int) -> None:
        """Send the heartbeat of a job's client.

        Args:
            job_id: of the job.
            expires_ms: epoch milliseconds at which the job may be cancelled if nothing more is heard.

        Raises:
            JobNotFoundError: there is no such job.
        """
        path = f"/jobs/{job_id}/clientHeartbeat"
        status, body, _ = await self._request("PATCH", path, json_body={"expiredTimestamp": expires_ms})
        if status == 404:
            raise JobNotFoundError(_first_error(body), job_id)
        self._check(status, body)

    async def collect(
        self, job_id: str, operator_id: str, offset: int, max_bytes: int, wait_ms: int
    ) -> CollectedResults:
        """Pull results from ``offset`` on; the request acknowledges all results before it.

        Raises:
            JobNotFoundError: there is no such job.
            JobError: it was restarted from its beginning after it had given results.
        """
        path = f"/jobs/{job_id}/collect/{operator_id}?offset={offset}&max-bytes={max_bytes}&wait-ms={wait_ms}"
        status, body, headers = await self._request("GET", path, timeout_s=wait_ms / 1000 + 30)
        if status == 404:
            raise JobNotFoundError(_first_error(body), job_id)
        if status == 410:
            raise JobError(_first_error(body), job_id)
        self._check(status, body)
        return CollectedResults(
            int(headers["X-Firesteel-Offset"]),
            int(headers["X-Firesteel-Count"]),
            headers["X-Firesteel-End"] == "true",
            headers["X-Firesteel-State"],
            body,
        )

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _request(
        self,
        method: str,
        path: str,
        *,
        form: Callable[[], aiohttp.FormData] | None = None,
        json_body: Any = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = _CALL_SECONDS,
    ) -> tuple[int, bytes, Mapping[str, str]]:
        """Repeat a request until it has an answer other than 503, or the patience has run out.

        A time limit that is noticed much too late does not count: this process was stopped, or a thread of it held the
        interpreter.
        """
        give_up_at: float | None = None
        while True:
            started = self._clock.monotonic()
            answer: tuple[int, bytes, Mapping[str, str]] | None = None
            failure: PeerUnreachableError | None = None
            try:
                answer = await self._once(method, path, form() if form else None, timeout_s, json_body, headers)
            except PeerUnreachableError as error:
                failure = error
            if answer is not None and answer[0] != 503:
                return answer
            now = self._clock.monotonic()
            if failure is not None and now - started > timeout_s + STALL_SECONDS:
                continue
            give_up_at = now + self._patience.total if give_up_at is None else give_up_at
            if now >= give_up_at:
                if failure is not None:
                    raise failure
                assert answer is not None
                return answer
            await asyncio.sleep(min(self._patience.pause, give_up_at - now))

    async def _once(
        self,
        method: str,
        path: str,
        data: aiohttp.FormData | None,
        timeout_s: float,
        json_body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, bytes, Mapping[str, str]]:
        if self._session is None:
            self._session = aiohttp.ClientSession(headers=self._headers)
        limit = aiohttp.ClientTimeout(total=timeout_s)
        url = self.base_url + path
        try:
            async with self._session.request(
                method, url, data=data, json=json_body, timeout=limit, headers=headers
            ) as answer:
                return answer.status, await answer.read(), answer.headers
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise PeerUnreachableError(f"the Dispatcher at {self.base_url} did not answer: {_reason(error)}") from error

    def _check(self, status: int, body: bytes) -> None:
        if status == 401:
            origin = f" ({self._token_origin})" if self._token_origin else ""
            raise UnauthorizedError(f"the cluster at {self.base_url} refuses this client{origin}: {_first_error(body)}")
        if not 200 <= status < 300:
            message = _first_error(body)
            raise RpcError(message if status in _REFUSED else f"the Dispatcher answered {status}: {message}")


def failure_text(failure: Mapping[str, Any]) -> str:
    """Text of a ``failure-cause`` for people, without the name of the exception's class."""
    text = str(failure["stack-trace"])
    return text.partition(": ")[2] or text


def _reason(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    inner = getattr(error, "os_error", error)
    number = getattr(inner, "errno", None)
    if isinstance(number, int) and number > 0:
        return os.strerror(number)
    return str(error) or type(error).__name__


def _first_error(body: bytes) -> str:
    try:
        return str(json.loads(body)["errors"][0])
    except (ValueError, KeyError, IndexError, TypeError):
        return body[:500].decode(errors="replace")

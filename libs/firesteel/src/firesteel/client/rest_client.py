"""Talks to a Dispatcher over its REST API."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp

from firesteel.core.errors import GraphError, JobNotFoundError, PeerUnreachableError, RpcError
from firesteel.graph.job_graph import JobGraph


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


class RestClient:
    """One Dispatcher.

    Args:
        base_url: such as ``http://127.0.0.1:8081``.
        secret: of the cluster; needed for what runs code or reads results.

    All methods raise ``PeerUnreachableError`` when the Dispatcher does not answer.
    """

    def __init__(self, base_url: str, secret: str) -> None:
        self.base_url = base_url
        self._headers = {"Authorization": f"Bearer {secret}"}
        self._session: aiohttp.ClientSession | None = None

    async def submit(self, graph: JobGraph, blobs: Mapping[str, bytes]) -> None:
        """Submit a job. Submitting the same graph again is harmless.

        Raises:
            GraphError: the Dispatcher refuses the graph.
        """
        request = {
            "executionPlanFileName": "plan.json",
            "jobArtifactFileNames": [{"entryName": name, "fileName": name} for name in blobs],
        }
        form = aiohttp.FormData()
        form.add_field("request", json.dumps(request), content_type="application/json")
        form.add_field("file_0", json.dumps(graph.to_plain()), filename="plan.json", content_type="application/json")
        for number, (name, content) in enumerate(blobs.items(), start=1):
            stream = io.BytesIO(content)  # sent in pieces: bytes would hold up the loop, and aiohttp warns about it
            form.add_field(f"file_{number}", stream, filename=name, content_type="application/octet-stream")
        status, body, _ = await self._request("POST", "/jobs", data=form)
        if status in (400, 409):
            raise GraphError(_first_error(body))
        _check(status, body)

    async def get(self, path: str, timeout_s: float = 30.0) -> Any:
        """The JSON answer of a GET.

        Raises:
            JobNotFoundError: 404.
        """
        status, body, _ = await self._request("GET", path, timeout_s=timeout_s)
        if status == 404:
            raise JobNotFoundError(_first_error(body))
        _check(status, body)
        return json.loads(body)

    async def execution_result(self, job_id: str, wait_ms: int) -> dict[str, Any] | None:
        """The result of a job, or None if it has not ended after ``wait_ms``."""
        answer = await self.get(f"/jobs/{job_id}/execution-result?wait-ms={wait_ms}", timeout_s=wait_ms / 1000 + 30)
        result = answer.get("job-execution-result")
        return dict(result) if answer["status"]["id"] == "COMPLETED" else None

    async def cancel(self, job_id: str) -> None:
        """Ask for a job to be cancelled; one that has ended already is left alone.

        Raises:
            JobNotFoundError: there is no such job.
        """
        status, body, _ = await self._request("PATCH", f"/jobs/{job_id}?mode=cancel")
        if status == 404:
            raise JobNotFoundError(_first_error(body), job_id)
        if status != 409:
            _check(status, body)

    async def collect(
        self, job_id: str, operator_id: str, offset: int, max_bytes: int, wait_ms: int
    ) -> CollectedResults:
        """Results from ``offset`` on; asking for an offset tells the slot that all before it have arrived."""
        path = f"/jobs/{job_id}/collect/{operator_id}?offset={offset}&max-bytes={max_bytes}&wait-ms={wait_ms}"
        status, body, headers = await self._request("GET", path, timeout_s=wait_ms / 1000 + 30)
        if status == 404:
            raise JobNotFoundError(_first_error(body), job_id)
        _check(status, body)
        return CollectedResults(
            int(headers["X-Firesteel-Offset"]),
            int(headers["X-Firesteel-Count"]),
            headers["X-Firesteel-End"] == "true",
            headers["X-Firesteel-State"],
            body,
        )

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _request(
        self, method: str, path: str, *, data: aiohttp.FormData | None = None, timeout_s: float = 60.0
    ) -> tuple[int, bytes, Mapping[str, str]]:
        if self._session is None:
            self._session = aiohttp.ClientSession(headers=self._headers)
        limit = aiohttp.ClientTimeout(total=timeout_s)
        try:
            async with self._session.request(method, self.base_url + path, data=data, timeout=limit) as answer:
                return answer.status, await answer.read(), answer.headers
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            reason = str(error) or type(error).__name__
            raise PeerUnreachableError(f"the Dispatcher at {self.base_url} did not answer: {reason}") from error


def _first_error(body: bytes) -> str:
    try:
        return str(json.loads(body)["errors"][0])
    except (ValueError, KeyError, IndexError, TypeError):
        return body[:500].decode(errors="replace")


def _check(status: int, body: bytes) -> None:
    if not 200 <= status < 300:
        raise RpcError(f"the Dispatcher answered {status}: {_first_error(body)}")

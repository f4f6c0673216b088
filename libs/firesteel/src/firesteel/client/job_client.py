"""A submitted job as its program sees it."""

from __future__ import annotations

import base64
import pickle
import re
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from firesteel.client.loop_thread import LoopThread
from firesteel.client.rest_client import RestClient
from firesteel.client.results import RestResultStream
from firesteel.client.source_lines import with_source_lines
from firesteel.common.completable_future import CompletableFuture
from firesteel.common.executor import CollectingJobClient
from firesteel.common.job_execution_result import JobExecutionResult
from firesteel.common.job_id import JobID
from firesteel.common.job_status import JobStatus
from firesteel.core.errors import JobCancelledError, JobError, JobFailedError, RpcError, UserFunctionError
from firesteel.protocol.deployment import TaskFailure
from firesteel.runtime.slot.user_code import how_to_bring

_LONG_POLL_MS = 10_000
_MISSING_MODULE = re.compile(r"No module named '([\w.]+)'")


class ClusterJobClient(CollectingJobClient):
    """A job of a cluster that is reached over REST.

    Args:
        job_id: of the job.
        job_name: for messages.
        rest: client of the cluster's Dispatcher.
        loop: where ``rest`` lives.
    """

    def __init__(self, job_id: str, job_name: str, rest: RestClient, loop: LoopThread) -> None:
        self._job_id, self._job_name = job_id, job_name
        self._rest, self._loop = rest, loop

    def get_job_id(self) -> JobID:
        return JobID.from_hex_string(self._job_id)

    def get_web_interface_url(self) -> str:
        """Address of the cluster's REST API."""
        return self._rest.base_url

    def get_job_status(self) -> CompletableFuture[JobStatus]:
        """Asks for the job's state."""
        return CompletableFuture(self._loop.start(self._status()))

    def cancel(self) -> CompletableFuture[None]:
        """Asks for the job to be cancelled; done when the request was accepted."""
        return CompletableFuture(self._loop.start(self._cancel()))

    def stop_with_savepoint(
        self, advance_to_end_of_event_time: bool, savepoint_directory: str | None = None
    ) -> CompletableFuture[str]:
        """Stops the job with a savepoint; see ``JobClient``."""
        return CompletableFuture(
            self._loop.start(self._stop(_directory(savepoint_directory), drain=advance_to_end_of_event_time))
        )

    def trigger_savepoint(self, savepoint_directory: str | None = None) -> CompletableFuture[str]:
        """Takes a savepoint; see ``JobClient``."""
        return CompletableFuture(self._loop.start(self._savepoint(_directory(savepoint_directory))))

    def get_job_execution_result(self) -> CompletableFuture[JobExecutionResult]:
        """A future of the job's result; raises what ``outcome_of`` says."""
        return CompletableFuture(self._loop.start(self._result()))

    def get_accumulators(self) -> CompletableFuture[dict[str, Any]]:
        """Counters of the job's functions; see ``JobClient``."""
        return CompletableFuture(self._loop.start(self._accumulators()))

    def collect(self, operator_id: str) -> RestResultStream:
        """The results of the collect operator with this id, pulled as they are read."""
        return RestResultStream(self._job_id, operator_id, self._rest, self._loop, self._result)

    def get_job_details(self) -> CompletableFuture[dict[str, Any]]:
        """The answer of ``GET /jobs/:jobid``."""
        return CompletableFuture(self._loop.start(self._rest.get(f"/jobs/{self._job_id}")))

    async def _status(self) -> JobStatus:
        answer = await self._rest.get(f"/jobs/{self._job_id}/status")
        return JobStatus[answer["status"]]

    async def _cancel(self) -> None:
        await self._rest.cancel(self._job_id)

    async def _stop(self, directory: str | None, *, drain: bool) -> str:
        trigger_id = uuid.uuid4().hex
        await self._rest.stop(self._job_id, trigger_id, directory, drain=drain)
        return await self._rest.savepoint_location(self._job_id, trigger_id)

    async def _savepoint(self, directory: str | None) -> str:
        trigger_id = uuid.uuid4().hex
        await self._rest.trigger_savepoint(self._job_id, trigger_id, directory)
        return await self._rest.savepoint_location(self._job_id, trigger_id)

    async def _result(self) -> JobExecutionResult:
        result = None
        while result is None:
            result = await self._rest.execution_result(self._job_id, _LONG_POLL_MS)
        accumulators: dict[str, int] = {}
        if result["application-status"] == "SUCCEEDED":
            with suppress(RpcError):  # the job is done, whether its counters are still there or not
                accumulators = await self._accumulators()
        return outcome_of(result, self._job_name, accumulators)

    async def _accumulators(self) -> dict[str, int]:
        answer = await self._rest.get(f"/jobs/{self._job_id}/accumulators")
        return {accumulator["name"]: int(accumulator["value"]) for accumulator in answer["user-task-accumulators"]}


def _directory(text: str | None) -> str | None:
    """The directory, as services elsewhere find it."""
    return text if text is None or "://" in text else str(Path(text).absolute())


def outcome_of(
    result: Mapping[str, Any], job_name: str, accumulators: Mapping[str, Any] | None = None
) -> JobExecutionResult:
    """Read a job-execution-result.

    Raises:
        JobCancelledError: the job was cancelled.
        UserFunctionError: a user's function raised; caused by the user's exception where it came along.
        JobFailedError: it failed otherwise.
    """
    job_id, status = str(result["id"]), result["application-status"]
    if status == "SUCCEEDED":
        return JobExecutionResult(JobID.from_hex_string(job_id), int(result["net-runtime"]), accumulators)
    if status == "CANCELED":
        raise JobCancelledError(f"job {job_name!r} ({job_id}) was cancelled", job_id)
    plain = result.get("firesteel-failure")
    if plain is None:
        reason = (result.get("failure-cause") or {}).get("stack-trace", "no reason is known")
        raise JobFailedError(f"job {job_name!r} ({job_id}) failed: {reason}", job_id)
    raise failure_as_error(TaskFailure.from_plain(plain), job_id, job_name)


def failure_as_error(failure: TaskFailure, job_id: str, job_name: str) -> JobError:
    """The exception that a client raises for a failure, its cause included."""
    cause = _unpickled(failure.pickled)
    if failure.kind not in ("user", "type") or failure.subtask < 0:  # the latter: found before any task ran
        place = f" in {failure.vertex_name!r}, subtask {failure.subtask}" if failure.vertex_name else ""
        return _caused(JobFailedError(f"job {job_name!r} ({job_id}) failed{place}: {failure.message}", job_id), cause)
    operator = failure.operator or failure.vertex_name
    lines = [
        f"job {job_name!r} ({job_id}) failed: operator {operator!r} (subtask {failure.subtask}, "
        f"attempt {failure.attempt}) raised {failure.error_class}: {failure.message}"
    ]
    missing = _MISSING_MODULE.search(failure.message) if failure.error_class == "ModuleNotFoundError" else None
    if missing is not None:
        lines.append(f"slots find no module {missing[1]!r}: {how_to_bring(missing[1])}")
    if failure.record is not None:
        lines.append(f"at the record {failure.record}")
    traceback_text = with_source_lines(failure.traceback)
    headline = f"{failure.error_class}: {failure.message}"
    if traceback_text and traceback_text.strip() != headline.strip():  # one without frames says the same again
        lines.append("in the slot:\n" + traceback_text.rstrip())
    error = UserFunctionError(
        "\n".join(lines),
        job_id,
        operator=operator,
        subtask=failure.subtask,
        attempt=failure.attempt,
        record=failure.record,
        traceback_text=traceback_text,
        error_class=failure.error_class,
    )
    return _caused(error, cause)


def _caused(error: JobError, cause: BaseException | None) -> JobError:
    error.__cause__ = cause
    return error


def _unpickled(text: str | None) -> BaseException | None:
    """The user's own exception; this is the user's process, so it may unpickle what the user's code raised."""
    if text is None:
        return None
    try:
        value = pickle.loads(base64.b64decode(text))
    except Exception:  # its class can't be made here: the text tells the story
        return None
    return value if isinstance(value, BaseException) else None

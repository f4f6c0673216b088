"""A submitted job as its program sees it."""

from __future__ import annotations

import asyncio
import base64
import pickle
import re
import uuid
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from firesteel.checkpoint.places import absolute_path
from firesteel.client.cell_console import CellConsole
from firesteel.client.loop_thread import LoopThread
from firesteel.client.progress import Progress, clock_text
from firesteel.client.progress_display import ProgressDisplay
from firesteel.client.rest_client import RestClient
from firesteel.client.results import RestResultStream
from firesteel.client.source_lines import with_source_lines
from firesteel.common.completable_future import CompletableFuture
from firesteel.common.executor import CollectingJobClient
from firesteel.common.job_execution_result import JobExecutionResult
from firesteel.common.job_id import JobID
from firesteel.common.job_status import JobStatus
from firesteel.core import html_cards
from firesteel.core.clock import SystemClock
from firesteel.core.errors import (
    FiresteelError,
    JobCancelledError,
    JobError,
    JobFailedError,
    RpcError,
    UserFunctionError,
)
from firesteel.core.notebook import kernel_shell
from firesteel.graph.bounded import is_batch
from firesteel.graph.job_graph import JobGraph
from firesteel.protocol.deployment import TaskFailure
from firesteel.runtime.slot.user_code import how_to_bring

_LONG_POLL_MS = 10_000
_GLANCE_SECONDS: Final = 3.0
"""A notebook waits so long for the state of a job that it shows."""
_FAILURE_LIMIT: Final = 500
_RATE: Final = "numRecordsInPerSecond"
_MISSING_MODULE = re.compile(r"No module named '([\w.]+)'")


class ClusterJobClient(CollectingJobClient):
    """A job of a cluster that is reached over REST.

    Args:
        graph: that was submitted.
        rest: client of the cluster's Dispatcher.
        loop: where ``rest`` lives.
    """

    def __init__(self, graph: JobGraph, rest: RestClient, loop: LoopThread) -> None:
        self._graph, self._job_id, self._job_name = graph, graph.job_id, graph.name
        self._rest, self._loop = rest, loop

    @property
    def graph(self) -> JobGraph:
        """The graph that was submitted."""
        return self._graph

    def __repr__(self) -> str:
        return f"<job {self._job_name!r} ({self._job_id})>"

    def _repr_html_(self) -> str:
        """State, rates and last failure of the job at this moment, for a notebook."""
        facts = [("id", html_cards.text(self._job_id))]
        try:
            facts += self._loop.run(self._facts(), timeout=_GLANCE_SECONDS)
        except (FiresteelError, TimeoutError, KeyError, TypeError, ValueError) as error:
            facts.append(("state", html_cards.text(f"not known: {str(error) or 'no answer in time'}")))
        page = html_cards.link(self._rest.dashboard_url(self._job_id), "page in the dashboard")
        return html_cards.card(f"Job {self._job_name}", [*facts, ("dashboard", page)])

    async def _facts(self) -> list[tuple[str, str]]:
        """What is known of the job at this moment: labels, and values as HTML."""
        details, exceptions = await asyncio.gather(
            self._rest.get(f"/jobs/{self._job_id}"),
            self._rest.get(f"/jobs/{self._job_id}/exceptions?maxExceptions=1"),
        )
        progress = Progress.of(details, self._graph)
        rates = await self._rates() if progress.state == "RUNNING" and not is_batch(self._graph) else ("", "")
        facts = [
            ("state", f"{progress.state} for {clock_text(details['duration'] / 1000)}"),
            ("records in", f"{progress.records_in:,}{rates[0]}"),
            ("records out", f"{progress.records_out:,}{rates[1]}"),
            ("slots", f"{progress.slots} of {progress.slots_needed}"),
            ("waits", progress.waiting_for),
            ("restarts", f"{progress.restarts:,}" if progress.restarts else ""),
        ]
        failures = exceptions["exceptionHistory"]["entries"]
        if failures:
            facts.append(("last failure", failures[0]["stacktrace"].strip().splitlines()[-1]))
        return [(label, html_cards.text(value, _FAILURE_LIMIT)) for label, value in facts if value]

    async def _rates(self) -> tuple[str, str]:
        """Records that sources read and that the last vertices receive, a second."""
        graph = self._graph
        sources = [vertex.id for vertex in graph.vertices if vertex.source is not None]
        inner = {edge.source for edge in graph.edges}
        ends = [vertex.id for vertex in graph.vertices if vertex.id not in inner]
        path = f"/jobs/{self._job_id}/vertices/%s/subtasks/metrics?get={_RATE}&agg=sum"
        vertices = dict.fromkeys([*sources, *ends])
        answers = await asyncio.gather(*(self._rest.get(path % vertex) for vertex in vertices))
        rates = {
            vertex: sum(float(metric["sum"]) for metric in answer)
            for vertex, answer in zip(vertices, answers, strict=True)
        }
        return tuple(f" ({sum(rates[vertex] for vertex in group):,.0f} a second)" for group in (sources, ends))  # type: ignore[return-value]

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
        progress = None
        if kernel_shell() is not None:
            console = CellConsole(self._rest.dashboard_url(self._job_id))
            progress = ProgressDisplay(self.get_job_details, self._graph, console, SystemClock())
        return RestResultStream(self._job_id, operator_id, self._rest, self._loop, self._result, progress)

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
    return None if text is None else absolute_path(text)


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
        place = f" in {failure.vertex_name!r}, subtask {failure.subtask + 1}" if failure.vertex_name else ""
        return _caused(JobFailedError(f"job {job_name!r} ({job_id}) failed{place}: {failure.message}", job_id), cause)
    operator = failure.operator or failure.vertex_name
    lines = [
        f"job {job_name!r} ({job_id}) failed: operator {operator!r} (subtask {failure.subtask + 1}, "
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

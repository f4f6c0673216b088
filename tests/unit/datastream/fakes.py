"""An executor that records what is submitted, and jobs whose results are written in the test."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from firesteel.common import CompletableFuture, Configuration, JobExecutionResult, JobID, JobStatus
from firesteel.common.executor import ClusterJobs, CollectingJobClient
from firesteel.datastream import StreamExecutionEnvironment
from firesteel.graph.stream_graph import StreamGraph


class FakeResultStream:
    """Gives the scripted answers one by one; an exception among them is raised."""

    def __init__(self, answers: Sequence[Any]) -> None:
        self.answers = list(answers)
        self.closed = 0

    def fetch(self) -> list[Any] | None:
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer  # type: ignore[no-any-return]

    def close(self) -> None:
        self.closed += 1


class FakeJobClient(CollectingJobClient):
    def __init__(self, result: JobExecutionResult | BaseException, stream: FakeResultStream) -> None:
        self.job_id = JobID()
        self.result = result
        self.stream = stream
        self.cancelled = False
        self.status = JobStatus.RUNNING
        self.collected: list[str] = []

    def get_job_id(self) -> JobID:
        return self.job_id

    def get_web_interface_url(self) -> str:
        return "http://127.0.0.1:8081"

    def get_job_status(self) -> CompletableFuture[JobStatus]:
        return CompletableFuture.completed(self.status)

    def cancel(self) -> CompletableFuture[None]:
        self.cancelled = True
        return CompletableFuture.completed(None)

    def stop_with_savepoint(
        self, advance_to_end_of_event_time: bool, savepoint_directory: str | None = None
    ) -> CompletableFuture[str]:
        return CompletableFuture.completed(f"{savepoint_directory}/savepoint-1")

    def trigger_savepoint(self, savepoint_directory: str | None = None) -> CompletableFuture[str]:
        return CompletableFuture.completed(f"{savepoint_directory}/savepoint-1")

    def get_job_execution_result(self) -> CompletableFuture[JobExecutionResult]:
        future: CompletableFuture[JobExecutionResult] = CompletableFuture()
        if isinstance(self.result, BaseException):
            future.set_exception(self.result)
        else:
            future.set_result(self.result)
        return future

    def get_accumulators(self) -> CompletableFuture[dict[str, Any]]:
        return CompletableFuture.completed({})

    def get_job_details(self) -> CompletableFuture[dict[str, Any]]:
        return CompletableFuture.completed({"state": self.status.name})

    def collect(self, operator_id: str) -> FakeResultStream:
        self.collected.append(operator_id)
        return self.stream


class FakeExecutor:
    """Records submissions."""

    def __init__(self, parallelism: int = 2) -> None:
        self.parallelism = parallelism
        self.graphs: list[StreamGraph] = []
        self.configurations: list[Configuration] = []
        self.clients: list[FakeJobClient] = []
        self.result: JobExecutionResult | BaseException = JobExecutionResult(JobID(), 7)
        self.answers: Sequence[Any] = [None]
        self.closed = 0

    def default_parallelism(self) -> int:
        return self.parallelism

    def submit(self, graph: StreamGraph, configuration: Configuration) -> FakeJobClient:
        self.graphs.append(graph)
        self.configurations.append(configuration)
        self.clients.append(FakeJobClient(self.result, FakeResultStream(self.answers)))
        return self.clients[-1]

    def cluster_jobs(self, configuration: Configuration) -> ClusterJobs | None:
        return None

    def close(self) -> None:
        self.closed += 1


def environment(executor: FakeExecutor | None = None, **settings: Any) -> StreamExecutionEnvironment:
    """An environment on a fake executor; settings with ``__`` for dots and ``_`` for hyphens."""
    keys = {key.replace("__", ".").replace("_", "-"): value for key, value in settings.items()}
    return StreamExecutionEnvironment(Configuration.from_dict(keys), executor or FakeExecutor())


def submitted(executor: FakeExecutor) -> list[str]:
    """Names of the operators that were submitted last."""
    return [node.name for node in executor.graphs[-1].nodes.values()]

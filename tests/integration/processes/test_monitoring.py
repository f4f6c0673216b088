"""What a cluster shows of itself to others, while a job runs on it: metrics for Prometheus, traces over OTLP."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.integration.processes.cluster import Cluster, free_ports, running_cluster, wait_until
from tests.integration.processes.otlp import Received, Receiver, receiver

BOARD = Path(__file__).resolve().parents[3] / "deploy/compose/full/grafana/dashboards/firesteel.json"
PROGRAM = """
import logging
import os
import sys

from opentelemetry import metrics, trace

from firesteel.common import WatermarkStrategy
from firesteel.datastream import MapFunction, RuntimeContext, StreamExecutionEnvironment
from firesteel.datastream.connectors.data_generator import DataGeneratorSource, RateLimiterStrategy


class Measures(MapFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        group = runtime_context.get_metrics_group().add_group("numbers")
        self.seen, self.marks, self.sizes = group.counter("seen"), group.meter("rate"), group.distribution("size")
        group.gauge("answer", lambda: 42)
        self.tracer, self.count = trace.get_tracer("of the user"), 0
        self.orders = metrics.get_meter("of the user").create_counter("orders")

    def map(self, value: int) -> int:
        self.count += 1
        if self.count % 50 == 1:
            with self.tracer.start_as_current_span("my work"), self.tracer.start_as_current_span("a part of it"):
                pass
        if self.count % 10 == 0 and os.path.exists(BREAK):
            os.unlink(BREAK)
            raise ValueError("broken on purpose")
        if self.count == 5:
            logging.getLogger("of.the.user").warning("five")
        self.orders.add(1)
        self.seen.inc()
        self.marks.mark_event()
        self.sizes.update(value % 10)
        return value


BREAK = sys.argv[1]
env = StreamExecutionEnvironment.get_execution_environment()
rate = RateLimiterStrategy.per_second(100)
numbers = env.from_source(
    DataGeneratorSource(lambda i: i, rate_limiter_strategy=rate), WatermarkStrategy.no_watermarks(), "numbers"
)
numbers.key_by(lambda i: i % 100).map(Measures()).name("look, up").filter(lambda i: i < 0).print()
env.execute("watched job")
"""
SLOTS = {"numRegisteredTaskManagers": 1, "taskSlotsTotal": 2, "taskSlotsAvailable": 0}
Values = dict[str, list[tuple[dict[str, str], float]]]


@pytest.fixture(scope="module")
def ports() -> tuple[int, int]:
    first, second = free_ports(2)
    return first, second


@pytest.fixture(scope="module")
def traces() -> Iterator[Receiver]:
    with receiver() as collector:
        yield collector


@pytest.fixture(scope="module")
def watched(ports: tuple[int, int], traces: Receiver) -> Iterator[Cluster]:
    """A cluster that runs a job in two slots and takes checkpoints."""
    options = {
        "metrics.reporter.prom.factory.class": "org.apache.flink.metrics.prometheus.PrometheusReporterFactory",
        "taskmanager.rpc.port": ports[0],
        "execution.checkpointing.interval": "300 ms",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.delay": "10 ms",
        "traces.reporters": "otel",
        "traces.reporter.otel.exporter.endpoint": traces.endpoint,
        "traces.reporter.otel.exporter.http-headers": "x-key:abc",
        "metrics.reporter.otel.factory.class": "org.apache.flink.metrics.otel.OpenTelemetryMetricReporterFactory",
        "metrics.reporter.otel.exporter.protocol": "gRPC",
        "metrics.reporter.otel.exporter.endpoint": traces.grpc_endpoint,
        "metrics.reporter.otel.interval": "500 ms",
        "metrics.reporter.otel.filter.excludes": '"*.Status*"',
        "firesteel.logs.reporters": "otel",
        "firesteel.logs.reporter.otel.exporter.endpoint": traces.address,
    }
    with running_cluster(options=options) as cluster:
        program = cluster.folder / "program.py"
        program.write_text(PROGRAM)
        done = cluster.firesteel("run", "-d", "-p", "2", str(program), str(cluster.folder / "break"))
        assert done.returncode == 0, done.stdout + done.stderr + cluster.logs()
        yield cluster


def values_at(address: str) -> Values:
    """Name -> labels and values."""
    by_name: Values = {}
    with urlopen(f"{address}/metrics", timeout=20) as answer:
        for family in text_string_to_metric_families(answer.read().decode()):
            for sample in family.samples:
                by_name.setdefault(sample.name, []).append((sample.labels, sample.value))
    return by_name


def test_a_taskmanager_shows_its_tasks_and_their_functions(watched: Cluster, ports: tuple[int, int]) -> None:
    def counted() -> Values | None:
        values = values_at(f"http://127.0.0.1:{ports[0]}")
        seen = values.get("flink_taskmanager_job_task_operator_numbers_seen", [])
        return values if len(seen) == 2 and all(value > 20 for _, value in seen) else None

    values = wait_until(counted, "both subtasks have counted")
    assert values is not None
    (job,) = watched.rest("GET", "/jobs/overview")[1]["jobs"]
    rates = values["flink_taskmanager_job_task_numRecordsInPerSecond"]
    assert len(rates) == 4, "two vertices of two subtasks"
    for labels, _ in rates:
        assert labels["job_id"] == job["jid"]
        assert labels["job_name"] == "watched_job"
        assert labels["host"] == "127_0_0_1"
        assert labels.keys() >= {"tm_id", "task_id", "task_name", "task_attempt_num", "subtask_index"}
    of_maps = [value for labels, value in rates if "look" in labels["task_name"]]
    assert {labels["subtask_index"] for labels, _ in rates} == {"0", "1"}
    assert len(of_maps) == 2
    assert all(5 < value < 200 for value in of_maps), of_maps
    parts = [
        {labels["task_attempt_id"]: value for labels, value in values[f"flink_taskmanager_job_task_{name}PerSecond"]}
        for name in ("busyTimeMs", "idleTimeMs", "backPressuredTimeMs")
    ]
    for attempt in parts[0]:
        assert sum(part[attempt] for part in parts) == pytest.approx(1000, abs=20)
    samples_in = values["flink_taskmanager_job_task_operator_numRecordsIn"]
    assert len({(labels["task_id"], labels["operator_name"]) for labels, _ in samples_in}) > 2, "not of heads alone"
    rooms = [value for _, value in values["flink_taskmanager_job_task_buffers_outPoolUsage"]]
    assert len(rooms) == 4
    assert all(0 <= value <= 1.5 for value in rooms)
    operator = "flink_taskmanager_job_task_operator_numbers_"
    assert {labels["operator_name"] for labels, _ in values[f"{operator}seen"]} == {"look__up"}
    assert [value for _, value in values[f"{operator}answer"]] == [42, 42]
    assert all(value > 0 for _, value in values[f"{operator}rate"])
    quantiles = {labels["quantile"]: value for labels, value in values[f"{operator}size"]}
    assert 0 <= quantiles["0.5"] <= 9
    assert set(quantiles) == {"0.5", "0.75", "0.9", "0.95", "0.98", "0.99", "0.999"}
    assert sum(value for _, value in values[f"{operator}size_count"]) > 40
    assert values["flink_taskmanager_Status_JVM_Memory_Heap_Used"][0][1] > 1 << 20


def test_the_dispatcher_shows_the_jobs(watched: Cluster) -> None:
    def completed() -> Values | None:
        values = values_at(watched.rest_url)
        done = values.get("flink_jobmanager_job_numberOfCompletedCheckpoints", [])
        return values if done and done[0][1] > 0 else None

    values = wait_until(completed, "a checkpoint is complete")
    assert values is not None
    assert values["flink_jobmanager_numRunningJobs"][0][1] == 1
    ((labels, duration),) = values["flink_jobmanager_job_lastCheckpointDuration"]
    assert duration >= 0
    assert labels["job_name"] == "watched_job"
    assert values["flink_jobmanager_job_uptime"][0][1] > 0
    assert values["flink_jobmanager_job_numRestarts"] == [(labels, 0)]


def test_the_board_of_compose_asks_for_what_there_is(watched: Cluster, ports: tuple[int, int]) -> None:
    board = json.loads(BOARD.read_text())
    asked_for = {
        name
        for panel in board["panels"] for target in panel["targets"] for name in re.findall(r"flink_\w+", target["expr"])
    }  # fmt: skip
    assert len(asked_for) > 15
    slots_are_limited = {"flink_taskmanager_Status_Memory_Slots_Max"}  # here the TaskManager's memory is not configured

    def shown() -> set[str]:
        addresses = (f"http://127.0.0.1:{ports[0]}", watched.rest_url, watched.the("resourcemanager").address)
        return {name for address in addresses for name in values_at(address)}

    wait_until(
        lambda: asked_for - shown() <= slots_are_limited, lambda: f"all of it is shown, but {asked_for - shown()}"
    )


def test_the_resourcemanager_shows_slots(watched: Cluster) -> None:
    values = values_at(watched.the("resourcemanager").address)
    assert {name: values[f"flink_jobmanager_{name}"][0][1] for name in SLOTS} == SLOTS


def attempts_below(traces: Receiver, root: Received) -> list[Received]:
    """Spans of attempts below that of a start."""
    return traces.below(root, "Attempt")


def test_threads_of_all_that_coordinate_are_shown(watched: Cluster) -> None:
    (job,) = watched.rest("GET", "/jobs/overview")[1]["jobs"]
    names = {thread["threadName"] for thread in watched.rest("GET", "/jobmanager/thread-dump")[1]["threadInfos"]}
    of_job = f"jobmaster of job {job['jid']}"
    assert names >= {"MainThread", "resourcemanager: MainThread", "jobmaster host: MainThread", f"{of_job}: MainThread"}
    status, begun = watched.rest("POST", "/jobmanager/profiler", {"mode": "WALL", "duration": 1})
    assert status == 200, begun

    def finished() -> str | None:
        (profile,) = watched.rest("GET", "/jobmanager/profiler")[1]["profilingList"]
        return profile["outputFile"] if profile["status"] == "FINISHED" else None

    name = wait_until(finished, "the profile is complete")
    with urlopen(f"{watched.rest_url}/jobmanager/profiler/{name}", timeout=20) as answer:
        page = answer.read().decode()
    for part in ("dispatcher: MainThread", "resourcemanager: MainThread", f"{of_job}: MainThread"):
        assert part in page, part


def test_logs_of_services_and_slots_are_read(watched: Cluster) -> None:
    def text(path: str) -> str:
        with urlopen(f"{watched.rest_url}{path}", timeout=20) as answer:
            assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
            return str(answer.read().decode())

    (job,) = watched.rest("GET", "/jobs/overview")[1]["jobs"]
    assert job["jid"] in text("/jobmanager/log")
    text("/jobmanager/stdout")
    names = [log["name"] for log in watched.rest("GET", "/jobmanager/logs")[1]["logs"]]
    (of_dispatcher,) = [name for name in names if name.startswith("dispatcher") and name.endswith(".log")]
    assert job["jid"] in text(f"/jobmanager/logs/{of_dispatcher}")
    (worker,) = watched.rest("GET", "/taskmanagers")[1]["taskmanagers"]
    where = f"/taskmanagers/{quote(worker['id'], safe='')}"
    assert "slot" in text(f"{where}/log")
    slots = {subtask["firesteel-slot"] for v in watched.rest("GET", f"/jobs/{job['jid']}")[1]["vertices"]
             for subtask in watched.rest("GET", f"/jobs/{job['jid']}/vertices/{v['id']}")[1]["subtasks"]}  # fmt: skip
    assert slots == {0, 1}
    wait_until(lambda: any("five" in text(f"{where}/logs/slot-{slot}.log") for slot in slots), "a function has logged")


def test_a_submission_and_the_start_of_its_job_are_one_trace(watched: Cluster, traces: Receiver) -> None:
    (start,) = wait_until(lambda: traces.named("JobInitialization"), "the job's start is traced") or []
    (submission,) = wait_until(lambda: traces.named("Submission"), "the submission is traced") or []
    (job,) = watched.rest("GET", "/jobs/overview")[1]["jobs"]
    assert (submission.trace, submission.id) == (start.trace, start.parent)
    assert submission.attributes["job.id"] == start.attributes["job.id"] == job["jid"]
    assert {span.name for span in traces.below(submission)} == {"Upload", "Store", "JobInitialization"}
    wait_until(lambda: len(traces.below(start)) >= 6, "steps and attempts are there")
    assert {span.name for span in traces.below(start)} == {"Slots", "Deployment", "Attempt"}
    attempts = attempts_below(traces, start)
    assert {(span.attributes["vertex.id"], span.attributes["subtask"]) for span in attempts} == {
        (vertex, subtask) for vertex in {span.attributes["vertex.id"] for span in attempts} for subtask in (0, 1)
    }
    assert len(attempts) == 4
    for attempt in attempts:
        assert attempt.attributes["attempt"] == 0
        assert start.begin <= attempt.begin <= attempt.end <= start.end
        assert {span.name for span in traces.below(attempt)} >= {"Deploy", "Initialize"}
    assert (start.error, submission.error) == ("", "")
    assert {span.resource["firesteel.part"] for span in (submission, start)} == {"dispatcher", "jobmaster"}
    assert start.resource["service.name"] == "firesteel"
    assert {headers.get("x-key") for headers in traces.headers if headers.get("path") == "/v1/traces"} == {"abc"}


def test_spans_of_functions_are_below_those_of_their_attempts(watched: Cluster, traces: Receiver) -> None:
    (start,) = wait_until(lambda: traces.named("JobInitialization"), "the job's start is traced") or []
    maps = [span for span in attempts_below(traces, start) if "look" in span.attributes["vertex.name"]]
    assert len(maps) == 2
    for attempt in maps:
        (first, *_) = wait_until(lambda a=attempt: traces.below(a, "my work"), "a user's span is there") or []  # type: ignore[misc]
        assert first.resource["firesteel.part"] == "slot"
        assert first.attributes["attempt"] == attempt.attributes["attempt"]
        assert first.attributes["vertex.id"] == attempt.attributes["vertex.id"]
        assert [span.name for span in traces.below(first)] == ["a part of it"]


def test_taskmanagers_and_slots_trace_what_they_do_for_an_attempt(watched: Cluster, traces: Receiver) -> None:
    (start,) = wait_until(lambda: traces.named("JobInitialization"), "the job's start is traced") or []
    for attempt in attempts_below(traces, start):
        (deploy,) = traces.below(attempt, "Deploy")
        (initialize,) = traces.below(attempt, "Initialize")
        (handed,) = wait_until(lambda d=deploy: traces.below(d), "the TaskManager's span is there") or []  # type: ignore[misc]
        assert (handed.name, handed.resource["firesteel.part"]) == ("Hand over", "taskmanager")
        steps = wait_until(lambda i=initialize: traces.below(i, "Open"), "the slot's spans are there") or []  # type: ignore[misc]
        assert {span.resource["firesteel.part"] for span in steps} == {"slot"}
        for span in (handed, *steps):
            assert (
                span.attributes.items()
                >= {
                    name: attempt.attributes[name]
                    for name in ("job.id", "vertex.id", "vertex.name", "subtask", "attempt")
                }.items()
            )


def test_metrics_arrive_by_a_reporter_that_sends(watched: Cluster, traces: Receiver) -> None:
    task = "flink.taskmanager.job.task"

    def counted() -> bool:
        seen = traces.points_named(f"{task}.operator.numbers.seen")
        return bool(seen and seen[-1].value > 20)

    wait_until(counted, "what functions count is there")
    (job,) = watched.rest("GET", "/jobs/overview")[1]["jobs"]
    records = traces.points_named(f"{task}.numRecordsIn")
    assert {point.attributes["job_id"] for point in records} == {job["jid"]}
    assert all(point.is_sum and point.resource["firesteel.part"] == "taskmanager" for point in records)
    parts = {"numRunningJobs": "dispatcher", "job.uptime": "dispatcher", "taskSlotsTotal": "resourcemanager"}
    for name, part in parts.items():
        points = wait_until(lambda n=name: traces.points_named(f"flink.jobmanager.{n}"), f"{name} is there") or []  # type: ignore[misc]
        assert {point.resource["firesteel.part"] for point in points} == {part}
    assert not [point.name for point in traces.points if ".Status." in point.name], "they are excluded"
    mine = wait_until(lambda: traces.points_named("orders"), "a meter of the user is there") or []
    assert {point.resource["job.id"] for point in mine} == {job["jid"]}


def test_logs_arrive_from_services_and_functions(watched: Cluster, traces: Receiver) -> None:
    def logged() -> list[str]:
        return [record.span for record in list(traces.logs) if (record.logger, record.text) == ("of.the.user", "five")]

    spans = wait_until(logged, "a log record of a function is there") or []
    (start,) = wait_until(lambda: traces.named("JobInitialization"), "the job's start is traced") or []
    assert set(spans) <= {attempt.id for attempt in attempts_below(traces, start)}
    parts = {"dispatcher", "resourcemanager", "jobmaster", "taskmanager"}
    wait_until(lambda: {record.resource["firesteel.part"] for record in list(traces.logs)} == parts, "all services log")


def test_each_checkpoint_is_a_trace_with_its_phases(watched: Cluster, traces: Receiver) -> None:
    done = wait_until(lambda: traces.named("Checkpoint", checkpoint_status="COMPLETED"), "a checkpoint is traced") or []
    checkpoint = done[0]
    (start,) = traces.named("JobInitialization")
    assert (checkpoint.parent, checkpoint.links) == ("", [(start.trace, start.id)])
    wait_until(lambda: traces.below(checkpoint, "Commit"), "all of it is there")
    below = traces.below(checkpoint)
    subtasks = [span for span in below if span.name == "Subtask"]
    assert {span.name for span in below} == {"Trigger", "Subtask", "Completion", "Commit"}
    assert len(subtasks) == 4
    for subtask in subtasks:
        assert subtask.attributes.keys() >= {"job.id", "vertex.id", "vertex.name", "subtask", "attempt"}
        wait_until(lambda s=subtask: len(traces.below(s)) == 4, "its slot has told the phases")  # type: ignore[misc]
        phases = {span.name: span for span in traces.below(subtask)}
        assert {name: span.resource["firesteel.part"] for name, span in phases.items()} == {
            "StartDelay": "jobmaster", "Alignment": "slot", "Sync": "slot", "Async": "slot"
        }  # fmt: skip
        assert phases["Alignment"].end <= phases["Sync"].begin <= phases["Sync"].end <= phases["Async"].begin
        assert all(subtask.begin - 50 <= span.begin <= span.end <= subtask.end + 50 for span in phases.values())
        assert checkpoint.begin <= subtask.begin <= subtask.end <= checkpoint.end


def test_a_recovery_is_linked_to_what_was_before(watched: Cluster, traces: Receiver) -> None:
    (start,) = wait_until(lambda: traces.named("JobInitialization"), "the job's start is traced") or []
    wait_until(lambda: traces.named("Checkpoint", checkpoint_status="COMPLETED"), "a checkpoint is traced")
    (watched.folder / "break").touch()
    (recovery,) = wait_until(lambda: traces.named("Recovery"), "the recovery is traced") or []
    assert recovery.trace != start.trace
    assert recovery.attributes["failure.message"] == "broken on purpose"
    assert recovery.attributes["failure.class"].endswith("ValueError")
    assert recovery.events == ["first task is RUNNING"]
    assert recovery.error == ""
    number = recovery.attributes["checkpoint.id"]
    (checkpoint,) = traces.named("Checkpoint", checkpoint_id=number)
    assert recovery.links == [(start.trace, start.id), (checkpoint.trace, checkpoint.id)]
    wait_until(lambda: len(attempts_below(traces, recovery)) == 4, "its attempts are there")
    names = {span.name for span in traces.below(recovery)}
    assert names >= {"Cancelling", "Slots", "Deployment", "Attempt"}
    for attempt in attempts_below(traces, recovery):
        assert attempt.attributes["attempt"] > 0
        assert {span.name for span in traces.below(attempt)} >= {"Deploy", "Restore"}
    later = wait_until(
        lambda: [span for span in traces.named("Checkpoint") if span.links == [(recovery.trace, recovery.id)]],
        "checkpoints go on",
    )
    assert later

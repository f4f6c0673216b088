"""What a cluster shows of itself to others, while a job runs on it: metrics for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.integration.processes.cluster import Cluster, free_ports, running_cluster, wait_until

PROGRAM = """
from firesteel.common import WatermarkStrategy
from firesteel.datastream import MapFunction, RuntimeContext, StreamExecutionEnvironment
from firesteel.datastream.connectors.data_generator import DataGeneratorSource, RateLimiterStrategy


class Measures(MapFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        group = runtime_context.get_metrics_group().add_group("numbers")
        self.seen, self.marks, self.sizes = group.counter("seen"), group.meter("rate"), group.distribution("size")
        group.gauge("answer", lambda: 42)

    def map(self, value: int) -> int:
        self.seen.inc()
        self.marks.mark_event()
        self.sizes.update(value % 10)
        return value


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
def watched(ports: tuple[int, int]) -> Iterator[Cluster]:
    """A cluster that runs a job in two slots and takes checkpoints."""
    options = {
        "metrics.reporter.prom.factory.class": "org.apache.flink.metrics.prometheus.PrometheusReporterFactory",
        "taskmanager.rpc.port": ports[0],
        "execution.checkpointing.interval": "300 ms",
    }
    with running_cluster(options=options) as cluster:
        program = cluster.folder / "program.py"
        program.write_text(PROGRAM)
        done = cluster.firesteel("run", "-d", "-p", "2", str(program))
        assert done.returncode == 0, done.stdout + done.stderr + cluster.logs()
        yield cluster


def values_at(address: str) -> Values:
    """Name -> labels and values."""
    found: Values = {}
    with urlopen(f"{address}/metrics", timeout=20) as answer:
        for family in text_string_to_metric_families(answer.read().decode()):
            for sample in family.samples:
                found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


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


def test_the_resourcemanager_shows_slots(watched: Cluster) -> None:
    values = values_at(watched.the("resourcemanager").address)
    assert {name: values[f"flink_jobmanager_{name}"][0][1] for name in SLOTS} == SLOTS

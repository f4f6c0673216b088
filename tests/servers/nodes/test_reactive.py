"""Reactive mode with the chart on a real Kubernetes: an exactly-once job takes the TaskManagers that there are, while
``kubectl scale`` and a HorizontalPodAutoscaler make them come and go."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.servers.conftest import tell
from tests.servers.nodes.cluster import KubernetesCluster
from tests.servers.nodes.conftest import ON_NODES, ensured
from tests.servers.nodes.counting import COUNTS, JOB, PROGRAM, Standing
from tests.servers.nodes.deployed import until
from tests.servers.nodes.metrics import ENSURE, MetricsServer
from tests.servers.nodes.release import Release
from tests.servers.nodes.store import BUCKET, Store
from tests.servers.nodes.test_releases import SMALL, values

pytestmark = ON_NODES
REACTIVE = {
    "scheduler-mode": "reactive",
    "jobmanager.adaptive-scheduler.executing.cooldown-after-rescaling": "3 s",
    "jobmanager.adaptive-scheduler.executing.resource-stabilization-timeout": "2 s",
}
IDLE, BUSY = 5_000, 30_000
LOADED = (
    COUNTS
    + f"""
import time


class Loaded(Count):
    def process_element(self, number, context):
        end = time.thread_time() + (0.005 if {IDLE} <= number < {BUSY} else 0)
        while time.thread_time() < end:
            pass
        yield from super().process_element(number, context)


"""
    + JOB.replace("Count()", "Loaded()").replace("set_parallelism(1)", "force_non_parallel()")
)
"""Between two of the numbers, each takes 5 ms of a processor; one subtask makes them."""


@contextmanager
def application(
    cluster: KubernetesCluster, store: Store, helm: Path, folder: Path, name: str, program: str, **taskmanagers: Any
) -> Iterator[tuple[Release, Standing]]:
    """A release that runs the job in reactive mode."""
    out = f"counting-{secrets.token_hex(4)}"
    chart_values = values(
        mode="application",
        application={
            "cpu": SMALL, "program": "counting.py", "files": {"counting.py": program},
            "arguments": [f"s3://{BUCKET}/{out}"],
        },
        taskManager={"cpu": SMALL, **taskmanagers},
    )  # fmt: skip
    chart_values["config"].update(REACTIVE)
    reactive_release = Release(cluster, helm, folder, chart_values, name=name)
    store.credentials(name)
    reactive_release.install()
    try:
        job = Standing(reactive_release, store, out)
        yield reactive_release, job
    except BaseException:
        print(reactive_release.state())
        raise
    finally:
        reactive_release.helm("uninstall", name, "--wait", check=False)


def test_a_job_takes_all_taskmanagers_while_they_are_scaled(
    cluster: KubernetesCluster, store: Store, helm: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with application(cluster, store, helm, tmp_path, "reactive", PROGRAM, replicas=1) as (release, job):
        job.runs_with(1)
        for count in (4, 2):
            before, began = job.parallelism, time.monotonic()
            release.kubectl("scale", "deployment", f"{release.full}-taskmanager", f"--replicas={count}")
            release.wait_ready("taskmanager", count)
            ready = time.monotonic() - began
            job.runs_with(count)
            flows = job.flows_after(began)
            tell(
                request,
                f"reactive, {before} -> {count} TaskManagers: {ready:.1f} s until pods are ready, {flows:.1f} s from "
                f"kubectl scale to records flowing in {count} slots",
            )
            job.goes_on()
        causes = [rescale["triggerCause"] for rescale in release.rest("GET", f"/jobs/{job.job}/rescales/history")[1]]
        assert {"INITIAL_SCHEDULE", "NEW_RESOURCE_AVAILABLE", "RECOVERABLE_FAILOVER"} <= set(causes), causes
        assert job.now()["schedulerType"] == "Adaptive"
        tell(request, f"reactive, scaled: {job.stop()} records, each once")


@pytest.fixture
def metrics(cluster: KubernetesCluster, tmp_path: Path) -> Iterator[MetricsServer]:
    """It knows what nodes use."""
    metrics_server = MetricsServer(cluster, ensured(ENSURE), tmp_path)
    try:
        metrics_server.start()
        yield metrics_server
    finally:
        metrics_server.close()


def test_a_job_under_load_gets_taskmanagers_from_an_autoscaler(
    cluster: KubernetesCluster, store: Store, helm: Path, tmp_path: Path, metrics: MetricsServer,
    request: pytest.FixtureRequest,
) -> None:  # fmt: skip
    """The chart's own metric, 75 % of what a pod requests, and a pause before it takes pods away that suits a test."""
    autoscaling = {
        "enabled": True,
        "maxReplicas": 3,
        "behavior": {"scaleDown": {"stabilizationWindowSeconds": 20}},
    }
    request_of_each = {"request": "700m", "limit": ""}
    with application(cluster, store, helm, tmp_path, "auto", LOADED, autoscaling=autoscaling, cpu=request_of_each) as (
        release,
        job,
    ):

        def seen() -> str:
            scaler = release.kubectl("get", "hpa", check=False).stdout
            return f"{scaler}\n{metrics.usage(release.name)}\n{metrics.state()}"

        began = time.monotonic()
        until(lambda: job.parallelism >= 2, lambda: f"more TaskManagers are used: {seen()}", 400)
        tell(request, f"reactive, autoscaler: a second slot is used {time.monotonic() - began:.1f} s after the begin")
        most = job.parallelism

        def again() -> bool:
            nonlocal most
            most = max(most, job.parallelism)
            return job.parallelism == 1

        until(again, lambda: f"one TaskManager is left when the load is over: {seen()}", 900)
        tell(request, f"reactive, autoscaler: 1 -> {most} -> 1 slots, {time.monotonic() - began:.1f} s in all")
        job.goes_on()
        total = job.stop()
        assert total > BUSY, "the load was over"
        tell(request, f"reactive, autoscaler: {total} records, each once")

"""Flink's own Java client (``RestClusterClient`` of 2.3) parses our answers, and does what it does with Flink.

All answers for which Flink has classes are read by these classes. Submitting is no use: it sends a plan of Java.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from firesteel.client import embedded
from firesteel.common import WatermarkStrategy
from firesteel.datastream import MapFunction, RuntimeContext
from firesteel.datastream.connectors.data_generator import DataGeneratorSource, RateLimiterStrategy
from tests.integration.embedded.programs import new_environment, rest_of, until

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(900),
    pytest.mark.may_skip(reason="Flink's client needs Maven, and a Java compiler"),
]
ENSURE = Path(__file__).parent / "ensure-flink-client.sh"
IMPOSSIBLE = 3
BY_CALLS = {
    "listJobs": "GET /jobs/overview",
    "getAccumulators": "GET /jobs/:jobid/accumulators",
    "reportHeartbeat": "PATCH /jobs/:jobid/clientHeartbeat",
    "triggerCheckpoint": "POST /jobs/:jobid/checkpoints, GET /jobs/:jobid/checkpoints/:triggerid",
    "triggerSavepoint": "POST /jobs/:jobid/savepoints, GET /jobs/:jobid/savepoints/:triggerid",
    "disposeSavepoint": "POST /savepoint-disposal, GET /savepoint-disposal/:triggerid",
    "stopWithSavepoint": "POST /jobs/:jobid/stop",
    "requestJobResult": "GET /jobs/:jobid/execution-result",
    "cancel": "PATCH /jobs/:jobid",
}
"""What the client's methods ask for, that reading alone does not."""
NOT_ASKED = {
    "GET /jobs/:jobid/checkpoints/:triggerid",
    "GET /jobs/:jobid/savepoints/:triggerid",
    "GET /savepoint-disposal/:triggerid",
    "GET /jobs/:jobid/rescaling/:triggerid",
    "GET /jobs/:jobid/rescales/details/:rescaleuuid",
}
"""They need the id of something that was begun: the client's own methods read the first three."""


@pytest.fixture(scope="module")
def jars() -> Path:
    done = subprocess.run(["sh", str(ENSURE)], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode == IMPOSSIBLE:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stdout + done.stderr
    return Path(done.stdout.strip().splitlines()[-1])


class Counts(MapFunction[Any, Any]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen = runtime_context.get_metrics_group().counter("seen")

    def map(self, value: Any) -> Any:
        self.seen.inc()
        return value


def endless(folder: Path, name: str) -> Any:
    env = new_environment(
        2,
        taskmanager__numberOfTaskSlots="4",
        execution__checkpointing__interval="500 ms",
        web__checkpoints__history="1000",  # the one that is read stays, however long the client takes to start
        execution__checkpointing__dir=f"file://{folder}/checkpoints",
    )
    source = DataGeneratorSource(lambda number: number, None, RateLimiterStrategy(100.0))
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    numbers.key_by(lambda number: number % 7).map(Counts()).name("counts").filter(lambda number: number < 0).print()
    return env.execute_async(name)


@pytest.fixture(scope="module")
def said(jars: Path) -> Iterator[dict[str, tuple[str, str]]]:
    """What was tried -> whether it went well, and what came of it."""
    with tempfile.TemporaryDirectory(prefix="firesteel-flink-client-") as name:
        folder = Path(name)
        try:
            jobs = [endless(folder, "first"), endless(folder, "second")]
            until(lambda: all(rest_of(job, "/checkpoints")["counts"]["completed"] for job in jobs), "checkpoints", 240)
            cluster = embedded._shared._cluster
            assert cluster is not None
            host, _, port = jobs[0].get_web_interface_url().rpartition("/")[2].partition(":")
            first = str(jobs[0].get_job_id())
            parts = {
                "jobid": first,
                "applicationid": first,
                "vertexid": rest_of(jobs[0])["vertices"][1]["id"],
                "subtaskindex": 0,
                "attempt": 0,
                "checkpointid": rest_of(jobs[0], "/checkpoints")["latest"]["completed"]["id"],
                "taskmanagerid": "embedded",
            }
            command = [
                "java", "-cp", f"{jars}:{jars}/*", "FlinkClient", host, port, first, str(jobs[1].get_job_id()),
                f"file://{folder}/savepoints", str(next(jars.glob("flink-runtime-*.jar"))),
                *(f"{key}={value}" for key, value in parts.items()),
            ]  # fmt: skip
            environment = {**os.environ, "FLINK_REST_CLIENT_HEADERS": f"Authorization:Bearer {cluster.rest_token}"}
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=400, env=environment, stdin=subprocess.DEVNULL
            )
            lines = [line.split("\t", 2) for line in done.stdout.splitlines() if line.count("\t") >= 2]
            assert lines, done.stdout + done.stderr
            yield {what: (result, text) for result, what, text in lines}
        finally:
            embedded.stop_embedded_cluster()


def test_what_the_client_does_is_done(said: dict[str, tuple[str, str]]) -> None:
    calls = {what: answers for what, answers in said.items() if not what.startswith("GET ")}
    refused = {what: text for what, (result, text) in calls.items() if result != "ok"}
    assert set(refused) == {"triggerSavepoint of the cancelled", "getJobStatus of nobody"}, refused
    assert "has ended (CANCELED)" in refused["triggerSavepoint of the cancelled"]
    assert "not found" in refused["getJobStatus of nobody"]
    assert {what: calls[what][1] for what in calls if "Status" in what or "Result" in what} == {
        "getJobStatus": "RUNNING",
        "getJobStatus of the stopped": "FINISHED",
        "requestJobResult": "FINISHED",
        "requestJobResult of the cancelled": "CANCELED",
        "getJobStatus of nobody": refused["getJobStatus of nobody"],
    }
    assert calls["getJobDetails"][1] == "first"
    assert calls["getAccumulators"][1] == "[]", "the client takes those that are serialised by Java, and no others"
    assert "/savepoints/savepoint-" in calls["stopWithSavepoint"][1]
    assert set(BY_CALLS) <= set(calls)


def test_all_answers_that_flink_has_classes_for_are_parsed(said: dict[str, tuple[str, str]]) -> None:
    reads = {what: answers for what, answers in said.items() if what.startswith("GET ")}
    assert {what: text for what, (result, text) in reads.items() if result != "ok"} == {}
    not_asked = {what for what, (_, text) in reads.items() if text.startswith("not asked")}
    assert not_asked <= NOT_ASKED
    assert len(reads) - len(not_asked) >= 45
    paths = {path for text in BY_CALLS.values() for path in text.split(", ")} | (set(reads) - not_asked)
    print(f"\nFlink's client has read {len(paths)} of 97 paths:", *sorted(paths), sep="\n")

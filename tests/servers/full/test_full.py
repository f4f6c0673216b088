"""The profile "full" with images that are made here: everything is filled, and output is exact whatever happens."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.ports import free_ports
from tests.servers.compose_cluster import BASE_IMAGE, PATIENCE, SERVICES, ComposeCluster, Container, command, until
from tests.servers.conftest import OPTIONS, SLOTS
from tests.servers.full.test_files import FULL
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.long,
    pytest.mark.exact,
    pytest.mark.timeout(1800),
    pytest.mark.may_skip(reason="a machine where no Docker engine, no Go or no Prometheus can be had"),
]
STARTED = ("minio", "prometheus", "collector", "prepare", "historyserver", *SERVICES)
"""Kafka, Grafana and Jaeger are only to be had as public images."""
NUMBERS, KEYS = 60_000, 50
PROGRAM = """
import sys

from opentelemetry import metrics

from firesteel.common import Encoder, Types, WatermarkStrategy
from firesteel.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from firesteel.datastream.connectors.data_generator import DataGeneratorSource, RateLimiterStrategy
from firesteel.datastream.connectors.file_system import BucketAssigner, FileSink
from firesteel.datastream.state import ValueStateDescriptor


class Counts(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.LONG()))
        self.orders = metrics.get_meter("mine").create_counter("orders")

    def process_element(self, value, ctx):
        seen = (self.seen.value() or 0) + 1
        self.seen.update(seen)
        self.orders.add(1)
        yield f"{value % KEYS} {seen}"


NUMBERS, KEYS, RATE = map(int, sys.argv[1:])
env = StreamExecutionEnvironment.get_execution_environment()
source = DataGeneratorSource(lambda i: i, NUMBERS, RateLimiterStrategy.per_second(RATE))
sink = FileSink.for_row_format("/output", Encoder.simple_string_encoder())
sink = sink.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner()).build()
numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
numbers.key_by(lambda i: i % KEYS).process(Counts()).sink_to(sink)
env.execute("counts")
"""


def built(name: str, lines: str, *files: Path) -> str:
    """An image of a few files; returns its name."""
    folder = Path(tempfile.mkdtemp(prefix="image"))
    try:
        for file in files:
            shutil.copy2(file, folder)
        (folder / "Dockerfile").write_text(lines)
        command("docker", "build", "--quiet", "--tag", name, str(folder))
    finally:
        shutil.rmtree(folder)
    return name


@pytest.fixture(scope="module")
def full(engine: None, image: str, minio_program: Path, prometheus: Path) -> Iterator[ComposeCluster]:
    """The cluster; its output is in a folder of the host."""
    tag = image.rpartition(":")[2]
    images = {
        "minio": built(
            f"firesteel-test/minio:{tag}",
            f'FROM {BASE_IMAGE}\nCOPY {minio_program.name} /usr/bin/minio\nENTRYPOINT ["/usr/bin/minio"]\n',
            minio_program,
        ),
        "prometheus": built(
            f"firesteel-test/prometheus:{tag}",
            f'FROM {BASE_IMAGE}\nCOPY prometheus /bin/prometheus\nENTRYPOINT ["/bin/prometheus"]\n',
            prometheus / "prometheus",
        ),
        "collector": built(
            f"firesteel-test/collector:{tag}",
            f'FROM {image}\nCOPY receiver.py /receiver.py\nENTRYPOINT ["python3", "/receiver.py"]\n',
            Path(__file__).parent / "receiver.py",
        ),
    }
    ports = dict(zip(("PROMETHEUS", "MINIO", "HISTORY"), free_ports(3), strict=True))
    cluster = ComposeCluster(
        image,
        {**OPTIONS, "execution.checkpointing.interval": "500 ms", "restart-strategy.type": "fixed-delay",
         "restart-strategy.fixed-delay.attempts": "100", "restart-strategy.fixed-delay.delay": "100 ms"},
        variables={
            "COMPOSE_PROFILES": "full",
            **{f"FIRESTEEL_{name.upper()}_IMAGE": image for name, image in images.items()},
            **{f"FIRESTEEL_{name}_PORT": str(port) for name, port in ports.items()},
        },
        folders={"jobmaster": "/output", "taskmanager": "/output"},
    )  # fmt: skip
    try:
        began = time.monotonic()
        cluster.up(*STARTED)
        print(f"docker compose --profile full up took {time.monotonic() - began:.1f} s")
        cluster.ports = ports
        yield cluster
    finally:
        print(cluster.logs())
        cluster.close()
        for built_image in images.values():
            command("docker", "image", "rm", "--force", built_image, check=False)


def answer_of(url: str) -> Any:
    """JSON; nothing while nobody answers."""
    with suppress(OSError, ValueError):
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)
    return None


class Counting:
    """The job."""

    def __init__(self, cluster: ComposeCluster, numbers: int, rate: int) -> None:
        self.cluster, self.numbers, self.seconds = cluster, numbers, numbers / rate
        for file in cluster.output.iterdir():
            file.unlink()
        file = cluster.folder / "counts.py"
        file.write_text(PROGRAM)
        done = cluster.firesteel("run", "-d", "-p", "2", str(file), str(numbers), str(KEYS), str(rate))
        assert done.returncode == 0, done.stdout + done.stderr
        (self.job,) = [job["jid"] for job in cluster.ask("/jobs/overview")["jobs"] if job["end-time"] < 0]

    def checkpoints(self) -> int:
        counts = self.cluster.ask(f"/jobs/{self.job}/checkpoints").get("counts", {})
        return int(counts.get("completed", 0))

    def goes_on(self) -> None:
        """More checkpoints are complete."""
        before = until(lambda: self.checkpoints() or None, "checkpoints are complete")
        until(lambda: self.checkpoints() > before + 1, "checkpoints go on")

    def is_over(self) -> bool:
        state = self.cluster.ask(f"/jobs/{self.job}").get("state")
        assert state not in ("FAILED", "CANCELED"), self.cluster.ask(f"/jobs/{self.job}/exceptions")
        return state == "FINISHED"

    def ends_exactly(self) -> None:
        """It ends, and each number was counted once."""
        wait_until(self.is_over, "the job ends", self.seconds + PATIENCE)
        lines = Counter(
            line for file in self.cluster.output.iterdir() if not file.name.startswith(".")
            for line in file.read_text().splitlines()
        )  # fmt: skip
        each = self.numbers // KEYS
        assert lines == Counter(f"{key} {count}" for key in range(KEYS) for count in range(1, each + 1))


def test_everything_is_filled(full: ComposeCluster) -> None:
    job = Counting(full, 200 * KEYS, 300)
    job.goes_on()
    checkpoints = command("docker", "exec", full.the("minio").id, "ls", f"/data/checkpoints/firesteel/{job.job}").stdout
    assert "chk-" in checkpoints
    query = f"http://127.0.0.1:{full.ports['PROMETHEUS']}/api/v1/query?query="

    def all_are_up() -> bool:
        samples = (answer_of(f"{query}up") or {}).get("data", {}).get("result", [])
        return len(samples) == 5 and {sample["value"][1] for sample in samples} == {"1"}

    until(all_are_up, "Prometheus reads all services and the collector")

    def shows(expression: str, may_be_empty: bool) -> bool:
        answer = answer_of(query + urllib.parse.quote(expression.replace("$job", ".*")))
        return bool(answer and answer["status"] == "success" and (may_be_empty or answer["data"]["result"]))

    for panel in json.loads((FULL / "grafana" / "dashboards" / "firesteel.json").read_text())["panels"]:
        title, has_no_times = str(panel["title"]), panel["title"] == "Watermark lag"
        for target in panel["targets"]:
            until(lambda e=target["expr"], n=has_no_times: shows(e, n), f"the board shows {title}")  # type: ignore[misc]

    def seen() -> dict[str, Any]:
        done = command(
            "docker", "exec", full.the("collector").id, "python3", "-c",
            "import urllib.request as r; print(r.urlopen('http://127.0.0.1:4318/seen').read().decode())", check=False,
        )  # fmt: skip
        return dict(json.loads(done.stdout or "{}"))

    until(
        lambda: {"Submission", "JobInitialization", "Checkpoint", "Async"} <= set(seen().get("/v1/traces", {})),
        "traces",
    )
    until(lambda: seen().get("/v1/metrics", {}).get("orders") == ["slot"], "meters of functions")
    assert set(seen()["/v1/metrics"]) == {"orders"}, "Prometheus reads the others"
    until(lambda: {part for parts in seen().get("/v1/logs", {}).values() for part in parts} >= set(SERVICES), "logs")
    job.ends_exactly()
    history = f"http://127.0.0.1:{full.ports['HISTORY']}/jobs/{job.job}"
    until(lambda: (answer_of(history) or {}).get("state") == "FINISHED", "the history server shows it")


def test_output_is_exact_whatever_happens_to_services(full: ComposeCluster) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can kill processes of a container")
    job = Counting(full, NUMBERS, 200)
    job.goes_on()
    for name in SERVICES:
        for disturb in (Container.crash, Container.restart, paused):
            print(f"{disturb.__name__}: {name}")
            disturb(full.the(name))
            until(lambda: full.the(name).is_healthy(), f"{name} is healthy again")  # noqa: B023
            job.goes_on()
            assert not job.is_over(), "it has to last until all is done"
    full.up("--scale", "taskmanager=2", *STARTED)
    full.wait_slots(2 * SLOTS, available=SLOTS)
    first = full.all("taskmanager")
    job.goes_on()
    full.up("--scale", "taskmanager=1", *STARTED)
    assert len(full.all("taskmanager")) == 1
    job.goes_on()
    assert len(first) == 2
    job.ends_exactly()


def paused(container: Container) -> None:
    """It stands still for a moment."""
    with container.paused():
        time.sleep(3)

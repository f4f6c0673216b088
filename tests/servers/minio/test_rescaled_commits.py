"""A job is rescaled while the parts of its last checkpoint wait to be shown in an object store."""

from __future__ import annotations

import json
import signal
from collections import Counter

import pytest

from tests.integration.processes.cluster import Cluster, ServiceProcess, wait_until
from tests.integration.processes.test_reactive import OPTIONS, Reactive
from tests.servers.minio.server import BUCKET, MinioServer

pytestmark = [
    pytest.mark.long,
    pytest.mark.exact,
    pytest.mark.timeout(600),
    pytest.mark.may_skip(reason="a machine where no MinIO can be built"),
]
KEYS = 16
PROGRAM = f"""
import sys, time

from firesteel.common import Encoder, Types, WatermarkStrategy
from firesteel.connectors.file_committer import FileCommitter
from firesteel.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from firesteel.datastream.connectors.data_generator import DataGeneratorSource, RateLimiterStrategy
from firesteel.datastream.connectors.file_system import FileSink, RollingPolicy
from firesteel.datastream.state import ValueStateDescriptor

at_once = FileCommitter._commit_all


def slowly(self, committables, *, again):
    if committables:
        time.sleep(2.5)  # longer than other subtasks take to open their writers
    return at_once(self, committables, again=again)


class Count(KeyedProcessFunction):
    def open(self, context):
        self.count = context.get_state(ValueStateDescriptor("count", Types.LONG()))
        FileCommitter._commit_all = slowly

    def process_element(self, number, context):
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield f"{{number}} {{count}}"


env = StreamExecutionEnvironment.get_execution_environment()
source = DataGeneratorSource(lambda i: i, 10**12, RateLimiterStrategy.per_second(500), Types.LONG())
numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").force_non_parallel()
counted = numbers.key_by(lambda i: i % {KEYS}, Types.LONG()).process(Count(), Types.STRING())
files = FileSink.for_row_format(sys.argv[1], Encoder.simple_string_encoder())
counted.sink_to(files.with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy()).build())
env.execute("slowly committed")
"""


class SlowlyCommitted(Reactive):
    """An application whose sink takes its time to show what it has written."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        program = cluster.folder / "program.py"
        program.write_text(PROGRAM)
        words = json.dumps([f"s3://{BUCKET}/out"])
        arguments = ["--python", str(program), "-D", f"firesteel.application.arguments={words}"]
        self.master = ServiceProcess(
            "standalone-job", arguments, cluster.folder / "standalone-job", cluster.environment()
        )
        cluster.services.append(self.master)

    def counts_in(self, slots: int) -> None:
        """Wait until the counting vertex has so many subtasks that run, and checkpoints go on."""

        def runs() -> bool:
            job = self.job()
            assert job.get("state") not in ("FAILED", "FINISHED"), job
            vertices = job.get("vertices", [])
            return bool(vertices) and vertices[-1]["tasks"]["RUNNING"] == slots

        wait_until(runs, f"{slots} subtasks count", 240.0)
        self.more_checkpoints()


def test_nothing_of_a_checkpoint_is_lost_when_a_job_is_rescaled_before_it_is_shown(minio: MinioServer) -> None:
    interval = {"execution.checkpointing.interval": "1 s"}
    cluster = Cluster(slots=1, options={**OPTIONS, **minio.settings(), **interval})
    try:
        job = SlowlyCommitted(cluster)
        cluster.launch("taskmanager")
        for slots in (1, 2, 3):
            job.counts_in(slots)
            if slots < 3:
                cluster.launch("taskmanager")
        cluster.services[-1].signal(signal.SIGTERM)
        job.counts_in(2)
        stopped = cluster.firesteel("stop", "-p", str(cluster.folder / "savepoints"), job.job()["jid"])
        assert stopped.returncode == 0, stopped.stderr
        assert job.master.wait() == 0, job.master.log()
    finally:
        cluster.close()
    client, lines = minio.client(), Counter[str]()
    for object_ in client.list_objects(BUCKET, "out/", recursive=True):
        assert object_.object_name is not None
        if "/_" not in object_.object_name:
            lines.update(client.get_object(BUCKET, object_.object_name).read().decode().splitlines())
    expected = Counter(f"{n} {n // KEYS + 1}" for n in range(lines.total()))
    assert lines == expected, f"{(expected - lines).total()} are lost, {(lines - expected).total()} too many"
    assert lines.total() > 1000

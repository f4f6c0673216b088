"""Checkpoints over REST and by the command line, and a job that goes on from a retained one."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tests.integration.client.conftest import Remote, folder
from tests.integration.client.test_run import command, job_id_in
from tests.integration.embedded.programs import until

__all__ = ["folder"]
COUNT = """
import sys
from firesteel.common import Types, WatermarkStrategy
from firesteel.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from firesteel.datastream.connectors.data_generator import DataGeneratorSource
from firesteel.datastream.connectors.data_generator import RateLimiterStrategy
from firesteel.datastream.state import ValueStateDescriptor


class Count(KeyedProcessFunction):
    def open(self, context):
        self.seen = context.get_state(ValueStateDescriptor("seen", Types.LONG()))

    def process_element(self, value, ctx):
        before = self.seen.value() or 0
        self.seen.update(before + 1)
        if before + 1 != value + 1:
            raise AssertionError(f"record {value} finds {before} before it")


env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
source = DataGeneratorSource(lambda i: i, 10**9, RateLimiterStrategy.per_second(2000), Types.LONG())
numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
numbers.key_by(lambda i: 0).process(Count(), Types.LONG()).uid(sys.argv[1]).print()
env.execute("counting")
"""


def _post(remote: Remote, path: str, body: Any) -> tuple[int, Any]:
    rest = remote.cluster.rest
    assert rest is not None
    status, answer, _ = remote.cluster.loop.run(rest._request("POST", path, json_body=body), timeout=30)
    return status, json.loads(answer)


def test_a_checkpoint_by_hand_is_retained_and_another_job_goes_on_from_it(
    folder: Path, remote: Remote, tmp_path: Path
) -> None:
    (folder / "program.py").write_text(COUNT)
    keep = [
        f"-Dexecution.checkpointing.dir={tmp_path}",
        "-Dexecution.checkpointing.externalized-checkpoint-retention=RETAIN_ON_CANCELLATION",
    ]
    with command(folder, "run", "-d", *keep, *remote.options, "program.py", "count") as run:
        assert run.end() == 0, run.err
    job = job_id_in(run.out)
    try:
        remote.until_state(job, "RUNNING")
        until(lambda: remote.get(f"/jobs/{job}")["vertices"][-1]["status"] == "RUNNING", "all tasks run", 30)
        with command(folder, "checkpoint", *remote.options, job) as taken:
            assert taken.end() == 0, taken.err
        found = re.search(rf"Checkpoint (\d+) for job {job} successfully completed: (\S+)$", taken.out, re.MULTILINE)
        assert found is not None, taken.out
        assert Path(found[2]) == tmp_path / job / f"chk-{found[1]}" / "_metadata"
        overview = remote.get(f"/jobs/{job}/checkpoints")
        assert overview["counts"]["completed"] == 1
        assert overview["latest"]["completed"]["external_path"] == found[2]
        vertex = remote.get(f"/jobs/{job}")["vertices"][-1]["id"]
        details = remote.get(f"/jobs/{job}/checkpoints/details/{found[1]}/subtasks/{vertex}")
        assert [subtask["status"] for subtask in details["subtasks"]] == ["completed"]
        assert remote.get(f"/jobs/{job}/checkpoints/config")["checkpoint_storage"] == "filesystem"
        (completed,) = remote.get(f"/jobs/{job}/metrics?get=numberOfCompletedCheckpoints")
        assert completed["value"] == "1"
        assert _post(remote, f"/jobs/{job}/checkpoints", {"checkpointType": "x"})[0] == 400
        assert _post(remote, f"/jobs/{job}/checkpoints", [])[0] == 400
        assert _post(remote, f"/jobs/{'0' * 32}/checkpoints", {})[0] == 404
    finally:
        remote.cancel(job)
    assert _post(remote, f"/jobs/{job}/checkpoints", {})[0] == 409
    path = str(Path(found[2]).parent)
    with command(folder, "run", "-d", "-s", path, *keep, *remote.options, "program.py", "other") as refused:
        refused.end()
    other = job_id_in(refused.out)
    remote.until_state(other, "FAILED")
    assert (
        "has state of operators that the job does not have" in remote.get(f"/jobs/{other}/exceptions")["root-exception"]
    )
    with command(folder, "run", "-d", "-s", path, *keep, *remote.options, "program.py", "count") as again:
        assert again.end() == 0, again.err
    second = job_id_in(again.out)
    try:
        until(lambda: remote.get(f"/jobs/{second}/checkpoints")["latest"]["restored"] is not None, "restored", 30)
        until(lambda: remote.get(f"/jobs/{second}")["vertices"][-1]["metrics"]["read-records"] > 0, "records come", 30)
        assert remote.get(f"/jobs/{second}/status")["status"] == "RUNNING"  # no record was lost or doubled
    finally:
        remote.cancel(second)
    assert Path(found[2]).exists()


def test_what_is_no_checkpoint_fails_the_job_and_the_command_by_name(
    folder: Path, remote: Remote, tmp_path: Path
) -> None:
    (folder / "program.py").write_text(COUNT)
    flink = tmp_path / "chk-3"
    flink.mkdir()
    (flink / "_metadata").write_bytes(bytes.fromhex("4960672d00000004") + bytes(50))
    with command(folder, "run", "-s", str(flink), *remote.options, "program.py", "count") as refused:
        assert refused.end() == 1
    told = f"{flink}/_metadata: it was written by Apache Flink, whose state Firesteel can't read"
    assert told in refused.err, refused.err
    job = job_id_in(refused.out + refused.err)
    assert remote.get(f"/jobs/{job}")["state"] == "FAILED"
    exceptions = remote.get(f"/jobs/{job}/exceptions")
    assert told in exceptions["root-exception"]
    assert "execution.state-recovery.path, -s" in exceptions["root-exception"]
    assert [path.name for path in flink.iterdir()] == ["_metadata"]

"""Checkpoints over REST and by the command line, and a job that goes on from a retained one."""

from __future__ import annotations

import json
import re
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from firesteel.client.cli.main import main
from tests.integration.client.conftest import Remote, folder
from tests.integration.client.history_server import history_server
from tests.integration.client.test_run import command, job_id_in
from tests.integration.embedded.programs import until

__all__ = ["folder"]
COUNT = """
import logging
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
        if value % 500 == 0:
            logging.getLogger("counting.test").debug("at %d", value)
        if before + 1 != value + 1:
            raise AssertionError(f"record {value} finds {before} before it")


env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
source = DataGeneratorSource(lambda i: i, 10**9, RateLimiterStrategy.per_second(500), Types.LONG())
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
        with command(folder, "checkpoint", *remote.options, job) as checkpoint:
            assert checkpoint.end() == 0, checkpoint.err
        match = re.search(
            rf"Checkpoint (\d+) for job {job} successfully completed: (\S+)$", checkpoint.out, re.MULTILINE
        )
        assert match is not None, checkpoint.out
        assert Path(match[2]) == tmp_path / job / f"chk-{match[1]}" / "_metadata"
        overview = remote.get(f"/jobs/{job}/checkpoints")
        assert overview["counts"]["completed"] == 1
        assert overview["latest"]["completed"]["external_path"] == match[2]
        vertex = remote.get(f"/jobs/{job}")["vertices"][-1]["id"]
        details = remote.get(f"/jobs/{job}/checkpoints/details/{match[1]}/subtasks/{vertex}")
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
    path = str(Path(match[2]).parent)
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
    assert Path(match[2]).exists()


def test_what_is_no_checkpoint_fails_the_job_and_the_command_by_name(
    folder: Path, remote: Remote, tmp_path: Path
) -> None:
    (folder / "program.py").write_text(COUNT)
    flink = tmp_path / "chk-3"
    flink.mkdir()
    (flink / "_metadata").write_bytes(bytes.fromhex("4960672d00000004") + bytes(50))
    with command(folder, "run", "-s", str(flink), *remote.options, "program.py", "count") as refused:
        assert refused.end() == 1
    message = f"{flink}/_metadata: it was written by Apache Flink, whose state Firesteel can't read"
    assert message in refused.err, refused.err
    job = job_id_in(refused.out + refused.err)
    assert remote.get(f"/jobs/{job}")["state"] == "FAILED"
    exceptions = remote.get(f"/jobs/{job}/exceptions")
    assert message in exceptions["root-exception"]
    assert "execution.state-recovery.path, -s" in exceptions["root-exception"]
    assert [path.name for path in flink.iterdir()] == ["_metadata"]


def _refused(url: str) -> int:
    """Status of a refusal; 200 if it was none."""
    answer = _read(url)
    return int(answer[0]) if isinstance(answer, tuple) else 200


def _read(url: str) -> Any:
    """JSON of an answer; of a refusal its status and text."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=30) as answer:
            return json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())["errors"][0]


def test_a_history_server_shows_what_the_dispatcher_showed(folder: Path, remote: Remote, tmp_path: Path) -> None:
    (folder / "program.py").write_text(COUNT)
    with command(
        folder, "run", "-d", f"-Dexecution.checkpointing.dir={tmp_path / 'c'}", *remote.options, "program.py", "count"
    ) as run:
        assert run.end() == 0, run.err
    job = job_id_in(run.out)
    try:
        until(lambda: remote.get(f"/jobs/{job}")["vertices"][-1]["metrics"]["read-records"] > 0, "records come", 60)
        with command(folder, "checkpoint", "--json", *remote.options, job) as checkpoint:
            assert checkpoint.end() == 0, checkpoint.err
        number = json.loads(checkpoint.out)["checkpoint"]
    finally:
        remote.cancel(job)
    file = remote.archives / f"{job}.archive"
    until(file.exists, "the archive is written", 30)
    vertex = remote.get(f"/jobs/{job}")["vertices"][-1]["id"]
    of_vertex = f"/jobs/{job}/vertices/{vertex}"
    with history_server(remote.archives, folder) as (url, log):
        until(lambda: any(row["jid"] == job for row in _read(f"{url}/jobs/overview")["jobs"]), "it is shown", 30)
        for path in (
            f"/jobs/{job}", f"/jobs/{job}/status", f"/jobs/{job}/config", f"/jobs/{job}/plan",
            f"/jobs/{job}/exceptions", f"/jobs/{job}/execution-result", f"/jobs/{job}/metrics?get=numRestarts",
            f"/jobs/{job}/checkpoints", f"/jobs/{job}/checkpoints/config", f"/jobs/{job}/checkpoints/details/{number}",
            f"/jobs/{job}/checkpoints/details/{number}/subtasks/{vertex}", of_vertex,
            f"{of_vertex}/subtasks/metrics?get=numRecordsIn&agg=sum", f"{of_vertex}/subtasks/0",
            f"{of_vertex}/subtasks/0/metrics?get=numRecordsIn", f"{of_vertex}/metrics?get=0.numRecordsIn",
            f"{of_vertex}/subtasktimes", f"{of_vertex}/taskmanagers", f"{of_vertex}/watermarks",
            f"{of_vertex}/accumulators", f"{of_vertex}/subtasks/accumulators", f"{of_vertex}/backpressure",
            f"/jobs/{job}/accumulators", f"{of_vertex}/subtasks/0/attempts/0",
            f"{of_vertex}/subtasks/0/attempts/0/accumulators", f"/applications/{job}",
            f"/applications/{job}/exceptions",
            f"/jobs/{job}/rescales/overview", f"/jobs/{job}/rescales/history", f"/jobs/{job}/rescales/summary",
            f"/jobs/{job}/rescales/config",
        ):  # fmt: skip
            assert _read(url + path) == remote.get(path), path
            assert _read(f"{url}/v1{path}") == remote.get(path), path
        assert float(_read(f"{url}{of_vertex}/subtasks/metrics?get=numRecordsIn&agg=sum")[0]["sum"]) > 0
        (application,) = [row for row in _read(f"{url}/applications/overview")["applications"] if row["id"] == job]
        assert application in remote.get("/applications/overview")["applications"]
        environment = _read(f"{url}/jobs/{job}/jobmanager/environment")
        assert f"CPython {sys.version_info.major}.{sys.version_info.minor}" in environment["jvm"]["version"]
        shown = {row["key"]: row["value"] for row in _read(f"{url}/jobs/{job}/jobmanager/config")}
        assert shown["jobmanager.archive.fs.dir"] == str(remote.archives)
        assert _read(f"{url}/config")["features"]["web-history"] is True
        assert _refused(f"{url}/jobs/{'0' * 32}") == 404
        assert _refused(f"{url}/jobs/7") == 400
        assert _refused(f"{url}/applications/{'0' * 32}") == 404
        assert _refused(f"{url}/applications/7") == 400
        assert _refused(f"{url}/jobs/{job}/rescales/details/{'0' * 32}") == 404
        file.write_bytes(file.read_bytes()[:-7])
        until(lambda: _refused(f"{url}/jobs/{job}/status") == 500, "the damage is seen", 30)
        assert f"the archive of job {job} in {remote.archives} is damaged and left out" in log.read_text()
        assert all(row["jid"] != job for row in _read(f"{url}/jobs/overview")["jobs"])
        file.unlink()
        until(lambda: _refused(f"{url}/jobs/{job}/status") == 404, "it vanishes", 30)


def test_verbs_show_and_change_a_running_job(
    folder: Path, remote: Remote, tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    def answer_of(*words: str, code: int = 0) -> Any:
        capsys.readouterr()
        assert main([words[0], "--json", *remote.options, *words[1:]]) == code, capsys.readouterr().err
        return json.loads(capsys.readouterr().out)

    (folder / "program.py").write_text(COUNT)
    with command(folder, "run", "-d", "--json", *remote.options, "program.py", "count") as run:
        assert run.end() == 0, run.err
    (job,) = json.loads(run.out.splitlines()[-1])["jobs"]
    try:
        until(lambda: remote.get(f"/jobs/{job}")["vertices"][-1]["metrics"]["read-records"] > 0, "records come", 60)
        assert [row["jid"] for row in answer_of("list", "-r")["jobs"]] == [job]
        (shown,) = answer_of("top", job)["jobs"]
        assert (shown["id"], shown["state"], shown["restarts"]) == (job, "RUNNING", 0)
        assert [vertex["running"] for vertex in shown["vertices"]] == [1] * len(shown["vertices"])
        assert until(lambda: answer_of("top", job)["jobs"][0]["vertices"][-1]["records_in"], "a rate is known", 30) > 0
        assert main(["top", *remote.options]) == 0
        text = capsys.readouterr().out
        assert "counting" in text
        assert "BACKPRESSURED" in text

        processes = answer_of("loglevel", "counting.test", "DEBUG")["processes"]
        assert {row["process"].partition(" ")[0] for row in processes} == {
            "dispatcher", "resourcemanager", "jobmaster", "taskmanager",
        }  # fmt: skip
        assert all(row["levels"]["counting.test"] == "DEBUG" for row in processes)
        lines = until(
            lambda: [record for record in caplog.records if record.name == "counting.test"], "a slot logs", 30
        )
        about = {name: lines[0].__dict__[name] for name in ("job", "vertex", "subtask", "attempt")}
        vertex = remote.get(f"/jobs/{job}")["vertices"][-1]["id"]
        assert about == {"job": job, "vertex": vertex, "subtask": 0, "attempt": 0}
        answer_of("loglevel", "counting.test", "INHERIT")
        owners = answer_of("logs")["owners"]
        assert owners[0] == "jobmanager"
        assert job in owners
        assert "there are no logs of 'nobody'" in answer_of("logs", "nobody", code=1)["error"]
        assert "counting.test" not in answer_of("loglevel")["processes"][0]["levels"]
        assert "'LOUD' is no level" in answer_of("loglevel", "x", "LOUD", code=2)["error"]
        assert _post(remote, "/firesteel/loglevels", {})[0] in (404, 405)

        checked = {finding["area"]: finding["level"] for finding in answer_of("doctor", "--all")["findings"]}
        assert checked["cluster"] == checked["clock"] == checked["java"] == checked["packages"] == "ok"
        assert "not found" in answer_of("cancel", "0" * 32, code=1)["error"]
        location = answer_of("savepoint", job, str(tmp_path))["location"]
        assert Path(location, "_metadata").is_file()
        last = answer_of("cancel", "-s", str(tmp_path), job)["location"]
        assert Path(last, "_metadata").is_file()
        remote.until_state(job, "CANCELED")
        assert "has already ended" in answer_of("cancel", job, code=1)["error"]
        assert job in [row["jid"] for row in answer_of("list", "-a")["jobs"]]
    finally:
        remote.cancel(job)

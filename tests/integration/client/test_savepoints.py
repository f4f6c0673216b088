"""Savepoints on the command line: one while the job runs, a stop with drain, and a job that goes on elsewhere."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

from tests.integration.client.conftest import Remote, folder
from tests.integration.client.test_checkpoints import _post
from tests.integration.client.test_run import command, job_id_in
from tests.integration.embedded.programs import until

__all__ = ["folder"]
KEYS = 7
PROGRAM = f"""
import sys
from firesteel.common import Encoder, Time, Types, WatermarkStrategy
from firesteel.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from firesteel.datastream.connectors.data_generator import DataGeneratorSource, RateLimiterStrategy
from firesteel.datastream.connectors.file_system import FileSink, RollingPolicy
from firesteel.datastream.state import ValueStateDescriptor


class Count(KeyedProcessFunction):
    def open(self, context):
        self.seen = context.get_state(ValueStateDescriptor("seen", Types.LONG()))

    def process_element(self, value, ctx):
        count = (self.seen.value() or 0) + 1
        self.seen.update(count)
        yield f"{{ctx.get_current_key()}} {{count}}"


env = StreamExecutionEnvironment.get_execution_environment()
source = DataGeneratorSource(lambda i: i, 10**9, RateLimiterStrategy.per_second(500), Types.LONG())
numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers").set_parallelism(1)
counted = numbers.key_by(lambda i: i % {KEYS}, Types.LONG()).process(Count(), Types.STRING()).uid("count")
sink = FileSink.for_row_format(sys.argv[1], Encoder.simple_string_encoder())
counted.sink_to(sink.with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy()).build()).uid("files")
env.execute("counting")
"""


def lines(directory: Path) -> Counter[str]:
    files = [path for path in directory.rglob("*") if path.is_file() and not path.name.startswith((".", "_"))]
    return Counter(line for path in files for line in path.read_text().splitlines())


def until_written(directory: Path, count: int) -> None:
    until(lambda: sum(lines(directory).values()) > count, "results are committed", 60)


def of_first(count: int) -> Counter[str]:
    """What the first so many numbers give."""
    return Counter(f"{key} {n + 1}" for key in range(KEYS) for n in range(len(range(key, count, KEYS))))


def _edited(folder: Path, type_of_state: str) -> str:
    """The program with another type of its state."""
    name = f"edited-{type_of_state[:3].lower()}.py"
    (folder / name).write_text(PROGRAM.replace('"seen", Types.LONG()', f'"seen", Types.{type_of_state}'))
    return name


def _is_refused_as_it_was_told(folder: Path, remote: Remote, savepoint: Path, results: Path) -> None:
    program = _edited(folder, "STRING()")
    with command(folder, "upgrade", "--dry-run", "--json", "-s", str(savepoint), program, str(results)) as upgrade:
        assert upgrade.end() == 1, upgrade.err
    said: dict[str, Any] = json.loads(upgrade.out)
    assert not said["works"]
    states = next(operator["states"] for operator in said["operators"] if operator["uid"] == "count")
    state = next(row for row in states if row["name"] == "seen")
    assert (state["verdict"], state["how"]) == ("incompatible", "it was LONG and is STRING now")
    never = ["-Drestart-strategy.type=none", "-s", str(savepoint)]
    with command(folder, "run", "-d", *never, *remote.options, program, str(results)) as refused:
        assert refused.end() == 0, refused.err
    job = job_id_in(refused.out)
    try:
        until(lambda: remote.get(f"/jobs/{job}/status")["status"] == "FAILED", "it is refused", 60)
    finally:
        remote.cancel(job)
    assert state["how"] in str(remote.get(f"/jobs/{job}/exceptions"))


def test_a_job_is_drained_and_goes_on_with_other_parallelism_and_backend(
    folder: Path, remote: Remote, tmp_path: Path
) -> None:
    (folder / "program.py").write_text(PROGRAM)
    results, directory = tmp_path / "results", tmp_path / "savepoints"
    often = ["-Dexecution.checkpointing.interval=200ms", f"-Dexecution.checkpointing.dir={tmp_path / 'checkpoints'}"]
    program = ["program.py", str(results)]
    with command(folder, "run", "-d", "-p", "2", *often, *remote.options, *program) as run:
        assert run.end() == 0, run.err
    job = job_id_in(run.out)
    try:
        until_written(results, 100)
        with command(folder, "savepoint", *remote.options, job) as refused:
            assert refused.end() == 2 or refused.end() == 1
        said = refused.err.splitlines()[-1]
        assert said.startswith("firesteel savepoint: Config key [execution.checkpointing.savepoint-dir]")
        with command(folder, "savepoint", *remote.options, job, str(directory)) as savepoint_:
            assert savepoint_.end() == 0, savepoint_.err
        first = re.search(r"Savepoint completed. Path: (\S+)$", savepoint_.out, re.MULTILINE)
        assert first is not None, savepoint_.out
        assert remote.get(f"/jobs/{job}/checkpoints")["latest"]["savepoint"]["external_path"] == first[1]
        for path, body in (
            ("savepoints", {"target-directory": 7}),
            ("savepoints", {"formatType": "x"}),
            ("savepoints", {"target-directory": "relative"}),
            ("stop", {"drain": "yes"}),
            ("stop", {"triggerId": "1"}),
        ):
            status, answer = _post(remote, f"/jobs/{job}/{path}", body)
            assert status == 400, answer
            assert next(iter(body)) in answer["errors"][0], answer
        assert _post(remote, f"/jobs/{'0' * 32}/savepoints", {"target-directory": "/x"})[0] == 404
        assert _post(remote, f"/jobs/{'0' * 32}/stop", {"targetDirectory": "/x"})[0] == 404
        with command(folder, "stop", "--drain", "-p", str(directory), *remote.options, job) as stopped:
            assert stopped.end() == 0, stopped.err
        second = re.search(r"Savepoint completed. Path: (\S+)$", stopped.out, re.MULTILINE)
        assert second is not None, stopped.out
        assert remote.get(f"/jobs/{job}/status")["status"] == "FINISHED"
    finally:
        remote.cancel(job)
    drained = lines(results)
    assert drained == of_first(sum(drained.values())), "a result is missing, or came twice"
    with command(folder, "savepoint", "inspect", "--json", second[1]) as inspected:
        assert inspected.end() == 0, inspected.err
    description: dict[str, Any] = json.loads(inspected.out)
    assert (description["type"], description["format"], description["stop"]) == ("savepoint", "CANONICAL", "drain")
    state = next(s for o in description["operators"] if o["uid"] == "count" for s in o["states"] if s["name"] == "seen")
    assert (state["entries"], state["kind"]) == (KEYS, "value")
    moved = tmp_path / "elsewhere"
    shutil.move(second[1], moved)
    wider = _edited(folder, "BIG_INT()")
    with command(folder, "upgrade", "--dry-run", "-p", "1", "-s", str(moved), wider, str(results)) as upgrade:
        assert upgrade.end() == 0, upgrade.err
    assert "(uid 'count'): restored, parallelism 2 -> 1" in upgrade.out
    assert re.search(r"seen +value +migrated  widened from LONG to BIG_INT$", upgrade.out, re.MULTILINE), upgrade.out
    _is_refused_as_it_was_told(folder, remote, moved, results)
    other = ["-Dstate.backend.type=rocksdb", "-p", "1", "-s", str(moved)]
    with command(folder, "run", "-d", *other, *often, *remote.options, wider, str(results)) as again:
        assert again.end() == 0, again.err
    job = job_id_in(again.out)
    try:
        until_written(results, sum(drained.values()) + 100)
        with command(folder, "stop", "-p", str(directory), *remote.options, job) as stopped:
            assert stopped.end() == 0, stopped.err
        assert remote.get(f"/jobs/{job}/status")["status"] == "FINISHED"
    finally:
        remote.cancel(job)
    found_now = lines(results)
    assert found_now == of_first(sum(found_now.values())), "a result is missing, or came twice"
    for path in (first[1], str(moved)):
        with command(folder, "savepoint", "--dispose", path, *remote.options) as disposed:
            assert disposed.end() == 0, disposed.err
        assert not Path(path).exists()
    with command(folder, "savepoint", "--dispose", first[1], *remote.options) as missing:
        assert missing.end() == 1
    assert "there is no such file or directory" in missing.err

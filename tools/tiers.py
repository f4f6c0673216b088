"""Runs the tiers of ./dev test, each named with its count and time, and writes build/test-summary.json.

tiers.py test [--servers] [--long]       every tier
tiers.py NAME [pytest options]           one tier
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
SUMMARY = BUILD / "test-summary.json"
CODE = ["libs", "services", "tests", "examples", "benchmarks", "tools"]


@dataclasses.dataclass
class Result:
    """What a tier did. `ran` counts what `unit` names (files, contracts, tests)."""

    unit: str
    ran: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    reason: str = ""
    """Why nothing ran, if that is no failure."""
    unsteady: list[str] = dataclasses.field(default_factory=list)
    """Tests that failed at first and passed when they were run once more: each is a defect to be found."""
    skips: dict[str, int] = dataclasses.field(default_factory=dict)
    """Why tests were skipped, and how many for each reason."""

    @property
    def status(self) -> str:
        """passed, failed, empty (a tier that found nothing to do) or not run (not asked for, or none exist yet)."""
        if self.failed:
            return "failed"
        if self.ran:
            return "passed"
        return "not run" if self.reason else "empty"


def lint() -> Result:
    """Ruff's rules and format, spelling, shell scripts."""
    files = len(say(["ruff", "check", "--show-files", "."]).stdout.split())
    rules = run(["ruff", "check", "--output-format=concise", "."])
    layout = run(["ruff", "format", "--check", "."])
    tracked = say(["git", "ls-files", "*.py", "*.md", "*.toml", "dev", ".ci/run"]).stdout.split()
    spelling = run(["codespell", *[name for name in tracked if (ROOT / name).is_file()]])
    scripts = run(["shellcheck", "dev", ".ci/run"]) if shutil.which("shellcheck") else 0
    return Result("files", files, failed=sum(code != 0 for code in (rules, layout, spelling, scripts)))


def types() -> Result:
    """mypy --strict over everything."""
    process = say(["mypy", *[folder for folder in CODE if any((ROOT / folder).rglob("*.py"))]])
    print(process.stdout, process.stderr, sep="", end="", flush=True)
    checked = re.search(r"(?:no issues found in|checked) (\d+) source files?", process.stdout)
    errors = re.search(r"Found (\d+) errors?", process.stdout)
    failed = int(errors[1]) if errors else int(process.returncode != 0)
    return Result("files", int(checked[1]) if checked else 0, failed=failed)


def imports() -> Result:
    """The import order (import-linter)."""
    process = say(["lint-imports", "--no-logo"])
    print(process.stdout, process.stderr, sep="", end="", flush=True)
    counts = re.search(r"Contracts: (\d+) kept, (\d+) broken", process.stdout)
    if counts is None:
        return Result("contracts", failed=1)
    kept, broken = int(counts[1]), int(counts[2])
    return Result("contracts", kept + broken, failed=broken or int(process.returncode != 0))


def docs() -> Result:
    """The pages of docs/, built without a warning."""
    process = say(["mkdocs", "build", "--strict", "--site-dir", str(BUILD / "site")])
    lines = [line for line in process.stderr.splitlines(keepends=True) if not line.startswith("INFO")]
    print(process.stdout, *lines, sep="", end="", flush=True)
    return Result("pages", len(list((ROOT / "docs").rglob("*.md"))), failed=int(process.returncode != 0))


def pytest_tier(
    name: str, folders: list[str], marks: str, *, second_look: bool = False, beside: Sequence[Sequence[str]] = ()
) -> Callable[..., Result]:
    """A tier that is a pytest run, or several at the same time.

    Args:
        name: of the tier and its report.
        folders: where its tests are.
        marks: pytest's expression that chooses among them.
        second_look: whether a few failed tests are run once more, alone. For tiers that start real processes and so
            depend on the machine: what passes then is named as unsteady; what fails twice, or in numbers, has failed.
        beside: those of the folders whose tests run in processes of their own, one for each sequence of folders, at
            the same time as the others: tests that start processes wait for them half of their time.
    """

    def tier(*options: str) -> Result:
        lanes = lanes_of(folders, beside)
        if not lanes:
            return Result("tests")
        commands = [["pytest", "-q", "-m", marks, *cache_of(name, number), *options] for number in range(len(lanes))]
        report = BUILD / f"junit-{name}.xml"
        reports = [report, *(report.with_stem(f"junit-{name}-{number + 1}") for number in range(1, len(lanes)))]
        runs = side_by_side([[*command, *lane] for command, lane in zip(commands, lanes, strict=True)], reports)
        result = together([run for run, _ in runs])
        failures = sorted(failure for _, failed in runs for failure in failed)
        explained = all(failed or not run.failed for run, failed in runs)
        if second_look and explained and 0 < len(failures) <= UNSTEADY_AT_MOST:
            print(f"\n-- {name}: {', '.join(failures)} once more", flush=True)
            steady = True
            for number, (_, failed) in enumerate(runs):
                if failed:
                    once_more = [*commands[number], "--last-failed", "--last-failed-no-failures=none", *lanes[number]]
                    again, still = pytest_run(once_more, BUILD / f"junit-{name}-again.xml")
                    steady = steady and not still and again.failed == 0 and again.ran >= len(failed)
            if steady:
                result.failed, result.unsteady = 0, failures
        return result

    return tier


def lanes_of(folders: list[str], beside: Sequence[Sequence[str]]) -> list[list[str]]:
    """What each of a tier's processes runs, in the order of `beside`: every test file exactly once."""
    left = sorted(str(file.relative_to(ROOT)) for folder in folders for file in (ROOT / folder).rglob("test_*.py"))
    others = []
    for lane in beside:
        others.append([*dict.fromkeys(file for folder in lane for file in left if file.startswith(f"{folder}/"))])
        left = [file for file in left if file not in others[-1]]
    lanes = [lane for lane in (left, *others) if lane]
    if len(lanes) == 1:  # the folders' names say more than those of their files
        return [[folder for folder in folders if any((ROOT / folder).rglob("test_*.py"))]]
    return lanes


def cache_of(name: str, lane: int) -> list[str]:
    """Each process remembers for itself which tests have failed."""
    return ["-o", f"cache_dir={BUILD / f'pytest-cache-{name}-{lane + 1}'}"]


def side_by_side(commands: list[list[str]], reports: list[Path]) -> list[tuple[Result, list[str]]]:
    """Runs pytest once for each command, all at the same time; shows what the first one says, then the others."""
    with ThreadPoolExecutor(len(commands)) as pool:
        outputs = [None, *(report.with_suffix(".out") for report in reports[1:])]
        runs = list(pool.map(pytest_run, commands, reports, outputs))
    for output in outputs[1:]:
        assert output is not None
        print(f"\n-- at the same time, {output.name}:", flush=True)
        print(output.read_text(errors="replace"), flush=True)
    return runs


def together(results: list[Result]) -> Result:
    """Several runs as one."""
    skips: Counter[str] = Counter()
    for result in results:
        skips.update(result.skips)
    return Result(
        "tests",
        sum(result.ran for result in results),
        sum(result.failed for result in results),
        sum(result.skipped for result in results),
        skips=dict(skips),
    )


UNSTEADY_AT_MOST = 3
"""More failed tests than this in one tier are no accident of timing, and are not run again."""


def pytest_run(command: list[str], report: Path, output: Path | None = None) -> tuple[Result, list[str]]:
    """Runs pytest once and reads its report; returns also the names of the tests that failed.

    Args:
        command: without the report.
        report: JUnit's XML.
        output: where what pytest says is kept; None = it is shown.
    """
    report.unlink(missing_ok=True)
    code = run([*command, f"--junitxml={report}"], output)
    if code == 5:
        return Result("tests"), []
    if not report.exists():
        return Result("tests", failed=1), []
    suites = list(ElementTree.parse(report).getroot().iter("testsuite"))
    keys = ("tests", "failures", "errors", "skipped")
    counts = [{key: int(suite.get(key, "0")) for key in keys} for suite in suites]
    skipped = sum(c["skipped"] for c in counts)
    failed = sum(c["failures"] + c["errors"] for c in counts)
    failures = {
        f"{case.get('classname', '')}.{case.get('name', '')}"
        for suite in suites
        for case in suite.iter("testcase")
        if case.find("failure") is not None or case.find("error") is not None
    }
    skips = Counter(
        re.sub(r"\s+", " ", found.get("message", "")) for suite in suites for found in suite.iter("skipped")
    )
    # A run that broke off (a crash, a missing fixture, Ctrl-C) is a failure even when every finished test passed.
    broke_off = code not in (0, 1)
    ran = sum(c["tests"] for c in counts) - skipped
    result = Result("tests", ran, failed or int(code != 0), skipped, skips=dict(skips))
    return result, [] if broke_off else sorted(failures)


PLAIN = "not server and not long"
TIERS: dict[str, Callable[..., Result]] = {
    "lint": lint,
    "types": types,
    "imports": imports,
    "docs": docs,
    "house": pytest_tier("house", ["tests/house"], PLAIN),
    "unit": pytest_tier("unit", ["tests/unit"], PLAIN, beside=[["tests/unit/runtime", "tests/unit/expressions"]]),
    "simulation": pytest_tier("simulation", ["tests/simulation"], PLAIN),
    "integration": pytest_tier(
        "integration",
        ["tests/integration", "tests/docs"],
        PLAIN,
        second_look=True,
        beside=[
            ["tests/integration/embedded", "tests/integration/client", "tests/integration/runtime"],
            # Spark's come first: they want to find no process but their own, and the others share clusters.
            ["tests/integration/spark", "tests/integration/recovery", "tests/docs"],
        ],
    ),
}
EXTRA: dict[str, Callable[..., Result]] = {
    "servers": pytest_tier("servers", ["tests/servers"], "server and not long", second_look=True),
    "long": pytest_tier("long", ["tests"], "long"),
}


def run(command: list[str], output: Path | None = None) -> int:
    """Runs a tool with its output shown, or kept in a file."""
    if output is None:
        return subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL).returncode
    with output.open("wb") as file:
        return subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=file, stderr=file).returncode


def say(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Runs a tool and returns its output."""
    return subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True)


@contextmanager
def preparation(tier: str) -> Iterator[Callable[[], object]]:
    """Makes a tier's servers ready while others run; gives a function that waits until they are."""
    with (BUILD / f"{tier}-preparation.out").open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", f"tests.{tier}.prepare"],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
        try:
            yield process.wait
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
            process.wait()


def measure(name: str, tier: Callable[..., Result], options: list[str]) -> Result:
    """Runs one tier between two lines that name it."""
    print(f"\n== {name} ==", flush=True)
    start = time.monotonic()
    result = tier(*options)
    result.seconds = round(time.monotonic() - start, 1)
    if name in EXTRA and result.status == "empty":
        result.reason = "; ".join(result.skips) or "no tests yet"
    print(f"-- {name}: {describe(result)}, {result.seconds} s", flush=True)
    return result


def describe(result: Result) -> str:
    """One result in words."""
    if not result.ran and not result.failed:
        return result.reason or f"found no {result.unit}"
    skipped = f", {result.skipped} skipped" if result.skipped else ""
    unsteady = f", {len(result.unsteady)} passed only at the second run" if result.unsteady else ""
    return f"{result.ran} {result.unit}, {result.failed} failed{skipped}{unsteady}"


def conclude(results: dict[str, Result]) -> int:
    """Writes the summary for machines and the table for people; returns the exit code."""
    plain = {
        name: {**dataclasses.asdict(result), "status": result.status, "passed": max(0, result.ran - result.failed)}
        for name, result in results.items()
    }
    BUILD.mkdir(exist_ok=True)
    unfinished = SUMMARY.with_suffix(f".{os.getpid()}")
    unfinished.write_text(json.dumps({"version": 1, "tiers": plain}, indent=2) + "\n")
    unfinished.replace(SUMMARY)
    print(f"\n{'tier':12} {'result':8} {'ran':>6} {'failed':>7} {'skipped':>8} {'seconds':>8}")
    for name, result in results.items():
        counts = f"{result.ran:>6} {result.failed:>7} {result.skipped:>8} {result.seconds:>8}"
        print(f"{name:12} {result.status:8} {counts}  {result.reason or result.unit}")
    for name, result in results.items():
        for test in result.unsteady:
            print(f"unsteady in {name}: {test} failed and then passed; find out why")
    for name, result in results.items():
        for reason, count in result.skips.items():
            print(f"skipped in {name}: {count} test{'s' if count > 1 else ''}: {reason}")
    tests = [result for result in results.values() if result.unit == "tests"]
    failed = sum(result.failed for result in results.values()) + sum(r.status == "empty" for r in results.values())
    passed = sum(max(0, result.ran - result.failed) for result in tests)
    skipped = sum(result.skipped for result in tests)
    print(f"\n{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""), flush=True)
    return 1 if failed else 0


def main() -> int:
    """Runs what the command line asks for."""
    os.environ["FIRESTEEL_STRICT_SKIPS"] = "1"
    BUILD.mkdir(exist_ok=True)
    name, options = sys.argv[1], sys.argv[2:]
    if name != "test":
        takes_options = name in ("unit", "integration", "house")
        if options and not takes_options:
            sys.exit(f"dev: ./dev {name} takes no options")
        result = measure(name, TIERS[name], options)
        return 1 if result.status in ("failed", "empty") else 0
    unknown = set(options) - {f"--{extra}" for extra in EXTRA}
    if unknown:
        sys.exit(f"dev: ./dev test does not know {' '.join(sorted(unknown))}; it takes --servers and --long")
    SUMMARY.unlink(missing_ok=True)
    with preparation("servers") if "--servers" in options else nullcontext(lambda: None) as prepared:
        results = {name: measure(name, tier, []) for name, tier in TIERS.items()}
        prepared()
    for extra, tier in EXTRA.items():
        asked = f"--{extra}" in options
        results[extra] = measure(extra, tier, []) if asked else Result("tests", reason=f"not asked for (--{extra})")
    return conclude(results)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)

"""Runs the tiers of ./dev test, each named with its count and time, and writes build/test-summary.json.

tiers.py test                            what a newcomer needs to trust the checkout, in some minutes
tiers.py test --all [--long]             every tier
tiers.py test --slowest                  the slowest tests of the last run, from the reports in build/
tiers.py NAME [pytest options]           one tier
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from operator import attrgetter
from pathlib import Path
from types import MappingProxyType
from typing import IO

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
SUMMARY = BUILD / "test-summary.json"
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
GIVES_WAY = 10
"""How nice those are whose results do not depend on time, to servers and clusters that run beside them."""
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "firesteel"
"""What outlives the checkout."""
UNSTEADY_AT_MOST = 3
"""More failed tests than this in one run are no accident of timing, and are not run again."""


@dataclasses.dataclass
class Result:
    """What a tier did. `ran` counts what `unit` names (checks, tests)."""

    unit: str
    ran: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    """Of a tier of tests: their durations, which may overlap."""
    reason: str = ""
    """Why nothing ran, if that is no failure; of a tier that ran, that it is not the whole one."""
    unsteady: list[str] = dataclasses.field(default_factory=list)
    """Tests that timed out at first and passed when they were run once more: each is a defect to be found."""
    skips: dict[str, int] = dataclasses.field(default_factory=dict)
    """Why tests were skipped, and how many for each reason."""
    said: str = ""
    """What the tools of the tier had to say."""

    @property
    def status(self) -> str:
        """passed, failed, empty (a tier that found nothing to do) or not run (not asked for, or impossible)."""
        if self.failed:
            return "failed"
        if self.ran:
            return "passed"
        return "not run" if self.reason else "empty"


# -- tiers that read the code

CODE = ["libs", "services", "tests", "examples", "benchmarks", "tools"]
MYPY = ["mypy", f"--cache-dir={CACHE / 'mypy'}"]
READERS: dict[str, list[list[str]]] = {
    "lint": [
        ["ruff", "check", "--output-format=concise", "."],
        ["ruff", "format", "--check", "."],
        ["sh", "-c", "git ls-files -z '*.py' '*.md' '*.toml' dev .ci/run | xargs -0 codespell"],
        ["shellcheck", "dev", ".ci/run"],
    ],
    "types": [[*MYPY, *CODE]],
    "imports": [["lint-imports", "--no-logo"]],
    "docs": [["sh", "dev", "site", "--site-dir", str(BUILD / "site-of-tests")]],
}
QUICK_DOCS = {"FIRESTEEL_API_REFERENCE": "false"}
"""Of ``./dev docs``: pages without the reference of classes, which takes longer than all else."""
QUICK_READERS = {name: READERS[name] for name in ("lint", "imports")} | {"types": [[*MYPY, "libs", "services"]]}
"""Of ``./dev test`` without options: the types are those of the parts that are installed."""


def read_code(
    readers: Mapping[str, Sequence[Sequence[str]]], variables: Mapping[str, str] = MappingProxyType({})
) -> dict[str, Result]:
    """Runs tiers that read the code, side by side; they use a core each.

    Args:
        readers: the commands of each tier.
        variables: of their environment, beside those of this process.
    """

    def read(name: str) -> Result:
        start, result = time.monotonic(), Result("checks")
        for command in readers[name]:
            polite = ["nice", "-n", str(GIVES_WAY), *command]
            done = subprocess.run(
                polite, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True
            )
            result.ran, result.failed = result.ran + 1, result.failed + (done.returncode != 0)
            result.said += done.stdout + done.stderr
        result.seconds = round(time.monotonic() - start, 1)
        return result

    environment = {**os.environ, **variables}
    with ThreadPoolExecutor(CORES) as pool:
        running = {name: pool.submit(read, name) for name in reversed([*readers])}  # docs, the last, take longest
        results = {}
        for name in readers:
            print(f"\n== {name} ==", flush=True)
            results[name] = running[name].result()
            print(results[name].said, end="", flush=True)
            told(name, results[name])
    return results


# -- tiers of tests


@dataclasses.dataclass(frozen=True)
class Session:
    """Tiers that one run of pytest serves, in several worker processes (pytest-xdist).

    Attributes:
        name: of its report, ``build/junit-<name>.xml``.
        tiers: their folders by their names.
        marks: pytest's expression that chooses among their tests.
        options: how the tests are given to how many workers.
        second_look: whether tests that timed out are run once more, alone. For tiers that start real processes and so
            depend on the machine. Tests marked ``exact`` never are: no second look may hide a lost record.
        nice: how much it gives way to what runs beside it (``nice -n``).
        preparations: modules that make ready what its tests wait for longest, while other tiers run.
        meanwhile: such as only some of its tests wait for, by themselves.
        marked: the mark without which a file is not collected; empty: all files are.
    """

    name: str
    tiers: Mapping[str, Sequence[str]]
    marks: str
    options: Sequence[str] = ()
    second_look: bool = False
    nice: int = 0
    preparations: Sequence[str] = ()
    meanwhile: Sequence[str] = ()
    marked: str = ""

    def only(self, *names: str) -> Session:
        """Some tiers of it."""
        return dataclasses.replace(self, tiers={name: self.tiers[name] for name in names})

    def __call__(self, *options: str, output: IO[bytes] | None = None) -> dict[str, Result]:
        """Run it; the results of its tiers.

        Args:
            options: more of pytest's.
            output: where pytest writes; None: to the terminal.
        """
        paths = self.paths()
        results = {tier: Result("tests") for tier in self.tiers}
        if not paths:
            return results
        first = next(iter(self.tiers))
        arguments = [*self.options, "-m", self.marks, *options, *paths]
        cases, broke_off = pytest_run(arguments, f"junit-{self.name}.xml", output, self.nice)
        for case in cases:
            case.count(results[tier_of(case, self.tiers) or first])
        failed = [case for case in cases if case.failed]
        for result in results.values():  # whichever of them it was: none of them has run as a whole
            result.failed += broke_off and not result.failed
        if self.second_look and not broke_off and failed and may_be_repeated(failed):
            print(f"\n-- {self.name}: {', '.join(case.node for case in failed)} once more, alone", flush=True)
            again, broke_off = pytest_run(
                ["-m", self.marks, *(case.node for case in failed)], "junit-again.xml", output
            )
            if not broke_off and {case.node for case in again if not case.failed} >= {case.node for case in failed}:
                for case in failed:
                    result = results[tier_of(case, self.tiers) or first]
                    result.failed, result.unsteady = result.failed - 1, [*result.unsteady, case.node]
        return results

    def paths(self) -> list[str]:
        """What pytest collects: folders that have tests, or those of their files in which the mark is."""
        folders = [folder for tier in self.tiers.values() for folder in tier]
        files = {folder: sorted((ROOT / folder).rglob("test_*.py")) for folder in folders}
        if not self.marked:
            return [folder for folder in folders if files[folder]]
        mark = f"mark.{self.marked}"
        return [str(file.relative_to(ROOT)) for folder in folders for file in files[folder] if mark in file.read_text()]


@dataclasses.dataclass(frozen=True)
class Case:
    """What pytest's report says of one test."""

    node: str
    seconds: float
    failed: bool
    skipped: str | None
    properties: frozenset[str]
    """See ``tests/conftest.py``: ``exact``, ``timed out``, ``went wrong``."""
    processor_seconds: float = 0.0
    """Spent by the process of the test and by those that it has waited for; not by those that go on or are orphans."""

    def count(self, result: Result) -> None:
        """Add it to its tier."""
        result.seconds = round(result.seconds + self.seconds, 1)
        if self.skipped is not None:
            result.skipped += 1
            result.skips[self.skipped] = result.skips.get(self.skipped, 0) + 1
        else:
            result.ran += 1
            result.failed += self.failed


def may_be_repeated(failed: Sequence[Case]) -> bool:
    """Whether nothing but the machine's slowness is in question."""
    slow = all("timed out" in case.properties and not case.properties & {"exact", "went wrong"} for case in failed)
    return slow and len(failed) <= UNSTEADY_AT_MOST


def tier_of(case: Case, tiers: Mapping[str, Sequence[str]]) -> str | None:
    """To which tier a test belongs; what can't be collected, or kills its worker, has a name with dots."""
    dotted = case.node.replace("/", ".")
    folders = ((name, folder.replace("/", ".")) for name, own in tiers.items() for folder in own)
    return next((name for name, folder in folders if dotted.startswith(f"{folder}.")), None)


def pytest_run(
    arguments: Sequence[str], report: str, output: IO[bytes] | None = None, nice: int = 0
) -> tuple[list[Case], bool]:
    """Runs pytest; what its report in build/ says, and whether it broke off."""
    path = BUILD / report
    path.unlink(missing_ok=True)
    command = [
        "nice",
        "-n",
        str(nice),
        "pytest",
        "-q",
        "-o",
        f"cache_dir={BUILD / 'pytest-cache'}",
        f"--junitxml={path}",
        *arguments,
    ]
    code = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=output).returncode
    cases = cases_of(path) if path.exists() else []
    # A run that broke off (a crash, a missing fixture, Ctrl-C) is a failure even when every finished test passed.
    explained = code in (0, 5) or (code == 1 and any(case.failed for case in cases))
    return cases, not explained


def cases_of(report: Path) -> list[Case]:
    """The tests of one of pytest's reports, each once: one that fails in its call and at its end is there twice."""
    found: dict[str, Case] = {}
    for element in ElementTree.parse(report).getroot().iter("testcase"):
        named = {one.get("name", ""): one.get("value", "") for one in element.iter("property")}
        node = named.pop("node", None) or f"{element.get('classname', '')}.{element.get('name', '')}".lstrip(".")
        failed = element.find("failure") is not None or element.find("error") is not None
        failed = failed or (node in found and found[node].failed)
        skip = element.find("skipped")
        skipped = None if skip is None or failed else re.sub(r"\s+", " ", skip.get("message", ""))
        spent = float(named.pop("processor seconds", "0"))
        found[node] = Case(node, float(element.get("time", "0")), failed, skipped, frozenset(named), spent)
    return list(found.values())


PURE = Session(
    "pure",
    {"house": ["tests/house"], "unit": ["tests/unit"], "simulation": ["tests/simulation"]},
    "not long",
    ["-n", str(CORES), "--dist", "worksteal"],
    nice=GIVES_WAY,
)
# Files stay together, and folders whose files share a cluster (tests/conftest.py).
_BY_FILE = ["--dist", "loadscope", "--no-loadscope-reorder"]
INTEGRATION = Session(
    "integration",
    {"integration": ["tests/integration", "tests/docs"]},
    "not long",
    ["-n", str(CORES + 2), *_BY_FILE],  # they wait for a quarter of their time; what they leave idle PURE takes
    second_look=True,
    preparations=["firesteel.spark.training"],
)
SERVERS = Session(
    "servers",
    {"servers": ["tests/servers"]},
    "not long",
    ["-n", str(CORES), *_BY_FILE],
    preparations=["tests.servers.prepare"],
    meanwhile=["tests.servers.minio.prepare"],
)
"""They wait most of their time, for heartbeats and time-outs, as those of INTEGRATION do: they run beside each other,
and the other tiers beside them."""
SMOKE = Session(
    "smoke",
    {"simulation": ["tests/simulation"], "integration": ["tests/integration", "tests/docs"]},
    "smoke and not long",
    ["-n", str(CORES), *_BY_FILE],
    marked="smoke",
    second_look=True,
)
"""A test or two of each folder that starts processes, and a few seeds."""
LONG = Session("long", {"long": ["tests"]}, "long")
SESSIONS = (PURE, INTEGRATION, SERVERS, LONG, SMOKE)
SAMPLES = {"types": "of libs and services alone"} | dict.fromkeys(SMOKE.tiers, "a sample")
"""What ``./dev test`` without options leaves out of tiers that run; its table says so."""
EXTRA = ("servers", "long")
"""Tiers that may be impossible, or are asked for."""
REQUIRED = (*READERS, *PURE.tiers, "integration")


@contextmanager
def preparation(module: str) -> Iterator[Callable[[], object]]:
    """Runs a module beside other tiers; gives a function that waits for its end."""
    with (BUILD / f"{module}.out").open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", module],
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


@contextmanager
def beside(session: Session) -> Iterator[Callable[[], dict[str, Result]]]:
    """Makes ready what a session needs and then runs it while others run; gives a function that waits for its end, and
    shows what it has said and says meanwhile."""
    path = BUILD / f"{session.name}.out"
    path.unlink(missing_ok=True)
    stopped = threading.Event()

    def run() -> dict[str, Result]:
        for wait in prepared:
            wait()
        with path.open("wb") as output:
            return {} if stopped.is_set() else session(output=output)

    def result() -> dict[str, Result]:
        print(f"\n== {', '.join(session.tiers)} ==", flush=True)
        shown = 0
        while True:
            ended = running.done()
            if path.exists():
                with path.open(errors="replace") as said:
                    said.seek(shown)
                    print(said.read(), end="", flush=True)
                    shown = said.tell()
            if ended:
                return {name: told(name, one) for name, one in running.result().items()}
            time.sleep(0.2)

    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(1))
        prepared = [stack.enter_context(preparation(module)) for module in session.preparations]
        for module in session.meanwhile:
            stack.enter_context(preparation(module))
        stack.callback(stopped.set)
        running = pool.submit(run)
        yield result


# -- what a run comes to


def told(name: str, result: Result) -> Result:
    """Shows what became of a tier."""
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


def run_session(session: Session, *options: str) -> dict[str, Result]:
    """Runs one session between lines that name it."""
    print(f"\n== {', '.join(session.tiers)} ==", flush=True)
    return {name: told(name, result) for name, result in session(*options).items()}


def remember_unsteady(results: Mapping[str, Result], memory: Path, *, is_sample: bool = False) -> None:
    """A test that is unsteady in two runs in a row has failed. The memory outlives the checkout.

    Args:
        results: of this run.
        memory: the file with the tests that were unsteady in the run before.
        is_sample: most tests did not run this time, and are remembered as they were.
    """
    try:
        before = set(json.loads(memory.read_text()))
    except (OSError, ValueError):
        before = set()
    now = {test for result in results.values() for test in result.unsteady}
    for name, result in results.items():
        twice = [test for test in result.unsteady if test in before]
        for test in twice:
            print(f"{test} was unsteady in the last run, too: it has failed in {name}")
        result.failed += len(twice)
    try:
        memory.parent.mkdir(parents=True, exist_ok=True)
        memory.write_text(json.dumps(sorted(now | before if is_sample else now)))
    except OSError as error:
        print(f"unsteady tests cannot be remembered in {memory}: {error}")


def conclude(results: dict[str, Result]) -> int:
    """Writes the summary for machines and the table for people; returns the exit code."""
    plain = {
        name: {**dataclasses.asdict(result), "status": result.status, "passed": max(0, result.ran - result.failed)}
        for name, result in results.items()
    }
    for tier in plain.values():
        del tier["said"]
    BUILD.mkdir(exist_ok=True)
    unfinished = SUMMARY.with_suffix(f".{os.getpid()}")
    unfinished.write_text(json.dumps({"version": 1, "tiers": plain}, indent=2) + "\n")
    unfinished.replace(SUMMARY)
    print(f"\n{'tier':12} {'result':8} {'ran':>6} {'failed':>7} {'skipped':>8} {'seconds':>8}")
    for name, result in results.items():
        counts = f"{result.ran:>6} {result.failed:>7} {result.skipped:>8} {result.seconds:>8}"
        print(f"{name:12} {result.status:8} {counts}  {result.reason or result.unit}")
    for name, result in results.items():
        for reason, count in result.skips.items():
            print(f"skipped in {name}: {count} test{'s' if count > 1 else ''}: {reason}")
    tests = [result for result in results.values() if result.unit == "tests"]
    failed = sum(result.failed for result in results.values()) + sum(r.status == "empty" for r in results.values())
    passed = sum(max(0, result.ran - result.failed) for result in tests)
    skipped = sum(result.skipped for result in tests)
    for name, result in results.items():
        for test in result.unsteady:
            print(f"unsteady in {name}: {test} timed out and then passed; find out why")
    print(f"unsteady tests: {sum(len(result.unsteady) for result in results.values())}")
    print(f"\n{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""), flush=True)
    return 1 if failed else 0


def slowest(count: int = 40) -> int:
    """Prints what took longest in the last run, and most of the processors: files and tests."""
    reports = [BUILD / f"junit-{session.name}.xml" for session in SESSIONS]
    cases = [case for report in reports if report.exists() for case in cases_of(report)]
    if not cases:
        sys.exit("dev: there is no report in build/; run ./dev test first")
    for what, seconds_of in (
        ("the slowest", attrgetter("seconds")),
        ("most processor time of", attrgetter("processor_seconds")),
    ):
        files: defaultdict[str, float] = defaultdict(float)
        for case in cases:
            files[case.node.partition("::")[0]] += seconds_of(case)
        tests = {case.node: seconds_of(case) for case in cases}
        for title, rows in (("files", files), ("tests", tests)):
            print(f"\n{what} {title} of {len(cases)} tests")
            for name, seconds in sorted(rows.items(), key=lambda row: -row[1])[:count]:
                print(f"{seconds:8.1f} s  {name}")
    return 0


def one(name: str, options: list[str]) -> int:
    """Runs one tier."""
    if name in READERS:
        if options:
            sys.exit(f"dev: ./dev {name} takes no options")
        results = read_code({name: READERS[name]}, QUICK_DOCS)
    else:
        session = next(session for session in SESSIONS if name in session.tiers)
        results = run_session(session.only(name), *options)
    return 1 if results[name].status in ("failed", "empty") else 0


def quick() -> dict[str, Result]:
    """Runs what a newcomer needs to trust the checkout: a sample of the tests that start processes beside the rest."""
    with beside(SMOKE) as smoke:
        results = read_code(QUICK_READERS) | run_session(PURE.only("unit")) | smoke()
    for name, sample in SAMPLES.items():
        if results[name].ran:
            results[name].reason = sample
    return results


def every() -> dict[str, Result]:
    """Runs all tiers: those that read the code, then tests without processes; beside them those with, and servers."""
    with beside(INTEGRATION) as integration, beside(SERVERS) as servers:
        return read_code(READERS) | run_session(PURE) | integration() | servers()


def test(options: Sequence[str]) -> int:
    """Runs the tiers that are asked for, and says what became of them."""
    unknown = set(options) - {"--all", "--long"}
    if unknown:
        sys.exit(f"dev: ./dev test does not know {' '.join(sorted(unknown))}; it takes --all, --long and --slowest")
    start = time.monotonic()
    for report in (SUMMARY, *BUILD.glob("junit-*.xml")):  # --slowest is about this run alone
        report.unlink(missing_ok=True)
    results = every() if "--all" in options else quick()
    if "--long" in options:
        results |= run_session(LONG)
    for name in (*REQUIRED, *EXTRA):
        results.setdefault(name, Result("tests", reason=f"not asked for (--{'long' if name == 'long' else 'all'})"))
    remember_unsteady(results, CACHE / "unsteady-tests.json", is_sample="--all" not in options)
    code = conclude(results)
    print(f"{(time.monotonic() - start) / 60:.1f} minutes", file=sys.stderr)
    return code


def main() -> int:
    """Runs what the command line asks for."""
    os.environ["FIRESTEEL_STRICT_SKIPS"] = "1"
    BUILD.mkdir(exist_ok=True)
    name, options = sys.argv[1], sys.argv[2:]
    if name != "test":
        return one(name, options)
    return slowest() if options == ["--slowest"] else test(options)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)

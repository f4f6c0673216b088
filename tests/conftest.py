"""Guards of the whole suite: unit tests stay pure, integration tests clean up, skips are declared."""

from __future__ import annotations

import functools
import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import pytest_socket

from tests import leaks
from tests.examples import CI, examples
from tests.waiting import NotInTimeError

TESTS = Path(__file__).parent
WATCHED = (TESTS / "integration", TESTS / "docs")
STRICT_SKIPS = os.environ.get("FIRESTEEL_STRICT_SKIPS") == "1"

hypothesis.settings.register_profile(
    "firesteel",
    deadline=None,
    derandomize=CI,
    max_examples=examples(100),
    suppress_health_check=[hypothesis.HealthCheck.too_slow],  # a busy machine is no fault of a test
)
hypothesis.settings.load_profile("firesteel")

_in_unit_test = False

leaks.begin_session()  # before other conftest files are imported, which make paths in the session's directory


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Prepares what later start-ups inherit."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        config.option.basetemp = os.path.join(os.environ["TMPDIR"], leaks.TMP_PATHS)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs inherit an ignored one


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Archives of Java classes are made by the tests that are about them; elsewhere who makes some is a leak."""
    item.stash[_BEGAN] = _processor_seconds()
    if _below(item.path, (TESTS / "unit",)):
        os.environ.pop(leaks.NO_ARCHIVES, None)
    else:
        os.environ[leaks.NO_ARCHIVES] = "false"


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Spares the garbage collector what lives as long as the run: looking through it took 0.14 s after each test."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Removes the run's temporary directory."""
    leaks.end_session()


@pytest.fixture(autouse=True)
def nothing_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails an integration test that leaves processes, threads, descriptors or temporary files."""
    if not _below(request.node.path, WATCHED) or request.node.get_closest_marker("leaks_ok"):
        yield
        return
    before = leaks.snapshot()
    yield
    left = leaks.leaks_since(before)
    if left:
        pytest.fail("the test left behind:\n  " + "\n  ".join(left), pytrace=False)


@pytest.fixture(autouse=True)
def only_pure_code(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Refuses network, JVM and sleeps to unit tests."""
    global _in_unit_test
    if not _below(request.node.path, (TESTS / "unit",)):
        yield
        return
    monkeypatch.setattr(time, "sleep", _refuse_sleep)
    pytest_socket.disable_socket(allow_unix_socket=True)
    _in_unit_test = True
    try:
        yield
    finally:
        _in_unit_test = False
        pytest_socket.enable_socket()


def _refuse_sleep(seconds: float) -> None:
    raise RuntimeError("unit tests do not sleep: inject a clock, or wait for an event")


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if not _in_unit_test:
        return
    if event == "subprocess.Popen" and "java" in os.path.basename(str(arguments[0])):
        raise RuntimeError("unit tests start no JVM: this belongs in tests/integration")


sys.addaudithook(_audit)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Tells ./dev test about the test; there, a skip that no marker declares is a failure."""
    if call.when == "setup":
        item.user_properties.append(("node", item.nodeid))
        if item.get_closest_marker("exact"):
            item.user_properties.append(("exact", ""))
    if call.when == "teardown":
        now = _processor_seconds()
        spent = now - item.stash.get(_BEGAN, now)
        item.user_properties.append(("processor seconds", f"{spent:.2f}"))
    if call.excinfo is not None and not isinstance(call.excinfo.value, pytest.skip.Exception):
        item.user_properties.append(("timed out" if _timed_out(call.excinfo.value) else "went wrong", ""))
    report = yield
    undeclared = report.skipped and not hasattr(report, "wasxfail") and not item.get_closest_marker("may_skip")
    if STRICT_SKIPS and undeclared:
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped without @pytest.mark.may_skip(reason): {report.longrepr}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """A module that skips itself as a whole is a failure, too."""
    report = yield
    if STRICT_SKIPS and report.skipped:
        report.outcome = "failed"
        report.longrepr = f"{collector.nodeid} skips itself: {report.longrepr}"
    return report


_BEGAN = pytest.StashKey[float]()
"""Processor time of this process when a test began."""


def _processor_seconds() -> float:
    """Spent by this process and by those that it has waited for: a busy machine does not change it much."""
    return sum(os.times()[:4])


_TIMED_OUT = (TimeoutError, NotInTimeError, subprocess.TimeoutExpired)


def _timed_out(error: BaseException) -> bool:
    """Whether a test failed by the clock; pytest-timeout's own failure is one of pytest's."""
    return isinstance(error, _TIMED_OUT) or (isinstance(error, pytest.fail.Exception) and "Timeout (>" in str(error))


TOGETHER = {
    "integration/spark": 1,  # comes first in its process: its tests want to find no JVM but their own
    "servers/network": 1,
    "servers/minio": 1,
    "servers/kafka": 1,
    "servers/zookeeper": 1,
    "servers/kubernetes": 1,
    "servers/hadoop": 1,
    "servers/postgresql": 1,
    "servers/browser": 1,
    "servers": 1,  # what has a Docker engine
    "integration/embedded": 2,
    "docs": 1,
    "integration/client": 1,
    "integration/runtime": 1,
}
"""Folders whose tests share a cluster or must not meet, and how many workers share a folder; the longest come first."""

EXACT = (
    "integration/recovery", "integration/processes", "integration/services/test_jobmaster_faults.py",
    "integration/services/test_jobmaster_processes.py", "integration/spark/test_hosted_deaths.py",
    "integration/spark/test_life_and_death.py", "integration/embedded/test_checkpoints.py",
    "integration/embedded/test_failures.py", "integration/embedded/test_old_checkpoints.py", "servers",
)  # fmt: skip
"""Where tests count records, deaths or attempts: all of them are marked so."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks what must not be run a second time; brings those first that take longest."""
    exact = tuple(TESTS / name for name in EXACT)
    for item in items:
        if _below(item.path, exact):
            item.add_marker(pytest.mark.exact)
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=lambda item: _scope(item.path))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With ``--dist loadscope``, tests stay together as `TOGETHER` says, else those of a file."""
    if config.getoption("dist") != "loadscope":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):  # type: ignore[misc] # pytest-xdist has no types
        def _split_scope(self, nodeid: str) -> str:
            return _scope(TESTS.parent / nodeid.partition("::")[0])[1]

    return Scheduling(config, log)


def _scope(path: Path) -> tuple[int, str]:
    """Its rank, and a name for the tests that one worker runs together with those of a file."""
    for rank, (folder, workers) in enumerate(TOGETHER.items()):
        if _below(path, (TESTS / folder,)):
            files = _files_in_order(TESTS / folder)
            return rank, f"{folder} {files.index(path) * workers // len(files)}"
    return len(TOGETHER), str(path.relative_to(TESTS))


@functools.cache
def _files_in_order(folder: Path) -> list[Path]:
    """Test files of a folder, those first that need its cluster of processes (``ANYWHERE``): one worker starts it."""
    return sorted(folder.rglob("test_*.py"), key=lambda file: ("ANYWHERE" not in file.read_text().upper(), file))


def _below(path: Path, folders: tuple[Path, ...]) -> bool:
    return str(path).startswith(tuple(f"{folder}{os.sep}" for folder in folders)) or path in folders

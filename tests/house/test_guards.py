"""The guards of tests/conftest.py, tried on suites that break their rules."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

LEAKY = """
import os, subprocess, sys, tempfile, threading, time

kept = []

def test_process():
    code = "import time; time.sleep(20)"
    kept.append(subprocess.Popen([sys.executable, "-c", code], start_new_session=True))

def test_orphan():
    subprocess.run(["sh", "-c", "sleep 21 &"], start_new_session=True, check=True)

def test_thread():
    threading.Thread(target=threading.Event().wait, args=(20,), name="forgotten", daemon=True).start()

def test_descriptors():
    kept.extend(os.open(os.devnull, os.O_RDONLY) for _ in range(20))

def test_run_directory():
    os.makedirs(os.path.join(tempfile.gettempdir(), "firesteel-1", "abc-1-0"))

def test_clean(tmp_path):
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    threading.Thread(target=time.sleep, args=(0.1,)).start()  # ends within the grace time
    (tmp_path / "file").write_text("x")
"""
LEAKS = {
    "process": "sleep(20)",
    "orphan": "sleep 21",
    "thread": "daemon thread 'forgotten'",
    "descriptors": "/dev/null",
    "run_directory": "firesteel-1/abc-1-0",
}

IMPURE = """
import socket, subprocess, time, warnings

def test_network():
    socket.create_server(("127.0.0.1", 0))

def test_sleep():
    time.sleep(0.01)

def test_jvm():
    subprocess.run(["java", "-version"])

def test_warning():
    warnings.warn("old", DeprecationWarning)
"""
REFUSALS = {
    "network": "A test tried to use socket.socket",
    "sleep": "do not sleep",
    "jvm": "start no JVM",
    "warning": "DeprecationWarning: old",
}

SKIPPING = """
import pytest

def test_undeclared():
    pytest.skip("no reason")

@pytest.mark.may_skip(reason="x")
def test_declared():
    pytest.skip("a reason")
"""


def run_suite(root: Path, tier: str, code: str) -> str:
    """Runs one test file under copies of our conftest and configuration; returns what pytest said."""
    folder = root / "tests" / tier
    folder.mkdir(parents=True)
    for name in ("tests/conftest.py", "tests/examples.py", "tests/leaks.py", "tests/waiting.py", "pyproject.toml"):
        (root / name).write_text((ROOT / name).read_text().replace("GRACE_SECONDS = 5.0", "GRACE_SECONDS = 0.3"))
    (folder / "test_it.py").write_text(code)
    env = {name: value for name, value in os.environ.items() if name != "FIRESTEEL_TEST_SESSION"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"]
    process = subprocess.run(
        command, cwd=root, capture_output=True, text=True, env=env | {"FIRESTEEL_STRICT_SKIPS": "1"}
    )
    assert process.returncode == 1, process.stdout + process.stderr
    return process.stdout


def section(output: str, test: str) -> str:
    """What pytest said about one failed test."""
    return output.partition(f"test_{test} __")[2].partition("\n____")[0]


@pytest.fixture(scope="module")
def leaky(tmp_path_factory: pytest.TempPathFactory) -> str:
    return run_suite(tmp_path_factory.mktemp("leaky"), "integration", LEAKY)


@pytest.fixture(scope="module")
def impure(tmp_path_factory: pytest.TempPathFactory) -> str:
    return run_suite(tmp_path_factory.mktemp("impure"), "unit", IMPURE)


@pytest.mark.parametrize("kind", LEAKS)
def test_a_leak_is_named(kind: str, leaky: str) -> None:
    assert "the test left behind" in section(leaky, kind)
    assert LEAKS[kind] in section(leaky, kind)


def test_what_is_tidied_up_is_no_leak(leaky: str) -> None:
    assert f"{len(LEAKS) + 1} passed, {len(LEAKS)} errors" in leaky
    assert "test_clean" not in leaky


@pytest.mark.parametrize("kind", REFUSALS)
def test_an_impure_unit_test_is_refused(kind: str, impure: str) -> None:
    assert REFUSALS[kind] in section(impure, kind)


def test_a_skip_has_to_be_declared(tmp_path: Path) -> None:
    output = run_suite(tmp_path, "unit", SKIPPING)
    assert "was skipped without @pytest.mark.may_skip(reason)" in section(output, "undeclared")
    assert "1 failed, 1 skipped" in output

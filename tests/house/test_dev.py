"""./dev and .ci/run, beside what they call: their own decisions, without installing anything."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests import conftest, leaks
from tools import bootstrap, tiers

ROOT = Path(__file__).resolve().parents[2]
REQUIRED = [*tiers.REQUIRED, "servers"]
ALL = 3 * len(REQUIRED)
OLD_PYTHON = '#!/bin/sh\ncase "$2" in *print*) echo 3.8.18 ;; *) exit 1 ;; esac\n'


def executable(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def dev(root: Path, *arguments: str, path: str) -> subprocess.CompletedProcess[str]:
    """Runs a copy of ./dev with nothing but the standard tools and `path`."""
    for name in ("dev", "tools/bootstrap.py", "requirements", "libs/firesteel/pyproject.toml"):
        target = root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, target)
    executable(root / "services" / "one" / "pyproject.toml", "")
    tools = root / "tools-of-the-system"
    tools.mkdir()
    for tool in ("cat", "cksum", "dirname", "sh"):
        (tools / tool).symlink_to(str(shutil.which(tool)))
    environment = {"PATH": f"{path}:{tools}"}
    return subprocess.run(["./dev", *arguments], cwd=root, capture_output=True, text=True, env=environment)


def test_an_old_python_gets_one_sentence(tmp_path: Path) -> None:
    executable(tmp_path / "old" / "python3", OLD_PYTHON)
    process = dev(tmp_path, "test", path=str(tmp_path / "old"))
    assert process.returncode == 1
    assert process.stderr.startswith("dev: Firesteel needs Python 3.11 or newer")
    assert f"{tmp_path}/old/python3 is 3.8.18" in process.stderr
    assert process.stderr.count("\n") == 1


def test_no_python_gets_one_sentence(tmp_path: Path) -> None:
    process = dev(tmp_path, "demo", path="/nonexistent")
    assert process.returncode == 1
    assert "no Python was found as: python3.13" in process.stderr
    assert process.stderr.count("\n") == 1


def test_a_python_that_is_new_enough_is_found_behind_an_old_one(tmp_path: Path) -> None:
    executable(tmp_path / "bin" / "python3.13", OLD_PYTHON)
    (tmp_path / "bin" / "python3").symlink_to(sys.executable)
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "precious").touch()
    process = dev(tmp_path, "run", "true", path=str(tmp_path / "bin"))
    assert process.returncode == 1
    assert "was not made by ./dev" in process.stderr  # so the second Python was started
    assert (tmp_path / ".venv" / "precious").exists()


def test_an_unknown_command_is_refused(tmp_path: Path) -> None:
    process = dev(tmp_path, "tset", path="/nonexistent")
    assert (process.returncode, process.stderr) == (1, "dev: unknown command 'tset'; ./dev help lists them\n")


def summary(**changes: dict[str, Any]) -> str:
    passed = {"unit": "tests", "ran": 3, "passed": 3, "failed": 0, "skipped": 0, "status": "passed"}
    return json.dumps({"version": 1, "tiers": {name: passed | changes.get(name, {}) for name in REQUIRED}})


@pytest.mark.parametrize(
    ("text", "dev_code", "code", "last"),
    [
        (summary(), 0, 0, f"{ALL} passed, 0 failed"),
        (summary(unit={"ran": 0, "passed": 0, "status": "empty"}), 0, 1, f"{ALL - 3} passed, 1 failed"),
        (summary(integration={"ran": 0, "passed": 0, "status": "not run"}), 0, 1, f"{ALL - 3} passed, 1 failed"),
        (summary(servers={"ran": 0, "passed": 0, "status": "not run"}), 0, 1, f"{ALL - 3} passed, 1 failed"),
        (
            summary(servers={"ran": 0, "passed": 0, "skipped": 3, "status": "not run", "reason": "no engine"}),
            0,
            0,
            f"{ALL - 3} passed, 0 failed",
        ),
        (
            summary(integration={"ran": 0, "passed": 0, "skipped": 3, "status": "not run", "reason": "no Java"}),
            0,
            1,
            f"{ALL - 3} passed, 1 failed",
        ),
        (summary(types={"failed": 2, "passed": 1, "status": "failed"}), 1, 1, f"{ALL - 2} passed, 2 failed"),
        (summary(integration={"unsteady": ["tests/a.py::b"]}), 0, 0, f"{ALL} passed, 0 failed"),
        (summary(), 1, 1, f"{ALL} passed, 1 failed"),
        (None, 0, 1, None),
    ],
    ids=[
        "all passed",
        "an empty tier",
        "a tier left out",
        "servers not asked for",
        "servers impossible",
        "all skipped",
        "a failure",
        "a second look",
        "a crash",
        "no summary",
    ],
)
def test_ci_believes_only_tiers_that_ran(
    text: str | None, dev_code: int, code: int, last: str | None, tmp_path: Path
) -> None:
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci" / "run")
    write = "" if text is None else f"mkdir -p build; cat > build/test-summary.json <<'X'\n{text}\nX\n"
    executable(tmp_path / "dev", f"#!/bin/sh\n{write}exit {dev_code}\n")
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "python").symlink_to(sys.executable)
    process = subprocess.run(["bash", ".ci/run"], cwd=tmp_path, capture_output=True, text=True)
    assert process.returncode == code
    unsteady = "unsteady in integration: tests/a.py::b" if text and "a.py" in text else "unsteady tests: none"
    if last:
        assert process.stdout.splitlines()[-2:] == [unsteady, last]
    if text and "no engine" in text:
        assert "ci: the tier 'servers' is impossible on this machine: no engine\n" in process.stdout


def test_a_checkout_may_have_any_path(tmp_path: Path) -> None:
    root = tmp_path / "a checkout #1 %41 é"
    project = root / "libs" / "x"
    project.mkdir(parents=True)
    (project / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["uv_build"]\nbuild-backend = "uv_build"\n[project]\nname = "x"\nversion = "1"\n'
    )
    command = [str(bootstrap.UV), "pip", "install", "--dry-run", "--offline", "--no-deps"]
    environment = os.environ | {"VIRTUAL_ENV": str(ROOT / ".venv")}
    done = subprocess.run(
        [*command, *bootstrap.editables([project], root)], cwd=root, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "Would install 1 package" in done.stderr


def test_ci_requires_every_tier_that_there_is() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    assert f"required=({' '.join(REQUIRED)})" in script
    assert "./dev test --all" in script


def test_each_folder_of_tests_with_processes_has_one_in_the_sample() -> None:
    sample = tiers.SMOKE.paths()
    folders = {folder for folder in (ROOT / "tests/integration").iterdir() if any(folder.glob("test_*.py"))}
    folders |= {ROOT / "tests/docs", ROOT / "tests/simulation"}
    assert {(ROOT / path).parent for path in sample} == folders
    assert len(sample) < 30, "a sample, or nobody runs it"


def test_results_have_a_status() -> None:
    assert tiers.Result("tests", ran=2).status == "passed"
    assert tiers.Result("tests", ran=2, failed=1).status == "failed"
    assert tiers.Result("tests").status == "empty"
    assert tiers.Result("tests", reason="no tests yet").status == "not run"


def test_a_sample_of_a_tier_is_called_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def results(names: Iterable[str]) -> dict[str, tiers.Result]:
        return {name: tiers.Result("tests", ran=1) for name in names}

    @contextmanager
    def beside(session: tiers.Session) -> Iterator[Callable[[], dict[str, tiers.Result]]]:
        yield lambda: results(session.tiers)

    monkeypatch.setattr(tiers, "BUILD", tmp_path)
    monkeypatch.setattr(tiers, "CACHE", tmp_path)
    monkeypatch.setattr(tiers, "SUMMARY", tmp_path / "summary.json")
    monkeypatch.setattr(tiers, "beside", beside)
    monkeypatch.setattr(tiers, "read_code", results)
    monkeypatch.setattr(tiers, "run_session", lambda session: results(session.tiers))
    (tmp_path / "junit-servers.xml").touch()
    assert tiers.test([]) == 0
    assert not (tmp_path / "junit-servers.xml").exists(), "--slowest is about this run"
    rows = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line.strip()}
    assert [name for name in REQUIRED if rows[name].split()[1] == "not"] == ["docs", "house", "servers"]
    assert rows["integration"].endswith("  a sample")
    assert rows["simulation"].endswith("  a sample")
    assert rows["types"].endswith("  of libs and services alone")
    assert rows["unit"].endswith("  tests")


def test_an_empty_tier_fails_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "BUILD", tmp_path)
    monkeypatch.setattr(tiers, "SUMMARY", tmp_path / "summary.json")
    assert tiers.conclude({"unit": tiers.Result("tests", ran=1)}) == 0
    assert tiers.conclude({"unit": tiers.Result("tests")}) == 1
    assert tiers.conclude({"unit": tiers.Result("tests", ran=4, failed=1)}) == 1
    assert json.loads((tmp_path / "summary.json").read_text())["tiers"]["unit"]["passed"] == 3


OURS = "from tests.waiting import NotInTimeError\n"
TEARDOWN = """
import pytest
from pathlib import Path

@pytest.fixture(autouse=True)
def slow():
    again = Path("seen-1").exists()
    yield
    if not again and Path("seen-1").exists():
        raise TimeoutError
"""
SLOW_ONCE = """
from pathlib import Path

import pytest

{mark}
def test_{n}():
    seen = Path("seen-{n}")
    first = not seen.exists()
    seen.touch()
    if first:
        raise {error}
"""


def slow_once(n: int = 1, mark: str = "", error: str = "TimeoutError") -> str:
    """A test that fails in its first run only."""
    return SLOW_ONCE.format(n=n, mark=mark, error=error)


def make_suite(root: Path, monkeypatch: pytest.MonkeyPatch, **files: str) -> None:
    """A repository of tests in which the tiers run: under copies of our conftest and configuration."""
    for name in ("tests/conftest.py", "tests/examples.py", "tests/leaks.py", "tests/waiting.py", "pyproject.toml"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, root / name)
    for name, text in files.items():
        (root / "tests" / name).mkdir()
        (root / "tests" / name / "test_some.py").write_text(text)
    monkeypatch.setattr(tiers, "ROOT", root)
    monkeypatch.setattr(tiers, "BUILD", root)
    monkeypatch.setattr(tiers, "SUMMARY", root / "summary.json")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:/usr/bin:/bin")
    for name in [*os.environ]:
        if name.startswith("PYTEST_") or name in (leaks.MARK, "FIRESTEEL_STRICT_SKIPS"):
            monkeypatch.delenv(name)


def session(*folders: str, options: tuple[str, ...] = (), second_look: bool = True) -> tiers.Session:
    """One tier for each folder."""
    return tiers.Session("some", {folder: [f"tests/{folder}"] for folder in folders}, "not long", options, second_look)


@pytest.mark.parametrize(
    ("tests", "second_look", "failed", "unsteady"),
    [
        (slow_once(), True, 0, ["tests/one/test_some.py::test_1"]),
        (OURS + slow_once(error="NotInTimeError"), True, 0, ["tests/one/test_some.py::test_1"]),
        (slow_once(), False, 1, []),
        (slow_once(error="AssertionError"), True, 1, []),
        (slow_once(mark="@pytest.mark.exact"), True, 1, []),
        (slow_once() + "def test_always():\n    assert False\n", True, 2, []),
        (TEARDOWN + slow_once(error="AssertionError"), True, 1, []),
        (slow_once() + "def test_always():\n    raise TimeoutError\n", True, 2, []),
        ("\n".join(slow_once(n) for n in range(4)), True, 4, []),
        ("import nothing_of_this_name\n", True, 1, []),
    ],
    ids=[
        "passes then",
        "by the time of our own waiting",
        "not asked for",
        "not by the clock",
        "counts records",
        "beside a failure",
        "a failure, and a time-out behind it",
        "fails again",
        "too many",
        "can't be collected",
    ],
)  # fmt: skip
def test_only_what_timed_out_and_counts_no_records_gets_a_second_look(
    tests: str, second_look: bool, failed: int, unsteady: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_suite(tmp_path, monkeypatch, one="def test_other():\n    pass\n\n\n" + tests)
    result = session("one", second_look=second_look)()["one"]
    assert (result.failed, result.unsteady) == (failed, unsteady)


def test_what_is_marked_as_a_whole_is_there() -> None:
    folders = [name for name in (*conftest.EXACT, *conftest.TOGETHER) if not (ROOT / "tests" / name).exists()]
    assert not folders


def test_a_test_that_is_unsteady_twice_in_a_row_has_failed(tmp_path: Path) -> None:
    memory = tmp_path / "cache" / "unsteady.json"

    def run(*unsteady: str, is_sample: bool = False) -> int:
        result = tiers.Result("tests", ran=2, unsteady=list(unsteady))
        tiers.remember_unsteady({"one": result}, memory, is_sample=is_sample)
        return result.failed

    assert run("a", "b") == 0
    assert run("b", "c") == 1
    assert run() == 0
    assert run("b") == 0
    assert run(is_sample=True) == 0
    assert run("b") == 1, "it did not run in between"


def test_results_are_told_by_tier_and_a_worker_that_dies_fails_its_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dies = "import os\n\ndef test_dies():\n    os._exit(3)\n"
    make_suite(tmp_path, monkeypatch, one="def test_1():\n    pass\n", two=dies + "def test_2():\n    pass\n")
    results = session("one", "two", options=("-n", "2"), second_look=False)()
    assert (results["one"].ran, results["one"].failed) == (1, 0)
    assert (results["two"].ran, results["two"].failed) == (2, 1)
    results = session("two", "one")("-k", "test_1")
    assert results["two"].status == "empty"
    assert results["one"].status == "passed"


def test_a_run_that_breaks_off_fails_each_of_its_tiers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests of all of them may be those that did not run."""
    leaves = "import pytest\n\n\ndef test_2():\n    pytest.exit('enough')\n"
    make_suite(tmp_path, monkeypatch, one="def test_1():\n    pass\n", two=leaves)
    results = session("one", "two", second_look=False)()
    assert [(name, result.status) for name, result in results.items()] == [("one", "failed"), ("two", "failed")]


def test_the_slowest_tests_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sleeps = "def test_1():\n    time.sleep(3)\n"
    works = "def test_2():\n    end = time.process_time() + 0.2\n    while time.process_time() < end:\n        pass\n"
    make_suite(tmp_path, monkeypatch, one=f"import time\n\n\n{sleeps}\n\n{works}")
    dataclasses.replace(session("one"), name="pure")()
    capsys.readouterr()
    assert tiers.slowest() == 0
    longest, busiest = capsys.readouterr().out.split("most processor time of files")
    slow, busy = (rf" \d+\.\d s  tests/one/test_some\.py::{name}\n" for name in ("test_1", "test_2"))
    assert re.search(f"{slow}.*{busy}", longest, re.DOTALL), longest
    assert re.search(f"{busy}.*{slow}", busiest, re.DOTALL), busiest


def test_what_runs_beside_others_is_told_behind_them_and_then_as_it_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    make_suite(tmp_path, monkeypatch, one="def test_1():\n    print('seen')\n    assert False\n")
    with tiers.beside(session("one", second_look=False)) as end:
        print("others")
        results = end()
    output = capfd.readouterr().out
    assert (results["one"].ran, results["one"].failed) == (1, 1)
    assert (
        output.index("others")
        < output.index("== one ==")
        < output.index("seen")
        < output.index("-- one: 1 tests, 1 failed")
    )


def test_servers_are_made_ready_while_other_tiers_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "ROOT", tmp_path)
    monkeypatch.setattr(tiers, "BUILD", tmp_path)
    (tmp_path / "some").mkdir()
    program = tmp_path / "some" / "prepare.py"
    program.write_text("import pathlib\nprint('made')\npathlib.Path('made').touch()\n")
    with tiers.preparation("some.prepare") as prepared:
        prepared()
        assert (tmp_path / "made").exists()
    assert (tmp_path / "some.prepare.out").read_text() == "made\n"
    program.write_text("import time\ntime.sleep(600)\n")
    with pytest.raises(KeyboardInterrupt), tiers.preparation("some.prepare"):
        raise KeyboardInterrupt  # and it does not go on alone


@pytest.mark.parametrize(
    ("tests", "status", "skipped", "reason"),
    [
        ("def test_1():\n    pytest.skip('no\\n engine')\n", "not run", 1, "no engine"),
        ("def test_1():\n    pytest.skip('no engine')\n\n\ndef test_2():\n    pass\n", "passed", 1, ""),
        ("@pytest.fixture\ndef engine():\n    pytest.skip('no engine')\n\n\n"
         "def test_1(engine):\n    pass\n\n\ndef test_2(engine):\n    pass\n", "not run", 2, "no engine"),
        ("def test_1():\n    pytest.skip('no engine')\n\n\ndef test_2():\n    assert False\n", "failed", 1, ""),
    ],
    ids=["all of them", "some", "by a fixture", "beside a failure"],
)  # fmt: skip
def test_a_tier_tells_why_tests_were_skipped(
    tests: str, status: str, skipped: int, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    make_suite(tmp_path, monkeypatch, servers="import pytest\n\n\n" + tests)
    result = tiers.run_session(session("servers"))["servers"]
    assert (result.status, result.skipped, result.reason) == (status, skipped, reason)
    assert result.skips == {"no engine": skipped}
    tiers.conclude({"servers": result})
    tests_of = "1 test" if skipped == 1 else f"{skipped} tests"
    assert f"skipped in servers: {tests_of}: no engine\n" in capsys.readouterr().out

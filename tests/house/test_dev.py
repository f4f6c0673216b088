"""./dev and .ci/run, beside what they call: their own decisions, without installing anything."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tools import tiers
from tools.fetch_pip import NoIndexError, fetch_pip

ROOT = Path(__file__).resolve().parents[2]
REQUIRED = [*tiers.TIERS, "servers"]
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
    if last:
        assert process.stdout.splitlines()[-1] == last
    if text and "no engine" in text:
        assert "ci: the tier 'servers' is impossible on this machine: no engine\n" in process.stdout


def test_ci_requires_every_tier_that_there_is() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    assert f"required=({' '.join(REQUIRED)})" in script
    assert "./dev test --servers" in script


def test_results_have_a_status() -> None:
    assert tiers.Result("tests", ran=2).status == "passed"
    assert tiers.Result("tests", ran=2, failed=1).status == "failed"
    assert tiers.Result("tests").status == "empty"
    assert tiers.Result("tests", reason="no tests yet").status == "not run"


def test_an_empty_tier_fails_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "BUILD", tmp_path)
    monkeypatch.setattr(tiers, "SUMMARY", tmp_path / "summary.json")
    assert tiers.conclude({"unit": tiers.Result("tests", ran=1)}) == 0
    assert tiers.conclude({"unit": tiers.Result("tests")}) == 1
    assert tiers.conclude({"unit": tiers.Result("tests", ran=4, failed=1)}) == 1
    assert json.loads((tmp_path / "summary.json").read_text())["tiers"]["unit"]["passed"] == 3


ONCE = "def test_{n}():\n    from pathlib import Path\n    seen = Path('seen-{n}')\n    first = not seen.exists()\n"
ONCE += "    seen.touch()\n    assert not first\n"


@pytest.mark.parametrize(
    ("tests", "second_look", "failed", "unsteady"),
    [
        (ONCE.format(n=1), True, 0, ["tests.test_some.test_1"]),
        (ONCE.format(n=1), False, 1, []),
        (ONCE.format(n=1) + "def test_always():\n    assert False\n", True, 2, []),
        ("\n".join(ONCE.format(n=n) for n in range(4)), True, 4, []),
        ("import nothing_of_this_name\n", True, 1, []),
    ],
    ids=["passes then", "not asked for", "fails again", "too many", "can't be collected"],
)
def test_a_test_that_fails_once_is_named_and_one_that_fails_twice_fails(
    tests: str, second_look: bool, failed: int, unsteady: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiers, "ROOT", tmp_path)
    monkeypatch.setattr(tiers, "BUILD", tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:/usr/bin:/bin")
    monkeypatch.delenv("PYTEST_CURRENT_TEST", raising=False)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_some.py").write_text("def test_other():\n    pass\n\n\n" + tests)
    result = tiers.pytest_tier("some", ["tests"], "not server", second_look=second_look)()
    assert (result.failed, result.unsteady) == (failed, unsteady)


MEET = """
import os
import time
from pathlib import Path

def test_they_meet():
    Path({mine!r}).write_text(str(os.getpid()))
    deadline = time.monotonic() + 60
    while not Path({other!r}).exists():
        assert time.monotonic() < deadline
    assert Path({other!r}).read_text() != str(os.getpid())
"""


def test_a_tier_may_be_two_processes_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tiers, "ROOT", tmp_path)
    monkeypatch.setattr(tiers, "BUILD", tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:/usr/bin:/bin")
    monkeypatch.delenv("PYTEST_CURRENT_TEST", raising=False)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib\n")
    for folder, mine, other in (("one", "1", "2"), ("two", "2", "1")):
        (tmp_path / "tests" / folder).mkdir(parents=True)
        (tmp_path / "tests" / folder / "test_some.py").write_text(MEET.format(mine=mine, other=other))
    (tmp_path / "tests" / "two" / "test_once.py").write_text(ONCE.format(n=1))
    result = tiers.pytest_tier("some", ["tests"], "not server", second_look=True, beside=[["tests/two"]])()
    assert (result.ran, result.failed, result.unsteady) == (3, 0, ["tests.two.test_once.test_1"])
    assert "test_once.py" in capfd.readouterr().out
    for one in ("1", "2"):
        (tmp_path / one).unlink()
    (tmp_path / "tests" / "one" / "test_bad.py").write_text("import nothing_of_this_name\n")
    result = tiers.pytest_tier("some", ["tests"], "not server", beside=[["tests/two"]])("-k", "once")
    assert (result.ran, result.failed) == (2, 1)  # what can't be collected counts, and the other process goes on


def test_no_test_is_in_none_or_two_of_the_processes_of_a_tier() -> None:
    folders = ["tests/integration", "tests/docs"]
    beside = [["tests/integration/embedded", "tests/docs"], ["tests/integration/spark", "tests/integration"]]
    first, second, third = tiers.lanes_of([*folders, "tests/house"], beside)
    files = {str(file.relative_to(ROOT)) for folder in folders for file in (ROOT / folder).rglob("test_*.py")}
    assert sorted(files) == sorted([*second, *third])
    assert third[0].startswith("tests/integration/spark/")  # those first that are named first
    assert "tests/integration/embedded/test_life.py" in second
    assert "tests/house/test_dev.py" in first
    assert tiers.lanes_of(folders, []) == [folders]
    assert tiers.lanes_of(folders, [["tests/none"]]) == [folders]
    assert tiers.lanes_of(["tests/none"], [["tests/none"]]) == []


def test_servers_are_made_ready_while_other_tiers_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "ROOT", tmp_path)
    monkeypatch.setattr(tiers, "BUILD", tmp_path)
    (tmp_path / "tests" / "some").mkdir(parents=True)
    program = tmp_path / "tests" / "some" / "prepare.py"
    program.write_text("import pathlib\nprint('made')\npathlib.Path('made').touch()\n")
    with tiers.preparation("some") as prepared:
        prepared()
        assert (tmp_path / "made").exists()
    assert (tmp_path / "some-preparation.out").read_text() == "made\n"
    program.write_text("import time\ntime.sleep(600)\n")
    with pytest.raises(KeyboardInterrupt), tiers.preparation("some"):
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
    monkeypatch.setattr(tiers, "ROOT", tmp_path)
    monkeypatch.setattr(tiers, "BUILD", tmp_path)
    monkeypatch.setattr(tiers, "SUMMARY", tmp_path / "summary.json")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:/usr/bin:/bin")
    monkeypatch.delenv("PYTEST_CURRENT_TEST", raising=False)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_some.py").write_text("import pytest\n\n\n" + tests)
    result = tiers.measure("servers", tiers.pytest_tier("some", ["tests"], "not server"), [])
    assert (result.status, result.skipped, result.reason) == (status, skipped, reason)
    assert result.skips == {"no engine": skipped}
    tiers.conclude({"servers": result})
    tests_of = "1 test" if skipped == 1 else f"{skipped} tests"
    assert f"skipped in servers: {tests_of}: no engine\n" in capsys.readouterr().out


def test_a_pip_wheel_without_the_locked_hash_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = tmp_path / "installer.txt"
    lock.write_text("pip==1.0 \\\n    --hash=sha256:" + 64 * "0" + "\n")
    (tmp_path / "pip-1.0-py3-none-any.whl").write_bytes(b"something else")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    (tmp_path / "target").mkdir()
    with pytest.raises(NoIndexError, match="locked hash"):
        fetch_pip(lock, tmp_path / "target")
    assert not list((tmp_path / "target").iterdir())

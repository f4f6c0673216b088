"""Packages, archives and interpreters of a job's slots; packages are made here, no index is asked."""

from __future__ import annotations

import io
import os
import sys
import tarfile
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest

from firesteel.core.errors import JobFailedError, ProgramError
from firesteel.datastream import StreamExecutionEnvironment
from tests.integration.embedded.programs import ANYWHERE, new_environment, run_directories, runs, until

pytestmark = pytest.mark.usefixtures("cluster")


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """A directory with one package, ``tiny_answer`` 1.0."""
    directory = tmp_path / "packages"
    directory.mkdir()
    about = "tiny_answer-1.0.dist-info"
    files = {
        "tiny_answer.py": "ANSWER = 42\n",
        f"{about}/METADATA": "Metadata-Version: 2.1\nName: tiny-answer\nVersion: 1.0\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},,\n" for name in (*files, f"{about}/RECORD"))
    with zipfile.ZipFile(directory / "tiny_answer-1.0-py3-none-any.whl", "w") as wheel:
        for name, text in {**files, f"{about}/RECORD": record}.items():
            wheel.writestr(name, text)
    return directory


def requirements(tmp_path: Path, text: str) -> str:
    path = tmp_path / "requirements.txt"
    path.write_text(text)
    return str(path)


def asks(value: int) -> tuple[int, str, int]:
    import tiny_answer  # type: ignore[import-not-found]

    return tiny_answer.ANSWER + value, sys.prefix, os.getpid()


def collected(env: StreamExecutionEnvironment, function: Any) -> list[Any]:
    with env.from_sequence(1, 4).map(function).execute_and_collect() as results:
        return sorted(results)


def environments() -> list[Path]:
    """Those that stand on this host."""
    return [path for run in run_directories(runs()) for path in run.glob("tm-python/*")]


def assert_shared(prefixes: set[str]) -> None:
    """Subtasks may lie on several TaskManagers: each makes the environment of the same dependencies once."""
    places = [Path(prefix).parent for prefix in prefixes]  # <run directory of the TaskManager>/tm-python/<hash>
    assert len({place.name for place in places}) == 1, f"the same dependencies have different names: {places}"
    assert len({place.parent for place in places}) == len(places), f"a TaskManager made several: {places}"


@ANYWHERE
@pytest.mark.parametrize("place", ["processes"], indirect=True)
def test_packages_are_there_in_an_environment_of_their_own(tmp_path: Path, packages: Path) -> None:
    env = new_environment()  # each TaskManager takes ten seconds of a core to make it
    env.set_python_requirements(requirements(tmp_path, "tiny-answer==1.0\n"), str(packages))
    answers = collected(env, asks)
    assert [answer for answer, _, _ in answers] == [43, 44, 45, 46]
    assert sys.prefix not in {prefix for _, prefix, _ in answers}
    assert "tiny_answer" not in sys.modules
    until(lambda: not environments(), "the environment removed when no job uses it")
    with pytest.raises(JobFailedError, match="tiny_answer"):
        collected(new_environment(), asks)


@pytest.mark.long  # unit/service/test_python_environments.py shares them, too
@ANYWHERE
@pytest.mark.parametrize("place", ["embedded"], indirect=True)
def test_jobs_with_the_same_dependencies_share_an_environment(tmp_path: Path, packages: Path) -> None:
    meeting = str(tmp_path / "met")

    def meets(value: int) -> str:
        import tiny_answer

        with open(meeting, "a") as file:
            file.write(f"{tiny_answer.ANSWER}\n")
        deadline = time.monotonic() + 100
        while Path(meeting).read_text().count("42") < 2 and time.monotonic() < deadline:
            time.sleep(0.02)
        return sys.prefix

    jobs = []
    for _ in range(2):
        env = new_environment()
        env.set_python_requirements(requirements(tmp_path, "tiny-answer==1.0\n"), str(packages))
        jobs.append(env.from_collection([1]).map(meets).execute_and_collect())
    until(lambda: Path(meeting).exists() and Path(meeting).read_text().count("42") == 2, "both jobs at once")
    assert_shared({prefix for job in jobs for prefix in job})
    for job in jobs:
        job.close()
    until(lambda: not environments(), "the environment removed behind the last of them")


@pytest.mark.long  # unit/service/test_python_environments.py, and the way of the error: a bad executable, below
def test_a_package_that_is_not_there_is_named(tmp_path: Path, packages: Path) -> None:
    env = new_environment()
    env.set_python_requirements(requirements(tmp_path, "no-such-package-here==7\n"), str(packages))
    with pytest.raises(JobFailedError) as caught:
        collected(env, asks)
    text = str(caught.value)
    assert "The Python environment of the job could not be made on TaskManager" in text
    assert "the packages could not be installed" in text
    assert "no-such-package-here==7" in text


def reads(value: int) -> tuple[int, str, str]:
    return value, Path("model.zip/weights.txt").read_text(), Path("data/deep/more.txt").read_text()


def test_archives_are_in_the_working_directory(tmp_path: Path) -> None:
    model, data = tmp_path / "model.zip", tmp_path / "data.tgz"
    with zipfile.ZipFile(model, "w") as archive:
        archive.writestr("weights.txt", "w")
    with tarfile.open(data, "w:gz") as tar:
        entry = tarfile.TarInfo("deep/more.txt")
        entry.size = 1
        tar.addfile(entry, io.BytesIO(b"m"))
    env = new_environment(2)
    env.add_python_archive(str(model))
    env.add_python_archive(str(data), "data")
    assert collected(env, reads) == [(n, "w", "m") for n in range(1, 5)]


def which(value: int) -> str:
    return sys.executable


def test_the_executable_is_chosen_by_the_program(tmp_path: Path) -> None:
    chosen = tmp_path / "my-python"
    marker = tmp_path / "called"
    chosen.write_text(f'#!/bin/sh\ntouch "{marker}"\nexec "{sys.executable}" "$@"\n')
    chosen.chmod(0o755)
    env = new_environment()
    env.set_python_executable(str(chosen))
    assert len(collected(env, which)) == 4
    assert marker.exists()


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ('echo "[[3, 1], null]"', "is Python 3.1, and the cluster and its jobs are of Python"),
        (f'echo "[[{sys.version_info[0]}, {sys.version_info[1]}], null]"', "has no firesteel: install firesteel"),
        ("echo broken; exit 3", r"does not run \(exit code 3\):\nbroken"),
        (None, "is not there, or can't be run"),
    ],
)
def test_a_bad_executable_is_refused_in_one_sentence(tmp_path: Path, script: str | None, message: str) -> None:
    chosen = tmp_path / "python"
    if script is not None:
        chosen.write_text(f"#!/bin/sh\n{script}\n")
        chosen.chmod(0o755)
    env = new_environment()
    env.set_python_executable(str(chosen))
    with pytest.raises(JobFailedError, match=message):
        collected(env, which)


def test_files_that_can_not_travel_are_refused_before_anything_runs(tmp_path: Path) -> None:
    env = new_environment()
    env.set_python_requirements(str(tmp_path / "none.txt"))
    with pytest.raises(ProgramError, match=r"none.txt does not exist"):
        collected(env, which)
    env = new_environment()
    env.set_python_requirements(requirements(tmp_path, "a\n-r others.txt\n"))
    with pytest.raises(ProgramError, match=r"requirements.txt:2: '-r others.txt' refers to a file of this host"):
        collected(env, which)
    env = new_environment()
    env.add_python_archive(str(tmp_path / "requirements.txt"))
    with pytest.raises(ProgramError, match="neither a zip nor a tar"):
        collected(env, which)

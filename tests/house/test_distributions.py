"""The wheels and sdists of a release (``./dev dist``): whole, the same bytes each time, and complete for a user."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

from tests.house.test_architecture import LIBRARY, PROJECTS, ROOT, project, requirement_names, requirements

SERVICES_OF_A_PROGRAM = {
    "firesteel-dispatcher",
    "firesteel-jobmaster",
    "firesteel-resourcemanager",
    "firesteel-taskmanager",
}
"""Those that a program needs which brings its own cluster."""


def build(root: Path, target: Path) -> dict[str, bytes]:
    """What ``./dev dist`` of a source tree has built, by file name."""
    command = [sys.executable, "-I", str(root / "tools" / "bootstrap.py"), "dist", str(target)]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {path.name: path.read_bytes() for path in target.iterdir() if path.name != ".gitignore"}


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return build(ROOT, tmp_path_factory.mktemp("dist"))


def copy_of_the_tree(target: Path) -> Path:
    """The sources elsewhere, of another age and with other rights."""
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in ("libs", "services", "examples", "requirements", "tools"):
        shutil.copytree(ROOT / name, target / name, symlinks=True, ignore=ignored, copy_function=shutil.copyfile)
    (target / "build").mkdir()
    (target / "build" / "uv").symlink_to(ROOT / "build" / "uv")
    for path in (target / "libs").rglob("*"):
        if path.is_file() and not path.is_symlink():
            path.chmod(0o600)
            os.utime(path, (1_000_000_000, 1_000_000_000))
    return target


def test_distributions_are_the_same_bytes_from_each_copy_of_the_sources(
    distributions: dict[str, bytes], tmp_path: Path
) -> None:
    again = build(copy_of_the_tree(tmp_path / "copy"), tmp_path / "dist")
    assert again.keys() == distributions.keys()
    assert [name for name in again if again[name] != distributions[name]] == []


def test_there_is_a_wheel_and_an_sdist_of_each_part(distributions: dict[str, bytes]) -> None:
    names = [str(project(path)["name"]).replace("-", "_") for path in PROJECTS]
    version = project(LIBRARY)["version"]
    endings = ("-py3-none-any.whl", ".tar.gz")
    assert set(distributions) == {f"{name}-{version}{ending}" for name in names for ending in endings}


def test_wheels_hold_every_file_of_their_package_and_nothing_else(
    distributions: dict[str, bytes], tmp_path: Path
) -> None:
    for path in PROJECTS:
        name = str(project(path)["name"]).replace("-", "_")
        wheel = tmp_path / "any.whl"
        wheel.write_bytes(next(data for file, data in distributions.items() if file.startswith(f"{name}-")
                               and file.endswith(".whl")))  # fmt: skip
        with zipfile.ZipFile(wheel) as archive:
            there = {entry for entry in archive.namelist() if not entry.endswith("/") and ".dist-info/" not in entry}
        source = path / "src"
        files = {file.relative_to(source).as_posix() for file in source.rglob("*") if file.is_file()}
        assert there == {file for file in files if "__pycache__" not in file and ".egg-info" not in file}, name


def test_the_library_brings_the_services_that_a_program_needs() -> None:
    assert requirement_names(requirements(LIBRARY)) >= SERVICES_OF_A_PROGRAM


def test_all_is_every_extra_that_needs_no_compiler() -> None:
    extras = tomllib.loads((LIBRARY / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (requirement,) = extras.pop("all")
    assert set(re.findall(r"[\w-]+", requirement)) - {"firesteel"} == {name for name in extras if "gssapi" not in name}


def test_every_part_says_who_has_made_it_and_for_which_pythons() -> None:
    first = project(LIBRARY)
    for path in PROJECTS:
        table = project(path)
        for field in ("authors", "classifiers", "keywords", "requires-python", "license"):
            assert table[field] == first[field], f"{path.name}: {field}"
        assert table["description"]


def test_contributors_are_told_the_same_as_by_ci_run_on_each_python_that_is_named() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))["jobs"]
    commands = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    assert {".ci/run", "./dev dist build/dist", "./dev site", "docker build -t firesteel ."} <= set(commands)
    named = [str(text).rpartition(" ")[2] for text in project(LIBRARY)["classifiers"] if ":: 3." in str(text)]  # type: ignore[attr-defined]
    assert jobs["install"]["strategy"]["matrix"]["python"] == named

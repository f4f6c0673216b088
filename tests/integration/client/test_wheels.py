"""What a user has who installs our wheels from a folder: the first command runs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tools.bootstrap import PROJECTS, UV

INSTALLED = [
    "firesteel",
    "firesteel-dispatcher",
    "firesteel-jobmaster",
    "firesteel-resourcemanager",
    "firesteel-taskmanager",
]


def uv(*arguments: str | Path) -> str:
    done = subprocess.run([UV, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """A Python environment with the packages of others that the tests have, and nothing of ours."""
    environment = tmp_path / "environment"
    uv("venv", "-q", "--python", sys.executable, environment)
    (packages,) = environment.glob("lib/python*/site-packages")
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if (packages / path.name).exists() or "firesteel" in path.name or path.suffix == ".pth":
            continue
        if path.suffix == ".dist-info":  # uv sees no links to such
            shutil.copytree(path, packages / path.name)
        else:
            (packages / path.name).symlink_to(path)
    return environment


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    """Wheels of all distributions."""
    for project in PROJECTS:
        uv("build", "-q", "--no-index", "--wheel", "--out-dir", tmp_path / "wheels", project)
    return tmp_path / "wheels"


def installed_from(wheels: Path, requirement: str, environment: Path) -> list[str]:
    """Our distributions in the environment after an installation without an index."""
    python = environment / "bin" / "python"
    uv("pip", "install", "-q", "--python", python, "--no-index", "--find-links", wheels, requirement)
    listed = uv("pip", "list", "--python", python, "--format", "freeze").splitlines()
    return [line.partition("==")[0] for line in listed if "firesteel" in line]


def test_firesteel_demo_runs_from_wheels_alone_and_all_brings_the_rest(
    environment: Path, wheels: Path, tmp_path: Path
) -> None:
    assert installed_from(wheels, "firesteel", environment) == INSTALLED
    text = tmp_path / "text"
    text.write_text("to be or not to be\n" * 50)
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(
        [environment / "bin" / "firesteel", "demo", "-D", "rest.port=0", text],
        cwd=tmp_path, env=kept, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "300 words" in done.stdout
    distributions = {wheel.name.partition("-")[0].replace("_", "-") for wheel in wheels.glob("*.whl")}
    assert set(installed_from(wheels, "firesteel[all]", environment)) == distributions
    program = "import firesteel_sql.connectors.jdbc; from firesteel_sql import TableEnvironment"
    subprocess.run([environment / "bin" / "python", "-c", program], cwd=tmp_path, env=kept, check=True)

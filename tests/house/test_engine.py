"""tests/servers/docker/ensure-engine.sh beside fakes of what it calls: its own decisions, without any engine."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "servers" / "docker" / "ensure-engine.sh"
TOOLS = ("cat", "env", "id", "mktemp", "nohup", "rm", "setsid", "sh", "sleep")
ANSWERS = '#!/bin/sh\n[ "$1" != info ] || [ -f "$HERE/up" ]\n'
"""A docker whose engine is up when there is a file; it has Compose and the image."""
ENGINE = '#!/bin/sh\nenv >"$HERE/environment"\ntouch "$HERE/up"\n'


def ensure(folder: Path, **fakes: str) -> tuple[int, str]:
    """Exit code and last line of the script, where there is nothing but standard tools and these programs."""
    for name in TOOLS:
        (folder / name).symlink_to(str(shutil.which(name)))
    (folder / "touch").symlink_to(str(shutil.which("touch")))
    for name, text in fakes.items():
        path = folder / name.replace("_", "-")
        path.unlink(missing_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    environment = {
        "PATH": str(folder), "HERE": str(folder), "TMPDIR": str(folder), "DOCKERD_PID_FILE": str(folder / "pid"),
        "DOCKERD_LOG": str(folder / "log"),
    }  # fmt: skip
    done = subprocess.run(
        [str(shutil.which("sh")), str(SCRIPT), "image"], env=environment, capture_output=True, text=True, timeout=300
    )
    return done.returncode, (done.stderr.splitlines() or [""])[-1]


def test_a_user_who_is_not_root_and_has_no_engine_is_told_so(tmp_path: Path) -> None:
    code, said = ensure(tmp_path, id="#!/bin/sh\necho 1000\n")
    assert (code, said) == (3, "ensure-engine: there is no Docker engine, and it can be installed by root only")


def test_root_of_another_system_is_told_so(tmp_path: Path) -> None:
    code, said = ensure(tmp_path, id="#!/bin/sh\necho 0\n")
    assert code == 3
    assert said.endswith("there is no Docker engine, and this is not Debian, where it could be installed")


@pytest.mark.parametrize("fails", ["update", "install"])
def test_packages_that_can_not_be_fetched_are_named(tmp_path: Path, fails: str) -> None:
    code, said = ensure(tmp_path, id="#!/bin/sh\necho 0\n", apt_get=f'#!/bin/sh\n[ "$1" != {fails} ]\n')
    assert code == 3
    assert "can't be" in said


def test_root_without_rights_is_told_so(tmp_path: Path) -> None:
    code, said = ensure(
        tmp_path, id="#!/bin/sh\necho 0\n", docker=ANSWERS, dockerd=ENGINE, unshare="#!/bin/sh\nexit 1\n"
    )
    assert code == 3
    assert said.endswith("root may not mount anything here, and a Docker engine has to")


def test_an_engine_that_was_killed_is_started_and_inherits_nothing_of_the_tests(tmp_path: Path) -> None:
    (tmp_path / "pid").write_text("999999999")
    code, said = ensure(
        tmp_path, id="#!/bin/sh\necho 0\n", docker=ANSWERS, dockerd=ENGINE, unshare="#!/bin/sh\nexit 0\n"
    )
    assert code == 0, said
    assert not (tmp_path / "pid").exists()
    variables = (tmp_path / "environment").read_text().splitlines()
    assert f"HERE={tmp_path}" in variables
    assert not [variable for variable in variables if variable.startswith("TMPDIR=")]


def test_an_engine_that_answers_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "up").touch()
    (tmp_path / "pid").write_text(str(os.getpid()))
    code, said = ensure(tmp_path, docker=ANSWERS)
    assert code == 0, said
    assert (tmp_path / "pid").exists()
    assert not (tmp_path / "environment").exists()

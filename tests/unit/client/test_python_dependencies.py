"""What a program says about Python dependencies becomes blobs and a description, the same for the same content."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from firesteel.client.python_dependencies import python_environment
from firesteel.config import Settings
from firesteel.core.errors import ProgramError


def zipped(path: Path, name: str = "a.txt") -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(zipfile.ZipInfo(name), "x")
    return path


def test_nothing_is_nothing() -> None:
    environment, blobs = python_environment(Settings())
    assert not environment
    assert blobs == {}
    assert environment.to_plain() == {}


def test_everything_travels_by_content(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("numpy>=2 ; python_version > '3'\n# note\n")
    (tmp_path / "packages").mkdir()
    (tmp_path / "packages" / "b.whl").write_bytes(b"b")
    zipped(tmp_path / "model.zip")
    options = {
        "python.requirements": f"{tmp_path}/requirements.txt#{tmp_path}/packages",
        "python.archives": f"{tmp_path}/model.zip,file://{tmp_path}/model.zip#other",
        "python.executable": "model.zip/bin/python",
    }
    environment, blobs = python_environment(Settings(options))
    assert set(environment.blobs()) == set(blobs)
    assert [(a.target, a.kind) for a in environment.archives] == [("model.zip", "zip"), ("other", "zip")]
    assert environment.executable == "model.zip/bin/python"
    again, _ = python_environment(Settings(options))
    assert again.id == environment.id
    (tmp_path / "packages" / "b.whl").write_bytes(b"changed")
    changed, _ = python_environment(Settings(options))
    assert changed.id != environment.id


@pytest.mark.parametrize("line", ["-r more.txt", "-e .", "./package", "--constraint c.txt", "file:///x.whl"])
def test_files_of_this_host_do_not_travel(tmp_path: Path, line: str) -> None:
    (tmp_path / "r.txt").write_text(f"numpy\n{line}\n")
    with pytest.raises(ProgramError, match=r"r\.txt:2: .* does not travel"):
        python_environment(Settings({"python.requirements": f"{tmp_path}/r.txt"}))


def test_bad_paths_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("x")
    zipped(tmp_path / "good.zip")
    for key, value, message in (
        ("python.requirements", f"{tmp_path}/none.txt", "does not exist"),
        ("python.requirements", f"{tmp_path}/text.txt#{tmp_path}/good.zip", "no directory"),
        ("python.archives", f"{tmp_path}/text.txt", "neither a zip nor a tar"),
        ("python.archives", "hdfs://x/y.zip", "only local files"),
        ("python.archives", f"{tmp_path}/good.zip#..", "name of a directory"),
        ("python.archives", f"{tmp_path}/good.zip#a/b", "name of a directory"),
    ):
        with pytest.raises(ProgramError, match=message):
            python_environment(Settings({key: value}))


def test_their_size_is_bounded(tmp_path: Path) -> None:
    zipped(tmp_path / "model.zip")
    options = {"python.archives": f"{tmp_path}/model.zip", "firesteel.python.files-max-bytes": "10"}
    with pytest.raises(ProgramError, match=r"firesteel\.python\.files-max-bytes"):
        python_environment(Settings(options))

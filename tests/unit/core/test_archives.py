from __future__ import annotations

import io
import os
import shutil
import tarfile
import zipfile
from pathlib import Path

import pytest

from firesteel.core import archives
from firesteel.core.archives import unpack_tar, unpack_zip
from firesteel.core.errors import UnsafeArchiveError


def zipped(path: Path, *entries: tuple[str, bytes, int]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content, mode in entries:
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            archive.writestr(info, content, zipfile.ZIP_DEFLATED)
    return path


def tarred(path: Path, *entries: tuple[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in entries:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def test_files_that_could_be_run_still_can(tmp_path: Path) -> None:
    path = zipped(tmp_path / "a.zip", ("bin/run", b"x", 0o100755), ("data.txt", b"y", 0o100644), ("plain", b"z", 0))
    unpack_zip(path, tmp_path / "out")
    assert os.access(tmp_path / "out/bin/run", os.X_OK)
    assert not (tmp_path / "out/data.txt").stat().st_mode & 0o111
    assert (tmp_path / "out/plain").read_bytes() == b"z"
    unpack_tar(tarred(tmp_path / "a.tgz", ("a/b", b"x")), tmp_path / "tar")
    assert (tmp_path / "tar/a/b").read_bytes() == b"x"


@pytest.mark.parametrize("name", ["../victim", "a/../../victim", "/victim", "..\\victim"])
def test_nothing_lands_outside(tmp_path: Path, name: str) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"untouched")
    victim.chmod(0o644)
    for unpack, path in (
        (unpack_zip, zipped(tmp_path / "a.zip", ("fine", b"1", 0), (name, b"evil", 0o100777))),
        (unpack_tar, tarred(tmp_path / "a.tgz", ("fine", b"1"), (name, b"evil"))),
    ):
        with pytest.raises(UnsafeArchiveError, match=r"a\.(zip|tgz): its entry .*victim' lies outside"):
            unpack(path, tmp_path / "out")
        assert not (tmp_path / "out").exists(), "nothing is unpacked"
    assert (victim.read_bytes(), victim.stat().st_mode & 0o777) == (b"untouched", 0o644)


def test_a_link_that_leads_outside_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as archive:
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc"
        archive.addfile(link)
    with pytest.raises(UnsafeArchiveError, match="link"):
        unpack_tar(path, tmp_path / "out")


def test_what_does_not_fit_is_refused_before_it_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zip_bomb = zipped(tmp_path / "a.zip", *[(str(n), bytes(1 << 20), 0) for n in range(5)])
    tar_bomb = tarred(tmp_path / "a.tgz", *[(str(n), bytes(1 << 20)) for n in range(5)])
    assert zip_bomb.stat().st_size < 1 << 14
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=4 << 20))
    for unpack, path in ((unpack_zip, zip_bomb), (unpack_tar, tar_bomb)):
        with pytest.raises(UnsafeArchiveError, match="unpacks to more than 3 MiB, which is all"):
            unpack(path, tmp_path / "out")
    monkeypatch.undo()
    with monkeypatch.context() as limited:
        limited.setattr(archives, "MOST_BYTES", 4 << 20)
        for unpack, path in ((unpack_zip, zip_bomb), (unpack_tar, tar_bomb)):
            with pytest.raises(UnsafeArchiveError, match="GiB, and no archive may"):
                unpack(path, tmp_path / "out")
    monkeypatch.setattr(archives, "MOST_ENTRIES", 4)
    with pytest.raises(UnsafeArchiveError, match="more than 4 entries"):
        unpack_zip(zip_bomb, tmp_path / "out")
    assert not (tmp_path / "out").exists()

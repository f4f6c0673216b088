"""Local disks of RocksDB that fill up, and files that vanish from them: said clearly, and the job goes on."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.embedded.programs import rest_of
from tests.integration.recovery.places import Embedded
from tests.integration.recovery.trials import Trial
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.may_skip(reason="only root can mount a small disk"),
    pytest.mark.long,
]
SIZE_MB = 48


@pytest.fixture
def disk() -> Iterator[Path]:
    """A small file system of its own."""
    folder = Path(tempfile.mkdtemp(prefix="firesteel-disk-"))
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE_MB}m,mode=0700", "firesteel-test", str(folder)]
    mounted = os.geteuid() == 0 and subprocess.run(mount, capture_output=True).returncode == 0
    try:
        if not mounted:
            pytest.skip("only root can mount a small disk")
        yield folder
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)
        folder.rmdir()


def test_the_job_goes_on_from_its_checkpoint(here: Embedded, folder: Path, disk: Path) -> None:
    foreign = disk / "of-somebody-else" / "file"
    foreign.parent.mkdir()
    foreign.write_text("theirs")

    def failures() -> list[str]:
        entries = rest_of(trial.job, "/exceptions?maxExceptions=1000")["exceptionHistory"]["entries"]
        return [str(entry) for entry in entries]

    def fails_with(*texts: str, since: int) -> None:
        def is_shown() -> bool:
            return any(all(text in failure for text in texts) for failure in failures()[: len(failures()) - since])

        wait_until(is_shown, lambda: f"a failure with {texts}: {failures()[:3]}")

    def trouble() -> None:
        before = len(failures())
        for path in disk.glob("firesteel-state-*/db"):
            shutil.rmtree(path, ignore_errors=True)
        fails_with("can't be used", str(disk), since=before)
        trial._progress()
        before, ballast = len(failures()), disk / "ballast"
        with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
            while True:  # until nothing more fits
                file.write(bytes(1 << 16))
        fails_with("No space left on device", since=before)
        ballast.unlink()
        trial._progress()

    settings = {"state.backend.rocksdb.localdir": str(disk), "web.exception-history-size": "1000"}
    trial = Trial(here, folder, ["keyed", "windows"], "rocksdb", rate=500, settings=settings)
    trial.run([], then=trouble)
    assert foreign.read_text() == "theirs"
    wait_until(lambda: not list(disk.glob("firesteel-state-*")), "local files of all attempts are removed")

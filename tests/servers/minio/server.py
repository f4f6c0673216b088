"""A real MinIO server for tests, with faults: killed, stopped, slow, full, away."""

from __future__ import annotations

import io
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from minio import Minio
from minio.error import S3Error

from firesteel.checkpoint.storage import CheckpointStorage, StorageParameters, load_checkpoint_storage
from firesteel.config import Settings
from firesteel.core.process import ProcessId, identify
from tests.ports import free_ports
from tests.waiting import wait_until

ENSURE = Path(__file__).parent / "ensure-minio.sh"
BUCKET = "checkpoints"
JOB = "ab" * 16


class MinioServer:
    """The server, with one disk.

    Args:
        program: of the server.
        variables: more of its environment.
        certificates: directory with ``public.crt`` and ``private.key``: it speaks TLS.
        megabytes: size of its disk, which only root can make; None = a folder of this machine's disk.

    Attributes:
        data: what is on its disk.
        user, password: of its administrator.
    """

    def __init__(
        self,
        program: str,
        variables: dict[str, str] | None = None,
        certificates: Path | None = None,
        megabytes: int | None = None,
    ) -> None:
        self._program, self._variables, self._certificates = program, variables or {}, certificates
        self.folder = Path(tempfile.mkdtemp(prefix="minio"))
        self.data = self.folder / "data"
        self.data.mkdir()
        self._mounted = megabytes is not None
        if megabytes is not None:
            _run("mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(self.data))
        (self.port,) = free_ports(1)
        self.user, self.password = "administrator", secrets.token_hex(16)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        """URL of the server."""
        return f"{'https' if self._certificates else 'http'}://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it; it takes requests at the return."""
        words = [self._program, "server", "--quiet", "--address", f"127.0.0.1:{self.port}"]
        if self._certificates:
            words += ["--certs-dir", str(self._certificates)]
        environment = {key: value for key, value in os.environ.items() if not key.startswith("MINIO_")}
        environment |= {
            "MINIO_ROOT_USER": self.user, "MINIO_ROOT_PASSWORD": self.password, "MINIO_BROWSER": "off",
            "MINIO_UPDATE": "off", "MINIO_CALLHOME_ENABLE": "off", "HOME": str(self.folder), **self._variables,
        }  # fmt: skip
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*words, str(self.data)], env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        wait_until(self._is_ready, lambda: f"MinIO is ready: {self.log()}")

    def _is_ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"MinIO has ended: {self.log()}"
        if self._certificates:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 5):
                return True
            return False
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with suppress(OSError), opener.open(f"{self.endpoint}/minio/health/ready", timeout=5) as answer:
            return bool(answer.status == 200)
        return False

    def log(self) -> str:
        """What it has said."""
        return (self.folder / "log").read_text(errors="replace")[-4000:]

    def client(self) -> Minio:
        """A client of its own, as the administrator."""
        return Minio(f"127.0.0.1:{self.port}", self.user, self.password, secure=False, region="us-east-1")

    def settings(self, **more: str) -> dict[str, str]:
        """Of jobs that keep their checkpoints here."""
        options = {
            "execution.checkpointing.dir": f"s3://{BUCKET}/jobs",
            "s3.endpoint": self.endpoint,
            "s3.access-key": self.user,
            "s3.secret-key": self.password,
            "s3.upload.min.part.size": "5 mb",
        }
        return options | {name.replace("__", "."): value for name, value in more.items()}

    def storage(self, **more: str) -> CheckpointStorage:
        """Of one and the same job."""
        return load_checkpoint_storage(StorageParameters(JOB, Settings(self.settings(**more))))

    def signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def _stands_still(self) -> bool:
        assert self._process is not None
        threads = Path(f"/proc/{self._process.pid}/task").glob("*/stat")
        return all(thread.read_text().rpartition(")")[2].split()[0] == "T" for thread in threads)

    def kill(self) -> None:
        """It is gone at once."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    @property
    def process(self) -> ProcessId:
        """Its process, which runs."""
        assert self._process is not None
        process = identify(self._process.pid)
        assert process is not None
        return process

    def stop(self) -> None:
        """It stands still, and its connections stay."""
        self.signal(signal.SIGSTOP)
        wait_until(self._stands_still, "MinIO stands still")

    def go_on(self) -> None:
        """It stands still no more."""
        self.signal(signal.SIGCONT)

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """It stands still, and goes on at the end."""
        self.stop()
        try:
            yield
        finally:
            self.go_on()

    @contextmanager
    def away(self) -> Iterator[None]:
        """It is killed, and starts again at the end."""
        self.kill()
        try:
            yield
        finally:
            self.start()

    @contextmanager
    def full(self) -> Iterator[None]:
        """Something else has filled its disk."""
        filler = self.folder / "data" / "filler"
        try:
            with suppress(OSError), filler.open("wb", buffering=0) as file:
                while file.write(bytes(64 << 10)):
                    pass
            yield
        finally:
            filler.unlink(missing_ok=True)
            wait_until(self._takes_something, "the server notices that its disk has room again")

    def _takes_something(self) -> bool:
        try:
            self.client().put_object(BUCKET, "room", io.BytesIO(b"room"), 4)
            self.client().remove_object(BUCKET, "room")
        except S3Error:
            return False
        return True

    @contextmanager
    def read_only(self) -> Iterator[None]:
        """Its disk takes nothing."""
        _run("mount", "-o", "remount,ro", str(self.data))
        try:
            yield
        finally:
            _run("mount", "-o", "remount,rw", str(self.data))

    def left(self) -> list[str]:
        """Objects in the bucket, and uploads that were begun, as they are on the disk."""
        below = [path for path in (self.data / BUCKET, self.data / ".minio.sys" / "multipart") if path.exists()]
        return sorted(str(file.parent.relative_to(self.data)) for path in below for file in path.rglob("xl.meta"))

    def newest(self) -> int:
        """Number of the last checkpoint that is complete."""
        metadata_files = self.data.glob(f"{BUCKET}/jobs/*/chk-*/_metadata/xl.meta")
        return max((int(file.parts[-3].removeprefix("chk-")) for file in metadata_files), default=0)

    def close(self) -> None:
        """Nothing is left of it."""
        if self._process is not None:
            with suppress(OSError):
                self.signal(signal.SIGCONT)
            self.kill()
        if self._mounted:
            _run("umount", "--lazy", str(self.data))
        shutil.rmtree(self.folder)


def can_mount() -> bool:
    """Whether disks of a given size can be made here."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return False
    return subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode == 0


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise AssertionError(f"{' '.join(words)}: {done.stderr}")

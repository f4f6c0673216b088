"""A real PostgreSQL for tests, which can be killed."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from firesteel.datastream.connectors.jdbc import JdbcConnectionOptions
from tests.ports import free_ports
from tests.waiting import wait_until

ENSURE = Path(__file__).parent / "ensure-postgresql.sh"
USER = "firesteel"


class PostgresServer:
    """The server, with a database ``postgres`` whose owner has a password.

    Args:
        programs: folder of them.
    """

    def __init__(self, programs: str) -> None:
        self._programs = Path(programs)
        # not in the folder of this run, into which nobody else may look: root's server is somebody else
        self._folder = Path(tempfile.mkdtemp(prefix="postgresql", dir="/tmp"))
        self.password = secrets.token_hex(8)
        self._as: dict[str, Any] = {}
        if os.geteuid() == 0:  # it refuses to run as root
            account = next((entry for entry in pwd.getpwall() if entry.pw_name in ("postgres", "nobody")), None)
            assert account is not None
            self._as = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
            os.chown(self._folder, account.pw_uid, account.pw_gid)
        (self.port,) = free_ports(1)
        word = self._folder / "password"
        word.write_text(self.password)
        word.chmod(0o644)
        self._call("initdb", "-D", str(self._data), "-U", USER, "-A", "scram-sha-256", f"--pwfile={word}", "-N")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    def _call(self, program: str, *words: str) -> None:
        done = subprocess.run(
            [self._programs / program, *words], capture_output=True, text=True, cwd=self._folder, **self._as
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def start(self) -> None:
        """Start it; it takes connections at the return."""
        words = ["-D", str(self._data), "-p", str(self.port), "-k", str(self._folder), "-h", "127.0.0.1"]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._programs / "postgres", *words], stdout=log, stderr=log, cwd=self._folder, **self._as
            )
        wait_until(self._answers, lambda: f"PostgreSQL answers: {(self._folder / 'log').read_text()[-2000:]}")

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._folder / "log").read_text()[-2000:]
        try:
            self.run("SELECT 1")
        except Exception:
            return False
        return True

    def options(self, driver: str | None = None) -> JdbcConnectionOptions:
        """How it is reached."""
        builder = JdbcConnectionOptions.JdbcConnectionOptionsBuilder()
        builder.with_url(f"jdbc:postgresql://127.0.0.1:{self.port}/postgres").with_user_name(USER)
        builder.with_password(self.password)
        return builder.with_driver_name(driver or "org.postgresql.Driver").build()

    def run(self, sql: str) -> list[tuple[Any, ...]]:
        connection = self.options().database().connect()
        try:
            rows = connection.run(sql)
            connection.commit()
            return rows
        finally:
            connection.close()

    def kill(self) -> None:
        """All of its processes are gone at once."""
        assert self._process is not None
        self._process.send_signal(signal.SIGQUIT)  # without a word to clients, and without a checkpoint
        self._process.wait()

    def close(self) -> None:
        """Nothing is left of it."""
        if self._process is not None and self._process.poll() is None:
            self.kill()
        shutil.rmtree(self._folder)

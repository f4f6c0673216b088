"""``firesteel run`` on a terminal: the live line, and what Ctrl-C asks."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration.client.conftest import Remote
from tests.integration.client.test_run import ENDLESS, HEAD, job_id_in

pytestmark = pytest.mark.timeout(400)
PATIENCE = 100.0
CTRL_C = b"\x03"


class Terminal:
    """A command whose standard streams are a terminal."""

    def __init__(self, folder: Path, *words: str) -> None:
        self._master, slave = pty.openpty()
        self.text = ""
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "firesteel", *words],
                cwd=folder,
                env={**os.environ, "PYTHONPATH": "", "COLUMNS": "200", "TERM": "xterm"},
                stdin=slave,
                stdout=slave,
                stderr=slave,
                start_new_session=True,
                preexec_fn=take_terminal,
            )
        finally:
            os.close(slave)

    def until(self, pattern: str) -> re.Match[str]:
        """Reads until something stands there; what was read before does not count again."""
        deadline = time.monotonic() + PATIENCE
        while (match := re.search(pattern, self.text, re.DOTALL)) is None:
            assert time.monotonic() < deadline, f"waited for {pattern!r}: {self.text!r}"
            assert self._read(0.2), f"ended before {pattern!r}: {self.text!r}"
        self.text = self.text[match.end() :]
        return match

    def _read(self, seconds: float) -> bool:
        """Reads what comes within a while; False when the other end is closed."""
        if not select.select([self._master], [], [], seconds)[0]:
            return True
        try:
            data = os.read(self._master, 65536)
        except OSError:  # EIO: nobody has the terminal open any more
            return False
        self.text += data.decode(errors="replace")
        return bool(data)

    def type(self, keys: bytes) -> None:
        """As from the keyboard."""
        os.write(self._master, keys)

    def end(self) -> int:
        """Waits for the end, and returns the exit code."""
        deadline = time.monotonic() + PATIENCE
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"it does not end: {self.text!r}"
            self._read(0.1)
        while select.select([self._master], [], [], 0)[0] and self._read(0):
            pass
        return self.process.returncode

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._master)


def take_terminal() -> None:
    """Makes the terminal the controlling one, so that Ctrl-C is a signal."""
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@contextmanager
def terminal(folder: Path, remote: Remote) -> Iterator[tuple[Terminal, str]]:
    """An endless job that is watched on a terminal, and its id; it is cancelled at the end of the block."""
    (folder / "program.py").write_text(HEAD + ENDLESS)
    shown = Terminal(folder, "run", *remote.options, "program.py")
    job = ""
    try:
        job = job_id_in(shown.until(r"Job has been submitted with JobID [0-9a-f]{32}")[0])
        shown.until(r"\r\x1b\[2Kendless: RUNNING  records in [1-9][\d,]* out [\d,]+  slots 1/1  0:0\d:\d\d")
        yield shown, job
    finally:
        shown.close()
        if job:
            remote.cancel(job)


def test_yes_cancels(folder: Path, remote: Remote) -> None:
    with terminal(folder, remote) as (shown, job):
        shown.type(CTRL_C)
        shown.until(rf"Cancel job 'endless' \({job}\)\?.*\[y/N\] ")
        shown.type(b"y\n")
        shown.until(f"Job {job} was cancelled")
        assert shown.end() == 130
        assert "Traceback" not in shown.text
        assert remote.until_state(job, "CANCELED")


def test_no_goes_on_and_a_second_ctrl_c_leaves_the_job_running(folder: Path, remote: Remote) -> None:
    with terminal(folder, remote) as (shown, job):
        shown.type(CTRL_C)
        shown.until(r"\[y/N\] ")
        shown.type(b"\n")
        shown.until(r"\r\x1b\[2Kendless: RUNNING")
        shown.type(CTRL_C)
        shown.until(r"\[y/N\] ")
        shown.type(CTRL_C)
        shown.until(f"runs on; `firesteel cancel {job}` cancels it")
        assert shown.end() == 130
        assert "Traceback" not in shown.text
        assert remote.jobs()[job] == "RUNNING"


def test_a_finished_job_leaves_no_live_line(folder: Path, remote: Remote) -> None:
    (folder / "program.py").write_text(HEAD + "env.from_sequence(1, 9).print()\nenv.execute('short')\n")
    shown = Terminal(folder, "run", *remote.options, "program.py")
    try:
        job = job_id_in(shown.until(r"Job has been submitted with JobID [0-9a-f]{32}")[0])
        shown.until(rf"\r?Job with JobID {job} has finished\.\r\nJob Runtime: \d+ ms\r\n")
        assert shown.end() == 0
        assert shown.text == ""
    finally:
        shown.close()

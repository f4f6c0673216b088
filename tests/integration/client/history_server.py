"""A history server as a process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def history_server(archives: Path, folder: Path) -> Iterator[tuple[str, Path]]:
    """A history server as a process: its address, and its log."""
    log = folder / "history.log"
    options = {"archive.fs.dir": archives, "web.port": 0, "archive.fs.refresh-interval": "100 ms"}
    words = [word for key, value in options.items() for word in ("-D", f"historyserver.{key}={value}")]
    with subprocess.Popen(
        [str(Path(sys.executable).parent / "firesteel-historyserver"), *words, "--log-file", str(log)],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, cwd=folder,
        env={**os.environ, "FIRESTEEL_SECRET": "0123456789abcdef"},
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert " listens on " in line, (line, log.read_text() if log.exists() else "")
            yield line.split()[-1], log
            process.terminate()
            assert process.wait(30) == 0
        finally:
            process.kill()

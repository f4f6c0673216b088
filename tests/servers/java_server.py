"""A server that runs in a Java of its own: started fast, watched, stopped, killed."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from firesteel.spark.java import find_java
from tests.waiting import PATIENCE, wait_until

_LOGGING = """\
rootLogger.level = info
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d %p %c{1} %m%n%ex
"""
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "firesteel" / "servers"


class JavaServer:
    """One server.

    Args:
        name: of the program; the archive of its classes is called so.
        folder: where it keeps what it has, its temporary files and its log.
        words: what follows the class path: flags that are its own, its main class, arguments.
        class_path: jars, or folders with ``/*`` behind them.
        heap_mb: its largest heap in MiB.
        archive: of its classes, which the first one of a machine leaves; later ones start fast. None: there is none.
        settings: folders behind the class path. An archive fits whatever is in them.
        variables: more of its environment.
        with_us: whether it ends when the thread that has started it ends, however that happens.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        words: Sequence[str],
        class_path: Sequence[str],
        *,
        heap_mb: int,
        archive: bool = False,
        settings: Sequence[str] = (),
        variables: Mapping[str, str] | None = None,
        with_us: bool = False,
    ) -> None:
        self.name, self.folder, self.words = name, folder, list(words)
        self._class_path, self._settings, self._heap_mb = list(class_path), list(settings), heap_mb
        self._variables = dict(variables or {})
        self._java = str(find_java().executable)
        self._archive: Path | None = None
        if archive:
            fits = "\n".join([os.path.realpath(self._java), *self._class_path])
            self._archive = CACHE / f"{name}-{hashlib.sha256(fits.encode()).hexdigest()[:12]}.jsa"
        self._new_archive: Path | None = None
        self._with_us = with_us and shutil.which("setpriv") is not None
        self._scratch = folder / "tmp"
        self._scratch.mkdir(parents=True, exist_ok=True)
        (folder / "log4j2.properties").write_text(_LOGGING)
        self._process: subprocess.Popen[bytes] | None = None
        self._said = 0

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def log(self) -> str:
        """What it has said last."""
        with suppress(FileNotFoundError):
            return (self.folder / "log").read_text(errors="replace")[-4000:]
        return ""

    def said(self) -> bytes:
        """What it has said since it was started."""
        with (self.folder / "log").open("rb") as log:
            log.seek(self._said)
            return log.read()

    def command(self, words: Sequence[str], *, making_archive: bool = False) -> list[str]:
        """A command line of the same program with other words."""
        flags = [f"-Xmx{self._heap_mb}m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"]
        flags += ["-Djava.net.preferIPv4Stack=true", f"-Djava.io.tmpdir={self._scratch}"]
        if self._archive is not None:
            if self._archive.exists():
                flags += [f"-XX:SharedArchiveFile={self._archive}"]
            elif making_archive:
                self._new_archive = self.folder / "classes.jsa"
                flags += [f"-XX:ArchiveClassesAtExit={self._new_archive}", "-Xlog:disable"]
        flags += [f"-Dlog4j2.configurationFile={self.folder / 'log4j2.properties'}"]
        return [self._java, *flags, "-cp", os.pathsep.join([*self._class_path, *self._settings]), *words]

    def run(self, *words: str, **variables: str) -> None:
        """Run a command of the same program, with these in its environment, too, and wait for its end."""
        with (self.folder / "log").open("ab") as log:
            done = subprocess.run(
                self.command(words), stdin=subprocess.DEVNULL, stdout=log, stderr=log, timeout=PATIENCE,
                env={**os.environ, **self._variables, **variables},
            )  # fmt: skip
        assert done.returncode == 0, f"{' '.join(words)} ended with {done.returncode}: {self.log()}"

    def begin(self) -> None:
        """Start it; `await_start` waits for it."""
        words = self.command(self.words, making_archive=True)
        if self._with_us:
            words = ["setpriv", "--pdeathsig", "KILL", *words]
        with (self.folder / "log").open("ab") as log:
            self._said = log.tell()
            self._process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                env={**os.environ, **self._variables},
            )  # fmt: skip

    def await_start(self) -> None:
        """It takes requests at the return."""
        wait_until(self._has_started, lambda: f"{self.name} has started: {self.log()}")

    def _has_started(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"{self.name} has ended: {self.log()}"
        return self.serves()

    def serves(self) -> bool:
        """Whether it takes requests; it lives."""
        raise NotImplementedError

    def is_alive(self) -> bool:
        """Whether its process lives."""
        return self._process is not None and self._process.poll() is None

    def signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """It stands still, and its connections stay."""
        self.signal(signal.SIGSTOP)
        wait_until(self.stands_still, f"{self.name} stands still")
        try:
            yield
        finally:
            self.signal(signal.SIGCONT)

    def stands_still(self) -> bool:
        """Whether all of its threads are stopped."""
        threads = Path(f"/proc/{self.pid}/task").glob("*/stat")
        return all(thread.read_text().rpartition(")")[2].split()[0] == "T" for thread in threads)

    def kill(self) -> None:
        """It is gone at once."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def stop(self, patience: float = PATIENCE) -> None:
        """It ends in order. The first one of a machine leaves an archive of its classes."""
        if self._process is None:
            return
        self.signal(signal.SIGCONT)
        self._process.terminate()
        try:
            self._process.wait(patience)
        except subprocess.TimeoutExpired:
            self.kill()
            return
        self._process = None
        if self._archive is not None and self._new_archive is not None and self._new_archive.exists():
            with suppress(OSError):
                self._archive.parent.mkdir(parents=True, exist_ok=True)
                fresh = self._archive.with_name(f"{self._archive.name}.{uuid.uuid4().hex}")
                shutil.copyfile(self._new_archive, fresh)
                os.replace(fresh, self._archive)

    def close(self) -> None:
        """End its process: in order if that leaves an archive, else at once."""
        if self.is_alive() and self._new_archive is not None and self._archive and not self._archive.exists():
            self.stop()
        else:
            self.kill()

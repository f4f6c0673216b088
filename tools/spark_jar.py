"""Compiles our Java classes for Spark's JVMs into the jar that is committed beside them.

spark_jar.py            make the jar anew
spark_jar.py --check    compile again and compare each class file with the jar's

Needs a JDK. The jar is the same for the same sources and compiler: times are fixed, names are sorted.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from firesteel.spark.own_classes import DIGEST_ATTRIBUTE, JAR, SOURCES, SPARK, sources_digest

SERVICE = "META-INF/services/org.apache.spark.scheduler.ExternalClusterManager"
MANIFEST = "META-INF/MANIFEST.MF"
COMPILER_ATTRIBUTE = "Firesteel-Compiler"
RELEASE = "17"
_LONG_AGO = (1980, 1, 1, 0, 0, 0)


class CompileError(Exception):
    """No compiler, or one that was not content."""


def compiler_version() -> str:
    """Feature release of ``javac``.

    Raises:
        CompileError: there is none.
    """
    javac = shutil.which("javac")
    if javac is None:
        raise CompileError("no javac on the PATH: install a JDK")
    answer = subprocess.run([javac, "-version"], capture_output=True, text=True, check=True)
    found = re.search(r"javac (\d+)", answer.stdout + answer.stderr)
    if found is None:
        raise CompileError(f"{javac} does not tell its version")
    return found[1]


def compile_classes() -> dict[str, bytes]:
    """Class files by their names in the jar.

    Raises:
        CompileError: javac is missing or refused the sources; with what it said.
    """
    compiler_version()
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise CompileError("pyspark is not installed")
    with tempfile.TemporaryDirectory() as folder:
        command = [
            "javac",
            "--release",
            RELEASE,
            "-g:lines,source",
            "-Xlint:all,-path",
            "-Werror",
            "-encoding",
            "UTF-8",
        ]
        command += ["-cp", str(Path(spec.origin).parent / "jars" / "*"), "-d", folder]
        command += sorted(str(path) for path in SOURCES.rglob("*.java"))
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode:
            raise CompileError(done.stderr + done.stdout)
        root = Path(folder)
        return {path.relative_to(root).as_posix(): path.read_bytes() for path in sorted(root.rglob("*.class"))}


def contents(classes: dict[str, bytes]) -> dict[str, bytes]:
    """Everything in the jar by name; the manifest comes first, as the format asks for."""
    manifest = (
        f"Manifest-Version: 1.0\r\n{DIGEST_ATTRIBUTE}: {sources_digest()[:40]}\r\n {sources_digest()[40:]}\r\n"
        f"Firesteel-Spark: {SPARK}\r\n{COMPILER_ATTRIBUTE}: {compiler_version()}\r\n\r\n"
    )
    return {MANIFEST: manifest.encode(), SERVICE: b"firesteel.spark.SlotsClusterManager\n", **classes}


def write_jar(path: Path, entries: dict[str, bytes]) -> None:
    """The same bytes for the same entries."""
    unfinished = path.with_suffix(".new")
    with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_DEFLATED) as jar:
        for name, data in entries.items():
            entry = zipfile.ZipInfo(name, _LONG_AGO)
            entry.external_attr = 0o644 << 16
            jar.writestr(entry, data, zipfile.ZIP_DEFLATED)
    unfinished.replace(path)


def read_jar(path: Path) -> dict[str, bytes]:
    """What is in a jar, by name."""
    with zipfile.ZipFile(path) as jar:
        return {name: jar.read(name) for name in jar.namelist()}


def attributes(manifest: bytes) -> dict[str, str]:
    """The main attributes of a manifest; lines that begin with a space go on from the one before."""
    text = manifest.decode().replace("\r\n ", "").replace("\n ", "")
    return dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)


def differences(made: dict[str, bytes], committed: dict[str, bytes]) -> list[str]:
    """Names of entries that are missing, too many, or of other content."""
    return sorted(name for name in made.keys() | committed.keys() if made.get(name) != committed.get(name))


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    check = parser.parse_args().check
    try:
        made = contents(compile_classes())
    except CompileError as error:
        print(f"spark_jar: {error}", file=sys.stderr)
        return 1
    if not check:
        write_jar(JAR, made)
        print(f"{JAR}: {len(made)} entries")
        return 0
    different = differences(made, read_jar(JAR))
    if different:
        print(f"spark_jar: {JAR.name} is not what its sources give: {', '.join(different)}", file=sys.stderr)
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())

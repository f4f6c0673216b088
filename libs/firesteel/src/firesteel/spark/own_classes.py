"""Our own Java classes: a small jar beside this file, made from ``java_src`` by ``tools/spark_jar.py``."""

from __future__ import annotations

import hashlib
import importlib.metadata
from pathlib import Path

from firesteel.core.errors import FleetError

JAR = Path(__file__).with_name("firesteel-spark.jar")
SOURCES = Path(__file__).with_name("java_src")
SPARK = "4.3"
"""The minor release of Spark whose inner classes they extend."""
DIGEST_ATTRIBUTE = "Firesteel-Sources-SHA-256"
"""Attribute of the jar's manifest: `sources_digest` when it was made."""


def sources_digest() -> str:
    """SHA-256 of all sources, names included."""
    digest = hashlib.sha256(f"Spark {SPARK}\n".encode())
    for path in sorted(SOURCES.rglob("*.java")):
        text = path.read_bytes()
        digest.update(f"{path.relative_to(SOURCES).as_posix()} {len(text)}\n".encode() + text)
    return digest.hexdigest()


def refuse_other_spark() -> None:
    """Spark's inner classes may change with each minor release.

    Raises:
        FleetError: another one is installed, or none.
    """
    try:
        version = importlib.metadata.version("pyspark")
    except importlib.metadata.PackageNotFoundError:
        raise FleetError(
            f"pyspark is not installed in this environment; run: pip install 'pyspark=={SPARK}.*'."
        ) from None
    if not version.startswith(f"{SPARK}."):
        raise FleetError(
            f"PySpark {version} is installed, but this version of Firesteel was tested with Spark {SPARK} only; "
            f"run: pip install 'pyspark=={SPARK}.*'."
        )

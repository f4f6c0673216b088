"""Settings of Spark that all fleets share."""

from __future__ import annotations

from pathlib import Path

from firesteel.spark.workers import DAEMON_MODULE

_POOLS = """\
<?xml version="1.0"?>
<allocations>
  <pool name="slots"><schedulingMode>FIFO</schedulingMode><weight>1000</weight><minShare>1000000</minShare></pool>
</allocations>
"""
"""A core that becomes free goes to a waiting slot before it goes to a task of a bounded stage."""


def common_settings(directory: Path, secret: str) -> dict[str, str]:
    """What a driver gets beside its master and its addresses.

    Args:
        directory: of the driver, mode 0700; pools and scratch files go there.
        secret: authenticates executors and whoever else speaks to the driver's ports.
    """
    pools = directory / "pools.xml"
    pools.write_text(_POOLS, encoding="utf-8")
    local = directory / "local"
    local.mkdir(mode=0o700, exist_ok=True)
    return {
        "spark.app.name": "firesteel",
        "spark.authenticate": "true",  # local mode too has RPC and block ports, which any local user could reach
        "spark.authenticate.secret": secret,
        "spark.local.dir": str(local),
        "spark.python.daemon.module": DAEMON_MODULE,
        "spark.python.worker.reuse": "false",
        "spark.scheduler.mode": "FAIR",
        "spark.scheduler.allocation.file": pools.as_uri(),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.ui.retainedJobs": "100",
        "spark.ui.retainedStages": "100",
        "spark.ui.retainedTasks": "1000",
        "spark.metrics.executorMetricsSource.enabled": "false",
        "spark.metrics.staticSources.enabled": "false",
    }


def unix_sockets(directory: Path) -> dict[str, str]:
    """Unix sockets between a JVM and its workers: no port to knock at; the directory's mode protects them."""
    return {
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": str(directory),
    }

"""Settings of Spark's drivers and executors, and a small stage that exercises them."""

from __future__ import annotations

import operator
from pathlib import Path

from firesteel.spark.context import OwnContext
from firesteel.spark.workers import DAEMON_MODULE

_POOLS = """\
<?xml version="1.0"?>
<allocations>
  <pool name="slots"><schedulingMode>FIFO</schedulingMode><weight>1000</weight><minShare>1000000</minShare></pool>
</allocations>
"""
"""A core that becomes free goes to a waiting slot before it goes to a task of a bounded stage."""


def common_settings(directory: Path, secret: str, ui: bool = False) -> dict[str, str]:
    """Settings of every driver, to which its master and its addresses are added.

    Args:
        directory: of the driver, mode 0700; pools and scratch files go there.
        secret: authenticates executors and whoever else speaks to the driver's ports.
        ui: with Spark's own pages. JVMs get ``SPARK_LOCAL_IP``, so these are on 127.0.0.1; nobody can end stages there.
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
        # Hadoop's Path takes the text after the scheme as it is: in a URI with %20 it would look for a file "%20". The
        # scheme has to be there, since a path without one is one of fs.defaultFS.
        "spark.scheduler.allocation.file": f"file:{pools}",
        "spark.ui.enabled": str(ui).lower(),
        "spark.ui.port": "0",
        "spark.ui.killEnabled": "false",
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


def encryption() -> dict[str, str]:
    """Both ends of a connection have to prove that they know the secret, and what they say is encrypted (AES)."""
    return {
        "spark.authenticate": "true",
        "spark.network.crypto.enabled": "true",
        "spark.network.crypto.authEngineVersion": "2",
        "spark.network.crypto.cipher": "AES/GCM/NoPadding",
        "spark.network.crypto.saslFallback": "false",
    }


def heartbeats(timeout: float) -> dict[str, str]:
    """Give up an executor that is silent for ``timeout`` seconds; the executor never gives up the driver.

    A slot does not need its executor to answer: it is merely not used for new ones. Heartbeats also carry how far the
    tasks of batch jobs are, so they come every two seconds at least.
    """
    milliseconds = round(timeout * 1000)
    interval = max(100, min(10_000, milliseconds // 5))
    return {
        "spark.executor.heartbeatInterval": f"{min(interval, 2000)}ms",
        "spark.executor.heartbeat.maxFailures": "2147483647",
        "spark.storage.blockManagerHeartbeatTimeoutMs": f"{milliseconds}ms",
        "spark.network.timeoutInterval": f"{interval}ms",
        "spark.network.timeout": f"{max(120, round(timeout))}s",
    }


def small_stage(context: OwnContext) -> None:
    """Run a bounded stage with a shuffle, on the context's thread."""
    context.spark.parallelize(range(8), 2).map(_pair).reduceByKey(operator.add).collect()


def _pair(number: int) -> tuple[int, int]:
    return number % 2, 1

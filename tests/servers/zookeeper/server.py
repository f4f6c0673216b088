"""Real ZooKeeper servers for tests, from the jars that PySpark brings: one, or three of which some are killed."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

from firesteel.spark.java import find_java
from firesteel.spark.jvm import spark_home
from tests.ports import free_ports
from tests.waiting import wait_until

TICK_MS = 500
"""Of the servers: sessions end at least two and at most twenty of them after they were heard."""
_MAIN = {
    1: "org.apache.zookeeper.server.ZooKeeperServerMain",
    3: "org.apache.zookeeper.server.quorum.QuorumPeerMain",
}
_LOGGING = """
rootLogger.level = info
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d %p %c{1} %m%n
"""


class ZooKeeperServer:
    """One server.

    Args:
        folder: where it keeps what it has.
        port: for clients.
        number: of this server.
        ensemble: lines of the configuration that name all servers; none: it is alone.
    """

    def __init__(self, folder: Path, port: int, number: int = 1, ensemble: tuple[str, ...] = ()) -> None:
        self.folder, self.port, self._count = folder, port, 3 if ensemble else 1
        data = folder / "data"
        data.mkdir(parents=True)
        (data / "myid").write_text(f"{number}\n")
        lines = [
            f"tickTime={TICK_MS}", "initLimit=20", "syncLimit=5", f"dataDir={data}", f"clientPort={port}",
            "clientPortAddress=127.0.0.1", "admin.enableServer=false", "4lw.commands.whitelist=*",
            "forceSync=no", *ensemble,
        ]  # fmt: skip
        (folder / "zoo.cfg").write_text("".join(f"{line}\n" for line in lines))
        (folder / "log4j2.properties").write_text(_LOGGING)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Of its process."""
        assert self._process is not None
        return self._process.pid

    def log(self) -> str:
        """What it has said last."""
        with suppress(FileNotFoundError):
            return (self.folder / "log").read_text(errors="replace")[-4000:]
        return ""

    def begin(self) -> None:
        """Start it; `await_start` waits for it."""
        words = [
            str(find_java().executable), "-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
            f"-Dlog4j2.configurationFile={self.folder / 'log4j2.properties'}",
            "-cp", f"{spark_home() / 'jars'}/*", _MAIN[self._count], str(self.folder / "zoo.cfg"),
        ]  # fmt: skip
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def await_start(self) -> None:
        """It takes requests at the return."""
        wait_until(lambda: bool(self.mode()), lambda: f"ZooKeeper has started: {self.log()}")

    def mode(self) -> str:
        """``leader``, ``follower`` or ``standalone``; empty: it does not serve."""
        assert self._process is not None
        assert self._process.poll() is None, f"ZooKeeper has ended: {self.log()}"
        try:
            with socket.create_connection(("127.0.0.1", self.port), 5) as connection:
                connection.sendall(b"srvr")
                told = b""
                while part := connection.recv(4096):
                    told += part
        except OSError:
            return ""
        return next((line[6:].strip() for line in told.decode().splitlines() if line.startswith("Mode: ")), "")

    def signal(self, number: signal.Signals) -> None:
        """Stop it for a while, or let it go on."""
        os.kill(self.pid, number)

    def kill(self) -> None:
        """As when its machine fails."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()


class ZooKeeper:
    """A service of one server, or of three.

    Args:
        servers: one or three.
    """

    def __init__(self, servers: int = 1) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="zookeeper"))
        clients = free_ports(3 * servers)
        ports = [clients[3 * number : 3 * number + 3] for number in range(servers)]
        ensemble = tuple(
            f"server.{number}=127.0.0.1:{peer}:{election}" for number, (_, peer, election) in enumerate(ports, 1)
        )
        self.servers = [
            ZooKeeperServer(self.folder / str(number), client, number, ensemble if servers > 1 else ())
            for number, (client, _, _) in enumerate(ports, 1)
        ]

    @property
    def quorum(self) -> str:
        """For `high-availability.zookeeper.quorum`."""
        return ",".join(f"127.0.0.1:{server.port}" for server in self.servers)

    def start(self) -> None:
        """They take requests at the return."""
        for server in self.servers:
            server.begin()
        for server in self.servers:
            server.await_start()

    def leader(self) -> ZooKeeperServer:
        """Of three, the one that leads."""
        return next(server for server in self.servers if server.mode() == "leader")

    def settings(self, storage: str | Path, session: str = "3 s", **more: str) -> dict[str, str]:
        """Of a cluster that keeps here what outlives its processes."""
        client = "high-availability.zookeeper.client"
        return {
            "high-availability.type": "zookeeper", "high-availability.zookeeper.quorum": self.quorum,
            "high-availability.storageDir": str(storage), f"{client}.session-timeout": session,
            f"{client}.connection-timeout": "30 s", f"{client}.retry-wait": "1 s", **more,
        }  # fmt: skip

    def close(self) -> None:
        """End them, and remove what they had."""
        for server in self.servers:
            server.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

"""Real ZooKeeper servers for tests, from the jars that PySpark brings: one, or three of which some are killed."""

from __future__ import annotations

import shutil
import socket
import tempfile
from pathlib import Path

from firesteel.spark.jvm import spark_home
from tests.ports import free_ports
from tests.servers.java_server import JavaServer

TICK_MS = 500
"""Of the servers: sessions end at least two and at most twenty of them after they were heard."""
_MAIN = {
    1: "org.apache.zookeeper.server.ZooKeeperServerMain",
    3: "org.apache.zookeeper.server.quorum.QuorumPeerMain",
}


class ZooKeeperServer(JavaServer):
    """One server.

    Args:
        folder: where it keeps what it has.
        port: for clients.
        number: of this server.
        ensemble: lines of the configuration that name all servers; none: it is alone.
        more: lines of the configuration.
        flags: of its JVM.
    """

    def __init__(
        self,
        folder: Path,
        port: int,
        number: int = 1,
        ensemble: tuple[str, ...] = (),
        more: tuple[str, ...] = (),
        flags: tuple[str, ...] = (),
    ) -> None:
        self.port = port
        data = folder / "data"
        data.mkdir(parents=True)
        (data / "myid").write_text(f"{number}\n")
        lines = [
            f"tickTime={TICK_MS}", "initLimit=20", "syncLimit=5", f"dataDir={data}", f"clientPort={port}",
            "clientPortAddress=127.0.0.1", "admin.enableServer=false", "4lw.commands.whitelist=*",
            "forceSync=no", *ensemble, *more,
        ]  # fmt: skip
        (folder / "zoo.cfg").write_text("".join(f"{line}\n" for line in lines))
        words = [*flags, _MAIN[3 if ensemble else 1], str(folder / "zoo.cfg")]
        super().__init__("ZooKeeper", folder, words, [f"{spark_home() / 'jars'}/*"], heap_mb=192)

    def serves(self) -> bool:
        """Whether it takes requests."""
        return bool(self.mode())

    def mode(self) -> str:
        """``leader``, ``follower`` or ``standalone``; empty: it does not serve."""
        assert self.is_alive(), f"ZooKeeper has ended: {self.log()}"
        try:
            with socket.create_connection(("127.0.0.1", self.port), 5) as connection:
                connection.sendall(b"srvr")
                answer = b""
                while part := connection.recv(4096):
                    answer += part
        except OSError:
            return ""
        return next((line[6:].strip() for line in answer.decode().splitlines() if line.startswith("Mode: ")), "")


class ZooKeeper:
    """A service of one server, or of three.

    Args:
        servers: one or three.
        more: lines of their configuration.
        flags: of their JVMs.
    """

    def __init__(self, servers: int = 1, more: tuple[str, ...] = (), flags: tuple[str, ...] = ()) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="zookeeper"))
        clients = free_ports(3 * servers)
        ports = [clients[3 * number : 3 * number + 3] for number in range(servers)]
        ensemble = tuple(
            f"server.{number}=127.0.0.1:{peer}:{election}" for number, (_, peer, election) in enumerate(ports, 1)
        )
        self.servers = [
            ZooKeeperServer(self.folder / str(number), client, number, ensemble if servers > 1 else (), more, flags)
            for number, (client, _, _) in enumerate(ports, 1)
        ]

    @property
    def quorum(self) -> str:
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

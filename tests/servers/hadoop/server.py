"""A real Hadoop for tests: HDFS (a NameNode, a DataNode) and YARN (a ResourceManager, NodeManagers), with Kerberos or
without, and with faults: daemons killed, stopped, away, a disk that is full.

Each daemon is a JVM of its own, on free loopback ports. The classes come from PySpark's jars, and from one more
(`ensure_hadoop`). ``with Hadoop(jars) as hadoop: hadoop.start_hdfs(); hadoop.start_yarn()``.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import pytest

from firesteel.spark.jvm import spark_home
from tests.ports import free_ports
from tests.servers.java_server import JavaServer
from tests.servers.kerberos.realm import REALM, Realm
from tests.waiting import wait_until

ENSURE = Path(__file__).parent / "ensure-hadoop.sh"
IMPOSSIBLE = 3
HOST = "localhost"
NAMENODE, DATANODE, RESOURCEMANAGER = "namenode", "datanode", "resourcemanager"
"""Names of daemons; NodeManagers are ``nodemanager-0``, ``nodemanager-1``."""
SERVICE = f"hadoop/{HOST}@{REALM}"
_WEB = f"HTTP/{HOST}@{REALM}"
_MAIN = {
    NAMENODE: "org.apache.hadoop.hdfs.server.namenode.NameNode",
    DATANODE: "org.apache.hadoop.hdfs.server.datanode.DataNode",
    RESOURCEMANAGER: "org.apache.hadoop.yarn.server.resourcemanager.ResourceManager",
    "nodemanager": "org.apache.hadoop.yarn.server.nodemanager.NodeManager",
}


def ensure_hadoop() -> str:
    """Folder with the jars of the servers. Where they can't be had, the test is skipped."""
    (client,) = (spark_home() / "jars").glob("hadoop-client-api-*.jar")
    version = client.stem.removeprefix("hadoop-client-api-")
    done = subprocess.run(["sh", str(ENSURE), version], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode == IMPOSSIBLE:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


class Daemon(JavaServer):
    """One daemon of a `Hadoop`; it serves when the cluster says so."""

    hadoop: Hadoop
    role: str

    def serves(self) -> bool:
        """Whether it takes requests."""
        try:
            return self.hadoop.is_ready(self.role)
        except (OSError, KeyError, IndexError, ValueError):
            return False


class Hadoop:
    """HDFS and YARN on this machine.

    Args:
        jars: folder of `ensure_hadoop`.
        nodemanagers: how many, each with `memory_mb` and `vcores`.
        memory_mb: of each NodeManager, for containers, in MiB.
        vcores: of each NodeManager.
        realm: whose Kerberos secures everything; None: nothing is secured. It is started by whoever made it.
        megabytes: size of the DataNode's disk, which only root can make; None = a folder of this machine's disk.
        properties: more of ``core-site``, ``hdfs-site``, ``yarn-site`` and ``capacity-scheduler``, or other values.

    Attributes:
        conf: folder with the configuration (``HADOOP_CONF_DIR``), of daemons and clients.
        uri: ``hdfs://localhost:PORT``.
        namenode_url: the NameNode's HTTP address (JMX, WebHDFS).
        resourcemanager_url: the ResourceManager's HTTP address (REST, proxy).
        daemons: by name: `NAMENODE`, `DATANODE`, `RESOURCEMANAGER`, ``nodemanager-0``, ...
    """

    def __init__(
        self,
        jars: str,
        *,
        nodemanagers: int = 2,
        memory_mb: int = 4096,
        vcores: int = 4,
        realm: Realm | None = None,
        megabytes: int | None = None,
        properties: Mapping[str, Mapping[str, object]] | None = None,
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="hadoop"))
        self.realm, self.nodemanagers = realm, nodemanagers
        self.disk = self.folder / "datanode-disk"
        self.disk.mkdir()
        self._mounted = megabytes is not None
        if megabytes is not None:
            _run("mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(self.disk))
        ports = iter(free_ports(10 + 3 * nodemanagers))

        def address() -> str:
            return f"{HOST}:{next(ports)}"

        namenode, namenode_http = address(), address()
        self.uri, self.namenode_url = f"hdfs://{namenode}", f"http://{namenode_http}"
        datanode_http, resourcemanager_web = address(), address()
        self._datanode_url = f"http://{datanode_http}"
        self.resourcemanager_url = f"http://{resourcemanager_web}"
        core: dict[str, object] = {
            "fs.defaultFS": self.uri, "hadoop.tmp.dir": self.folder / "tmp",
            "hadoop.proxyuser.root.hosts": "*", "hadoop.proxyuser.root.groups": "*",
            "ipc.client.connect.max.retries": 10, "ipc.client.connect.retry.interval": 500,
        }  # fmt: skip
        hdfs: dict[str, object] = {
            "dfs.namenode.http-address": namenode_http, "dfs.namenode.name.dir": f"file://{self.folder}/name",
            "dfs.datanode.data.dir": f"file://{self.disk}/data", "dfs.replication": 1,
            "dfs.datanode.address": address(), "dfs.datanode.http.address": datanode_http,
            "dfs.datanode.ipc.address": address(), "dfs.namenode.safemode.extension": 0,
            "dfs.namenode.edits.noeditlogchannelflush": "true",  # tests kill processes, not machines
            "dfs.heartbeat.interval": 1, "dfs.namenode.heartbeat.recheck-interval": 1000,
            "dfs.datanode.du.reserved": 0,
        }  # fmt: skip
        yarn: dict[str, object] = {
            "yarn.resourcemanager.hostname": HOST, "yarn.resourcemanager.address": address(),
            "yarn.resourcemanager.webapp.address": resourcemanager_web,
            "yarn.resourcemanager.scheduler.address": address(),
            "yarn.resourcemanager.resource-tracker.address": address(),
            "yarn.resourcemanager.admin.address": address(),
            "yarn.resourcemanager.scheduler.class":
                "org.apache.hadoop.yarn.server.resourcemanager.scheduler.capacity.CapacityScheduler",
            "yarn.resourcemanager.nodemanagers.heartbeat-interval-ms": 200,
            "yarn.resourcemanager.webapp.ui-actions.enabled": "true",
            "yarn.resourcemanager.recovery.enabled": "true",
            "yarn.resourcemanager.store.class":
                "org.apache.hadoop.yarn.server.resourcemanager.recovery.FileSystemRMStateStore",
            "yarn.resourcemanager.fs.state-store.uri": f"file://{self.folder}/resourcemanager-state",
            "yarn.resourcemanager.work-preserving-recovery.scheduling-wait-ms": 1000,
            "yarn.nm.liveness-monitor.expiry-interval-ms": 4000,
            "yarn.am.liveness-monitor.expiry-interval-ms": 20000,
            "yarn.resourcemanager.am.max-attempts": 4,
            "yarn.scheduler.minimum-allocation-mb": 64, "yarn.scheduler.maximum-allocation-mb": memory_mb,
            "yarn.nodemanager.resource.memory-mb": memory_mb, "yarn.nodemanager.resource.cpu-vcores": vcores,
            "yarn.nodemanager.container-executor.class":
                "org.apache.hadoop.yarn.server.nodemanager.DefaultContainerExecutor",
            "yarn.nodemanager.vmem-check-enabled": "false",  # the address space of a JVM is huge
            "yarn.nodemanager.resource.memory.enforced": "false",  # by cgroups: without them nobody looks
            "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": 100,
            "yarn.nodemanager.container-monitor.interval-ms": 500,
            "yarn.nodemanager.sleep-delay-before-sigkill.ms": 250,
            "yarn.resourcemanager.connect.retry-interval.ms": 500,  # else a wrong port looks like a hang
            "yarn.resourcemanager.connect.max-wait.ms": 20000,
            "yarn.log-aggregation-enable": "true",
            "yarn.nodemanager.remote-app-log-dir": f"file://{self.folder}/application-logs",
        }  # fmt: skip
        capacity: dict[str, object] = {
            "yarn.scheduler.capacity.root.queues": "default",
            "yarn.scheduler.capacity.root.default.capacity": 100,
            "yarn.scheduler.capacity.maximum-am-resource-percent": 0.9,
        }
        own = [
            {
                "yarn.nodemanager.address": address(), "yarn.nodemanager.localizer.address": address(),
                "yarn.nodemanager.webapp.address": address(),
                "yarn.nodemanager.local-dirs": self.folder / f"nodemanager-{number}" / "local",
                "yarn.nodemanager.log-dirs": self.folder / f"nodemanager-{number}" / "logs",
            }
            for number in range(nodemanagers)
        ]  # fmt: skip
        if realm is not None:
            keytab = realm.keytab("hadoop", SERVICE, _WEB)
            core |= {"hadoop.security.authentication": "kerberos", "hadoop.security.authorization": "true",
                     "hadoop.proxyuser.hadoop.hosts": "*", "hadoop.proxyuser.hadoop.groups": "*"}  # fmt: skip
            hdfs |= {
                "dfs.block.access.token.enable": "true",
                "ignore.secure.ports.for.testing": "true",  # else the DataNode wants ports of root, or SASL
                "dfs.web.authentication.kerberos.principal": _WEB, "dfs.web.authentication.kerberos.keytab": keytab,
            }  # fmt: skip
            for daemon in ("namenode", "datanode"):
                hdfs |= {f"dfs.{daemon}.kerberos.principal": SERVICE, f"dfs.{daemon}.keytab.file": keytab}
            # Without Hadoop's native library a NodeManager that has to aggregate logs securely shuts down.
            yarn["yarn.log-aggregation-enable"] = "false"
            for daemon in ("resourcemanager", "nodemanager"):
                yarn |= {
                    f"yarn.{daemon}.principal": SERVICE, f"yarn.{daemon}.keytab": keytab,
                    f"yarn.{daemon}.webapp.spnego-principal": _WEB,
                    f"yarn.{daemon}.webapp.spnego-keytab-file": keytab,
                }  # fmt: skip
        self.conf = self.folder / "conf"
        for part in ("hdfs", "datanode"):  # the jars have no web pages, and empty folders will do
            (self.conf / "webapps" / part).mkdir(parents=True)
        files = {"core-site": core, "hdfs-site": hdfs, "yarn-site": yarn, "capacity-scheduler": capacity}
        for name, values in files.items():
            _write(self.conf / f"{name}.xml", values | dict((properties or {}).get(name, {})))
        names: dict[str, Mapping[str, object]] = {NAMENODE: {}, DATANODE: {}, RESOURCEMANAGER: {}} | {
            f"nodemanager-{number}": more for number, more in enumerate(own)
        }
        class_path = sorted(str(jar) for folder in (jars, spark_home() / "jars") for jar in Path(folder).glob("*.jar"))
        self.daemons = {name: self._daemon(name, class_path, more) for name, more in names.items()}

    def _daemon(self, name: str, class_path: list[str], own: Mapping[str, object]) -> Daemon:
        role = name.partition("-")[0]
        flags = self.realm.java_flags if self.realm is not None else []
        words = [*flags, _MAIN[role], *(word for key, value in own.items() for word in ("-D", f"{key}={value}"))]
        daemon = Daemon(
            f"hadoop-{role}", self.folder / name, words, class_path, heap_mb=256, archive=True,
            settings=[str(self.conf)], variables={"HADOOP_CONF_DIR": str(self.conf)}, with_us=True,
        )  # fmt: skip
        daemon.hadoop, daemon.role = self, role
        return daemon

    # ---- life

    def start_hdfs(self) -> None:
        """HDFS takes requests at the return."""
        if not (self.folder / "name" / "current").exists():
            namenode = self.daemons[NAMENODE]
            namenode.run(*namenode.words, "-format", "-nonInteractive")
        self.start(NAMENODE, DATANODE)

    def start_yarn(self) -> None:
        """YARN takes requests, and has its nodes, at the return."""
        self.start(RESOURCEMANAGER, *[name for name in self.daemons if name.startswith("nodemanager")])

    def start(self, *names: str) -> None:
        """Start those of these daemons that do not run; they take requests at the return."""
        begun = [self.daemons[name] for name in names if not self.daemons[name].is_alive()]
        for daemon in begun:
            daemon.begin()
        for daemon in begun:
            daemon.await_start()

    def kill(self, *names: str) -> None:
        """Daemons are gone at once; containers of a NodeManager stay."""
        for name in names:
            self.daemons[name].kill()

    @contextmanager
    def away(self, *names: str) -> Iterator[None]:
        """Daemons are killed, and start again at the end."""
        self.kill(*names)
        try:
            yield
        finally:
            self.start(*names)

    @contextmanager
    def stopped(self, *names: str) -> Iterator[None]:
        """Daemons stand still, and their connections stay."""
        with ExitStack() as stack:
            for name in names:
                stack.enter_context(self.daemons[name].stopped())
            yield

    @contextmanager
    def full(self) -> Iterator[None]:
        """Something else has filled the DataNode's disk, which has a size of its own."""
        assert self._mounted, "a disk without a size can't be filled"
        filler = self.disk / "filler"
        try:
            with suppress(OSError), filler.open("wb", buffering=0) as file:
                while file.write(bytes(64 << 10)):
                    pass
            wait_until(lambda: self.namesystem()["CapacityRemaining"] == 0, "the NameNode knows that the disk is full")
            yield
        finally:
            filler.unlink(missing_ok=True)
            wait_until(lambda: self.namesystem()["CapacityRemaining"] > 0, "the NameNode knows that there is room")

    def is_ready(self, role: str) -> bool:
        """Whether a daemon serves, and of YARN, whether the ResourceManager knows all nodes that run."""
        if role in (NAMENODE, DATANODE):
            state = self.namesystem()
            if role == DATANODE:
                about = "/jmx?qry=Hadoop:service=DataNode,name=DataNodeInfo"
                beans = self.get(about, self._datanode_url)["beans"][0]["BPServiceActorInfo"]
                if state["NumLiveDataNodes"] != 1 or [actor["ActorState"] for actor in json.loads(beans)] != [
                    "RUNNING"
                ]:
                    return False
            return bool(state["FSState"] == "Operational")
        if self.get("/ws/v1/cluster/info")["clusterInfo"]["state"] != "STARTED":
            return False
        alive = sum(daemon.is_alive() for name, daemon in self.daemons.items() if name.startswith("nodemanager"))
        return bool(self.metrics()["activeNodes"] == alive)

    def metrics(self) -> dict[str, Any]:
        """YARN's, of its REST API."""
        return dict(self.get("/ws/v1/cluster/metrics")["clusterMetrics"])

    def namesystem(self) -> dict[str, Any]:
        """What the NameNode says of itself; unlike its metrics it is not cached."""
        answer = self.get("/jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState", self.namenode_url)
        return dict(answer["beans"][0])

    def get(self, path: str, url: str | None = None) -> Any:
        """JSON of the ResourceManager's REST API, or of another one."""
        request = urllib.request.Request(
            (url or self.resourcemanager_url) + path, headers={"Accept": "application/json"}
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=5) as answer:
            return json.load(answer)

    def containers(self) -> list[int]:
        """Processes that NodeManagers have started, by what is in their environment."""
        mark = str(self.folder).encode()
        daemons = {daemon.pid for daemon in self.daemons.values() if daemon.is_alive()}
        pids = []
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                environment = (process / "environ").read_bytes().split(b"\0")
                is_container = any(
                    variable.startswith((b"LOCAL_DIRS=", b"LOG_DIRS=")) and mark in variable for variable in environment
                )
                if is_container and int(process.name) not in daemons:
                    pids.append(int(process.name))
        return pids

    def close(self) -> None:
        """Nothing is left of it, containers included."""
        for daemon in reversed(self.daemons.values()):
            if daemon.is_alive():
                daemon.signal(signal.SIGCONT)
                daemon.close()
        while left := self.containers():
            for process in left:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
        if self._mounted:
            _run("umount", "--lazy", str(self.disk))
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Hadoop:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _write(path: Path, values: Mapping[str, object]) -> None:
    lines = [
        f"  <property><name>{escape(name)}</name><value>{escape(str(value))}</value></property>\n"
        for name, value in values.items()
    ]
    path.write_text(f'<?xml version="1.0"?>\n<configuration>\n{"".join(lines)}</configuration>\n')


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise AssertionError(f"{' '.join(words)}: {done.stderr}")

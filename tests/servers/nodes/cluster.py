"""A real Kubernetes with one or two nodes whose pods run, wholly in namespaces of its own, with faults.

Debian's containerd runs the pods; kubelet and kube-proxy are programs that were built before. The control plane runs on
the host, at an address that only it and the nodes have. Nothing else of it touches the host's network, mounts or
processes, and all of a node ends with its first process.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.servers.kubernetes.server import API_SERVER, CONTROLLERS, ETCD, SCHEDULER, ControlPlane
from tests.servers.nodes.images import image_of_program
from tests.servers.nodes.names import NameServer
from tests.waiting import wait_until

HERE = Path(__file__).parent
PAUSE = "docker.io/firesteel-test/pause:1"
PATIENCE = 300.0
_CONTROLLERS = ("cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids", "systemd")
_CGROUPS = Path("/sys/fs/cgroup")
_USERS = {
    "proxy": ("system:kube-proxy", ""),
    "node-1": ("system:node:node-1", "system:nodes"),
    "node-2": ("system:node:node-2", "system:nodes"),
}
_BOUND = ("/var/lib/kubelet", "/var/log/pods", "/var/log/containers", "/var/lib/cni", "/run/netns")


def impossible() -> str:
    """Why there can be no such cluster on this machine; nothing if there can."""
    if os.geteuid() != 0:
        return "only root can make nodes of Kubernetes"
    if not (_CGROUPS / "memory").is_dir():
        return "nodes of Kubernetes are made with cgroup v1 here, and this machine has none"
    if subprocess.run(["unshare", "--mount", "--pid", "--fork", "true"], capture_output=True).returncode:
        return "root may not make namespaces here"
    for program in ("containerd", "ctr", "runc", "iptables", "nsenter", "openssl"):
        if shutil.which(program) is None:
            return f"there is no {program}"
    return "" if Path("/usr/lib/cni/bridge").exists() else "there are no CNI plug-ins in /usr/lib/cni"


class Node:
    """A node: containerd, kubelet, kube-proxy. The first one's network leads to the host, that of others to the first.

    Attributes:
        name: of the Node.
        folder: what it has.
        address: of it, in the cluster's network.
    """

    def __init__(self, cluster: KubernetesCluster, number: int) -> None:
        self.name, self._cluster = f"node-{number}", cluster
        self.folder = cluster.folder / self.name
        self.address, self.gateway = f"{cluster.net}.{number - 1}.2", f"{cluster.net}.{number - 1}.1"
        self.pods = f"{cluster.net}.{number + 1}.0/24"
        self.namespace = f"{cluster.name}-{number}"
        self.sockets = f"/run/{self.namespace}"
        self.device = f"k{cluster.name[-6:]}{number}"
        self.cgroup = cluster.name if number == 1 else f"{cluster.name}/{self.name}"
        self._process: subprocess.Popen[bytes] | None = None
        self._made: list[Path] = []

    def start(self) -> None:
        """Begin; returns before it is Ready."""
        for name in ("log", "cni", "fs"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        for controller in _CONTROLLERS:
            if (_CGROUPS / controller).is_dir():
                (_CGROUPS / controller / self.cgroup).mkdir(parents=True, exist_ok=True)
        # As many processes as there are in it: by default all of them together would count as one of the host's.
        shares = 16384 if self is self._cluster.nodes[0] else 2048
        (_CGROUPS / "cpu" / self.cgroup / "cpu.shares").write_text(str(shares))
        for name in ("cpuset.cpus", "cpuset.mems"):
            (_CGROUPS / "cpuset" / self.cgroup / name).write_text((_CGROUPS / "cpuset" / name).read_text())
        self._write_settings()
        for directory in (*_BOUND, self.sockets):
            if not Path(directory).exists():
                Path(directory).mkdir(parents=True)
                self._made.append(Path(directory))
        environment = {
            "PATH": os.environ["PATH"], "HOME": str(self.folder), "FOLDER": str(self.folder), "SOCKETS": self.sockets,
            "KUBECONFIG": str(self._cluster.kubeconfig_of(self.name)), "NAME": self.name, "ADDRESS": self.address,
            "PROGRAMS": str(self._cluster.programs), "PAUSE": str(self._cluster.folder / "pause.tar"),
        }  # fmt: skip
        with (self.folder / "log" / "first").open("ab") as log:
            self._process = subprocess.Popen(
                ["nsenter", f"--net=/run/netns/{self.namespace}", "unshare", "--mount", "--pid", "--fork",
                 "--mount-proc", "--kill-child=KILL", "bash", str(HERE / "node.sh")],
                env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def make_network(self) -> None:
        first = self._cluster.nodes[0]
        _run("ip", "netns", "add", self.namespace)
        outside = [] if self is first else ["-n", first.namespace]
        _run(
            "ip", *outside, "link", "add", self.device, "type", "veth", "peer", "name", "eth0", "netns", self.namespace
        )
        _run("ip", *outside, "addr", "add", f"{self.gateway}/30", "dev", self.device)
        _run("ip", *outside, "link", "set", self.device, "up")
        _run("ip", "-n", self.namespace, "addr", "add", f"{self.address}/30", "dev", "eth0")
        for device in ("eth0", "lo"):
            _run("ip", "-n", self.namespace, "link", "set", device, "up")
        _run("ip", "-n", self.namespace, "route", "add", "default", "via", self.gateway)
        self.add_route()
        for network in (self.pods, *([self._cluster.services] if self is first else [f"{self.gateway}/30"])):
            network = network.replace(".1/30", ".0/30")
            _run("ip", "route", "replace", network, "via", first.address)

    def add_route(self) -> None:
        """To its pods, for the first node."""
        first = self._cluster.nodes[0]
        if self is not first:
            _run("ip", "-n", first.namespace, "route", "replace", self.pods, "via", self.address)

    def _write_settings(self) -> None:
        cni = {
            "cniVersion": "0.4.0",
            "name": "test",
            "plugins": [
                {
                    "type": "bridge", "bridge": "cni0", "isGateway": True, "ipMasq": True, "hairpinMode": True,
                    "ipam": {
                        "type": "host-local", "ranges": [[{"subnet": self.pods}]], "routes": [{"dst": "0.0.0.0/0"}],
                    },
                },
                {"type": "portmap", "capabilities": {"portMappings": True}},
            ],
        }  # fmt: skip
        (self.folder / "cni" / "10-test.conflist").write_text(json.dumps(cni))
        (self.folder / "containerd.toml").write_text(f"""
version = 2
root = "{self.folder}/containerd"
state = "{self.sockets}/containerd"
oom_score = 0
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
    "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper"]
[grpc]
  address = "{self.sockets}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{self.folder}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    default_runtime_name = "runc"
    snapshotter = "overlayfs"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
""")
        kubelet = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", "failCgroupV1": False,
            "cgroupDriver": "cgroupfs", "cgroupRoot": f"/{self.cgroup}", "oomScoreAdj": 0, "failSwapOn": False,
            "containerRuntimeEndpoint": f"unix://{self.sockets}/containerd.sock", "address": self.address,
            "authentication": {
                "anonymous": {"enabled": False}, "webhook": {"enabled": True},
                "x509": {"clientCAFile": f"{self._cluster.folder}/kubelet-ca.crt"},
            },
            "authorization": {"mode": "Webhook"}, "clusterDNS": [self._cluster.dns], "clusterDomain": "cluster.local",
            "resolvConf": f"{self._cluster.folder}/resolv.conf", "imageGCHighThresholdPercent": 100,
            "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%"}, "nodeStatusUpdateFrequency": "2s",
        }  # fmt: skip
        (self.folder / "kubelet.yaml").write_text(json.dumps(kubelet))
        proxy = {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration", "mode": "iptables",
            "oomScoreAdj": 0, "clusterCIDR": f"{self._cluster.net}.2.0/23", "hostnameOverride": self.name,
            "clientConnection": {"kubeconfig": str(self._cluster.kubeconfig_of("proxy"))},
            "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
            "iptables": {"minSyncPeriod": "0s", "syncPeriod": "30s"},
        }  # fmt: skip
        (self.folder / "proxy.yaml").write_text(json.dumps(proxy))

    def inside(self, *words: str, check: bool = True, **more: Any) -> subprocess.CompletedProcess[str]:
        """Run a program in the node's namespaces."""
        return _run("nsenter", "-t", str(self._first()), "-m", "-p", "-n", *words, check=check, **more)

    def _first(self) -> int:
        assert self._process is not None
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        return int(children.read_text().split()[0])

    def load(self, archive: Path) -> None:
        """Import a docker-archive into its containerd."""
        self.inside("ctr", "-a", f"{self.sockets}/containerd.sock", "-n", "k8s.io", "images", "import", str(archive),
                    timeout=1500)  # fmt: skip

    def signal(self, program: str, number: signal.Signals) -> None:
        """Send a signal to one of its programs; one that ends is started again."""
        self.inside("kill", f"-{int(number)}", (self.folder / f"{program}.pid").read_text().strip())

    @contextmanager
    def paused(self, program: str) -> Iterator[None]:
        """One of its programs stands still."""
        self.signal(program, signal.SIGSTOP)
        try:
            yield
        finally:
            self.signal(program, signal.SIGCONT)

    @contextmanager
    def cut_off(self) -> Iterator[None]:
        """Its cable is pulled."""
        first = self._cluster.nodes[0]
        assert self is not first
        _run("ip", "-n", first.namespace, "link", "set", self.device, "down")
        try:
            yield
        finally:
            _run("ip", "-n", first.namespace, "link", "set", self.device, "up")
            self.add_route()

    def end(self) -> None:
        """End all its processes at once, as when its power fails; then remove what it had on this machine."""
        if self._process is not None:
            with suppress(OSError, IndexError):
                os.kill(self._first(), signal.SIGKILL)
            self._process.kill()
            self._process.wait()
        subprocess.run(["ip", "netns", "del", self.namespace], capture_output=True)
        subprocess.run(["ip", "link", "del", self.device], capture_output=True)
        wait_until(self._no_cgroups, f"the cgroups of {self.name} are empty")
        for directory in reversed(self._made):
            with suppress(OSError):
                directory.rmdir()

    def _no_cgroups(self) -> bool:
        left = [path for path in _CGROUPS.glob(f"*/{self.cgroup}") if path.is_dir()]
        for root in left:
            for path in sorted((entry for entry in root.rglob("*") if entry.is_dir()), reverse=True):
                with suppress(OSError):
                    if (frozen := path / "freezer.state").exists():  # runc was killed while it ended a container
                        frozen.write_text("THAWED")
                    path.rmdir()
            with suppress(OSError):
                root.rmdir()
        return not any(path.exists() for path in left)

    def log(self) -> str:
        """The last words of its programs."""
        texts = []
        for path in sorted((self.folder / "log").glob("*")):
            texts.append(f"--- {self.name} {path.name}\n{path.read_text(errors='replace')[-3000:]}")
        return "\n".join(texts)


class _Control(ControlPlane):
    """The control plane of nodes, at an address that they reach."""

    def __init__(self, programs: Path, folder: Path, address: str, services: str) -> None:
        self._keys, self._address, self._services = folder, address, services
        super().__init__(programs, (ETCD, API_SERVER, CONTROLLERS, SCHEDULER))

    def _make_commands(self, peer: int, controllers: int, scheduler: int) -> dict[str, list[str]]:
        self.server = f"https://{self._address}:{self._port}"
        commands = super()._make_commands(peer, controllers, scheduler)
        with (self.folder / "tokens.csv").open("a") as file:
            for user, (name, group) in _USERS.items():
                token = secrets.token_hex(16)
                file.write(f"{token},{name},{user}{f',{group}' if group else ''}\n")
                (self.folder / f"{user}.kubeconfig").write_text(json.dumps(self.kubeconfig(token)))
        # The last one of a flag counts; the modes of authorization add up.
        commands[API_SERVER] += [
            f"--bind-address={self._address}", f"--advertise-address={self._address}",
            "--endpoint-reconciler-type=lease", "--authorization-mode=Node",
            "--enable-admission-plugins=NodeRestriction", f"--service-cluster-ip-range={self._services}",
            f"--kubelet-client-certificate={self._keys}/kubelet-client.crt",
            f"--kubelet-client-key={self._keys}/kubelet-client.key", "--kubelet-preferred-address-types=InternalIP",
            "--default-not-ready-toleration-seconds=5", "--default-unreachable-toleration-seconds=5",
        ]  # fmt: skip
        commands[CONTROLLERS] += ["--node-monitor-period=1s", "--node-monitor-grace-period=20s"]
        return commands


class KubernetesCluster:
    """The cluster.

    Args:
        programs: folder of Kubernetes' programs and etcd.
        pause: program of the pods' first process.

    Attributes:
        folder: all that it has.
        nodes: that were started.
        control: its control plane.
        names: its name server.
        kubeconfig: of its administrator.
    """

    def __init__(self, programs: Path, pause: Path) -> None:
        self.programs = programs
        self.name = f"fsk{secrets.token_hex(3)}"
        self.folder = Path(tempfile.mkdtemp(prefix="nodes"))
        self.folder.chmod(0o755)
        self.net = _free_network()
        self.services, self.dns = f"{self.net}.4.0/24", f"{self.net}.0.1"
        self.names: NameServer | None = None
        self.nodes: list[Node] = []
        self._make_keys()
        (self.folder / "resolv.conf").write_text("nameserver 127.0.0.1\n")
        image_of_program(self.folder / "pause.tar", PAUSE, pause)
        self.control = _Control(programs, self.folder, f"{self.net}.0.1", self.services)
        self.kubeconfig = self.kubeconfig_of("admin")

    def kubeconfig_of(self, user: str) -> Path:
        """How a user reaches the API server."""
        return self.control.folder / f"{user}.kubeconfig"

    def start(self, nodes: int = 1) -> None:
        """All nodes are Ready and names are found at the return."""
        self.add_node(self._start_control)
        for _ in range(nodes - 1):
            self.add_node()
        for node in self.nodes:
            self.wait_ready(node)

    def _start_control(self) -> None:
        self.control.start()
        self.names = NameServer(self.dns, lambda path: self.control.ask("GET", path))
        self.names.start()

    def add_node(self, before: Callable[[], None] = lambda: None) -> Node:
        """Begin one more.

        Args:
            before: what is done when its network is there.
        """
        node = Node(self, len(self.nodes) + 1)
        self.nodes.append(node)
        node.make_network()
        before()
        node.start()
        return node

    def wait_ready(self, node: Node, ready: bool = True) -> None:
        """Until Kubernetes takes it for Ready, or for lost."""

        def is_so() -> bool:
            done = self.kubectl("get", "node", node.name, "-o", "json", check=False)
            if done.returncode:
                return False
            states = {
                condition["type"]: condition["status"]
                for condition in json.loads(done.stdout)["status"].get("conditions", [])
            }
            return (states.get("Ready") == "True") is ready

        wait_until(is_so, lambda: f"{node.name} is {'' if ready else 'not '}Ready: {node.log()}", PATIENCE)

    def _make_keys(self) -> None:
        def openssl(*words: str) -> None:
            _run("openssl", *words, cwd=self.folder)

        openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=kubelet-client-ca", "-days", "30",
                "-keyout", "kubelet-ca.key", "-out", "kubelet-ca.crt")  # fmt: skip
        openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", "/O=system:masters/CN=apiserver-kubelet-client",
                "-keyout", "kubelet-client.key", "-out", "kubelet-client.csr")  # fmt: skip
        openssl("x509", "-req", "-in", "kubelet-client.csr", "-CA", "kubelet-ca.crt", "-CAkey", "kubelet-ca.key",
                "-CAcreateserial", "-days", "30", "-out", "kubelet-client.crt")  # fmt: skip

    def kubectl(self, *words: str, check: bool = True, **more: Any) -> subprocess.CompletedProcess[str]:
        """Run kubectl as the administrator."""
        return _run(str(self.programs / "kubectl"), "--kubeconfig", str(self.kubeconfig), *words, check=check, **more)

    def get(self, *words: str) -> Any:
        """What ``kubectl get`` knows, as JSON."""
        return json.loads(self.kubectl("get", *words, "-o", "json").stdout)

    def apply(self, text: str) -> None:
        self.kubectl("apply", "-f", "-", input=text)

    def make_volumes(self, count: int = 40) -> None:
        """A default storage class, with volumes on the first node's disk: there is nobody here who makes them."""
        manifests = [
            """
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: disk, annotations: {storageclass.kubernetes.io/is-default-class: "true"}}
provisioner: kubernetes.io/no-provisioner
volumeBindingMode: WaitForFirstConsumer
"""
        ]
        for number in range(count):
            path = self.folder / "volumes" / str(number)
            path.mkdir(parents=True)
            manifests.append(f"""
apiVersion: v1
kind: PersistentVolume
metadata: {{name: "disk-{number}"}}
spec:
  capacity: {{storage: 20Gi}}
  accessModes: [ReadWriteOnce]
  persistentVolumeReclaimPolicy: Retain
  storageClassName: disk
  local: {{path: {path}}}
  nodeAffinity:
    required:
      nodeSelectorTerms:
        - matchExpressions: [{{key: kubernetes.io/hostname, operator: In, values: [node-1]}}]
""")
        self.apply("---".join(manifests))

    def load(self, archive: Path) -> None:
        """Import an image into all nodes."""
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda node: node.load(archive), self.nodes))

    def close(self) -> None:
        """End everything, and remove it."""
        for node in reversed(self.nodes):
            node.end()
        if self.names is not None:
            self.names.close()
        self.control.close()
        shutil.rmtree(self.folder)

    def log(self) -> str:
        """Last words of all programs."""
        return "\n".join(node.log() for node in self.nodes)


def _free_network() -> str:
    """The first two numbers of a network that this machine does not use."""
    used = _run("ip", "-4", "route", "show").stdout + _run("ip", "-4", "addr", "show").stdout
    for number in range(213, 256):
        if f"10.{number}." not in used:
            return f"10.{number}"
    raise RuntimeError("no network 10.213.0.0/16 to 10.255.0.0/16 is free")


def _run(*words: str, check: bool = True, timeout: float = 300, **more: Any) -> subprocess.CompletedProcess[str]:
    if "input" not in more:
        more["stdin"] = subprocess.DEVNULL
    environment = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
    done = subprocess.run(words, capture_output=True, text=True, timeout=timeout, env=environment, **more)
    if check and done.returncode:
        raise AssertionError(f"{' '.join(words)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done

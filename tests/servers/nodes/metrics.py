"""A real metrics-server for a Kubernetes with nodes: it asks kubelets what pods use, and a HorizontalPodAutoscaler
asks it by the API server. It runs on the host beside the control plane."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from tests.ports import free_ports
from tests.servers.nodes.cluster import PATIENCE, KubernetesCluster
from tests.waiting import wait_until

ENSURE = Path(__file__).parent.parent / "kubernetes" / "ensure-metrics-server.sh"
_OBJECTS = """
apiVersion: v1
kind: Service
metadata: {name: metrics-server, namespace: kube-system}
spec: {ports: [{name: https, port: 443, targetPort: @PORT@}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: metrics-server, namespace: kube-system, labels: {kubernetes.io/service-name: metrics-server}}
addressType: IPv4
ports: [{name: https, port: @PORT@}]
endpoints: [{addresses: ["@ADDRESS@"]}]
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1beta1.metrics.k8s.io}
spec:
  service: {name: metrics-server, namespace: kube-system}
  group: metrics.k8s.io
  version: v1beta1
  insecureSkipTLSVerify: true
  groupPriorityMinimum: 100
  versionPriority: 100
---
# The API server has no certificate here by which it could tell who asks: everybody may.
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: metrics}
rules: [{apiGroups: [metrics.k8s.io], resources: [pods, nodes], verbs: [get, list, watch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: metrics}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: metrics}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: "system:unauthenticated"}]
"""


class MetricsServer:
    """The server.

    Args:
        cluster: whose pods it looks at.
        program: of it.
        folder: for its certificates and its log.
    """

    def __init__(self, cluster: KubernetesCluster, program: Path, folder: Path) -> None:
        self._cluster, self._program, self._log = cluster, program, folder / "metrics-server.log"
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Usage of nodes is known at the return."""
        (port,) = free_ports(1)
        control = str(self._cluster.kubeconfig)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    str(self._program), f"--kubeconfig={control}", f"--authentication-kubeconfig={control}",
                    f"--authorization-kubeconfig={control}", "--authentication-tolerate-lookup-failure=true",
                    "--authorization-always-allow-paths=/apis,/apis/*,/openapi/*,/livez,/readyz,/healthz",
                    f"--bind-address={self._cluster.dns}", f"--secure-port={port}", f"--cert-dir={self._folder}",
                    "--kubelet-insecure-tls", "--kubelet-preferred-address-types=InternalIP",
                    "--kubelet-request-timeout=5s", "--metric-resolution=10s",
                ],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        self._cluster.apply(_OBJECTS.replace("@PORT@", str(port)).replace("@ADDRESS@", self._cluster.dns))
        wait_until(self._knows_nodes, lambda: f"usage is known: {self.state()}", PATIENCE)

    def _knows_nodes(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.state()
        done = self._cluster.kubectl("top", "nodes", "--no-headers", check=False)
        return done.returncode == 0 and len(done.stdout.splitlines()) == len(self._cluster.nodes)

    def state(self) -> str:
        """What it has said last, and what the API server thinks of it."""
        service = self._cluster.kubectl("get", "apiservice", "v1beta1.metrics.k8s.io", "-o", "yaml", check=False).stdout
        return f"{service[-1500:]}\n{self._log.read_text(errors='replace')[-3000:]}"

    def usage(self, namespace: str) -> dict[str, Any]:
        """Pod -> its processors, in thousandths, and its memory, as ``kubectl top`` says."""
        done = self._cluster.kubectl("-n", namespace, "top", "pods", "--no-headers", check=False)
        return {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()}

    def close(self) -> None:
        """End it, and forget where it was."""
        words = ("delete", "apiservice/v1beta1.metrics.k8s.io", "service/metrics-server", "-n", "kube-system")
        self._cluster.kubectl(*words, check=False)
        if self._process is not None:
            self._process.kill()
            self._process.wait()

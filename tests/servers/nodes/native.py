"""Clusters that make themselves on a real Kubernetes: the commands, and what they have made."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from tests.servers.nodes.cluster import KubernetesCluster
from tests.servers.nodes.conftest import IMAGE, TAGS
from tests.servers.nodes.deployed import Deployed, until
from tests.servers.nodes.store import BUCKET, Store

NAMESPACE = "native"
CONTAINER = "firesteel-main-container"
_ACCOUNTS = f"""
apiVersion: v1
kind: ServiceAccount
metadata: {{name: firesteel, namespace: {NAMESPACE}}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {{name: workers, namespace: {NAMESPACE}}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {{name: firesteel, namespace: {NAMESPACE}}}
rules:
@RULES@
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {{name: workers, namespace: {NAMESPACE}}}
rules:
  - {{apiGroups: [coordination.k8s.io], resources: [leases], verbs: [get, list, watch]}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{name: firesteel, namespace: {NAMESPACE}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: firesteel}}
subjects: [{{kind: ServiceAccount, name: firesteel, namespace: {NAMESPACE}}}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{name: workers, namespace: {NAMESPACE}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: workers}}
subjects: [{{kind: ServiceAccount, name: workers, namespace: {NAMESPACE}}}]
"""


def make_namespace(cluster: KubernetesCluster, store: Store, rules: str) -> None:
    """The namespace of all native clusters, with the credentials of the store and the accounts.

    Args:
        cluster: the Kubernetes.
        store: of checkpoints.
        rules: that the JobManager's account has, as YAML.
    """
    store.credentials(NAMESPACE)
    cluster.apply(_ACCOUNTS.replace("@RULES@", rules))


class Native(Deployed):
    """A native cluster, by its name.

    Args:
        cluster: the Kubernetes.
        folder: for files of its own.
        name: ``kubernetes.cluster-id``.
        options: of the cluster, on top of those of all.

    Attributes:
        options: all of them.
    """

    def __init__(self, cluster: KubernetesCluster, folder: Path, name: str, **options: str) -> None:
        super().__init__(cluster, folder, NAMESPACE, f"{name}-rest", f"{name}-config", CONTAINER)
        self.id = name
        self._where = {
            "kubernetes.cluster-id": name,
            "kubernetes.namespace": NAMESPACE,
            "kubernetes.config.file": str(cluster.kubeconfig),
        }
        self.options = {
            "kubernetes.container.image.ref": f"{IMAGE}:{TAGS[0]}",
            "kubernetes.jobmanager.service-account": "firesteel",
            "kubernetes.taskmanager.service-account": "workers",
            "kubernetes.secrets": "store:/etc/firesteel/s3",
            "firesteel.s3.credentials-file": "/etc/firesteel/s3/credentials",
            "s3.endpoint": Store.endpoint,
            # Less CPU than a real node has.
            "kubernetes.jobmanager.cpu.amount": "0.05",
            "kubernetes.jobmanager.cpu.limit-factor": "40",
            # A node that is lost has TaskManagers, and not the store or the JobManager.
            "kubernetes.jobmanager.node-selector": "kubernetes.io/hostname:node-1",
            "kubernetes.taskmanager.cpu.amount": "0.05",
            "kubernetes.taskmanager.cpu.limit-factor": "40",
            "high-availability.type": "kubernetes",
            "high-availability.storageDir": f"s3://{BUCKET}/ha",
            "taskmanager.numberOfTaskSlots": "1",
            "taskmanager.memory.process.size": "1200m",
            "jobmanager.memory.process.size": "1600m",
            "heartbeat.interval": "1 s",
            "heartbeat.timeout": "12 s",
            "resourcemanager.taskmanager-timeout": "15 s",
            # A busy machine of tests has an API server that takes its time.
            "high-availability.kubernetes.leader-election.lease-duration": "30 s",
            "high-availability.kubernetes.leader-election.renew-deadline": "30 s",
            "execution.checkpointing.dir": f"s3://{BUCKET}/checkpoints",
            "execution.checkpointing.interval": "1 s",
            "execution.checkpointing.timeout": "60 s",
            "execution.checkpointing.tolerable-failed-checkpoints": "1000000",
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": "1000000",
            "restart-strategy.fixed-delay.delay": "1 s",
            **options,
        }

    def _definitions(self, options: dict[str, str]) -> list[str]:
        return [f"-D{key}={value}" for key, value in options.items()]

    def start(self) -> None:
        self.command("kubernetes-session", *self._definitions({**self._where, **self.options}))

    def stop(self) -> None:
        """``firesteel kubernetes-session --stop``, where it is still there."""
        self.command("kubernetes-session", "--stop", *self._definitions(self._where), check=False)

    def run_application(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """``firesteel run-application -t kubernetes-application``."""
        definitions = self._definitions({**self._where, **self.options})
        return self.command("run-application", "-t", "kubernetes-application", *definitions, *words, check=check)

    def firesteel(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the command ``firesteel`` on the host for this cluster, as one finds it that knows its name."""
        verb, *rest = arguments
        return self.command(verb, "-t", "kubernetes-session", *self._definitions(self._where), *rest)

    def pods(self, component: str) -> list[dict[str, Any]]:
        """Its pods of a kind, ``jobmanager`` or ``taskmanager``, without those that are being deleted or have ended."""
        items = self.get("pods", "-l", f"app={self.id},component={component}")["items"]
        return [
            pod
            for pod in items
            if "deletionTimestamp" not in pod["metadata"] and pod["status"].get("phase") in ("Pending", "Running")
        ]

    def names(self, component: str) -> list[str]:
        return sorted(pod["metadata"]["name"] for pod in self.pods(component))

    def exec(self, pod: str, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a program in the container of a pod."""
        return self.kubectl("exec", pod, "-c", self._container, "--", *words, check=check)

    def kill(self, pod: str, service: str) -> None:
        """kill -9 of a service of a pod, ``resourcemanager`` say."""
        script = (
            "import os, signal\n"
            "for pid in filter(str.isdigit, os.listdir('/proc')):\n"
            "    with open(f'/proc/{pid}/cmdline') as file: words = file.read().split('\\0')\n"
            f"    if 'firesteel_{service}' in words: os.kill(int(pid), signal.SIGKILL); print(pid)"
        )
        assert self.exec(pod, "python3", "-I", "-S", "-c", script).stdout, f"no {service} runs in {pod}"

    def left(self) -> list[str]:
        """Objects that the cluster has made; those of high availability stay on purpose."""
        kinds = "pods,services,secrets,deployments,replicasets,jobs"
        items = self.get(kinds, "-l", f"app={self.id}")["items"]
        return [f"{item['kind']}/{item['metadata']['name']}" for item in items]

    def wait_gone(self) -> None:
        """Until nothing of it is left."""
        until(lambda: not self.left(), lambda: f"nothing of {self.id} is left: {self.left()}")

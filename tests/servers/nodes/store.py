"""MinIO in a pod, for checkpoints and results."""

from __future__ import annotations

import base64
import secrets
from collections import Counter

from minio import Minio
from minio.error import S3Error

from tests.servers.nodes.cluster import KubernetesCluster
from tests.servers.nodes.deployed import until

MINIO = "docker.io/firesteel-test/minio:1"
BUCKET = "firesteel"
NAMESPACE = "storage"
_OBJECTS = """
apiVersion: v1
kind: Namespace
metadata: {name: storage}
---
apiVersion: v1
kind: Pod
metadata: {name: minio, namespace: storage, labels: {app: minio}}
spec:
  nodeSelector: {kubernetes.io/hostname: node-1}
  tolerations: [{operator: Exists}] # a machine that is busy may have no Ready node for a while
  containers:
    - name: minio
      image: docker.io/firesteel-test/minio:1
      args: [server, --quiet, --address, ":9000", /data]
      env:
        - {name: MINIO_ROOT_USER, value: administrator}
        - {name: MINIO_ROOT_PASSWORD, value: "@PASSWORD@"}
        - {name: MINIO_BROWSER, value: "off"}
        - {name: MINIO_UPDATE, value: "off"}
        - {name: MINIO_CALLHOME_ENABLE, value: "off"}
        - {name: HOME, value: /tmp}
      readinessProbe: {httpGet: {path: /minio/health/ready, port: 9000}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: minio, namespace: storage}
spec: {selector: {app: minio}, ports: [{port: 9000}]}
"""


class Store:
    """The server and its bucket."""

    endpoint = f"http://minio.{NAMESPACE}:9000"

    def __init__(self, cluster: KubernetesCluster) -> None:
        self._cluster, self._password = cluster, secrets.token_hex(16)

    def start(self) -> None:
        """It takes requests, and the bucket is there."""
        self._cluster.apply(_OBJECTS.replace("@PASSWORD@", self._password))
        self._cluster.kubectl("-n", NAMESPACE, "wait", "--for=condition=Ready", "pod/minio", "--timeout=120s")
        until(self._bucket, "the bucket is made")

    def _bucket(self) -> bool:
        try:
            self.client().make_bucket(BUCKET)
        except (OSError, S3Error):
            return False
        return True

    def client(self) -> Minio:
        """By the Service, which the host reaches."""
        address = self._cluster.get("service", "minio", "-n", NAMESPACE)["spec"]["clusterIP"]
        return Minio(f"{address}:9000", "administrator", self._password, secure=False, region="us-east-1")

    def credentials(self, namespace: str) -> None:
        """A Secret of the name ``store`` for a release."""
        text = f"[default]\naws_access_key_id = administrator\naws_secret_access_key = {self._password}\n"
        data = base64.b64encode(text.encode()).decode()
        self._cluster.kubectl("create", "namespace", namespace, check=False)
        self._cluster.apply(
            f"{{apiVersion: v1, kind: Secret, metadata: {{name: store, namespace: {namespace}}}, "
            f"data: {{credentials: {data}}}}}"
        )

    def lines(self, prefix: str) -> Counter[str]:
        """Of all objects below a folder that a reader sees."""
        client, lines = self.client(), Counter[str]()
        for object_ in client.list_objects(BUCKET, f"{prefix}/", recursive=True):
            assert object_.object_name is not None
            if "/_" not in object_.object_name:
                answer = client.get_object(BUCKET, object_.object_name)
                lines.update(answer.data.decode().splitlines())
                answer.close()
                answer.release_conn()
        return lines

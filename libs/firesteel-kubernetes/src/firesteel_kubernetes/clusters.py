"""Creates clusters on Kubernetes: the objects of a JobManager, as in Flink's native mode.

A cluster is a Deployment (a session) or a Job (an application) with its name. It owns these objects, which are removed
with it::

    <cluster>          headless Service by which TaskManagers find the JobManager, if leaders are not announced
    <cluster>-rest     Service of the REST API
    <cluster>-config   Secret: config.yaml, the cluster's secret, the token of the REST API, pod templates
"""

from __future__ import annotations

import base64
import json
import logging
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from firesteel.config import Settings, options
from firesteel.config.load import CONFIG_FILE
from firesteel.config.memory import has_memory_options
from firesteel.core.errors import ConfigurationError, FiresteelError
from firesteel.core.secret import SECRET_FILE_NAME
from firesteel_kubernetes.api import (
    ApiError,
    ConflictError,
    JsonObject,
    KubernetesApi,
    UnansweredError,
    UnreachableError,
    connect,
)
from firesteel_kubernetes.names import JOBMANAGER, cluster_id, cluster_labels, selector
from firesteel_kubernetes.pods import CONFIGURATION, CONTAINER, PodMaker, PodPlan, end_of, is_ready, waits_for

logger = logging.getLogger(__name__)
TOKEN_FILE: Final = "rest-token"
_TEMPLATE_FILE: Final = "taskmanager-pod-template.yaml"
_PORTS: Final = {"rpc": 6123, "resourcemanager": 8082, "jobmaster": 6124}
_REST: Final = 8081
_POLL: Final = 0.5
_SESSION: Final = "python3 -P -m firesteel_kubernetes.jobmanager"
_APPLICATION: Final = "firesteel-standalone-job"
_NOT_IN_PODS: Final = (
    "kubernetes.config.file", "kubernetes.context", "execution.target", "firesteel.cluster.directory",
    "firesteel.run.directory", "firesteel.security.secret-file", "firesteel.rest.token-file", "env.log.dir",
)  # fmt: skip
_DEFAULT_MEMORY: Final = "1728m"
_MAX_ATTEMPTS: Final = 6


class KubernetesClusterError(FiresteelError):
    """A cluster on Kubernetes can't be created, found or used."""


@dataclass(frozen=True)
class Found:
    """The REST API of a running cluster.

    Attributes:
        host: of the API.
        port: of the API.
        token: for requests.
    """

    host: str
    port: int
    token: str


class KubernetesCluster:
    """One cluster, by its name.

    Args:
        settings: with ``kubernetes.cluster-id``.
        api: of the Kubernetes where it is; None = as configured.
        owner: reference to the object with which the cluster is removed.
        annotations: of its Deployment or Job.

    Raises:
        ConfigurationError: an option is missing or wrong.
    """

    def __init__(
        self,
        settings: Settings,
        api: KubernetesApi | None = None,
        owner: JsonObject | None = None,
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        if settings.get(options.KUBERNETES_CLUSTER_ID) is None:
            raise ConfigurationError(f"say which cluster: -D{options.KUBERNETES_CLUSTER_ID.key}=NAME")
        self.settings, self.name = settings, cluster_id(settings)
        self.api, self.namespace = connect(settings, api)
        self.labels = cluster_labels(self.name, JOBMANAGER)
        self._owner, self._annotations = owner, dict(annotations or {})

    # -- made

    def ensure(self, arguments: Sequence[str] | None) -> None:
        """Create the missing objects of the cluster; existing ones stay as they are.

        Args:
            arguments: see ``create_application``; None = the cluster is a session.

        Raises:
            KubernetesClusterError: Kubernetes refuses it, or there is another cluster of this name.
            OSError: Kubernetes does not answer.
        """
        kind, program = ("Deployment", _SESSION) if arguments is None else ("Job", _APPLICATION)
        group = "apps" if kind == "Deployment" else "batch"
        files, workload = self._files(), self._workload(kind, program, arguments or ())
        workload_object = self._find(f"/apis/{group}/v1", f"{kind.lower()}s", self.name)
        if workload_object is None:
            workload_object = self._ask("POST", f"/apis/{group}/v1", f"{kind.lower()}s", workload)
        annotations = workload_object["metadata"].get("annotations") or {}
        if any(annotations.get(name) != value for name, value in self._annotations.items()):
            raise KubernetesClusterError(f"there is another cluster {self.name} in namespace {self.namespace}")
        for plural, body in self._others(files):
            with suppress(ConflictError):
                self._ask("POST", "/api/v1", plural, self._owned(body, workload_object, kind))

    def is_complete(self) -> bool:
        """Whether all objects exist that the JobManager needs.

        Raises:
            ApiError: Kubernetes does not answer, or refuses.
        """
        needed = (("secrets", f"{self.name}-config"), ("services", self.name), ("services", f"{self.name}-rest"))
        return all(self._find("/api/v1", plural, name) is not None for plural, name in needed)

    def workload(self) -> JsonObject | None:
        """Deployment or Job of the cluster; None = there is none.

        Raises:
            ApiError: see ``is_complete``.
        """
        deployment = self._find("/apis/apps/v1", "deployments", self.name)
        return deployment if deployment is not None else self._find("/apis/batch/v1", "jobs", self.name)

    def pods(self) -> list[JsonObject]:
        """All pods of the cluster, including those of TaskManagers.

        Raises:
            ApiError: see ``is_complete``.
        """
        labels = cluster_labels(self.name)
        listed = self.api.ask(
            "GET", f"/api/v1/namespaces/{self.namespace}/pods", query={"labelSelector": selector(labels)}
        )
        return [
            pod for pod in listed.get("items") or () if labels.items() <= (pod["metadata"].get("labels") or {}).items()
        ]

    def create_session(self) -> None:
        """Create the objects of a session cluster.

        Raises:
            KubernetesClusterError: a cluster of this name exists, or Kubernetes refuses.
        """
        self._create("Deployment", _SESSION, ())

    def create_application(self, arguments: Sequence[str]) -> None:
        """Create the objects of a cluster for one program.

        Args:
            arguments: of ``firesteel-standalone-job``: the program and its arguments.

        Raises:
            KubernetesClusterError: a cluster of this name exists, or Kubernetes refuses.
        """
        self._create("Job", _APPLICATION, arguments)

    def _create(self, kind: str, program: str, arguments: Sequence[str]) -> None:
        files = self._files()
        workload = self._workload(kind, program, arguments)
        group = "apps" if kind == "Deployment" else "batch"
        try:
            workload_object = self._ask("POST", f"/apis/{group}/v1", f"{kind.lower()}s", workload)
        except ConflictError as error:
            raise KubernetesClusterError(
                f"there is a cluster {self.name} in namespace {self.namespace}; choose another "
                f"{options.KUBERNETES_CLUSTER_ID.key}, or remove it: `kubectl delete {kind.lower()}/{self.name} "
                f"--namespace {self.namespace}`"
            ) from error
        except ApiError as error:
            raise KubernetesClusterError(str(error)) from error
        try:
            for plural, body in self._others(files):
                self._ask("POST", "/api/v1", plural, self._owned(body, workload_object, kind))
        except ApiError as error:
            with suppress(ApiError):
                self.delete()
            raise KubernetesClusterError(f"cluster {self.name} can't be made: {error}") from error

    def _owned(self, body: JsonObject, workload: JsonObject, kind: str) -> JsonObject:
        """An object that is removed with the cluster."""
        body["metadata"] |= {"labels": {**self.labels, **body["metadata"].get("labels", {})}}
        group = "apps" if kind == "Deployment" else "batch"
        owner = {
            "apiVersion": f"{group}/v1", "kind": kind, "name": self.name, "uid": workload["metadata"]["uid"],
            "controller": True, "blockOwnerDeletion": True,
        }  # fmt: skip
        body["metadata"]["ownerReferences"] = [owner]
        return body

    def _files(self) -> dict[str, str]:
        settings = {key: value for key, value in self.settings.to_plain().items() if key not in _NOT_IN_PODS}
        cluster_settings = {
            "kubernetes.cluster-id": self.name,
            "kubernetes.namespace": self.namespace,
            "firesteel.resourcemanager.driver": "kubernetes",
            "jobmanager.bind-host": "0.0.0.0",
            "jobmanager.rpc.port": str(_PORTS["rpc"]),
            "firesteel.resourcemanager.port": str(_PORTS["resourcemanager"]),
            "firesteel.jobmaster.port": str(_PORTS["jobmaster"]),
            "rest.bind-address": "0.0.0.0",
            "rest.address": f"{self.name}-rest",
            "rest.port": str(_REST),
            "firesteel.rest.token-file": TOKEN_FILE,
            "firesteel.cluster.directory": "/var/lib/firesteel/cluster",
            "firesteel.run.directory": "/run/firesteel/run",
            "firesteel.jvm.archive-in-background": "false",
            "firesteel.jobmaster.end-with-host": "true",
        }
        if not self._is_available:
            cluster_settings["jobmanager.rpc.address"] = f"{self.name}.{self.namespace}"
            cluster_settings["firesteel.resourcemanager.address"] = (
                f"{self.name}.{self.namespace}:{_PORTS['resourcemanager']}"
            )
            cluster_settings["firesteel.jobmaster.address"] = f"{self.name}.{self.namespace}:{_PORTS['jobmaster']}"
        if not has_memory_options(self.settings):
            cluster_settings["taskmanager.memory.process.size"] = _DEFAULT_MEMORY
        files = {}
        key = "kubernetes.pod-template-file.taskmanager"
        template = self.settings.get(options.TASKMANAGER_POD[key])
        PodMaker(self.settings, "taskmanager")  # reports wrong options now, not when the first pod is created
        for name in (options.KUBERNETES_POD_TEMPLATE.key, "kubernetes.pod-template-file.jobmanager", key):
            settings.pop(name, None)
        if template is not None:
            cluster_settings[key] = f"{CONFIGURATION}/{_TEMPLATE_FILE}"
            files[_TEMPLATE_FILE] = Path(str(template)).expanduser().read_text()
        files[CONFIG_FILE] = json.dumps({**settings, **cluster_settings}, indent=1)  # JSON is YAML, too
        files[SECRET_FILE_NAME], files[TOKEN_FILE] = secrets.token_hex(32), secrets.token_hex(32)
        return files

    @property
    def _is_available(self) -> bool:
        kind = (self.settings.get(options.HA_TYPE) or "none").lower()
        return kind not in ("none", "directory")

    def _workload(self, kind: str, program: str, arguments: Sequence[str]) -> JsonObject:
        replicas = self.settings.get(options.KUBERNETES_JOBMANAGER_REPLICAS)
        if replicas > 1 and not self._is_available:
            raise ConfigurationError(
                f"{options.KUBERNETES_JOBMANAGER_REPLICAS.key}: {replicas} pods need high availability, one of them "
                "leads: set high-availability.type: kubernetes, or 1 replica"
            )
        own_arguments = ["-D", f"{options.JOBMANAGER_RPC_ADDRESS.key}=$(POD_IP)"] if self._is_available else []
        probe = {"httpGet": {"path": "/health", "port": _PORTS["rpc"]}}
        ready = {"httpGet": {"path": "/ready", "port": _PORTS["rpc"]}}
        probes = {"readinessProbe": {**ready, "periodSeconds": 2, "timeoutSeconds": 10}}
        if not self._is_available:  # a standby, or one that waits for Kubernetes, listens nowhere, and is healthy
            probes["startupProbe"] = {**probe, "periodSeconds": 2, "failureThreshold": 150}
            probes["livenessProbe"] = {**probe, "periodSeconds": 10, "timeoutSeconds": 10, "failureThreshold": 6}
        restarts = "Always" if kind == "Deployment" else "Never"
        pod = PodMaker(self.settings, JOBMANAGER).make(
            PodPlan(
                name="",
                component=JOBMANAGER,
                labels=self.labels,
                command=f"{program} --config-dir {CONFIGURATION}",
                arguments=[*own_arguments, *arguments],
                memory=self.settings.get(options.JOBMANAGER_MEMORY),
                cores=1.0,
                given=f"{self.name}-config",
                restarts=restarts,
                ports={**_PORTS, "rest": _REST},
                more=probes,
            )
        )
        template = {"metadata": pod["metadata"], "spec": pod["spec"]}
        spec: JsonObject
        if kind == "Deployment":
            spec = {
                "replicas": replicas,
                "selector": {"matchLabels": self.labels},
                "strategy": {"type": "RollingUpdate"} if self._is_available else {"type": "Recreate"},
                "template": template,
            }
        else:
            # A pod that was stopped or killed, or whose services did not stay up (75), is created again and goes on;
            # any other exit code is that of the program, and ends the Job.
            rules = [
                {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                {
                    "action": "FailJob",
                    "onExitCodes": {"containerName": CONTAINER, "operator": "NotIn", "values": [0, 75, 137, 143]},
                },
            ]
            spec = {
                "backoffLimit": _MAX_ATTEMPTS, "completions": 1, "podFailurePolicy": {"rules": rules},
                "template": template,
            }  # fmt: skip
        version = "apps/v1" if kind == "Deployment" else "batch/v1"
        metadata: JsonObject = {"name": self.name, "labels": self.labels}
        if self._annotations:
            metadata["annotations"] = self._annotations
        if self._owner is not None:
            metadata["ownerReferences"] = [self._owner]
        return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}

    def _others(self, files: dict[str, str]) -> list[tuple[str, JsonObject]]:
        data = {name: base64.b64encode(text.encode()).decode() for name, text in files.items()}
        exposed = self.settings.get(options.KUBERNETES_REST_TYPE)
        return [
            ("secrets", {"metadata": {"name": f"{self.name}-config"}, "type": "Opaque", "data": data}),
            (
                "services",
                {
                    "metadata": {"name": self.name},
                    "spec": {
                        "clusterIP": "None", "publishNotReadyAddresses": True, "selector": self.labels,
                        "ports": [{"name": name, "port": port} for name, port in _PORTS.items()],
                    },
                },
            ),
            (
                "services",
                {
                    "metadata": {
                        "name": f"{self.name}-rest",
                        "labels": self.settings.get(options.KUBERNETES_REST_LABELS) or {},
                        "annotations": self.settings.get(options.KUBERNETES_REST_ANNOTATIONS) or {},
                    },
                    "spec": {
                        "type": exposed, "selector": self.labels, "ports": [{"name": "rest", "port": _REST}],
                    },
                },
            ),
        ]  # fmt: skip

    # -- found

    def kind(self) -> str:
        """``Deployment`` or ``Job``; empty = there is no such cluster."""
        for kind, group in (("Deployment", "apps"), ("Job", "batch")):
            if self._find(f"/apis/{group}/v1", f"{kind.lower()}s", self.name) is not None:
                return kind
        return ""

    def delete(self) -> None:
        """Remove the cluster with all that it owns, including its TaskManagers. Records of high availability stay.

        Raises:
            KubernetesClusterError: there is none, or Kubernetes refuses.
        """
        try:
            kind = self.kind()
            if not kind:
                raise KubernetesClusterError(f"there is no cluster {self.name} in namespace {self.namespace}")
            group = "apps" if kind == "Deployment" else "batch"
            body = {"propagationPolicy": "Background"}
            self._ask("DELETE", f"/apis/{group}/v1", f"{kind.lower()}s/{self.name}", body)
        except ApiError as error:
            raise KubernetesClusterError(str(error)) from error

    def find(self) -> Found:
        """Find the REST API of the cluster.

        Raises:
            KubernetesClusterError: there is no such cluster, or access is forbidden.
        """
        try:
            service = self._find("/api/v1", "services", f"{self.name}-rest")
            secret = self._find("/api/v1", "secrets", f"{self.name}-config")
            if service is None or secret is None:
                raise KubernetesClusterError(
                    f"there is no cluster {self.name} in namespace {self.namespace}; `firesteel kubernetes-session "
                    f"-D{options.KUBERNETES_CLUSTER_ID.key}={self.name}` makes one"
                )
            host, port = self._address(service)
        except ApiError as error:
            raise KubernetesClusterError(str(error)) from error
        return Found(host, port, base64.b64decode(secret["data"][TOKEN_FILE]).decode())

    def _address(self, service: JsonObject) -> tuple[str, int]:
        spec, port = service["spec"], service["spec"]["ports"][0]
        if spec["type"] == "LoadBalancer":
            for ingress in (service.get("status", {}).get("loadBalancer") or {}).get("ingress") or ():
                return str(ingress.get("ip") or ingress["hostname"]), int(port["port"])
        if spec["type"] in ("NodePort", "LoadBalancer") and port.get("nodePort"):
            for node in self.api.ask("GET", "/api/v1/nodes").get("items") or ():
                for address in node.get("status", {}).get("addresses") or ():
                    if address["type"] == "InternalIP":
                        return str(address["address"]), int(port["nodePort"])
        return str(spec["clusterIP"]), int(port["port"])

    def await_ready(self, seconds: float, note: Callable[[str], None]) -> None:
        """Wait until a pod of the JobManager takes requests; ``note`` is called with the reasons for waiting.

        Raises:
            KubernetesClusterError: this took too long, or the cluster has ended.
        """
        deadline, last_note = time.monotonic() + seconds, ""
        while True:
            try:
                reason = self._reason_to_wait()
            except (UnreachableError, UnansweredError) as error:
                reason = str(error)
            except ApiError as error:
                raise KubernetesClusterError(str(error)) from error
            if reason is None:
                return
            if reason and reason != last_note:
                note(f"{self.name} waits: {reason}")
                last_note = reason
            if time.monotonic() > deadline:
                raise KubernetesClusterError(
                    f"the JobManager of {self.name} takes no requests after {seconds:g} s: "
                    f"{last_note or 'see its logs'}; `kubectl describe pods --namespace {self.namespace} --selector "
                    f"{selector(self.labels)}`"
                )
            time.sleep(_POLL)

    def _reason_to_wait(self) -> str | None:
        """Why no pod of the JobManager takes requests yet, empty if no cause is known; None = one does.

        Raises:
            KubernetesClusterError: the application has ended.
            ApiError: Kubernetes refuses, or does not answer.
        """
        pods = self._pods()
        if any(is_ready(pod) for pod in pods):
            return None
        ends = [end for pod in pods if (end := end_of(pod))]
        if ends and len(ends) == len(pods) and self.kind() == "Job":
            raise KubernetesClusterError(f"{self.name} has ended: {ends[-1]}")
        return next((reason for pod in pods if (reason := waits_for(pod))), "")

    def await_end(self) -> tuple[bool, str]:
        """Wait until an application has ended; returns whether it succeeded, and how it ended.

        Raises:
            KubernetesClusterError: Kubernetes refuses to show the application.
        """
        while True:
            try:
                job = self._find("/apis/batch/v1", "jobs", self.name)
                if job is None:
                    return False, "it was removed"
                for condition in (job.get("status") or {}).get("conditions") or ():
                    if condition["status"] == "True" and condition["type"] in ("Complete", "Failed"):
                        ends = [end for pod in self._pods() if (end := end_of(pod))]
                        return condition["type"] == "Complete", (ends or [str(condition.get("message", ""))])[-1]
            except (UnreachableError, UnansweredError) as error:  # the application runs on meanwhile
                logger.info("%s can't be looked at for now: %s", self.name, error)
            except ApiError as error:
                raise KubernetesClusterError(str(error)) from error
            time.sleep(_POLL)

    def _pods(self) -> list[JsonObject]:
        query = {"labelSelector": selector(self.labels)}
        listed = self.api.ask("GET", f"/api/v1/namespaces/{self.namespace}/pods", query=query)
        return sorted(listed.get("items") or (), key=lambda pod: str(pod["metadata"].get("creationTimestamp")))

    # -- inside

    def _ask(self, method: str, group: str, path: str, body: JsonObject | None = None) -> JsonObject:
        return self.api.ask(method, f"{group}/namespaces/{self.namespace}/{path}", body)

    def _find(self, group: str, plural: str, name: str) -> JsonObject | None:
        return self.api.find(f"{group}/namespaces/{self.namespace}/{plural}/{name}")

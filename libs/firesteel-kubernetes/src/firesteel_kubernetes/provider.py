"""The provider ``kubernetes``: it starts TaskManagers as pods of the Kubernetes that the cluster runs on.

A pod is named ``<cluster-id>-taskmanager-<worker id>``. Its owner is the workload of the ResourceManager's own pod (its
Deployment, say), with which it is removed. The settings and the secret of the cluster are in a Secret,
``<cluster-id>-taskmanager``, which all pods mount. A later ResourceManager finds workers by their pods; pods of the
cluster that it does not know are removed.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from firesteel.config.load import CONFIG_FILE
from firesteel.config.memory import taskmanager_memory
from firesteel.config.options import (
    CLUSTER_DIRECTORY,
    RESOURCEMANAGER_ADDRESS,
    REST_TOKEN_FILE,
    RUN_DIRECTORY,
    SECRET_FILE,
    TASKMANAGER_BIND_HOST,
    TASKMANAGER_HOST,
    TASKMANAGER_RESOURCE_ID,
    TASKMANAGER_RPC_PORT,
    TASKMANAGER_SLOTS,
)
from firesteel.core.secret import SECRET_FILE_NAME
from firesteel.protocol.provider import ProviderContext, WorkerError, WorkerSpec
from firesteel.spark.hosted_provider import HostedProvider
from firesteel_kubernetes.api import (
    ApiError,
    ConflictError,
    JsonObject,
    KubernetesApi,
    MissingError,
    UnansweredError,
    UnreachableError,
    Watched,
    connect,
)
from firesteel_kubernetes.names import TASKMANAGER, cluster_id, cluster_labels, selector
from firesteel_kubernetes.pods import CONFIGURATION, PodMaker, PodPlan, end_of, waits_for

logger = logging.getLogger(__name__)
_WORKER: Final = "firesteel/worker"
_PORT: Final = 6122
_UNSEEN_SECONDS: Final = 15.0
"""Seconds after which a pod that the watch has not shown is looked up."""
_AGAIN_SECONDS: Final = 3.0
"""Seconds between two attempts to remove a pod."""
_STOP_SECONDS: Final = 30.0
"""Seconds that pods have to end when the cluster ends."""
_LATE_SECONDS: Final = 5.0
"""Seconds that a node may take beyond the grace period of a pod."""
_POLL: Final = 0.1
_TRIES: Final = 5
_PAUSE: Final = 0.3


@dataclass
class _Worker:
    id: str
    since: float
    is_seen: bool = False
    """Whether the watch has shown its pod."""
    stop_at: float | None = None
    """When its pod has to be removed (again)."""
    lost_at: float | None = None
    """When its pod, which is being deleted, must be gone, unless its node is dead."""


class KubernetesProvider(HostedProvider):
    """Starts TaskManagers as pods; may be used by any number of threads.

    Args:
        context: settings, secret and clock of the cluster.
        api: of the Kubernetes where they run; None = as configured.

    Raises:
        ConfigurationError: an option or the pod template is wrong.
    """

    is_active = True
    ends_within = 5.0

    def __init__(self, context: ProviderContext, api: KubernetesApi | None = None) -> None:
        super().__init__(context)
        settings = context.settings
        self._cluster = cluster_id(settings)
        self._labels = cluster_labels(self._cluster, TASKMANAGER)
        self._maker = PodMaker(settings, TASKMANAGER)
        self._memory = taskmanager_memory(settings).process_size
        self._given_api = api
        self._api: KubernetesApi | None = None
        self._namespace = ""
        self._owner: JsonObject | None = None
        self._watched: Watched | None = None
        self._guard = threading.Lock()
        """Guards the fields below; never held during a request to Kubernetes."""
        self._workers: dict[str, _Worker] = {}
        self._closed = False
        self._removed_at: dict[str, float] = {}
        """Unknown pods, and when they were removed."""

    # -- contract

    def recover(self, resourcemanager_address: str) -> list[str]:
        """Write the Secret that pods need, and find pods that run already.

        Raises:
            WorkerError: Kubernetes refuses, or does not answer.
        """
        try:
            self._api, self._namespace = connect(self.context.settings, self._given_api)
            self._owner = self._find_owner()
            self._write_secret(resourcemanager_address)
            query = {"labelSelector": selector(self._labels)}
            listed = self._connection.ask("GET", self._pods, query=query)
        except ApiError as error:
            raise WorkerError(f"TaskManagers can't be started on Kubernetes: {error}") from error
        now = self.context.clock.monotonic()
        with self._guard:
            for pod in listed.get("items") or ():
                worker = (pod["metadata"].get("labels") or {}).get(_WORKER)
                if worker and not end_of(pod):
                    self._workers[worker] = _Worker(worker, now, is_seen=True)
            names = sorted(self._workers)
        self._watched = self._api.watch(self._pods, query, lambda _: None)
        return names

    def start_worker(self, spec: WorkerSpec) -> None:
        """Create a pod.

        Raises:
            WorkerError: Kubernetes refuses it, or does not answer.
        """
        name = spec.worker_id
        if not name.replace("-", "").isalnum() or name != name.lower():
            raise WorkerError(f"{name!r} is not an id of a worker here: small letters, digits and - are expected")
        with self._guard:
            if self._closed or self._api is None:
                raise WorkerError("the provider is closed" if self._closed else "the provider has not begun")
            if name in self._workers:
                return
            self._workers[name] = _Worker(name, self.context.clock.monotonic())
        problem: ApiError | None = None
        for _ in range(_TRIES):
            try:
                self._connection.ask("POST", self._pods, self._pod(spec))
            except ConflictError as error:
                if error.reason == "AlreadyExists":  # an earlier attempt created it, without an answer
                    problem = None
                    break
                problem = error  # somebody else has changed a quota at the same time
            except (UnreachableError, UnansweredError) as error:
                problem = error
            except ApiError as error:
                with self._guard:
                    self._workers.pop(name, None)
                raise WorkerError(f"The pod of worker {name} is refused: {error}") from error
            else:
                problem = None
                break
            time.sleep(_PAUSE)
        if problem is not None:
            with self._guard:
                self._workers.pop(name, None)  # if its pod exists after all, it is unknown, and is removed
            raise WorkerError(f"The pod of worker {name} can't be made: {problem}")
        logger.info("worker %s is pod %s", name, self._name(name))

    def stop_worker(self, worker_id: str) -> None:
        """Remove a worker's pod; ``ended_workers`` repeats it until Kubernetes has answered."""
        with self._guard:
            worker = self._workers.get(worker_id)
            if worker is None:
                return
            worker.stop_at = self.context.clock.monotonic() + _AGAIN_SECONDS
        self._remove(self._name(worker_id))

    def ended_workers(self) -> list[tuple[str, str]]:
        """Workers whose pods have ended, with the causes; also removes unknown pods, and pods that must stop."""
        watched = self._watched
        if watched is None or not watched.is_known:
            return []
        pods = {(pod["metadata"].get("labels") or {}).get(_WORKER, ""): pod for pod in watched.snapshot().values()}
        now = self.context.clock.monotonic()
        ended, doubtful, to_remove = list[tuple[str, str]](), list[str](), list[str]()
        with self._guard:
            for worker in list(self._workers.values()):
                pod = pods.get(worker.id)
                if pod is None and worker.is_seen:
                    ended.append((worker.id, "its pod was deleted"))
                elif pod is None and now >= worker.since + _UNSEEN_SECONDS:
                    # The watch may be late, or the pod may have gone before the watch could show it: look it up below.
                    doubtful.append(worker.id)
                    worker.since = now
                elif pod is not None:
                    worker.is_seen = True
                    if cause := end_of(pod):
                        ended.append((worker.id, cause))
                        to_remove.append(pod["metadata"]["name"])
                    elif cause := _lost(worker, pod, now):
                        ended.append((worker.id, cause))
                    elif worker.stop_at is not None and now >= worker.stop_at:
                        worker.stop_at = now + _AGAIN_SECONDS
                        if "deletionTimestamp" not in pod["metadata"]:
                            to_remove.append(pod["metadata"]["name"])
            for name, _ in ended:
                del self._workers[name]
            # Pods of workers that a former ResourceManager has started, or that were given up, would run on for ever.
            for name, pod in pods.items():
                unknown = name not in self._workers and "deletionTimestamp" not in pod["metadata"]
                removed = self._removed_at.get(name)
                if unknown and not self._closed and (removed is None or now >= removed + _AGAIN_SECONDS):
                    self._removed_at[name] = now
                    to_remove.append(pod["metadata"]["name"])
            self._removed_at = {name: at for name, at in self._removed_at.items() if name in pods}
        for name in dict.fromkeys(to_remove):
            self._remove(name)
        # Outside of the lock, since this asks Kubernetes.
        for name in doubtful:
            with suppress(ApiError):
                if self._connection.find(f"{self._pods}/{self._name(name)}") is None:
                    with self._guard:
                        if self._workers.pop(name, None) is not None:
                            ended.append((name, "its pod was deleted"))
        return ended

    def waiting_workers(self) -> dict[str, str]:
        """Why pods do not run, in the words of Kubernetes: no node has room, an image is missing, and so on."""
        watched = self._watched
        reasons: dict[str, str] = {}
        for pod in () if watched is None else watched.snapshot().values():
            worker = (pod["metadata"].get("labels") or {}).get(_WORKER, "")
            if worker in self._workers and (reason := waits_for(pod)):
                reasons[worker] = f"pod {pod['metadata']['name']}: {reason}"
        return reasons

    def terminate(self) -> None:
        """Remove all pods and the Secret, and wait until they are gone."""
        with self._guard:
            self._closed = True
            names = [self._name(worker) for worker in self._workers]
        for name in names:
            self._remove(name)
        deadline = time.monotonic() + _STOP_SECONDS
        while names and time.monotonic() < deadline:
            with suppress(ApiError):
                listed = self._connection.ask("GET", self._pods, query={"labelSelector": selector(self._labels)})
                existing = {pod["metadata"]["name"] for pod in listed.get("items") or ()}
                names = [name for name in names if name in existing]
            if names:
                time.sleep(_POLL)
        with suppress(ApiError):
            self._connection.ask("DELETE", f"{self._secrets}/{self._secret}")
        self._end()

    def close(self) -> None:
        with self._guard:
            self._closed = True
        self._end()

    # -- objects

    @property
    def _pods(self) -> str:
        return f"/api/v1/namespaces/{self._namespace}/pods"

    @property
    def _secrets(self) -> str:
        return f"/api/v1/namespaces/{self._namespace}/secrets"

    @property
    def _secret(self) -> str:
        return f"{self._cluster}-{TASKMANAGER}"

    def _name(self, worker: str) -> str:
        return f"{self._cluster}-{TASKMANAGER}-{worker}"

    @property
    def _connection(self) -> KubernetesApi:
        if self._api is None:
            raise UnreachableError("the provider has not begun")
        return self._api

    def _remove(self, pod: str) -> None:
        try:
            self._connection.ask("DELETE", f"{self._pods}/{pod}")
        except MissingError:
            pass
        except ApiError as error:
            logger.warning("pod %s can't be removed, it is tried again: %s", pod, error)

    def _end(self) -> None:
        watched, api = self._watched, self._api
        if watched is not None:
            with suppress(OSError, RuntimeError):
                watched.end()
        if api is not None and api is not self._given_api:
            api.close()

    def _find_owner(self) -> JsonObject | None:
        """Topmost workload of this pod; outside of a pod, the Deployment with the cluster's name."""
        apps = f"/apis/apps/v1/namespaces/{self._namespace}"
        pod = os.environ.get("POD_NAME") or (
            os.environ.get("HOSTNAME") if "KUBERNETES_SERVICE_HOST" in os.environ else ""
        )
        workload = self._connection.find(f"{self._pods}/{pod}") if pod else None
        if workload is None:
            deployment = self._connection.find(f"{apps}/deployments/{self._cluster}")
            return None if deployment is None else _reference("apps/v1", "Deployment", deployment)
        owner: JsonObject | None = None
        # A pod is owned by a ReplicaSet, and that by the Deployment, say: the topmost owner takes all others along.
        while workload is not None:
            above = next(
                (
                    reference
                    for reference in workload["metadata"].get("ownerReferences") or ()
                    if reference.get("controller")
                ),
                None,
            )
            if above is None:
                break
            owner = {key: above[key] for key in ("apiVersion", "kind", "name", "uid")}
            # Only a ReplicaSet has an owner itself, as far as workloads of clusters go.
            is_owned = above["kind"] == "ReplicaSet"
            workload = self._connection.find(f"{apps}/replicasets/{above['name']}") if is_owned else None
        return owner

    def _write_secret(self, resourcemanager_address: str) -> None:
        """Write the settings and the secret of the cluster for pods, in place of those of a former ResourceManager."""
        settings = self.context.settings.to_plain() | {
            RESOURCEMANAGER_ADDRESS.key: resourcemanager_address.removeprefix("http://"),
            TASKMANAGER_RPC_PORT.key: str(_PORT),
            TASKMANAGER_BIND_HOST.key: "0.0.0.0",
            CLUSTER_DIRECTORY.key: "/var/lib/firesteel/cluster",
            RUN_DIRECTORY.key: "/run/firesteel/run",
        }
        for option in (SECRET_FILE, TASKMANAGER_RESOURCE_ID, TASKMANAGER_HOST, REST_TOKEN_FILE):
            settings.pop(option.key, None)
        files = {
            CONFIG_FILE: json.dumps(settings, indent=1),
            SECRET_FILE_NAME: self.context.secret,
        }  # JSON is YAML, too
        body: JsonObject = {
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": {"name": self._secret, "labels": self._labels},
            "data": {name: base64.b64encode(text.encode()).decode() for name, text in files.items()},
        }  # fmt: skip
        if self._owner is not None:
            body["metadata"]["ownerReferences"] = [self._owner]
        # Replace the Secret, or create it; again if another ResourceManager has written or removed it in between.
        for is_last in (*[False] * _TRIES, True):
            try:
                try:
                    self._connection.ask("PUT", f"{self._secrets}/{self._secret}", body)
                except MissingError:
                    self._connection.ask("POST", self._secrets, body)
                return
            except ConflictError:
                if is_last:
                    raise

    def _pod(self, spec: WorkerSpec) -> JsonObject:
        definitions = {
            TASKMANAGER_RESOURCE_ID.key: spec.worker_id,
            TASKMANAGER_SLOTS.key: str(spec.slots),
            TASKMANAGER_HOST.key: "$(POD_IP)",
        }
        arguments = [word for key, value in definitions.items() for word in ("-D", f"{key}={value}")]
        return self._maker.make(
            PodPlan(
                name=self._name(spec.worker_id),
                component=TASKMANAGER,
                labels={**self._labels, _WORKER: spec.worker_id},
                command=f"firesteel-taskmanager --config-dir {CONFIGURATION}",
                arguments=arguments,
                memory=self._memory,
                cores=spec.slots,
                given=self._secret,
                owner=self._owner,
                ports={"rpc": _PORT},
            )
        )


def _lost(worker: _Worker, pod: JsonObject, now: float) -> str:
    """Why a pod that is being deleted counts as ended, though Kubernetes keeps it until its node confirms it.

    Empty = it may still end in order.
    """
    metadata = pod["metadata"]
    if "deletionTimestamp" not in metadata:
        return ""
    if (pod.get("status") or {}).get("phase") == "Pending":
        return "its pod was deleted before it ran"
    if worker.lost_at is None:
        worker.lost_at = now + float(metadata.get("deletionGracePeriodSeconds") or 0) + _LATE_SECONDS
    if now < worker.lost_at:
        return ""
    return "its pod was deleted, and its node does not say that it has ended"


def _reference(version: str, kind: str, workload: JsonObject) -> JsonObject:
    return {
        "apiVersion": version,
        "kind": kind,
        "name": workload["metadata"]["name"],
        "uid": workload["metadata"]["uid"],
    }

"""Builds pods of a cluster from its options and a pod template, and explains the state of pods.

Fields of the template are kept, except those that Firesteel sets: the image, the command, the resources, restarts, its
own volumes. Lists (volumes, tolerations, variables) are concatenated.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from firesteel.config import Settings
from firesteel.config import kubernetes_options as o
from firesteel.config.option import Option
from firesteel.config.recovery_options import HA_TYPE
from firesteel.config.values import parse_map
from firesteel.core.errors import ConfigurationError
from firesteel_kubernetes.api import JsonObject
from firesteel_kubernetes.names import TASKMANAGER

logger = logging.getLogger(__name__)
CONTAINER: Final = "firesteel-main-container"
_CONTAINERS: Final = (CONTAINER, "flink-main-container")
GIVEN: Final = "/etc/firesteel/given"
"""Directory where the settings and the secret of a cluster are mounted."""
CONFIGURATION: Final = "/run/firesteel/conf"
"""Directory where the container copies them for its user alone: files of a volume may be readable by a group."""
_WRITABLE: Final = {
    "run": "/run/firesteel", "temporary": "/tmp", "home": "/home/firesteel", "state": "/var/lib/firesteel",
}  # fmt: skip
PREPARE: Final = f"umask 077 && rm -rf {CONFIGURATION} && mkdir -p {CONFIGURATION} && cp -L {GIVEN}/* {CONFIGURATION}/"
"""A container that restarts in its pod finds the files of the one before, which are read-only."""
_USER: Final = 10001
"""User of the image."""
_MEBIBYTE: Final = 1 << 20
_WAITING: Final = frozenset(
    {
        "ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError",
        "RegistryUnavailable", "CreateContainerConfigError", "CreateContainerError", "RunContainerError",
        "CrashLoopBackOff",
    }
)  # fmt: skip
"""Reasons for waiting that do not disappear by themselves."""


@dataclass(frozen=True)
class PodPlan:
    """Description of a pod to build.

    Attributes:
        name: of the pod; empty if its workload names it.
        component: ``taskmanager`` or ``jobmanager``.
        labels: all labels that Firesteel sets.
        command: of the container; for the shell, after ``PREPARE``.
        arguments: of the command.
        memory: bytes to request for its processes.
        cores: to request unless the options say otherwise.
        given: name of the Secret with its settings.
        owner: object with which it is removed; None = it stays.
        restarts: ``Never`` or ``Always``.
        ports: of the container, by name.
        more: additional fields of the container, such as probes.
        volumes: additional ones, each with its mount path.
    """

    name: str
    component: str
    labels: dict[str, str]
    command: str
    arguments: Sequence[str]
    memory: int
    cores: float
    given: str
    owner: JsonObject | None = None
    restarts: str = "Never"
    ports: dict[str, int] = field(default_factory=dict)
    more: JsonObject = field(default_factory=dict)
    volumes: Sequence[tuple[JsonObject, str]] = ()


class PodMaker:
    """Builds the pods of one component.

    Args:
        settings: of the cluster.
        component: ``taskmanager`` or ``jobmanager``.

    Raises:
        ConfigurationError: an option or the template is wrong.
    """

    def __init__(self, settings: Settings, component: str) -> None:
        self._settings, self._component = settings, component
        self._options = o.TASKMANAGER_POD if component == TASKMANAGER else o.JOBMANAGER_POD
        path = self._get(f"kubernetes.pod-template-file.{component}")
        self._template = {} if path is None else read_template(Path(str(path)))
        self._tolerations = [
            _pairs(text, f"kubernetes.{component}.tolerations") for text in self._own("tolerations") or ()
        ]
        self._cpu_factor = float(self._own("cpu.limit-factor"))
        if 0 < self._cpu_factor < 1:
            key = f"kubernetes.{self._component}.cpu.limit-factor"
            raise ConfigurationError(f"{key}: {self._cpu_factor} is below the request: 0 for no limit, or at least 1")
        if component == TASKMANAGER:
            self._warn_of_rights()
        self._variables = [_variable(text) for text in settings.get(o.KUBERNETES_SECRET_VARIABLES) or ()]

    def _get(self, key: str) -> Any:
        option: Option[Any] = self._options[key]
        return self._settings.get(option)

    def _own(self, name: str) -> Any:
        return self._get(f"kubernetes.{self._component}.{name}")

    def make(self, plan: PodPlan) -> JsonObject:
        template = deepcopy(self._template)
        metadata, spec = template.get("metadata") or {}, template.get("spec") or {}
        metadata["labels"] = {**(metadata.get("labels") or {}), **(self._own("labels") or {}), **plan.labels}
        metadata["annotations"] = {**(metadata.get("annotations") or {}), **(self._own("annotations") or {})}
        metadata.pop("name", None)
        if plan.name:
            metadata["name"] = plan.name
        if plan.owner is not None:
            metadata["ownerReferences"] = [plan.owner]
        ours = self._container(plan, spec)
        volumes: list[JsonObject] = [
            {"name": "firesteel-given", "secret": {"secretName": plan.given, "defaultMode": 0o440}},
            *({"name": f"firesteel-{name}", "emptyDir": {}} for name in _WRITABLE),
            *(volume for volume, _ in [*self._mounted(), *plan.volumes]),
        ]
        spec["volumes"] = [*(spec.get("volumes") or ()), *volumes]
        spec["restartPolicy"] = plan.restarts
        spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), **(self._own("node-selector") or {})}
        spec["tolerations"] = [*(spec.get("tolerations") or ()), *self._tolerations]
        pulled = [{"name": name} for name in self._settings.get(o.KUBERNETES_PULL_SECRETS) or ()]
        spec["imagePullSecrets"] = [*(spec.get("imagePullSecrets") or ()), *pulled]
        account: Option[Any] = self._options[f"kubernetes.{self._component}.service-account"]
        if self._settings.is_set(account) or "serviceAccountName" not in spec:
            spec["serviceAccountName"] = self._settings.get(account)
        if self._component == TASKMANAGER:
            # Slots run code of users, which would have the rights of the account: by default those of the JobManager,
            # which may create pods. A token is mounted if leaders are looked up in Kubernetes, or the template wants
            # it.
            spec.setdefault("automountServiceAccountToken", self._looks_up_leaders)
        spec.setdefault("enableServiceLinks", False)
        spec.setdefault("shareProcessNamespace", True)  # its first process reaps processes whose parents have ended
        user = {"runAsNonRoot": True, "runAsUser": _USER, "runAsGroup": _USER, "fsGroup": _USER}
        safe = {"seccompProfile": {"type": "RuntimeDefault"}}
        spec["securityContext"] = {**user, **safe, **(spec.get("securityContext") or {})}
        spec["containers"] = ours
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    @property
    def _looks_up_leaders(self) -> bool:
        return (self._settings.get(HA_TYPE) or "").lower() == "kubernetes"

    def _warn_of_rights(self) -> None:
        """Warn if code of users has the rights of the JobManager."""
        jobmanager: Option[Any] = o.JOBMANAGER_POD["kubernetes.jobmanager.service-account"]
        account: Option[Any] = o.TASKMANAGER_POD["kubernetes.taskmanager.service-account"]
        shared = self._settings.get(account)
        if self._looks_up_leaders and shared == self._settings.get(jobmanager):
            logger.warning(
                "pods of TaskManagers, which run code of users, have the service account %s of the JobManager, and its "
                "token, because leaders are looked up in Kubernetes: give them one that may only get, list and watch "
                "leases (kubernetes.taskmanager.service-account)",
                shared,
            )

    def _mounted(self) -> list[tuple[JsonObject, str]]:
        mounts: list[tuple[JsonObject, str]] = []
        for number, (name, path) in enumerate((self._settings.get(o.KUBERNETES_SECRETS) or {}).items()):
            mounts.append(({"name": f"firesteel-secret-{number}", "secret": {"secretName": name}}, path))
        read_only = self._settings.get(o.KUBERNETES_CLAIMS_READ_ONLY)
        for number, (name, path) in enumerate((self._settings.get(o.KUBERNETES_CLAIMS) or {}).items()):
            claim = {"claimName": name, "readOnly": read_only}
            mounts.append(({"name": f"firesteel-claim-{number}", "persistentVolumeClaim": claim}, path))
        return mounts

    def _container(self, plan: PodPlan, spec: JsonObject) -> list[JsonObject]:
        """All containers of the pod, Firesteel's first."""
        containers = list(spec.get("containers") or ())
        from_template: JsonObject = next(
            (container for container in containers if container.get("name") in _CONTAINERS), {}
        )
        containers = [container for container in containers if container is not from_template]
        cores = float(self._own("cpu.amount"))
        cores = cores if cores > 0 else plan.cores
        memory = -(-plan.memory // _MEBIBYTE)
        limits = {"memory": f"{int(memory * float(self._own('memory.limit-factor')))}Mi"}
        if self._cpu_factor:
            limits["cpu"] = _millis(cores * self._cpu_factor)
        requests = {"cpu": _millis(cores), "memory": f"{memory}Mi"}
        template_resources = from_template.get("resources") or {}
        mounts = [
            {"name": "firesteel-given", "mountPath": GIVEN, "readOnly": True},
            *({"name": f"firesteel-{name}", "mountPath": path} for name, path in _WRITABLE.items()),
            *({"name": volume["name"], "mountPath": path} for volume, path in [*self._mounted(), *plan.volumes]),
        ]
        ours: JsonObject = {
            **from_template,
            **plan.more,
            "name": CONTAINER,
            "image": self._settings.get(o.KUBERNETES_IMAGE),
            "imagePullPolicy": self._settings.get(o.KUBERNETES_PULL_POLICY),
            "command": ["/bin/sh", "-c", f'{PREPARE} && exec {plan.command} "$@"', plan.component],
            "args": list(plan.arguments),
            "env": [
                *(from_template.get("env") or ()),
                *self._variables,
                {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                {"name": "FIRESTEEL_CONF_DIR", "value": CONFIGURATION},
            ],
            "ports": [
                *(from_template.get("ports") or ()),
                *({"name": name, "containerPort": port} for name, port in plan.ports.items()),
            ],
            "resources": {
                **template_resources,
                "requests": {**(template_resources.get("requests") or {}), **requests},
                "limits": {**(template_resources.get("limits") or {}), **limits},
            },
            "volumeMounts": [*(from_template.get("volumeMounts") or ()), *mounts],
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
                **(from_template.get("securityContext") or {}),
            },
        }
        ours.setdefault("terminationMessagePolicy", "FallbackToLogsOnError")
        return [ours, *containers]


def read_template(path: Path) -> JsonObject:
    """Read a Pod from a file.

    Raises:
        ConfigurationError: it is no Pod.
    """
    try:
        template = yaml.safe_load(path.expanduser().read_text())
    except (OSError, yaml.YAMLError) as error:
        raise ConfigurationError(f"the pod template {path} can't be read: {error}") from error
    if not isinstance(template, dict) or template.get("kind", "Pod") != "Pod":
        raise ConfigurationError(f"the pod template {path} is no Pod: kind: Pod, metadata and spec are expected")
    return {key: template[key] for key in ("metadata", "spec") if isinstance(template.get(key), dict)}


def _pairs(text: str, key: str) -> dict[str, Any]:
    try:
        pairs: dict[str, Any] = dict(parse_map(text))
    except ValueError as error:
        raise ConfigurationError(f"{key}: {text!r} is not of the form key:KEY,operator:Equal,...: {error}") from error
    if "tolerationSeconds" in pairs:
        pairs["tolerationSeconds"] = int(pairs["tolerationSeconds"])
    return pairs


def _variable(text: str) -> JsonObject:
    pairs = _pairs(text, o.KUBERNETES_SECRET_VARIABLES.key)
    if set(pairs) != {"env", "secret", "key"}:
        raise ConfigurationError(
            f"{o.KUBERNETES_SECRET_VARIABLES.key}: {text!r} is not of the form env:NAME,secret:SECRET,key:KEY"
        )
    return {"name": pairs["env"], "valueFrom": {"secretKeyRef": {"name": pairs["secret"], "key": pairs["key"]}}}


def _millis(cores: float) -> str:
    return f"{max(1, round(cores * 1000))}m"


# -- the state of a pod


def end_of(pod: JsonObject) -> str:
    """How a pod has ended; empty = it has not."""
    status = pod.get("status") or {}
    if status.get("phase") not in ("Succeeded", "Failed"):
        return ""
    parts = [_words(status.get("reason"), status.get("message"))]
    for container in status.get("containerStatuses") or ():
        ended = (container.get("state") or {}).get("terminated")
        if ended and (ended.get("exitCode") or container.get("name") == CONTAINER):
            reason = f"{ended.get('reason') or 'it ended'} (exit code {ended.get('exitCode')})"
            last = str(ended.get("message") or "").strip().splitlines()
            parts.append(_words(reason, last[-1] if last else ""))
    return "; ".join(part for part in parts if part) or f"its pod is {status['phase']}"


def is_ready(pod: JsonObject) -> bool:
    """Whether a pod takes requests."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def waits_for(pod: JsonObject) -> str:
    """Why a pod does not run, in the words of Kubernetes; empty = no cause is known."""
    status = pod.get("status") or {}
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return _words(condition.get("reason"), condition.get("message"))
    for container in [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]:
        waiting = (container.get("state") or {}).get("waiting")
        if waiting and waiting.get("reason") in _WAITING:
            return _words(waiting.get("reason"), waiting.get("message"))
    return ""


def _words(reason: object, message: object) -> str:
    return ": ".join(str(part) for part in (reason, message) if part)

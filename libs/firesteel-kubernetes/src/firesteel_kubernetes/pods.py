"""Pods of a cluster, made of its options and of a pod template; and what Kubernetes says of them.

What the template says stays, unless it is ours to say: the image, the command, the resources, restarts, our volumes.
Lists (volumes, tolerations, variables) are put together.
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
from firesteel.config.option import ConfigOption
from firesteel.config.recovery_options import HA_TYPE
from firesteel.config.values import parse_map
from firesteel.core.errors import ConfigurationError
from firesteel_kubernetes.api import JsonObject
from firesteel_kubernetes.names import TASKMANAGER

logger = logging.getLogger(__name__)
CONTAINER: Final = "firesteel-main-container"
_CONTAINERS: Final = (CONTAINER, "flink-main-container")
GIVEN: Final = "/etc/firesteel/given"
"""Where the settings and the secret of a cluster are mounted."""
CONFIGURATION: Final = "/run/firesteel/conf"
"""Where the container has them for its user alone: files of a volume may be read by a group."""
_WRITABLE: Final = {
    "run": "/run/firesteel", "temporary": "/tmp", "home": "/home/firesteel", "state": "/var/lib/firesteel",
}  # fmt: skip
PREPARE: Final = f"umask 077 && rm -rf {CONFIGURATION} && mkdir -p {CONFIGURATION} && cp -L {GIVEN}/* {CONFIGURATION}/"
"""A container that starts again in its pod finds the files of the one before, which may not be written to."""
_USER: Final = 10001
"""Of the image."""
_MEBIBYTE: Final = 1 << 20
_WAITING: Final = frozenset(
    {
        "ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError",
        "RegistryUnavailable", "CreateContainerConfigError", "CreateContainerError", "RunContainerError",
        "CrashLoopBackOff",
    }
)  # fmt: skip
"""Reasons for which a container waits that do not go away by themselves."""


@dataclass(frozen=True)
class PodPlan:
    """A pod that is wanted.

    Attributes:
        name: of the pod; empty where something else names it.
        component: ``taskmanager`` or ``jobmanager``.
        labels: all of ours.
        command: of the container; for the shell, behind ``PREPARE``.
        arguments: of the command.
        memory: bytes that its processes take: what is requested.
        cores: that are requested where the options do not say it.
        given: secret with its settings.
        owner: who takes it along at its end; None: nobody.
        restarts: ``Never`` or ``Always``.
        ports: of the container, by name.
        more: of the container, such as probes.
        volumes: more, each with where it is mounted.
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
    """Makes pods of one kind.

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
        option: ConfigOption[Any] = self._options[key]
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
        account: ConfigOption[Any] = self._options[f"kubernetes.{self._component}.service-account"]
        if self._settings.is_set(account) or "serviceAccountName" not in spec:
            spec["serviceAccountName"] = self._settings.get(account)
        if self._component == TASKMANAGER:
            # Slots run code of users, which would have the rights of the account: those of the JobManager by default,
            # which may make pods. A token is there where leaders are looked up in Kubernetes, or a template wants it.
            spec.setdefault("automountServiceAccountToken", self._looks_up_leaders)
        spec.setdefault("enableServiceLinks", False)
        spec.setdefault("shareProcessNamespace", True)  # its first process takes care of those whose parents have ended
        user = {"runAsNonRoot": True, "runAsUser": _USER, "runAsGroup": _USER, "fsGroup": _USER}
        safe = {"seccompProfile": {"type": "RuntimeDefault"}}
        spec["securityContext"] = {**user, **safe, **(spec.get("securityContext") or {})}
        spec["containers"] = ours
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    @property
    def _looks_up_leaders(self) -> bool:
        return (self._settings.get(HA_TYPE) or "").lower() == "kubernetes"

    def _warn_of_rights(self) -> None:
        """Say it where code of users has the rights of the JobManager."""
        jobmanager: ConfigOption[Any] = o.JOBMANAGER_POD["kubernetes.jobmanager.service-account"]
        account: ConfigOption[Any] = o.TASKMANAGER_POD["kubernetes.taskmanager.service-account"]
        shared = self._settings.get(account)
        if self._looks_up_leaders and shared == self._settings.get(jobmanager):
            logger.warning(
                "pods of TaskManagers, which run code of users, have the service account %s of the JobManager, and its "
                "token, because leaders are looked up in Kubernetes: give them one that may only get, list and watch "
                "leases (kubernetes.taskmanager.service-account)",
                shared,
            )

    def _mounted(self) -> list[tuple[JsonObject, str]]:
        found: list[tuple[JsonObject, str]] = []
        for number, (name, path) in enumerate((self._settings.get(o.KUBERNETES_SECRETS) or {}).items()):
            found.append(({"name": f"firesteel-secret-{number}", "secret": {"secretName": name}}, path))
        read_only = self._settings.get(o.KUBERNETES_CLAIMS_READ_ONLY)
        for number, (name, path) in enumerate((self._settings.get(o.KUBERNETES_CLAIMS) or {}).items()):
            claim = {"claimName": name, "readOnly": read_only}
            found.append(({"name": f"firesteel-claim-{number}", "persistentVolumeClaim": claim}, path))
        return found

    def _container(self, plan: PodPlan, spec: JsonObject) -> list[JsonObject]:
        """All containers, ours first."""
        others = list(spec.get("containers") or ())
        theirs: JsonObject = next((one for one in others if one.get("name") in _CONTAINERS), {})
        others = [one for one in others if one is not theirs]
        cores = float(self._own("cpu.amount"))
        cores = cores if cores > 0 else plan.cores
        memory = -(-plan.memory // _MEBIBYTE)
        limits = {"memory": f"{int(memory * float(self._own('memory.limit-factor')))}Mi"}
        if self._cpu_factor:
            limits["cpu"] = _millis(cores * self._cpu_factor)
        asked = {"cpu": _millis(cores), "memory": f"{memory}Mi"}
        their_resources = theirs.get("resources") or {}
        mounts = [
            {"name": "firesteel-given", "mountPath": GIVEN, "readOnly": True},
            *({"name": f"firesteel-{name}", "mountPath": path} for name, path in _WRITABLE.items()),
            *({"name": volume["name"], "mountPath": path} for volume, path in [*self._mounted(), *plan.volumes]),
        ]
        ours: JsonObject = {
            **theirs,
            **plan.more,
            "name": CONTAINER,
            "image": self._settings.get(o.KUBERNETES_IMAGE),
            "imagePullPolicy": self._settings.get(o.KUBERNETES_PULL_POLICY),
            "command": ["/bin/sh", "-c", f'{PREPARE} && exec {plan.command} "$@"', plan.component],
            "args": list(plan.arguments),
            "env": [
                *(theirs.get("env") or ()),
                *self._variables,
                {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                {"name": "FIRESTEEL_CONF_DIR", "value": CONFIGURATION},
            ],
            "ports": [
                *(theirs.get("ports") or ()),
                *({"name": name, "containerPort": port} for name, port in plan.ports.items()),
            ],
            "resources": {
                **their_resources,
                "requests": {**(their_resources.get("requests") or {}), **asked},
                "limits": {**(their_resources.get("limits") or {}), **limits},
            },
            "volumeMounts": [*(theirs.get("volumeMounts") or ()), *mounts],
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
                **(theirs.get("securityContext") or {}),
            },
        }
        ours.setdefault("terminationMessagePolicy", "FallbackToLogsOnError")
        return [ours, *others]


def read_template(path: Path) -> JsonObject:
    """A Pod of a file.

    Raises:
        ConfigurationError: it is none.
    """
    try:
        found = yaml.safe_load(path.expanduser().read_text())
    except (OSError, yaml.YAMLError) as error:
        raise ConfigurationError(f"the pod template {path} can't be read: {error}") from error
    if not isinstance(found, dict) or found.get("kind", "Pod") != "Pod":
        raise ConfigurationError(f"the pod template {path} is no Pod: kind: Pod, metadata and spec are expected")
    return {key: found[key] for key in ("metadata", "spec") if isinstance(found.get(key), dict)}


def _pairs(text: str, key: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = dict(parse_map(text))
    except ValueError as error:
        raise ConfigurationError(f"{key}: {text!r} is not of the form key:KEY,operator:Equal,...: {error}") from error
    if "tolerationSeconds" in found:
        found["tolerationSeconds"] = int(found["tolerationSeconds"])
    return found


def _variable(text: str) -> JsonObject:
    found = _pairs(text, o.KUBERNETES_SECRET_VARIABLES.key)
    if set(found) != {"env", "secret", "key"}:
        raise ConfigurationError(
            f"{o.KUBERNETES_SECRET_VARIABLES.key}: {text!r} is not of the form env:NAME,secret:SECRET,key:KEY"
        )
    return {"name": found["env"], "valueFrom": {"secretKeyRef": {"name": found["secret"], "key": found["key"]}}}


def _millis(cores: float) -> str:
    return f"{max(1, round(cores * 1000))}m"


# -- what Kubernetes says of a pod


def end_of(pod: JsonObject) -> str:
    """How a pod has ended; empty: it has not."""
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


def waits_for(pod: JsonObject) -> str:
    """Why a pod does not run, in the words of Kubernetes; empty: nothing is known to be wrong."""
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

"""Names and labels of a cluster's objects. The keys of labels are Flink's."""

from __future__ import annotations

import re
from typing import Final

from firesteel.config import Settings
from firesteel.config.kubernetes_options import KUBERNETES_CLUSTER_ID
from firesteel.config.recovery_options import HA_CLUSTER_ID
from firesteel.core.errors import ConfigurationError

_CLUSTER: Final = re.compile(r"[a-z]([-a-z0-9]{0,43}[a-z0-9])?")
LABEL_APP, LABEL_TYPE, LABEL_COMPONENT = "app", "type", "component"
TYPE: Final = "firesteel-native-kubernetes"
JOBMANAGER, TASKMANAGER = "jobmanager", "taskmanager"


def cluster_id(settings: Settings) -> str:
    """Name of a cluster on Kubernetes.

    Raises:
        ConfigurationError: the configured name can't be one.
    """
    kubernetes_id = settings.get(KUBERNETES_CLUSTER_ID)
    option = HA_CLUSTER_ID if kubernetes_id is None else KUBERNETES_CLUSTER_ID
    name = (kubernetes_id if kubernetes_id is not None else settings.get(HA_CLUSTER_ID)).strip("/")
    if not _CLUSTER.fullmatch(name):
        raise ConfigurationError(
            f"{option.key}: {name!r} can't be the name of a cluster on Kubernetes: lower-case letters, digits and '-', "
            f"beginning with a letter, 45 at most; set {KUBERNETES_CLUSTER_ID.key}"
        )
    return name


def cluster_labels(cluster: str, component: str = "") -> dict[str, str]:
    """Labels of all objects of a cluster, or of the pods of one component."""
    component_label = {LABEL_COMPONENT: component} if component else {}
    return {LABEL_APP: cluster, LABEL_TYPE: TYPE, **component_label}


def selector(labels: dict[str, str]) -> str:
    """Selector of the objects with these labels."""
    return ",".join(f"{name}={value}" for name, value in labels.items())

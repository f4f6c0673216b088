"""Names and labels of a cluster's objects. Labels are Flink's."""

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
        ConfigurationError: it can be none.
    """
    own = settings.get(KUBERNETES_CLUSTER_ID)
    option = HA_CLUSTER_ID if own is None else KUBERNETES_CLUSTER_ID
    name = (own if own is not None else settings.get(HA_CLUSTER_ID)).strip("/")
    if not _CLUSTER.fullmatch(name):
        raise ConfigurationError(
            f"{option.key}: {name!r} can't be the name of a cluster on Kubernetes: lower-case letters, digits and '-', "
            f"beginning with a letter, 45 at most; set {KUBERNETES_CLUSTER_ID.key}"
        )
    return name


def cluster_labels(cluster: str, component: str = "") -> dict[str, str]:
    """Of all objects of a cluster, or of one of its kinds of pods."""
    own = {LABEL_COMPONENT: component} if component else {}
    return {LABEL_APP: cluster, LABEL_TYPE: TYPE, **own}


def selector(labels: dict[str, str]) -> str:
    """That finds objects with these labels."""
    return ",".join(f"{name}={value}" for name, value in labels.items())

"""Options of clusters on Kubernetes: where its API server is, and high availability there."""

from __future__ import annotations

from datetime import timedelta

from firesteel.config.option import DURATION, INT, STRING, ConfigOption

_MILLISECOND = timedelta(milliseconds=1)

KUBERNETES_CLUSTER_ID: ConfigOption[str | None] = ConfigOption(
    "kubernetes.cluster-id",
    STRING,
    None,
    "Name of the cluster on Kubernetes: the names of its objects begin with it, and they carry it as the label app. "
    "Lower-case letters, digits and '-', beginning with a letter, 45 at most. Not set, for high availability: "
    "high-availability.cluster-id.",
)
KUBERNETES_NAMESPACE = ConfigOption(
    "kubernetes.namespace",
    STRING,
    "default",
    "Namespace of the cluster's objects. In a pod, if it is not set: the pod's.",
)
KUBERNETES_CONFIG_FILE: ConfigOption[str | None] = ConfigOption(
    "kubernetes.config.file",
    STRING,
    None,
    "A kubeconfig, which says where the API server is and who asks it. Not set: in a pod its service account; "
    "elsewhere $KUBECONFIG, or ~/.kube/config.",
)
KUBERNETES_CONTEXT: ConfigOption[str | None] = ConfigOption(
    "kubernetes.context",
    STRING,
    None,
    "Context of the kubeconfig. Not set: the current one.",
)
KUBERNETES_USER_AGENT = ConfigOption(
    "kubernetes.client.user-agent",
    STRING,
    "firesteel",
    "How requests to the API server name who asks; Flink's default is flink.",
)
KUBERNETES_RETRIES = ConfigOption(
    "kubernetes.transactional-operation.max-retries",
    INT,
    15,
    "How often a change of an object is tried again that others have changed meanwhile, or a question that got no "
    "answer.",
    at_least=0,
)
KUBERNETES_RETRY_DELAY = ConfigOption(
    "kubernetes.transactional-operation.initial-retry-delay",
    DURATION,
    timedelta(milliseconds=50),
    "Pause before the first of these tries; each time twice as long as before.",
    at_least=_MILLISECOND,
)
KUBERNETES_MAX_RETRY_DELAY = ConfigOption(
    "kubernetes.transactional-operation.max-retry-delay",
    DURATION,
    timedelta(minutes=1),
    "The longest such pause.",
    at_least=_MILLISECOND,
)
KUBERNETES_LEASE_DURATION = ConfigOption(
    "high-availability.kubernetes.leader-election.lease-duration",
    DURATION,
    timedelta(seconds=15),
    "high-availability.type: kubernetes: so long after a lease was seen to be renewed another process may take it.",
    at_least=timedelta(seconds=1),
)
KUBERNETES_RENEW_DEADLINE = ConfigOption(
    "high-availability.kubernetes.leader-election.renew-deadline",
    DURATION,
    timedelta(seconds=15),
    "So long after it asked for the last renewal that was granted a leader leads no more, by its own clock. Never more "
    "than nine tenths of lease-duration, so that it knows before another one leads.",
    at_least=_MILLISECOND,
)
KUBERNETES_RETRY_PERIOD = ConfigOption(
    "high-availability.kubernetes.leader-election.retry-period",
    DURATION,
    timedelta(seconds=5),
    "Between two renewals of a lease. One that failed is tried again after a fifth of it.",
    at_least=_MILLISECOND,
)

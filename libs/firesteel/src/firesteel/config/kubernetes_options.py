"""Options of clusters on Kubernetes: where its API server is, and high availability there."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from firesteel.config.option import BOOL, DURATION, FLOAT, INT, LIST, MAP, STRING, Option, enum_of

_MILLISECOND = timedelta(milliseconds=1)

KUBERNETES_CLUSTER_ID: Option[str | None] = Option(
    "kubernetes.cluster-id",
    STRING,
    None,
    "Name of the cluster on Kubernetes: the names of its objects begin with it, and they carry it as the label app. "
    "Lower-case letters, digits and '-', beginning with a letter, 45 at most. Not set, for high availability: "
    "high-availability.cluster-id.",
)
KUBERNETES_NAMESPACE = Option(
    "kubernetes.namespace",
    STRING,
    "default",
    "Namespace of the cluster's objects. In a pod, if it is not set: the pod's.",
)
KUBERNETES_CONFIG_FILE: Option[str | None] = Option(
    "kubernetes.config.file",
    STRING,
    None,
    "A kubeconfig, which says where the API server is and who asks it. Not set: in a pod its service account; "
    "elsewhere $KUBECONFIG, or ~/.kube/config.",
)
KUBERNETES_CONTEXT: Option[str | None] = Option(
    "kubernetes.context",
    STRING,
    None,
    "Context of the kubeconfig. Not set: the current one.",
)
KUBERNETES_USER_AGENT = Option(
    "kubernetes.client.user-agent",
    STRING,
    "firesteel",
    "How requests to the API server name who asks; Flink's default is flink.",
)
KUBERNETES_RETRIES = Option(
    "kubernetes.transactional-operation.max-retries",
    INT,
    15,
    "How often a change of an object is tried again that others have changed meanwhile, or a question that got no "
    "answer.",
    at_least=0,
)
KUBERNETES_RETRY_DELAY = Option(
    "kubernetes.transactional-operation.initial-retry-delay",
    DURATION,
    timedelta(milliseconds=50),
    "Pause before the first of these tries; each time twice as long as before.",
    at_least=_MILLISECOND,
)
KUBERNETES_MAX_RETRY_DELAY = Option(
    "kubernetes.transactional-operation.max-retry-delay",
    DURATION,
    timedelta(minutes=1),
    "The longest such pause.",
    at_least=_MILLISECOND,
)
KUBERNETES_LEASE_DURATION = Option(
    "high-availability.kubernetes.leader-election.lease-duration",
    DURATION,
    timedelta(seconds=15),
    "high-availability.type: kubernetes: so long after a lease was seen to be renewed another process may take it.",
    at_least=timedelta(seconds=1),
)
KUBERNETES_RENEW_DEADLINE = Option(
    "high-availability.kubernetes.leader-election.renew-deadline",
    DURATION,
    timedelta(seconds=15),
    "So long after it asked for the last renewal that was granted a leader leads no more, by its own clock. Never more "
    "than nine tenths of lease-duration, so that it knows before another one leads.",
    at_least=_MILLISECOND,
)
KUBERNETES_RETRY_PERIOD = Option(
    "high-availability.kubernetes.leader-election.retry-period",
    DURATION,
    timedelta(seconds=5),
    "Between two renewals of a lease. One that failed is tried again after a fifth of it.",
    at_least=_MILLISECOND,
)

# --- pods that the cluster makes by itself

KUBERNETES_IMAGE = Option(
    "kubernetes.container.image.ref",
    STRING,
    "firesteel:latest",
    "Image of the pods that are made: of TaskManagers by the ResourceManager (firesteel.resourcemanager.driver: "
    "kubernetes), of the JobManager by `firesteel kubernetes-session` and `run-application -t kubernetes-application`.",
)
KUBERNETES_PULL_POLICY = Option(
    "kubernetes.container.image.pull-policy",
    enum_of("IfNotPresent", "Always", "Never"),
    "IfNotPresent",
    "When nodes pull the image.",
)
KUBERNETES_PULL_SECRETS: Option[tuple[str, ...] | None] = Option(
    "kubernetes.container.image.pull-secrets", LIST, None, "Secrets by which nodes pull the image."
)
KUBERNETES_SERVICE_ACCOUNT = Option(
    "kubernetes.service-account", STRING, "default", "Service account of all pods, where nothing else is said."
)
KUBERNETES_SECRETS: Option[dict[str, str] | None] = Option(
    "kubernetes.secrets", MAP, None, "Secrets that are mounted into all pods: name:/path, with commas between them."
)
KUBERNETES_SECRET_VARIABLES: Option[tuple[str, ...] | None] = Option(
    "kubernetes.env.secretKeyRef",
    LIST,
    None,
    "Variables of all containers whose values are in secrets: env:NAME,secret:SECRET,key:KEY, with semicolons between "
    "them. User code sees them.",
)
KUBERNETES_CLAIMS: Option[dict[str, str] | None] = Option(
    "kubernetes.persistent-volume-claims",
    MAP,
    None,
    "Claims of volumes that are mounted into all pods: name:/path, with commas between them.",
)
KUBERNETES_CLAIMS_READ_ONLY = Option(
    "kubernetes.persistent-volume-claim-read-only", BOOL, False, "Whether these volumes are mounted read-only."
)
KUBERNETES_POD_TEMPLATE: Option[str | None] = Option(
    "kubernetes.pod-template-file.default",
    STRING,
    None,
    "File with a Pod that all pods begin from. Its container firesteel-main-container (or flink-main-container) "
    "becomes ours; what is said of priority class, affinity, volumes, side-cars, security and the rest stays.",
)


def _of_pods(kind: str, what: str) -> dict[str, Option[Any]]:
    """Options that both kinds of pods have, by the ends of their keys."""
    prefix = f"kubernetes.{kind}"
    cpu_default, cpu = (-1.0, "not positive: as many as it has slots") if kind == "taskmanager" else (1.0, "a number")
    declared: tuple[Option[Any], ...] = (
        Option(f"{prefix}.cpu.amount", FLOAT, cpu_default, f"Processors that {what} requests; {cpu}."),
        Option(
            f"{prefix}.cpu.limit-factor",
            FLOAT,
            1.0,
            f"The limit of processors of {what}, as a multiple of the request, at least 1; 0: no limit.",
            at_least=0.0,
        ),
        Option(
            f"{prefix}.memory.limit-factor",
            FLOAT,
            1.0,
            f"The limit of memory of {what}, as a multiple of the request, which is the size of the process.",
            at_least=1.0,
        ),
        Option(f"{prefix}.labels", MAP, None, f"Labels of {what}: name:value, with commas between them."),
        Option(f"{prefix}.annotations", MAP, None, f"Annotations of {what}: name:value, with commas."),
        Option(f"{prefix}.node-selector", MAP, None, f"Labels of the nodes that {what} may run on: name:value."),
        Option(
            f"{prefix}.tolerations",
            LIST,
            None,
            f"Taints that {what} tolerates: key:KEY,operator:Equal,value:VALUE,effect:NoSchedule, with semicolons "
            "between them.",
        ),
        Option(
            f"{prefix}.service-account",
            STRING,
            "default",
            f"Service account of {what}.",
            fallback_keys=(KUBERNETES_SERVICE_ACCOUNT.key,),
        ),
        Option(
            f"kubernetes.pod-template-file.{kind}",
            STRING,
            None,
            f"File with a Pod that {what} begins from.",
            fallback_keys=(KUBERNETES_POD_TEMPLATE.key,),
        ),
    )
    return {option.key: option for option in declared}


TASKMANAGER_POD: Final = _of_pods("taskmanager", "the pod of a TaskManager")
JOBMANAGER_POD: Final = _of_pods("jobmanager", "the pod of the JobManager")
KUBERNETES_JOBMANAGER_REPLICAS = Option(
    "kubernetes.jobmanager.replicas",
    INT,
    1,
    "Pods of the JobManager; those beyond the first stand by, which needs high availability.",
    at_least=1,
)
KUBERNETES_REST_TYPE = Option(
    "kubernetes.rest-service.exposed.type",
    enum_of("ClusterIP", "NodePort", "LoadBalancer"),
    "ClusterIP",
    "Type of the service of the REST API.",
)
KUBERNETES_REST_ANNOTATIONS: Option[dict[str, str] | None] = Option(
    "kubernetes.rest-service.annotations", MAP, None, "Annotations of the service of the REST API: name:value."
)
KUBERNETES_REST_LABELS: Option[dict[str, str] | None] = Option(
    "kubernetes.rest-service.labels", MAP, None, "Labels of the service of the REST API: name:value."
)

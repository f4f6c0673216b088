"""Makes the service."""

from __future__ import annotations

from firesteel.config import Settings, options
from firesteel.core.clock import Clock
from firesteel_kubernetes.access import find_access, namespace_of
from firesteel_kubernetes.api import KubernetesApi
from firesteel_operator.reconciler import Reconciler
from firesteel_operator.shell import OperatorService
from firesteel_operator.specs import DEPLOYMENTS, SESSION_JOBS
from firesteel_operator.worlds import Clusters, SessionJobs

LEASE = "firesteel-operator"


def create_service(*, settings: Settings, clock: Clock, api: KubernetesApi | None = None) -> OperatorService:
    """An operator, not started yet.

    Args:
        settings: of the operator.
        clock: tells the time.
        api: of Kubernetes; None: as the settings say.

    Raises:
        ConfigurationError: an option has a bad value, or there is no Kubernetes.
    """
    if api is None:
        access = find_access(settings)
        own = namespace_of(settings, access)
        api = KubernetesApi(access, "firesteel-operator")
    else:
        own = settings.get(options.KUBERNETES_NAMESPACE)
    namespaces = settings.get(options.OPERATOR_NAMESPACES) or (own,)
    reconcilers = {
        namespace: Reconciler(
            api, namespace,
            {DEPLOYMENTS: Clusters(api, namespace), SESSION_JOBS: SessionJobs(api, namespace)}, clock,
        )
        for namespace in namespaces
    }  # fmt: skip
    named = settings
    if not settings.is_set(options.KUBERNETES_CLUSTER_ID):
        named = named.with_layer("operator", {options.KUBERNETES_CLUSTER_ID.key: LEASE})
    named = named.with_layer("operator", {options.KUBERNETES_NAMESPACE.key: own})
    return OperatorService(named, api, reconcilers, settings.get(options.OPERATOR_INTERVAL).total_seconds())

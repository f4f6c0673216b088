"""Creates the operator's service."""

from __future__ import annotations

from firesteel.config import Settings, options
from firesteel.core.clock import Clock
from firesteel_kubernetes.api import KubernetesApi, connect
from firesteel_operator.reconciler import Reconciler
from firesteel_operator.shell import OperatorService
from firesteel_operator.specs import DEPLOYMENTS, SESSION_JOBS
from firesteel_operator.worlds import Clusters, SessionJobs

LEASE = "firesteel-operator"


def create_service(*, settings: Settings, clock: Clock, api: KubernetesApi | None = None) -> OperatorService:
    """Create an operator, not started yet.

    Args:
        settings: of the operator.
        clock: of the operator.
        api: of Kubernetes; None = as configured.

    Raises:
        ConfigurationError: an option has a bad value, or there is no Kubernetes.
    """
    api, own_namespace = connect(settings, api, "firesteel-operator")
    namespaces = settings.get(options.OPERATOR_NAMESPACES) or (own_namespace,)
    reconcilers = {
        namespace: Reconciler(
            api, namespace,
            {DEPLOYMENTS: Clusters(api, namespace), SESSION_JOBS: SessionJobs(api, namespace)}, clock,
        )
        for namespace in namespaces
    }  # fmt: skip
    lease_settings = settings
    if not settings.is_set(options.KUBERNETES_CLUSTER_ID):
        lease_settings = lease_settings.with_layer("operator", {options.KUBERNETES_CLUSTER_ID.key: LEASE})
    lease_settings = lease_settings.with_layer("operator", {options.KUBERNETES_NAMESPACE.key: own_namespace})
    return OperatorService(lease_settings, api, reconcilers, settings.get(options.OPERATOR_INTERVAL).total_seconds())

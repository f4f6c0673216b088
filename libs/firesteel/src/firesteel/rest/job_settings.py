"""Which settings hold for a job, and where each comes from. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from firesteel.config import Settings, options
from firesteel.config.options import OPTIONS
from firesteel.core.errors import ConfigurationError
from firesteel.graph.job_graph import JobGraph
from firesteel.rest import types as t

_OF_THE_CLUSTER: Final = (
    "cluster.", "completed-application-store.", "firesteel.cluster.", "firesteel.dispatcher.", "firesteel.driver.",
    "firesteel.java.", "firesteel.jobmaster.", "firesteel.jvm.", "firesteel.resourcemanager.", "firesteel.rest.",
    "firesteel.run.", "firesteel.security.", "firesteel.spark.", "heartbeat.", "high-availability.", "jobmanager.",
    "resourcemanager.", "rest.", "slotmanager.", "taskmanager.",
)  # fmt: skip
"""Prefixes of options that have no effect in the settings of a job, since its cluster runs already."""


def is_for_jobs(key: str) -> bool:
    """Whether an option has an effect in the settings of a job, not only in those of the cluster."""
    return not key.startswith((*_OF_THE_CLUSTER, "firesteel.application."))


def set_for_job(cluster: Settings, graph: JobGraph) -> dict[str, dict[str, str]]:
    """The settings in effect for a job that are no defaults: key -> ``value`` and ``origin``; secrets are stars.

    Args:
        cluster: settings of the cluster, as the Dispatcher has them.
        graph: of the job, with the settings of the program.
    """
    layers = cluster.layers()
    rows = {
        key: {"value": value, "origin": f"cluster: {layers.get(key, 'program')}"}
        for key, value in cluster.to_shown().items()
    }
    for key, value in Settings(graph.config).to_shown().items():
        if not key.startswith(_OF_THE_CLUSTER):
            rows[key] = {"value": value, "origin": graph.config_layers.get(key, "program")}
    return dict(sorted(rows.items()))


def all_for_job(was_set: Mapping[str, Mapping[str, str]]) -> list[t.EffectiveSetting]:
    """Every option with its value in effect; options that are not set have their defaults."""
    rows: dict[str, t.EffectiveSetting] = {
        key: {"key": key, "value": _default(key), "origin": "default"}
        for key, option in OPTIONS.items()
        if option.default is not None
    }
    rows |= {key: {"key": key, "value": row["value"], "origin": row["origin"]} for key, row in was_set.items()}
    return [rows[key] for key in sorted(rows)]


def _default(key: str) -> str:
    option: Any = OPTIONS[key]
    return str(option.type.show(option.default))


def client_timeout(graph: JobGraph) -> float | None:
    """Seconds that the client of a job may be silent; None = without a limit.

    Raises:
        ConfigurationError: an option of the job has a bad value.
    """
    settings = Settings(graph.config)
    if not settings.get(options.EXECUTION_ATTACHED) or not settings.get(options.EXECUTION_SHUTDOWN_ON_ATTACHED_EXIT):
        return None
    return settings.get(options.CLIENT_HEARTBEAT_TIMEOUT).total_seconds()


def client_timeout_or_none(graph: JobGraph) -> float | None:
    """Like ``client_timeout``, for a job that was accepted long ago."""
    try:
        return client_timeout(graph)
    except ConfigurationError:
        return None

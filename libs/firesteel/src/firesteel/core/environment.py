"""Environment variables that user code must not find."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping

from firesteel.core.secret import SECRET_VARIABLE

_PREFIXES = (SECRET_VARIABLE, "FIRESTEEL_OPTION_")
"""The cluster's secret, and options of the cluster: among them may be keys of storages."""
_OF_SPARK = frozenset({"PYTHON_WORKER_FACTORY_SECRET", "PYSPARK_GATEWAY_SECRET", "_SPARK_AUTH_SECRET"})


def is_secret(name: str) -> bool:
    """Whether a variable of this name belongs to the cluster, not to the user's code."""
    return name.startswith(_PREFIXES) or name in _OF_SPARK


def without_secrets(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment for a process that runs user code, or from which such ones descend."""
    return {name: value for name, value in environ.items() if not is_secret(name)}


def scrub(environ: MutableMapping[str, str]) -> None:
    """Remove them from an environment."""
    for name in [name for name in environ if is_secret(name)]:
        del environ[name]

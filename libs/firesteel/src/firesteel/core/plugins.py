"""Plug-in look-up: built-ins in a literal table, third parties by entry point."""

from __future__ import annotations

import os
import socket
import sys
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, Final

from firesteel.core.errors import ConfigurationError

BUILT_IN: Final[dict[str, dict[str, str]]] = {
    "firesteel.checkpoint_storages": {
        "filesystem": "firesteel.checkpoint.filesystem:DirectoryCheckpointStorage",
        "hdfs": "firesteel.checkpoint.s3:HdfsCheckpointStorage",
        "jobmanager": "firesteel.checkpoint.memory:MemoryCheckpointStorage",
        "s3": "firesteel.checkpoint.s3:S3CheckpointStorage",
    },
    "firesteel.dashboards": {
        "dashboard": "firesteel_dispatcher.dashboard:dashboard_routes",
    },
    "firesteel.executors": {
        "local": "firesteel.client.embedded:EmbeddedExecutor",
        "remote": "firesteel.client.remote:RemoteExecutor",
    },
    "firesteel.file_systems": {
        "file": "firesteel.connectors.filesystems.local:LocalFileSystem",
        "hdfs": "firesteel.connectors.filesystems.s3:HdfsFileSystem",
        "s3": "firesteel.connectors.filesystems.s3:S3FileSystem",
        "s3a": "firesteel.connectors.filesystems.s3:S3FileSystem",
        "s3p": "firesteel.connectors.filesystems.s3:S3FileSystem",
    },
    "firesteel.high_availability": {
        "NONE": "firesteel.ha.directory:without_high_availability",
        "directory": "firesteel.ha.directory:DirectoryServices",
        "kubernetes": "firesteel.ha.kubernetes:KubernetesServices",
        "zookeeper": "firesteel.ha.zookeeper:ZooKeeperServices",
    },
    "firesteel.providers": {
        "standalone": "firesteel.spark.hosted_provider:HostedProvider",
        "local-process": "firesteel_resourcemanager.local_process:LocalProcessProvider",
        "kubernetes": "firesteel_resourcemanager.kubernetes:KubernetesProvider",
    },
    "firesteel.services": {
        "dispatcher": "firesteel_dispatcher.app:create_service",
        "resourcemanager": "firesteel_resourcemanager.app:create_service",
        "jobmaster": "firesteel_jobmaster.app:create_service",
        "taskmanager": "firesteel_taskmanager.app:create_service",
    },
    "firesteel.state_backends": {
        "filesystem": "firesteel.state.heap:FileSystemStateBackend",
        "hashmap": "firesteel.state.heap:HeapStateBackend",
        "rocksdb": "firesteel.state.rocksdb.backend:RocksDBStateBackend",
    },
}
"""Entry-point group -> name -> ``module:attribute``."""
EXTRAS: Final = {"hdfs_native": "hdfs", "kazoo": "zookeeper", "minio": "s3", "rocksdict": "rocksdb"}
"""Packages that built-in plug-ins need -> the extra that installs them."""


def known_names(group: str) -> set[str]:
    """All names of a group."""
    return {*BUILT_IN.get(group, {}), *(point.name for point in entry_points(group=group))}


def import_target(target: str) -> Any:
    """What ``module:attribute`` names.

    Raises:
        ImportError: there is no such module, or it has no such attribute; or whatever the module raises.
    """
    module, _, attribute = target.partition(":")
    found = import_module(module)
    try:
        return getattr(found, attribute)
    except AttributeError as error:
        raise ImportError(f"{module} has no {attribute!r}") from error


def _this_process() -> str:
    """What tells this process from the others of a cluster, each of which may have other packages."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    program = sys.argv[0] if spec is None else spec.name.removesuffix(".__main__")
    return f"Process {os.getpid()} ({os.path.basename(program)}) on {socket.gethostname()}, with {sys.executable},"


def load(group: str, name: str) -> Any:
    """The object registered under a name.

    Raises:
        ConfigurationError: the name is unknown (the message lists those that are known), or it can't be imported.
    """
    target = BUILT_IN.get(group, {}).get(name)
    if target is None:
        found = {point.name: point for point in entry_points(group=group)}
        if name not in found:
            known = sorted(known_names(group))
            raise ConfigurationError(
                f"no {group} plug-in is called {name!r}; known: {', '.join(known) or 'none'}. {_this_process()} has "
                "looked: each process that uses a plug-in needs its distribution in its own Python environment"
            )
        target = found[name].value
    module, _, attribute = target.partition(":")
    try:
        found_in = import_module(module)
    except ModuleNotFoundError as error:
        package = error.name or ""
        if package not in EXTRAS and not (module == package or (package and module.startswith(f"{package}."))):
            raise
        remedy = f": pip install firesteel[{EXTRAS[package]}]" if package in EXTRAS else ""
        raise ConfigurationError(
            f"the {group} plug-in {name!r} needs the package {error.name!r}, which is not installed{remedy}"
        ) from error
    try:
        return getattr(found_in, attribute)
    except AttributeError as error:
        raise ConfigurationError(f"the {group} plug-in {name!r} names {target}, which does not exist") from error

"""Plug-in look-up: what is built in stands in a literal table, all else is found by entry points.

Firesteel's own plug-ins are distributions like anybody else's: nothing here knows them. The extras of ``firesteel`` say
how one is installed that is missing.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping
from functools import cache
from importlib import import_module, metadata
from pathlib import Path
from typing import Any, Final

from firesteel.core.errors import ConfigurationError

BUILT_IN: Final[dict[str, dict[str, str]]] = {
    "firesteel.application_targets": {
        "standalone": "firesteel.client.cli.applications:run_here",
    },
    "firesteel.checkpoint_storages": {
        "filesystem": "firesteel.checkpoint.filesystem:DirectoryCheckpointStorage",
        "jobmanager": "firesteel.checkpoint.memory:MemoryCheckpointStorage",
    },
    "firesteel.executors": {
        "local": "firesteel.client.embedded:EmbeddedExecutor",
        "remote": "firesteel.client.remote:RemoteExecutor",
    },
    "firesteel.file_systems": {
        "file": "firesteel.connectors.filesystems.local:LocalFileSystem",
    },
    "firesteel.high_availability": {
        "NONE": "firesteel.ha.directory:without_high_availability",
        "directory": "firesteel.ha.directory:DirectoryServices",
    },
    "firesteel.providers": {
        "standalone": "firesteel.spark.hosted_provider:HostedProvider",
    },
    "firesteel.state_backends": {
        "filesystem": "firesteel.state.heap:FileSystemStateBackend",
        "hashmap": "firesteel.state.heap:HeapStateBackend",
    },
}
"""Entry-point group -> name -> ``module:attribute``."""
_DISTRIBUTION: Final = "firesteel"


def known_names(group: str) -> set[str]:
    """All names of a group."""
    return {*BUILT_IN.get(group, {}), *_installed(group)}


def _installed(group: str) -> Mapping[str, str]:
    return _entry_points(group, tuple(sys.path))


@cache
def _entry_points(group: str, path: tuple[str, ...]) -> Mapping[str, str]:
    """Name -> ``module:attribute``. They are read once for each search path: that looks at every installed package."""
    return {point.name: point.value for point in metadata.entry_points(group=group)}


def import_target(target: str) -> Any:
    """Import the object that ``module:attribute`` names.

    Raises:
        ImportError: there is no such module, or it has no such attribute; or whatever the module raises.
    """
    module, _, attribute = target.partition(":")
    imported = import_module(module)
    try:
        return getattr(imported, attribute)
    except AttributeError as error:
        raise ImportError(f"{module} has no {attribute!r}") from error


def _this_process() -> str:
    """This process in words, for errors: each process of a cluster may have other packages."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    # A slot has the program's own __main__, and the file by which it was started: slot/daemon.py.
    program = "/".join(Path(sys.argv[0]).parts[-2:]) if spec is None else spec.name.removesuffix(".__main__")
    return f"Process {os.getpid()} ({program}) on {socket.gethostname()}, with {sys.executable},"


def load(group: str, name: str, *, extra: str | None = None) -> Any:
    """The object registered under a name.

    Args:
        group: of entry points.
        name: of the plug-in.
        extra: of ``firesteel`` that installs it, where that is not called as the plug-in.

    Raises:
        ConfigurationError: the name is unknown (the message lists those that are known, and says how one of ours is
            installed), or it can't be imported.
    """
    target = BUILT_IN.get(group, {}).get(name) or _installed(group).get(name)
    if target is None:
        command = install_command(extra or name, name.partition("-")[0])
        if command is not None:
            raise ConfigurationError(
                f"the {group} plug-in {name!r} is not installed: {command}. {_this_process()} has looked"
            )
        names = sorted(known_names(group))
        raise ConfigurationError(
            f"no {group} plug-in is called {name!r}; known: {', '.join(names) or 'none'}. {_this_process()} has "
            "looked: each process that uses a plug-in needs its distribution in its own Python environment"
        )
    module, _, attribute = target.partition(":")
    try:
        found_in = import_module(module)
    except ModuleNotFoundError as error:
        package = error.name or ""
        if package in sys.stdlib_module_names or package.startswith(f"{_DISTRIBUTION}."):
            raise
        command = install_command(extra or name, name.partition("-")[0])
        raise ConfigurationError(
            f"the {group} plug-in {name!r} needs the package {package!r}, which is not installed"
            f"{f': {command}' if command else ''}"
        ) from error
    try:
        return getattr(found_in, attribute)
    except AttributeError as error:
        raise ConfigurationError(f"the {group} plug-in {name!r} names {target}, which does not exist") from error


def install_command(*extras: str) -> str | None:
    """The command that installs the first of these extras that ``firesteel`` has; None if it has none of them."""
    there = _extras()
    return next((f"pip install '{_DISTRIBUTION}[{extra}]'" for extra in extras if extra in there), None)


def missing_plugin(module: str | None, *extras: str) -> str | None:
    """What to say of a module that can't be imported, if it is of a distribution of ours; None if it is not.

    Args:
        module: the name of a ``ModuleNotFoundError``.
        extras: those of ``firesteel`` that would be better than the one which is called as the distribution.
    """
    top = (module or "").partition(".")[0]
    extra = top.removeprefix(f"{_DISTRIBUTION}_")
    command = install_command(*extras, extra) if extra != top else None
    return None if command is None else f"{top.replace('_', '-')}, which is not installed: {command}"


@cache
def _extras() -> frozenset[str]:
    try:
        return frozenset(metadata.metadata(_DISTRIBUTION).get_all("Provides-Extra") or ())
    except metadata.PackageNotFoundError:  # it runs from a folder on the search path
        return frozenset()


def loaded_folders(group: str) -> tuple[str, ...]:
    """Folders of those plug-ins of a group that are imported in this process, with a separator at the end."""
    tops = {target.partition(":")[0].partition(".")[0] for target in _installed(group).values()}
    files = (getattr(sys.modules.get(top), "__file__", None) for top in tops)
    return tuple(os.path.join(os.path.dirname(os.path.abspath(file)), "") for file in files if file)

"""Modules that have moved: their old names still import them, and mean the very same modules.

Pickled state, records in flight, job graphs that high availability keeps, and ``module:attribute`` in configurations
name modules. What an earlier version wrote is read by all kinds of readers (pickle, cloudpickle, Spark, ``python -m``),
and all of them import: so this one finder serves them all. Nothing that is written now has the old names.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType
from typing import Final

_FORMATS: Final = (
    "avro_blocks", "avro_files", "avro_parquet", "avro_rows", "avro_schema", "confluent_avro", "confluent_json",
    "protobuf_messages", "protobuf_rows", "schema_registry",
)  # fmt: skip
MOVED: Final = {
    "firesteel.checkpoint.hdfs_client": "firesteel_hdfs.client",
    "firesteel.checkpoint.s3": "firesteel.checkpoint.object_storage",
    "firesteel.checkpoint.s3_client": "firesteel_s3.client",
    "firesteel.checkpoint.s3_credentials": "firesteel_s3.credentials",
    "firesteel.checkpoint.s3_savepoints": "firesteel.checkpoint.object_savepoints",
    "firesteel.client.cli.kubernetes": "firesteel_kubernetes.commands",
    "firesteel.client.cli.yarn": "firesteel_yarn.commands",
    "firesteel.connectors.filesystems.s3": "firesteel.connectors.filesystems.object_files",
    "firesteel.connectors.filesystems.s3_parts": "firesteel.connectors.filesystems.object_parts",
    **{f"firesteel.connectors.formats.{name}": f"firesteel_formats.{name}" for name in _FORMATS},
    "firesteel.connectors.jdbc": "firesteel_jdbc",
    "firesteel.connectors.kafka": "firesteel_kafka",
    "firesteel.ha.kubernetes": "firesteel_kubernetes.high_availability",
    "firesteel.ha.zookeeper": "firesteel_zookeeper.services",
    "firesteel.kubernetes": "firesteel_kubernetes",
    "firesteel.state.rocksdb": "firesteel_rocksdb",
    "firesteel.yarn": "firesteel_yarn",
    "firesteel_dispatcher.jobmanager": "firesteel_kubernetes.jobmanager",
    "firesteel_resourcemanager.kubernetes": "firesteel_kubernetes.provider",
    "firesteel_resourcemanager.yarn": "firesteel_yarn.provider",
}
"""Old name of a module, or of a package with all modules below it -> the new one."""


def new_name(module: str) -> str | None:
    """The name that a module has now; None if it has not moved."""
    if not module.startswith("firesteel"):
        return None
    name, below = module, ""
    while name:
        if name in MOVED:
            return MOVED[name] + below
        name, dot, last = name.rpartition(".")
        below = f"{dot}{last}{below}"
    return None


# Neither class derives from its contract in importlib.abc: to import that takes longer than the rest of this package.
class _MovedModuleFinder:
    """Stands in front of the path's finder, which would find modules below an old package once more."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        name = new_name(fullname)
        return None if name is None else ModuleSpec(fullname, _MovedModuleLoader(name))  # type: ignore[arg-type]


class _MovedModuleLoader:
    """Imports the module by its new name, and leaves it under the old one as well."""

    def __init__(self, name: str) -> None:
        self._name = name

    def create_module(self, spec: ModuleSpec) -> None:
        """Leaves it to the import, which demands this method."""

    def exec_module(self, module: ModuleType) -> None:
        sys.modules[module.__name__] = import_module(self._name)  # the import statement takes what is there afterwards

    def get_code(self, fullname: str) -> CodeType:
        """For ``python -m``, as Deployments say that were made before.

        Raises:
            ImportError: the module is not there.
        """
        from importlib.util import find_spec

        spec = find_spec(self._name)
        code: CodeType | None = getattr(spec and spec.loader, "get_code", lambda name: None)(self._name)
        if code is None:
            raise ImportError(f"there is no module {self._name}", name=self._name)
        return code


def import_by_old_names() -> None:
    """Let the old names be imported in this process."""
    if not any(isinstance(finder, _MovedModuleFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _MovedModuleFinder())

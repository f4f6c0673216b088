"""What the cluster says about options reaches those who read them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from firesteel.config import Settings, options
from firesteel.config.option import Option
from firesteel_jobmaster.settings import READ_IN_SLOTS, JobMasterSettings

LIBS = Path(__file__).parents[3] / "libs"
LIBRARY = LIBS / "firesteel" / "src" / "firesteel"
IN_SLOTS = [
    *(LIBRARY / room for room in ("runtime", "checkpoint", "state", "traces")),
    *(LIBS / f"firesteel-{plugin}" for plugin in ("hdfs", "rocksdb", "s3")),
]
"""Folders whose code reads settings in slots only, or in slots too."""
READERS = {"login_keytab": options.KERBEROS_KEYTAB}
"""Functions that read an option for them."""
NOT_IN_SLOTS = ("checkpoint/closing.py", "traces/settings.py")
"""Modules in them that are for coordinators."""


def read_in(path: Path) -> Iterator[str]:
    """Keys of options that a module gets from settings: ``settings.get(NAME)``, ``settings.get(<module>.NAME)``, or all
    of ``<module>.NAME.items()``.
    """
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Attribute(value=ast.Attribute(attr=name), attr="items") if hasattr(options, name):
                yield from (option.key for option in getattr(options, name).values())
            case ast.Call(func=ast.Name(id=name)) if name in READERS:
                yield READERS[name].key
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr != "get":
            continue
        match node.args:
            case [ast.Name(id=name) | ast.Attribute(attr=name)] if hasattr(options, name):
                yield getattr(options, name).key


def test_the_cluster_tells_slots_all_options_that_they_read_and_no_others() -> None:
    modules = {path for folder in IN_SLOTS for path in folder.rglob("*.py")}
    others = {LIBRARY / name for name in NOT_IN_SLOTS}
    assert others < modules
    read = {key for path in modules - others for key in read_in(path)}
    some: set[Option[Any]] = {options.STATE_BACKEND, options.CHECKPOINTING_DIRECTORY, options.EXCHANGE_MAX_CHUNK}
    assert {option.key for option in some} <= read, "it looks at the wrong places"
    assert {option.key for option in READ_IN_SLOTS} == read


def test_a_state_backend_of_the_cluster_is_used_in_slots() -> None:
    cluster = Settings({"state.backend.type": "filesystem", "execution.checkpointing.dir": "/c"})
    settings = JobMasterSettings.read(cluster, {})
    assert settings.for_slots["state.backend.type"] == settings.checkpoints.backend == "filesystem"

"""What the cluster says about options reaches those who read them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import firesteel
from firesteel.config import Settings, options
from firesteel_jobmaster.settings import READ_IN_SLOTS, JobMasterSettings

IN_SLOTS = ("runtime", "checkpoint", "state", "traces")
"""Packages whose code reads settings in slots only, or in slots too."""
NOT_IN_SLOTS = ("checkpoint/closing.py", "traces/settings.py")
"""Modules in them that are for coordinators."""


def read_in(path: Path) -> Iterator[str]:
    """Names of options that a module gets from settings: ``settings.get(NAME)``, ``settings.get(<module>.NAME)``."""
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr != "get":
            continue
        match node.args:
            case [ast.Name(id=name) | ast.Attribute(attr=name)] if hasattr(options, name):
                yield name


def test_the_cluster_tells_slots_all_options_that_they_read_and_no_others() -> None:
    package = Path(firesteel.__file__).parent
    modules = {path for part in IN_SLOTS for path in (package / part).rglob("*.py")}
    others = {package / name for name in NOT_IN_SLOTS}
    assert others < modules
    read = {name for path in modules - others for name in read_in(path)}
    assert {"STATE_BACKEND", "CHECKPOINTING_DIRECTORY", "EXCHANGE_MAX_CHUNK"} <= read, "it looks at the wrong places"
    assert {option.key for option in READ_IN_SLOTS} == {getattr(options, name).key for name in read}


def test_a_state_backend_of_the_cluster_is_used_in_slots() -> None:
    cluster = Settings({"state.backend.type": "filesystem", "execution.checkpointing.dir": "/c"})
    settings = JobMasterSettings.read(cluster, {})
    assert settings.for_slots["state.backend.type"] == settings.checkpoints.backend == "filesystem"

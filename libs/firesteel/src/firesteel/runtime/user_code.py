"""Loads the user's code in a slot: what the program's main module holds, and chains."""

from __future__ import annotations

import hashlib
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle

from firesteel.core.errors import FiresteelError, ProgramError
from firesteel.graph.specs import ChainSpec


class BlobDamagedError(FiresteelError):
    """A blob is not what its name says."""


def read_blob(path: str, sha256: str) -> bytes:
    """The content of a blob, checked before anything is unpickled.

    Raises:
        BlobDamagedError: its SHA-256 differs from its name.
        OSError: it can't be read.
    """
    blob = Path(path).read_bytes()
    found = hashlib.sha256(blob).hexdigest()
    if found != sha256:
        raise BlobDamagedError(f"{path} has SHA-256 {found}, not {sha256}: it was changed or not written to its end")
    return blob


def extend_path(entries: Sequence[str]) -> None:
    """Put the program's directories in front of ``sys.path``, in their order."""
    new = [entry for entry in entries if entry not in sys.path]
    if new:
        sys.path[:0] = new
        importlib.invalidate_caches()


def load_main(blob: bytes) -> None:
    """Make the modules that only the client had: ``__main__`` and others, filled from a blob.

    The blob is a cloudpickle of ``{module name: {name: object}}``. Pickles that refer to ``__main__`` find their
    classes afterwards; the program's script is not run.

    Raises:
        ProgramError: it can't be loaded; says why and what to do.
    """
    sys.modules["__main__"] = _new_module("__main__")
    content = _loads(blob, "the program's own classes and functions")
    if not isinstance(content, dict):
        raise ProgramError(f"the blob of the program's main module holds {type(content).__name__}, not a dict")
    for name, members in content.items():
        module = _module(name)
        for member, value in members.items():
            setattr(module, member, value)


def load_chain(blob: bytes) -> ChainSpec:
    """Unpickle a chain.

    Raises:
        ProgramError: it can't be loaded; says why and what to do.
    """
    chain = _loads(blob, "the operators")
    if not isinstance(chain, ChainSpec):
        raise ProgramError(f"the blob of a chain holds {type(chain).__name__}, not a ChainSpec")
    return chain


def _loads(blob: bytes, what: str) -> Any:
    try:
        return cloudpickle.loads(blob)
    except ModuleNotFoundError as error:
        raise ProgramError(
            f"{what} can't be loaded in the slot, since Python there finds no module {error.name!r}: install it in the "
            "Python environment of the cluster, or put it beside the program or on PYTHONPATH"
        ) from error
    except Exception as error:  # of the user's modules and classes, which run here
        raise ProgramError(f"{what} can't be loaded in the slot: {type(error).__name__}: {error}") from error


def _new_module(name: str) -> ModuleType:
    module = ModuleType(name)
    module.__dict__["__builtins__"] = __builtins__
    return module


def _module(name: str) -> ModuleType:
    """The module of this name; made, with its parents, if it can't be imported."""
    if name in sys.modules:
        return sys.modules[name]
    parent, _, last = name.rpartition(".")
    package = _module(parent) if parent else None
    try:
        return importlib.import_module(name)
    except ImportError:
        pass
    module = sys.modules[name] = _new_module(name)
    module.__path__ = []
    if package is not None:
        setattr(package, last, module)
    return module

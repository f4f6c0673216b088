"""Loads the user's code in a slot: the program's main module, its other modules, and chains of operators."""

from __future__ import annotations

import hashlib
import importlib
import os
import shutil
import sys
import tempfile
import threading
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import cloudpickle

from firesteel.core.archives import unpack_zip
from firesteel.core.errors import ProgramError, TaskInterrupt, UnsafeArchiveError
from firesteel.core.plugins import missing_plugin
from firesteel.graph.specs import ChainSpec
from firesteel.ha.blobs import DamagedBlobError

DEFERRED: Final = "__main__, deferred"
"""Key, in place of a module's name, of the pickled members of ``__main__`` that are loaded on first use."""


def read_blob(path: str, sha256: str) -> bytes:
    """Read a blob and check it, before anything is unpickled.

    Raises:
        DamagedBlobError: its SHA-256 differs from its name.
        OSError: it can't be read.
    """
    blob = Path(path).read_bytes()
    actual = hashlib.sha256(blob).hexdigest()
    if actual != sha256:
        raise DamagedBlobError(f"{path} has SHA-256 {actual}, not {sha256}: it was changed or not written to its end")
    return blob


def extend_path(entries: Sequence[str]) -> None:
    """Put the program's directories in front of ``sys.path``, in their order."""
    new = [entry for entry in entries if entry not in sys.path]
    if new:
        sys.path[:0] = new
        importlib.invalidate_caches()


def unpack(path: str, sha256: str) -> str:
    """Unpack an archive of Python files beside itself, once for all slots that share its directory.

    Returns:
        The directory with its content.

    Raises:
        DamagedBlobError: its SHA-256 differs from its name.
        ProgramError: it is no zip archive, or one that must not be unpacked.
        OSError: it can't be read, or there is no room to unpack it.
    """
    target = path + ".files"
    if os.path.isdir(target):
        return target
    read_blob(path, sha256)
    unpacking = tempfile.mkdtemp(prefix=".unpacking-", dir=os.path.dirname(path))
    try:
        unpack_zip(path, Path(unpacking))
        os.rename(unpacking, target)
    except zipfile.BadZipFile as error:
        raise ProgramError(f"the program's Python files {sha256[:12]} are no zip archive: {error}") from error
    except UnsafeArchiveError as error:
        raise ProgramError(f"the program's Python files can't be unpacked: {error}") from error
    except OSError:
        if not os.path.isdir(target):  # if it exists, another slot has unpacked the archive meanwhile
            raise
    finally:
        shutil.rmtree(unpacking, ignore_errors=True)
    return target


def load_main(blob: bytes) -> None:
    """Create the modules that exist only on the client, ``__main__`` and others, and fill them from a blob.

    The blob is a cloudpickle of ``{module name: {name: object}}``. Afterwards pickles that refer to ``__main__`` find
    their classes; the program's script is not run. When the blob is loaded again, functions have new globals, as at the
    start of a process, but classes keep their identity.

    Raises:
        ProgramError: the blob can't be loaded; says why and what to do.
    """
    sys.modules["__main__"] = _new_module("__main__")
    content = _loads(blob, "the program's own classes and functions")
    if not isinstance(content, dict):
        raise ProgramError(f"the blob of the program's main module holds {type(content).__name__}, not a dict")
    deferred = content.pop(DEFERRED, {})
    if deferred:
        vars(sys.modules["__main__"])["__getattr__"] = _deferred_loader(sys.modules["__main__"], deferred)
    for name, members in content.items():
        module = _module(name)
        for member, value in members.items():
            setattr(module, member, value)


def _deferred_loader(module: ModuleType, deferred: dict[str, bytes]) -> Callable[[str], Any]:
    """The ``__getattr__`` of a module, which loads members on their first use."""
    lock = threading.RLock()

    def load(name: str) -> Any:
        with lock:
            if name not in vars(module):
                data = deferred.get(name)
                if data is None:
                    raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
                vars(module).update(_loads(data, f"{module.__name__}.{name}, which a record or state refers to,"))
            return vars(module)[name]

    return load


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
            f"{what} can't be loaded in the slot, since Python there finds no module {error.name!r}: "
            f"{how_to_bring(error.name)}"
        ) from error
    except TaskInterrupt:
        raise
    except BaseException as error:  # raised by the user's modules and classes, which run here
        raise ProgramError(f"{what} can't be loaded in the slot: {type(error).__name__}: {error}") from error


def how_to_bring(module: str | None) -> str:
    """Advice for errors about a module that slots do not find."""
    ours = missing_plugin(module)
    if ours is not None:
        return f"it is in {ours}, in the Python environment of the cluster"
    name = (module or "module").partition(".")[0]
    return (
        "install it in the Python environment of the cluster, or send it along: import it from the program's own "
        f"directory, or name its file with env.add_python_file(...) or `firesteel run -pyfs {name}.py`"
    )


def _new_module(name: str) -> ModuleType:
    module = ModuleType(name)
    module.__dict__["__builtins__"] = __builtins__
    return module


def _module(name: str) -> ModuleType:
    """The module of this name; if it can't be imported, create it and its parents."""
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

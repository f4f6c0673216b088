"""Loading what the client shipped."""

from __future__ import annotations

import hashlib
import importlib
import io
import os
import pickle
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle
import pytest

from firesteel.core.errors import ProgramError
from firesteel.graph.specs import ChainSpec
from firesteel.ha.blobs import DamagedBlobError
from firesteel.runtime.slot.user_code import extend_path, load_chain, load_main, read_blob, unpack


@pytest.fixture(autouse=True)
def _modules() -> Iterator[None]:
    modules, path = dict(sys.modules), list(sys.path)
    yield
    for name in set(sys.modules) - set(modules):
        del sys.modules[name]
    sys.modules["__main__"] = modules["__main__"]
    sys.path[:] = path


def shipped(module: str) -> dict[str, dict[str, Any]]:
    """Content of a blob, with a class of a module that is nowhere on disk."""
    scope: dict[str, Any] = {"__name__": module}
    exec("class Point:\n    def __init__(self, x): self.x = x\ndef make(x): return Point(x)\n", scope)
    return {module: {"Point": scope["Point"], "make": scope["make"]}}


@pytest.mark.parametrize("module", ["__main__", "only_at_the_client", "package_at.the_client.deep"])
def test_objects_of_shipped_modules_are_pickled_by_reference(module: str) -> None:
    content = shipped(module)
    sent_module = ModuleType(module)
    vars(sent_module).update(content[module])
    if module != "__main__":
        sys.modules[module] = sent_module
        cloudpickle.register_pickle_by_value(sent_module)
    blob = cloudpickle.dumps(content)
    if module != "__main__":
        cloudpickle.unregister_pickle_by_value(sent_module)
        del sys.modules[module]
    load_main(blob)
    point = sys.modules[module].make(7)
    data = pickle.dumps(point)
    assert len(data) < 100
    assert pickle.loads(data).x == 7
    assert type(point) is sys.modules[module].Point


def test_a_class_that_was_edited_is_replaced() -> None:
    load_main(cloudpickle.dumps({"__main__": {"answer": 1, "old": 1}}))
    load_main(cloudpickle.dumps({"__main__": {"answer": 2}}))
    main: Any = sys.modules["__main__"]
    assert main.answer == 2
    assert not hasattr(main, "old")


def test_a_blob_of_something_else_is_refused() -> None:
    with pytest.raises(ProgramError, match="holds list, not a dict"):
        load_main(cloudpickle.dumps([]))
    with pytest.raises(ProgramError, match="holds int, not a ChainSpec"):
        load_chain(cloudpickle.dumps(7))
    with pytest.raises(ProgramError, match="can't be loaded in the slot: UnpicklingError"):
        load_chain(b"garbage")


def test_a_chain_comes_back() -> None:
    assert load_chain(cloudpickle.dumps(ChainSpec([], [], []))) == ChainSpec([], [], [])


def test_a_missing_module_is_named_with_what_to_do() -> None:
    with pytest.raises(ProgramError, match=r"no module 'missing_here': install it .* -pyfs missing_here\.py`"):
        load_chain(b"\x80\x05cmissing_here\nf\n.")


def test_blobs_are_checked(tmp_path: Path) -> None:
    path = tmp_path / "blob"
    path.write_bytes(b"data")
    assert read_blob(str(path), hashlib.sha256(b"data").hexdigest()) == b"data"
    with pytest.raises(DamagedBlobError, match="was changed or not written to its end"):
        read_blob(str(path), hashlib.sha256(b"other").hexdigest())


def packed(folder: Path, **modules: str) -> tuple[str, str]:
    """Path and SHA-256 of an archive as a TaskManager keeps it."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, text in modules.items():
            archive.writestr(f"{name}.py", text)
    sha = hashlib.sha256(content.getvalue()).hexdigest()
    (folder / sha).write_bytes(content.getvalue())
    return str(folder / sha), sha


def test_python_files_are_unpacked_once_for_all_slots(tmp_path: Path) -> None:
    path, sha = packed(tmp_path, shipped_by_a_test="where = __file__")
    first = unpack(path, sha)
    Path(path).unlink()  # a second slot finds the directory and needs the archive no longer
    assert unpack(path, sha) == first
    extend_path([first])
    assert importlib.import_module("shipped_by_a_test").where == os.path.join(first, "shipped_by_a_test.py")
    assert sorted(os.listdir(tmp_path)) == [f"{sha}.files"]


def test_damaged_python_files_are_refused_and_leave_nothing(tmp_path: Path) -> None:
    path, sha = packed(tmp_path, module="x = 1")
    with pytest.raises(DamagedBlobError):
        unpack(path, "0" * 64)
    Path(path).write_bytes(b"no archive")
    with pytest.raises(ProgramError, match="no zip archive"):
        unpack(path, hashlib.sha256(b"no archive").hexdigest())
    assert os.listdir(tmp_path) == [sha]


def test_the_programs_directories_come_first_and_once() -> None:
    extend_path(["/program", "/lib"])
    extend_path(["/program", "/lib"])
    assert sys.path[:2] == ["/program", "/lib"]
    assert sys.path.count("/program") == 1

"""Loading what the client shipped."""

from __future__ import annotations

import hashlib
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle
import pytest

from firesteel.core.errors import ProgramError
from firesteel.graph.specs import ChainSpec
from firesteel.runtime.user_code import BlobDamagedError, extend_path, load_chain, load_main, read_blob


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
    made = ModuleType(module)
    vars(made).update(content[module])
    if module != "__main__":
        sys.modules[module] = made
        cloudpickle.register_pickle_by_value(made)
    blob = cloudpickle.dumps(content)
    if module != "__main__":
        cloudpickle.unregister_pickle_by_value(made)
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
    with pytest.raises(ProgramError, match=r"no module 'missing_here': install it .* or put it beside the program"):
        load_chain(b"\x80\x05cmissing_here\nf\n.")


def test_blobs_are_checked(tmp_path: Path) -> None:
    path = tmp_path / "blob"
    path.write_bytes(b"data")
    assert read_blob(str(path), hashlib.sha256(b"data").hexdigest()) == b"data"
    with pytest.raises(BlobDamagedError, match="was changed or not written to its end"):
        read_blob(str(path), hashlib.sha256(b"other").hexdigest())


def test_the_programs_directories_come_first_and_once() -> None:
    extend_path(["/program", "/lib"])
    extend_path(["/program", "/lib"])
    assert sys.path[:2] == ["/program", "/lib"]
    assert sys.path.count("/program") == 1

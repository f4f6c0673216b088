"""Functions that are handed on by name."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import pytest

from firesteel.spark.mains import ByName


def test_only_who_calls_it_imports_its_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "module_of_test_by_name.py").write_text("def add(one, other):\n    return one + other\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "module_of_test_by_name", raising=False)
    handed_on = pickle.loads(pickle.dumps(ByName("module_of_test_by_name:add")))
    assert handed_on.__module__ == "module_of_test_by_name"
    assert "module_of_test_by_name" not in sys.modules
    assert handed_on(1, 2) == 3


def test_a_function_that_is_not_there_is_named() -> None:
    with pytest.raises(ImportError, match="json has no 'nothing'"):
        ByName("json:nothing")()

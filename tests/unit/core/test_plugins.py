"""Plug-in look-up."""

from __future__ import annotations

import os
import socket
import sys
from types import ModuleType

import pytest

from firesteel.core import plugins
from firesteel.core.errors import ConfigurationError


@pytest.fixture
def built_in(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    table: dict[str, str] = {}
    monkeypatch.setitem(plugins.BUILT_IN, "some.group", table)
    return table


def test_a_built_in_is_found(built_in: dict[str, str]) -> None:
    built_in["one"] = "collections:deque"
    assert plugins.load("some.group", "one").__name__ == "deque"


def test_an_unknown_name_lists_the_known_ones(built_in: dict[str, str]) -> None:
    built_in.update(one="a:b", two="c:d")
    with pytest.raises(ConfigurationError, match=r"'three'; known: one, two"):
        plugins.load("some.group", "three")


def test_an_unknown_name_says_which_process_has_looked(built_in: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        plugins.load("some.group", "three")
    assert f"Process {os.getpid()} (" in str(caught.value)
    assert f"on {socket.gethostname()}, with {sys.executable}, has looked" in str(caught.value)


def test_a_missing_package_is_named(built_in: dict[str, str]) -> None:
    built_in["one"] = "no_such_package.module:thing"
    with pytest.raises(ConfigurationError, match="needs the package 'no_such_package'"):
        plugins.load("some.group", "one")


def test_a_missing_attribute_is_named_and_a_broken_module_is_not_hidden(
    built_in: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    built_in["one"] = "collections:no_such_thing"
    with pytest.raises(ConfigurationError, match="collections:no_such_thing, which does not exist"):
        plugins.load("some.group", "one")

    def broken(name: str) -> ModuleType:
        raise AttributeError("inside the module")

    monkeypatch.setattr(plugins, "import_module", broken)
    built_in["two"] = "broken:thing"
    with pytest.raises(AttributeError, match="inside the module"):
        plugins.load("some.group", "two")
    assert "broken" not in sys.modules

"""The map of modules in ARCHITECTURE.md shows the imports that the code has."""

from __future__ import annotations

import pytest

from tools.module_map import PICTURE, floors_of, package_of, picture, room_of, without_implied


def test_the_picture_shows_the_imports_of_today() -> None:
    assert PICTURE.read_text() == picture(), "imports have changed: python -m tools.module_map"


def test_a_box_stands_one_floor_above_the_highest_that_it_imports() -> None:
    graph = {"roof": frozenset({"room", "cellar"}), "room": frozenset({"cellar"}), "cellar": frozenset[str]()}
    assert floors_of(graph) == [["cellar"], ["room"], ["roof"]]
    assert without_implied(graph) == {**graph, "roof": {"room"}}


def test_a_circle_is_refused_with_its_modules() -> None:
    with pytest.raises(ValueError, match="a -> b -> a"):
        floors_of({"a": frozenset({"b"}), "b": frozenset({"a"})})


def test_modules_belong_to_packages_and_rooms() -> None:
    assert [package_of(name) for name in ("firesteel", "firesteel.state.heap", "firesteel_jobmaster.core")] == [
        None, "state", "jobmaster",
    ]  # fmt: skip
    assert [room_of(name) for name in ("firesteel.runtime", "firesteel.runtime.task.task", "firesteel.rpc.server")] == [
        None, "task", None,
    ]  # fmt: skip

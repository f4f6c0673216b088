"""No module of the library or of a service imports itself by way of others.

An edge is an import statement wherever it stands: at the top, inside a function, or under ``TYPE_CHECKING``, where the
interpreter does not see the circle and the reader still walks in it; and ``import_module`` with a name written out.
``from package import name`` is an edge to the module ``package.name`` if there is one, else to the package. Python runs
the packages above a module before the module itself; that is no edge, or no package could offer names of its modules.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = [*sorted(ROOT.glob("libs/*/src")), *sorted(ROOT.glob("services/*/src"))]

FOR_TYPES_ONLY = {"firesteel.datastream.data_stream": "firesteel.datastream.stream_execution_environment"}
"""The one import back up: a stream returns its environment, which makes streams. As two modules both are found under
the names that they have in PyFlink. It has to stand under ``TYPE_CHECKING``; pyproject.toml ignores it as well."""


def modules_below(source: Path) -> Iterator[tuple[str, str]]:
    """Names of modules and their texts."""
    for file in sorted(source.rglob("*.py")):
        parts = file.relative_to(source).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), file.read_text()


def imported(text: str) -> Iterator[tuple[str, str]]:
    """What a module imports: modules with a name of theirs; the name is empty where the module itself is asked for."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "relative imports are not counted"
            yield from ((node.module or "", alias.name) for alias in node.names)
        elif isinstance(node, ast.Call) and _called(node) == "import_module":
            names = (constant.value for constant in node.args if isinstance(constant, ast.Constant))
            yield from ((name, "") for name in names if isinstance(name, str))


def _called(call: ast.Call) -> str:
    """The last part of the name of what is called."""
    function = call.func
    return getattr(function, "attr", getattr(function, "id", ""))


def graph_of(texts: Mapping[str, str]) -> dict[str, set[str]]:
    """For each module the modules that it imports."""
    graph: dict[str, set[str]] = {}
    for module, text in texts.items():
        targets = (f"{owner}.{name}" if f"{owner}.{name}" in texts else owner for owner, name in imported(text))
        graph[module] = {other for other in targets if other in texts and other != module}
    return graph


def circles(graph: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """The strongly connected components of more than one module (Tarjan's algorithm)."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    path: list[str] = []
    circles: list[list[str]] = []

    def visit(module: str) -> None:
        order[module] = lowest[module] = len(order)
        path.append(module)
        for other in graph[module]:
            if other not in order:
                visit(other)
                lowest[module] = min(lowest[module], lowest[other])
            elif other in path:
                lowest[module] = min(lowest[module], order[other])
        if lowest[module] == order[module]:
            component = path[path.index(module) :]
            del path[-len(component) :]
            if len(component) > 1:
                circles.append(sorted(component))

    for module in graph:
        if module not in order:
            visit(module)
    return sorted(circles)


def test_no_circle_of_imports() -> None:
    texts = {name: text for source in SOURCES for name, text in modules_below(source)}
    graph = graph_of(texts)
    assert len(graph) > 500
    assert sum(map(len, graph.values())) > 2000
    for module, target in FOR_TYPES_ONLY.items():
        blocks = [node for node in ast.parse(texts[module]).body if isinstance(node, ast.If)]
        type_only = [b for b in blocks if ast.unparse(b.test) == "TYPE_CHECKING" and target in ast.unparse(b)]
        assert texts[module].count(f"from {target} import") == len(type_only) == 1
        graph[module].discard(target)
    assert circles(graph) == [], "these import each other; put what both need below them, or bring them together"


@pytest.mark.parametrize(
    "hidden",
    [
        "import a.left",
        "from a import left",
        "from a.left import name",
        """
        from typing import TYPE_CHECKING
        if TYPE_CHECKING:
            from a.left import name
        """,
        """
        def late():
            from a.left import name
        """,
        """
        class Late:
            def late(self):
                importlib.import_module("a.left")
        """,
    ],
)
def test_a_circle_is_found_wherever_it_hides(hidden: str) -> None:
    texts = {"a": "from a.right import x", "a.left": "from a.right import x", "a.right": textwrap.dedent(hidden)}
    assert circles(graph_of(texts)) == [["a.left", "a.right"]]
    assert circles(graph_of({**texts, "a.left": "from a.elsewhere import x"})) == []


def test_a_circle_by_way_of_the_package_is_found() -> None:
    texts = {"a": "from a.left import x", "a.left": "from a import x"}
    assert circles(graph_of(texts)) == [["a", "a.left"]]

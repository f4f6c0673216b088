"""Draws docs/images/module-map.svg from the import statements of the code: ``python -m tools.module_map``.

Two graphs stand beside each other: packages of the library with plug-ins and services above them, and rooms of
``firesteel.runtime``. A box stands one floor above the highest box that it imports, so every line goes down. A line is
left out where a longer way says the same: what a box imports by way of another one is implied.
What is imported for type checkers alone is left out: the library has the types of plug-ins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path

import grimp

from tools.pictures import COLORS

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "images" / "module-map.svg"
LIBRARY = "firesteel"
SERVICES = ("dispatcher", "historyserver", "jobmaster", "operator", "resourcemanager", "taskmanager")
PLUGINS = ("formats", "hdfs", "jdbc", "kafka", "kubernetes", "rocksdb", "s3", "yarn", "zookeeper")

BOX_WIDTH, BOX_HEIGHT, GAP, FLOOR_HEIGHT, MARGIN, TITLE_HEIGHT = 136, 26, 14, 62, 20, 40
SWEEPS = 8
"""Times that each floor is sorted by its neighbours; the order no longer changes after five."""
STYLE = f"""{COLORS}
  svg.map text {{ font: 13px sans-serif; fill: var(--ink); text-anchor: middle; }}
  svg.map text.title {{ font-weight: bold; }}
  svg.map rect {{ stroke: var(--line); }}
  svg.map rect.box {{ fill: var(--blue); }}
  svg.map rect.service {{ fill: var(--orange); }}
  svg.map rect.plugin {{ fill: var(--green); }}
  svg.map path {{ fill: none; stroke: var(--line); stroke-width: 1.2; }}
"""

Graph = Mapping[str, frozenset[str]]


def package_of(module: str) -> str | None:
    """The box of a module among packages: ``state`` for ``firesteel.state.heap``, else the service or plug-in."""
    top, *rest = module.split(".")
    if top != LIBRARY:
        return top.removeprefix(f"{LIBRARY}_")
    return rest[0] if rest and rest[0] != "__main__" else None


def room_of(module: str) -> str | None:
    """The box of a module among the rooms of the runtime: ``task`` for ``firesteel.runtime.task.task``."""
    parts = module.split(".")
    return parts[2] if parts[:2] == [LIBRARY, "runtime"] and len(parts) > 2 else None


def imports_between(modules: grimp.ImportGraph, box_of: Callable[[str], str | None]) -> Graph:
    """What each box imports directly."""
    imports: dict[str, set[str]] = {}
    for module in modules.modules:
        importer = box_of(module)
        if importer is None:
            continue
        imports.setdefault(importer, set())
        for imported in modules.find_modules_directly_imported_by(module):
            target = box_of(imported)
            if target is not None and target != importer:
                imports[importer].add(target)
                imports.setdefault(target, set())
    return {name: frozenset(targets) for name, targets in imports.items()}


def floors_of(graph: Graph) -> list[list[str]]:
    """Names by floor, the lowest first; on each floor near what they import and what imports them.

    Raises:
        ValueError: the graph has a circle.
    """
    heights: dict[str, int] = {}

    def height(name: str, path: tuple[str, ...]) -> int:
        if name in path:
            raise ValueError(f"imports in a circle: {' -> '.join((*path, name))}")
        if name not in heights:
            heights[name] = 1 + max((height(target, (*path, name)) for target in graph[name]), default=-1)
        return heights[name]

    floors: list[list[str]] = [[] for _ in range(1 + max(height(name, ()) for name in graph))]
    for name in sorted(graph):
        floors[heights[name]].append(name)
    neighbours = {
        name: [*graph[name], *(other for other, targets in graph.items() if name in targets)] for name in graph
    }
    for sweep in range(
        SWEEPS
    ):  # each box goes to the mean place of its neighbours, floor by floor, down and up in turn
        for floor in floors if sweep % 2 else reversed(floors):
            places = {name: (index + 0.5) / len(other) for other in floors for index, name in enumerate(other)}
            means = {name: sum(places[n] for n in neighbours[name]) / max(1, len(neighbours[name])) for name in floor}
            floor.sort(key=lambda name: (means[name], name))
    return floors


def without_implied(graph: Graph) -> Graph:
    """The graph without edges that a longer way stands for."""

    @cache
    def reachable(name: str) -> frozenset[str]:
        return graph[name].union(*(reachable(target) for target in graph[name]))

    return {
        name: frozenset(target for target in targets if not any(target in reachable(other) for other in targets))
        for name, targets in graph.items()
    }


def drawn(title: str, graph: Graph, left: int, height: int) -> tuple[int, Iterator[str]]:
    """The width of one graph, and its elements of SVG.

    Args:
        title: above it.
        graph: without implied edges.
        left: of its left edge.
        height: of the whole picture; the lowest floor stands at its bottom.
    """
    floors = floors_of(graph)
    width = max(len(floor) for floor in floors) * (BOX_WIDTH + GAP) - GAP
    places: dict[str, tuple[float, int]] = {}
    for number, floor in enumerate(floors):
        step = width / len(floor)
        for index, name in enumerate(floor):
            places[name] = left + step * (index + 0.5), height - MARGIN - BOX_HEIGHT - number * FLOOR_HEIGHT

    def elements() -> Iterator[str]:
        yield f'<text class="title" x="{left + width / 2:g}" y="{MARGIN + 6}">{title}</text>'
        for name in sorted(graph):
            x, y = places[name]
            for target in sorted(graph[name]):
                to_x, to_y = places[target]
                start, half = y + BOX_HEIGHT, FLOOR_HEIGHT / 2
                yield f'<path d="M {x:g} {start} C {x:g} {start + half:g} {to_x:g} {to_y - half:g} {to_x:g} {to_y}"/>'
        for name, (x, y) in sorted(places.items()):
            kind = "service" if name in SERVICES else "plugin" if name in PLUGINS else "box"
            corner = f'x="{x - BOX_WIDTH / 2:g}" y="{y}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="4"'
            yield f'<rect class="{kind}" {corner}/>'
            yield f'<text x="{x:g}" y="{y + 18}">{name}</text>'

    return width, elements()


def picture() -> str:
    """The text of the SVG file."""
    others = (f"{LIBRARY}_{name}" for name in (*PLUGINS, *SERVICES))
    modules = grimp.build_graph(LIBRARY, *others, exclude_type_checking_imports=True, cache_dir=None)
    graphs = {
        "Services, plug-ins and packages of the library": without_implied(imports_between(modules, package_of)),
        "Rooms of firesteel.runtime": without_implied(imports_between(modules, room_of)),
    }
    height = TITLE_HEIGHT + MARGIN + FLOOR_HEIGHT * max(len(floors_of(graph)) for graph in graphs.values())
    left = MARGIN
    lines: list[str] = []
    for title, graph in graphs.items():
        width, elements = drawn(title, graph, left, height)
        lines += elements
        left += width + 2 * MARGIN
    right = left - MARGIN
    size = f'viewBox="0 0 {right} {height}" width="{right}" height="{height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} class="drawn map">'
    return "\n".join([head, f"<style>{STYLE}</style>", *lines, "</svg>", ""])


if __name__ == "__main__":
    PICTURE.write_text(picture())
    print(PICTURE)

"""Figures of how the code reads: python tools/readability.py [CHECKOUT] [--json] [--names].

Lines of each room and distribution, length of functions, comments, docstrings that say nearly nothing, class names
that stand for two things, imports against the order of rooms, the largest classes, words of the texts. Nothing is
imported or run, so that any commit can be looked at (``git worktree add DIR COMMIT``).
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import statistics
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FEW_WORDS = 3
"""A docstring of at most so many words says what the name says."""
LARGEST = 10


@dataclass
class Module:
    """A file of Python, read once."""

    name: str
    path: Path
    source: str
    tree: ast.Module

    @property
    def lines(self) -> int:
        return self.source.count("\n")

    def comments(self) -> int:
        """Lines that are, or end with, a comment; directives to tools are none."""
        directive = re.compile(r"#\s*(type:|noqa|fmt:|pragma|!)")
        with self.path.open("rb") as file:
            found = (token for token in tokenize.tokenize(file.readline) if token.type == tokenize.COMMENT)
            return sum(not directive.match(token.string) for token in found)


@dataclass
class Figures:
    """What is counted over all modules of the product."""

    lines_by_room: Counter[str] = field(default_factory=Counter)
    lines_by_distribution: Counter[str] = field(default_factory=Counter)
    comments: int = 0
    functions: list[int] = field(default_factory=list)
    short_docstrings: list[str] = field(default_factory=list)
    classes: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    attributes: Counter[str] = field(default_factory=Counter)

    def names_used_twice(self) -> dict[str, list[str]]:
        """Public classes of one name, and where they are."""
        return {name: places for name, places in sorted(self.classes.items()) if len(places) > 1}


def modules_of(source_root: Path) -> Iterator[Module]:
    """All modules below a ``src`` directory."""
    for path in sorted(source_root.rglob("*.py")):
        name = ".".join(path.relative_to(source_root).with_suffix("").parts).removesuffix(".__init__")
        source = path.read_text()
        yield Module(name, path, source, ast.parse(source))


def attributes_of(node: ast.ClassDef) -> set[str]:
    """Names that a class or its methods assign to: of its instances, and fields of dataclasses."""
    names = {n.target.id for n in node.body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)}
    for child in ast.walk(node):
        if isinstance(child, ast.Attribute) and isinstance(child.ctx, ast.Store) and ast.unparse(child.value) == "self":
            names.add(child.attr)
    return names


def count(figures: Figures, module: Module, distribution: str) -> None:
    """Add a module to the figures."""
    parts = module.name.split(".")
    rooms = 3 if parts[:2] == ["firesteel", "runtime"] else 2
    figures.lines_by_room[".".join(parts[:rooms] if len(parts) > rooms else parts[: rooms - 1])] += module.lines
    figures.lines_by_distribution[distribution] += module.lines
    figures.comments += module.comments()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            figures.functions.append((node.end_lineno or node.lineno) - node.lineno + 1)
        if isinstance(node, ast.ClassDef):
            figures.attributes[f"{module.name}.{node.name}"] = len(attributes_of(node))
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.Module):
            text = ast.get_docstring(node)
            if text is not None and len(text.split()) <= FEW_WORDS:
                figures.short_docstrings.append(f"{module.name}:{getattr(node, 'name', '')}: {text}")
    for node in module.tree.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            figures.classes[node.name].append(module.name)


def arrows_back_up(modules: Sequence[Module], package: str) -> int:
    """Imports between the rooms of a package that close a circle: how many there are in circles of rooms."""
    known = {module.name for module in modules}
    arrows: defaultdict[str, set[str]] = defaultdict(set)

    def room(name: str) -> str:
        return name[len(package) + 1 :].split(".")[0]

    for module in modules:
        if not module.name.startswith(f"{package}."):
            continue
        for node in ast.walk(module.tree):
            if not (isinstance(node, ast.ImportFrom) and node.module and f"{node.module}.".startswith(f"{package}.")):
                continue
            for alias in node.names:
                target = f"{node.module}.{alias.name}"
                target = target if target in known else node.module
                if room(target) and room(target) != room(module.name):
                    arrows[room(module.name)].add(room(target))

    def reachable(start: str) -> set[str]:
        seen: set[str] = set()
        waiting = [start]
        while waiting:
            for target in arrows[waiting.pop()] - seen:
                seen.add(target)
                waiting.append(target)
        return seen

    return sum(start in reachable(target) for start in list(arrows) for target in arrows[start])


def measure(checkout: Path) -> dict[str, Any]:
    """All figures of a checkout."""
    figures, circles = Figures(), {}
    roots = sorted([*checkout.glob("libs/*/src"), *checkout.glob("services/*/src")])
    for root in roots:
        modules = list(modules_of(root))
        for module in modules:
            count(figures, module, root.parent.name)
        packages = {module.name for module in modules if module.path.name == "__init__.py"}
        for package in sorted(packages):
            if number := arrows_back_up(modules, package):
                circles[package] = number
    lines = sum(figures.lines_by_distribution.values())
    texts = [*checkout.glob("*.md"), *checkout.glob("docs/**/*.md"), checkout / "benchmarks" / "README.md"]
    return {
        "lines": lines,
        "lines by distribution": dict(figures.lines_by_distribution.most_common()),
        "lines by room": dict(figures.lines_by_room.most_common()),
        "lines of a function, mean": round(statistics.mean(figures.functions), 1),
        "comments in 1,000 lines": round(1000 * figures.comments / lines, 1),
        f"docstrings of {FEW_WORDS} words or fewer": figures.short_docstrings,
        "public class names used twice": figures.names_used_twice(),
        "imports in circles of rooms": circles,
        "attributes of the largest classes": dict(figures.attributes.most_common(LARGEST)),
        "words of texts": {str(path.relative_to(checkout)): len(path.read_text().split()) for path in sorted(texts)},
    }


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkout", nargs="?", type=Path, default=Path(__file__).resolve().parent.parent)
    parser.add_argument("--json", action="store_true", help="all of it, for machines")
    parser.add_argument("--names", action="store_true", help="name the docstrings and classes that are counted")
    options = parser.parse_args()
    measured = measure(options.checkout)
    if options.json:
        print(json.dumps(measured, indent=1))
        return 0
    for name, value in measured.items():
        if isinstance(value, list):
            print(f"{name}: {len(value)}", *(value if options.names else ()), sep="\n  ")
        elif name.startswith("public class names"):
            places = (f"{twice}: {', '.join(modules)}" for twice, modules in value.items())
            print(f"{name}: {len(value)}", *(places if options.names else ()), sep="\n  ")
        elif isinstance(value, dict):
            print(f"{name}:" if "attributes" in name else f"{name}: {sum(value.values()):,}")
            print(*(f"  {number:8,} {key}" for key, number in value.items()), sep="\n")
        else:
            print(f"{name}: {value:,}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

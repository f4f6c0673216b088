"""docs/helm-values.md, from the schema of the chart's values and their defaults: ``python -m tools.helm_values``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).resolve().parent.parent / "charts" / "firesteel"
_HEAD = """# Values of the Helm chart

What `--set` and `--values` of [the chart](kubernetes.md) take. This page is rendered from `values.schema.json` and
`values.yaml` of `charts/firesteel`; Helm refuses values that the schema does not know.
"""
_SHORT = 60


@cache
def _files() -> tuple[dict[str, Any], dict[str, Any]]:
    return json.loads((CHART / "values.schema.json").read_text()), yaml.safe_load((CHART / "values.yaml").read_text())


def rows() -> Iterator[tuple[str, str, str, str]]:
    """Name, type, default and description of each value that can be set."""
    schema, values = _files()
    yield from _rows(schema, values, "")


def _rows(schema: dict[str, Any], default: Any, path: str) -> Iterator[tuple[str, str, str, str]]:
    for name, one in schema["properties"].items():
        where = f"{path}.{name}" if path else name
        given = default.get(name) if isinstance(default, dict) else None
        if "properties" in one:
            yield where, "", "", one["description"]
            yield from _rows(one, given, where)
        else:
            yield where, _type(one), _default(given), one["description"]


def _type(one: dict[str, Any]) -> str:
    if "enum" in one:
        return " or ".join(json.dumps(value) for value in one["enum"])
    kinds = one["type"] if isinstance(one["type"], list) else [one["type"]]
    return " or ".join(kinds)


def _default(given: Any) -> str:
    if given is None:
        return ""
    text = json.dumps(given)
    return f"`{text}`" if len(text) <= _SHORT else "see values.yaml"


def undescribed() -> list[str]:
    """Values of values.yaml that the schema does not know, and rows without a description."""
    schema, values = _files()
    return [*_unknown(schema, values, ""), *(name for name, _, _, text in rows() if not text)]


def _unknown(schema: dict[str, Any], given: dict[str, Any], path: str) -> Iterator[str]:
    for name, value in given.items():
        one = schema["properties"].get(name)
        if one is None:
            yield path + name
        elif "properties" in one:
            yield from _unknown(one, value, f"{path}{name}.")


def page() -> str:
    """The page."""
    lines = [_HEAD, "| Value | Type | Default | |", "| --- | --- | --- | --- |"]
    for name, kind, default, text in rows():
        shown = f"**`{name}`**" if not kind else f"`{name}`"
        lines.append(f"| {shown} | {kind} | {default} | {text} |".replace("|  |  |", "| | |"))
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")

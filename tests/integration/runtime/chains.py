"""Chains for slots under test."""

from __future__ import annotations

from typing import Any

from firesteel.connectors.number_sequence import NumberSequenceSource
from firesteel.graph.specs import ChainSpec, OperatorKind, OperatorSpec, OutputSpec


def spec(kind: OperatorKind, function: Any = None, **more: Any) -> OperatorSpec:
    return OperatorSpec("0" * 32, more.pop("name", kind.value), kind, function, **more)


def line(*operators: OperatorSpec, output: OutputSpec | None = None) -> ChainSpec:
    """A chain without forks."""
    children = [[i + 1] for i in range(len(operators) - 1)] + [[]]
    return ChainSpec(list(operators), children, [output] if output else [])


def numbers(start: int, end: int) -> OperatorSpec:
    return spec(OperatorKind.SOURCE, NumberSequenceSource(start, end), name="numbers")


def split(start: int, end: int) -> dict[str, Any]:
    """Of a number source."""
    return {"id": f"{start}", "data": {"start": start, "end": end}, "position": None, "version": 1}

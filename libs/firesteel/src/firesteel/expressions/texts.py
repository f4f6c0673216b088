"""Expressions as text, for errors and plans."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol


class Node(Protocol):
    """An expression."""

    @property
    def function(self) -> str:
        """What is computed."""

    @property
    def inputs(self) -> Sequence[Node]:
        """What of."""

    @property
    def options(self) -> Mapping[str, Any]:
        """Constants of the function."""


_INFIX = frozenset(("+", "-", "*", "/", "//", "%", "**", "==", "!=", "<", "<=", ">", ">=", "&", "|", "^"))


def text_of(e: Node) -> str:
    """As a program would write it."""
    return _text(e, lambda name: f"col({name!r})")


def name_of(e: Node) -> str:
    """What the result of an expression without an alias is called: ``price % 10``."""
    text = _text(e, str)
    return text[1:-1] if e.function in _INFIX else text


def _text(e: Node, column: Callable[[str], str]) -> str:
    def text_of(part: Node) -> str:
        return _text(part, column)

    if e.function == "column":
        return column(e.options["name"])
    if e.function == "literal":
        return repr(e.options["value"])
    if e.function in _INFIX:
        return f"({text_of(e.inputs[0])} {e.function} {text_of(e.inputs[1])})"
    if e.function in ("negate", "not"):
        return f"{'-' if e.function == 'negate' else '~'}{text_of(e.inputs[0])}"
    if e.function == "when":
        *branches, last = map(text_of, e.inputs)
        chosen = "".join(
            f".when({condition}).then({value})" for condition, value in zip(branches[::2], branches[1::2], strict=True)
        )
        return f"{chosen[1:]}.otherwise({last})"
    if e.function in ("coalesce", "concat"):
        return f"{e.function}({', '.join(map(text_of, e.inputs))})"
    arguments = [*map(text_of, e.inputs[1:]), *map(str, e.options.values())]
    return f"{text_of(e.inputs[0])}.{e.function}({', '.join(arguments)})"

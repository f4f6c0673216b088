"""Finds requests for state that a function can't have in the source of its ``open``, before the job runs.

Only what is certain is refused: calls that no condition stands in front of. Functions whose source is not at hand, and
everything else, are left to the slot, which refuses the same with the same words.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from typing import Any, Final

from firesteel.core.errors import GraphError
from firesteel.functions.functions import Function
from firesteel.graph.specs import OperatorKind

__all__ = ["check_state"]

_KEYED: Final = frozenset(
    {"get_state", "get_list_state", "get_map_state", "get_reducing_state", "get_aggregating_state"}
)
_PERHAPS: Final = (
    ast.Lambda, ast.IfExp, ast.BoolOp, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp,
)  # fmt: skip
"""What is inside of these may never be called."""
_NOT_KEYED: Final = frozenset(
    {
        OperatorKind.MAP,
        OperatorKind.FLAT_MAP,
        OperatorKind.FILTER,
        OperatorKind.PROCESS,
        OperatorKind.CO_MAP,
        OperatorKind.CO_FLAT_MAP,
        OperatorKind.CO_PROCESS,
        OperatorKind.BROADCAST_PROCESS,
    }
)
_DESCRIPTOR: Final = "StateDescriptor"


def check_state(operator: str, kind: OperatorKind, function: Any) -> None:
    """Refuse a function whose ``open`` asks for state that it can't have in an operator of this kind.

    Raises:
        GraphError: it does; names the class, the state and the lines.
    """
    if kind in _NOT_KEYED:
        _refuse_keyed_state(operator, function)
    _check_names(operator, function)


def _refuse_keyed_state(operator: str, function: Any) -> None:
    for call, line in _calls(function):
        attribute = call.func
        if isinstance(attribute, ast.Attribute) and attribute.attr in _KEYED and _is_context(attribute.value, function):
            raise GraphError(
                f"{operator}: {type(function).__name__}.open asks for keyed state ({attribute.attr}, {line}), "
                "but the stream is not keyed: call key_by() before it"
            )


def _check_names(operator: str, function: Any) -> None:
    first_requests: dict[str, tuple[str, str | None, str]] = {}
    for call, line in _calls(function):
        kind = _last_name(call.func)
        name = call.args[0].value if call.args and isinstance(call.args[0], ast.Constant) else None
        if not kind.endswith(_DESCRIPTOR) or not isinstance(name, str):
            continue
        declared = _simple_types(call)
        first_request = first_requests.setdefault(name, (kind, declared, line))
        if first_request[0] != kind or (None not in (first_request[1], declared) and first_request[1] != declared):
            raise GraphError(
                f"{operator}: {type(function).__name__}.open asks for state {name!r} as {first_request[0]}"
                f"({first_request[1] or '...'}) ({first_request[2]}) and as {kind}({declared or '...'}) ({line}): give "
                "each state of a function a name of its own"
            )


def _calls(function: Any) -> Iterator[tuple[ast.Call, str]]:
    """Calls in ``open`` that are made in any case, with their places."""
    if not isinstance(function, Function):
        return
    method = inspect.getattr_static(type(function), "open", None)
    if not inspect.isfunction(method) or method is inspect.getattr_static(Function, "open"):
        return
    try:
        lines, first = inspect.getsourcelines(method)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError, ValueError):
        return
    definition = tree.body[0]
    if not isinstance(definition, ast.FunctionDef) or definition.decorator_list:
        return
    file = inspect.getsourcefile(method) or "?"
    for statement in definition.body:
        if not isinstance(statement, (ast.Assign, ast.AnnAssign, ast.Expr)):
            return  # behind a branch or loop, a call may never be made
        for node in ast.walk(statement):
            if isinstance(node, _PERHAPS):
                break
            if isinstance(node, ast.Call):
                yield node, f"{file}:{first + node.lineno - 1}"


def _is_context(value: ast.expr, function: Any) -> bool:
    parameters = list(inspect.signature(type(function).open).parameters)
    return isinstance(value, ast.Name) and len(parameters) > 1 and value.id == parameters[1]


def _last_name(function: ast.expr) -> str:
    return (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )


def _simple_types(call: ast.Call) -> str | None:
    """The types that a descriptor is made with, if they are written as ``Types.X()``; None if not."""
    type_texts = []
    for argument in [*call.args[1:], *(keyword.value for keyword in call.keywords)]:
        simple = isinstance(argument, ast.Call) and not argument.args and not argument.keywords
        if not simple or not ast.unparse(argument).startswith("Types."):
            return None
        type_texts.append(ast.unparse(argument))
    return ", ".join(type_texts)

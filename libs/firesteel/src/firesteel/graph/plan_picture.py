"""The operators of a program as a picture (SVG), for notebooks.

Operators stand in columns: each one right of all that it reads (its column is the longest way from a source). Lines and
letters have the colour of the text around the picture, so it is legible on light and dark ground.
"""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import Final

from firesteel.graph.specs import PartitionerKind
from firesteel.graph.stream_graph import UNSET, Transformation, display_name, reachable

MAX_OPERATORS: Final = 40
_MAX_NAME: Final = 28
_LETTER: Final = 6.6
"""Width of a letter of 11 px in a proportional font, rounded up."""
_HEIGHT, _GAP, _SPACE = 38, 16, 86
"""Height of a box, space between boxes of a column, and between columns: a partitioner's name fits in."""


def plan_picture(ends: Iterable[Transformation], parallelism: int) -> str:
    """A picture of these operators and of all that they read.

    Args:
        ends: whose inputs are followed.
        parallelism: of operators that set none.

    Returns:
        An element ``svg``; empty if there are no operators. Of more than ``MAX_OPERATORS`` the first ones are drawn.
    """
    operators = sorted(reachable(ends).values(), key=lambda operator: operator.id)
    drawn = operators[:MAX_OPERATORS]
    if not drawn:
        return ""
    columns: dict[int, int] = {}
    members: dict[int, list[Transformation]] = {}
    for operator in drawn:  # inputs have smaller ids
        column = max((columns[i.source.id] + 1 for inputs in operator.inputs for i in inputs), default=0)
        columns[operator.id] = column
        members.setdefault(column, []).append(operator)
    titles = {operator.id: _shortened(display_name(operator)) for operator in drawn}
    left: dict[int, float] = {}
    x = 1.0
    widths: dict[int, float] = {}
    for column in sorted(members):
        left[column] = x
        widths[column] = max(_LETTER * max(12, len(titles[operator.id])) + 20 for operator in members[column])
        x += widths[column] + _SPACE
    rows = {operator.id: row for group in members.values() for row, operator in enumerate(group)}
    width = x - _SPACE + 1
    height = max(len(group) for group in members.values()) * (_HEIGHT + _GAP) - _GAP + 2
    parts = []
    for operator in drawn:
        to_x, to_y = left[columns[operator.id]], _middle(rows[operator.id])
        for inputs in operator.inputs:
            for stream in inputs:
                source = stream.source.id
                from_x, from_y = left[columns[source]] + widths[columns[source]], _middle(rows[source])
                parts.append(_line(from_x, from_y, to_x, to_y, _label(stream.partitioner, stream.output_tag)))
    for operator in drawn:
        number = operator.parallelism if operator.parallelism != UNSET else parallelism
        number = 1 if operator.non_parallel else number
        column = columns[operator.id]
        y = rows[operator.id] * (_HEIGHT + _GAP) + 1
        parts.append(_box(left[column], y, widths[column], titles[operator.id], display_name(operator), number))
    note = f"<div>and {len(operators) - len(drawn):,} more operators</div>" if len(operators) > len(drawn) else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{len(operators)} operators" '
        f'viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" style="max-width:100%;height:auto" '
        f'font-family="sans-serif" font-size="11" fill="currentColor" stroke="none">{"".join(parts)}</svg>{note}'
    )


def _middle(row: int) -> float:
    return row * (_HEIGHT + _GAP) + 1 + _HEIGHT / 2


def _shortened(name: str) -> str:
    return name if len(name) <= _MAX_NAME else name[: _MAX_NAME - 1] + "…"


def _label(partitioner: PartitionerKind | None, output_tag: str | None) -> str:
    parts = [] if partitioner is None else [partitioner.value.lower()]
    if output_tag is not None:
        parts.append(f"side: {_shortened(output_tag)}"[:14])
    return " ".join(parts)


def _line(from_x: float, from_y: float, to_x: float, to_y: float, label: str) -> str:
    bend = (to_x - from_x) / 2
    text = (
        f'<text x="{to_x - 8:.0f}" y="{to_y - 5:.0f}" text-anchor="end" font-size="9" opacity=".75">'
        f"{_escaped(label)}</text>"
        if label
        else ""
    )
    return (
        f'<path d="M{from_x:.0f} {from_y:.0f}C{from_x + bend:.0f} {from_y:.0f} {to_x - bend:.0f} {to_y:.0f} '
        f'{to_x - 6:.0f} {to_y:.0f}" fill="none" stroke="currentColor" opacity=".6"/>'
        f'<path d="M{to_x - 7:.0f} {to_y - 4:.0f}l7 4l-7 4z" opacity=".6"/>{text}'
    )


def _box(x: float, y: float, width: float, title: str, whole_name: str, parallelism: int) -> str:
    return (
        f"<g><title>{_escaped(whole_name[:500])}</title>"
        f'<rect x="{x:.0f}" y="{y}" width="{width:.0f}" height="{_HEIGHT}" rx="4" fill-opacity=".07" '
        f'stroke="currentColor" stroke-opacity=".5"/>'
        f'<text x="{x + 10:.0f}" y="{y + 16}">{_escaped(title)}</text>'
        f'<text x="{x + 10:.0f}" y="{y + 30}" font-size="9" opacity=".75">parallelism {parallelism}</text></g>'
    )


def _escaped(name: str) -> str:
    return html.escape(name.encode("utf-8", "backslashreplace").decode("utf-8"))

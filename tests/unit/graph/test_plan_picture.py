"""The operators of a program as a picture."""

from __future__ import annotations

import re
import xml.dom.minidom

from firesteel.graph.plan_picture import MAX_OPERATORS, plan_picture
from firesteel.graph.specs import OperatorKind, PartitionerKind
from firesteel.graph.stream_graph import StreamInput, Transformation


def boxes(picture: str) -> list[tuple[float, float, str, str]]:
    """Place, whole name and parallelism of each operator."""
    pattern = r'<title>(.*?)</title><rect x="(\d+)" y="(\d+)".*?parallelism (\d+)<'
    return [(float(x), float(y), name, parallelism) for name, x, y, parallelism in re.findall(pattern, picture)]


def test_operators_stand_right_of_what_they_read() -> None:
    source = Transformation(1, "a <b> & c", OperatorKind.SOURCE, non_parallel=True)
    left = Transformation(2, "left", OperatorKind.MAP, inputs=((StreamInput(source),),))
    right = Transformation(
        3, "right", OperatorKind.MAP, inputs=((StreamInput(source, output_tag="late"),),), parallelism=7
    )
    both = (StreamInput(left, PartitionerKind.HASH), StreamInput(right, PartitionerKind.HASH))
    sink = Transformation(4, "x" * 1_000, OperatorKind.PRINT, inputs=(both,))
    picture = plan_picture([sink], 2)
    xml.dom.minidom.parseString(picture)
    (first, second, third, last) = boxes(picture)
    assert [box[2] for box in (first, second, third)] == ["Source: a &lt;b&gt; &amp; c", "left", "right"]
    assert [box[3] for box in (first, second, third, last)] == ["1", "2", "7", "2"]
    assert first[0] < second[0] == third[0] < last[0]
    assert second[1] < third[1]
    assert picture.count(">hash</text>") == 2
    assert ">side: late</text>" in picture
    assert picture.count('fill="none"') == 4, "a line for each edge"
    assert len(last[2]) == 500
    assert "Sink: xxx" in picture
    assert "#" not in picture, "no colour of its own: that of the text around it"


def test_a_picture_is_bounded() -> None:
    operators = [Transformation(1, "first", OperatorKind.SOURCE)]
    for number in range(2, 500):
        operators.append(Transformation(number, "m", OperatorKind.MAP, inputs=((StreamInput(operators[-1]),),)))
    picture = plan_picture(operators[-1:], 1)
    assert len(boxes(picture)) == MAX_OPERATORS
    assert "and 459 more operators" in picture
    assert plan_picture([], 1) == ""

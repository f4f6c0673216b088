"""The interval join against plain Python, as Flink's operator works: out-of-order streams, bounds, late records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firesteel.core.errors import ProgramError
from firesteel.datastream.functions import ProcessJoinFunction
from firesteel.functions.output_tag import OutputTag
from firesteel.graph.specs import OperatorKind
from tests.unit.windowing.harness import Out, Rig

LEFT: OutputTag[Any] = OutputTag("left")


class Pair(ProcessJoinFunction[Any, Any, Any]):
    def process_element(self, left: Any, right: Any, ctx: ProcessJoinFunction.Context) -> Iterator[Any]:
        yield left, right, ctx.get_left_timestamp(), ctx.get_right_timestamp(), ctx.get_timestamp()


def rig_of(lower: int, upper: int) -> Rig:
    return Rig(Pair(), OperatorKind.INTERVAL_JOIN, inputs=2, lower=lower, upper=upper, late_tags=(LEFT, None))


ITEMS = st.one_of(
    st.tuples(st.integers(0, 1), st.sampled_from("aab"), st.integers(-10, 40)),
    st.tuples(st.integers(0, 1), st.sampled_from("aab"), st.integers(-10, 40)),
    st.integers(-12, 45),
)


@given(st.lists(ITEMS, max_size=50), st.integers(-15, 15), st.integers(0, 15))
def test_against_plain_python(items: list[Any], lower: int, width: int) -> None:
    upper = lower + width
    rig = rig_of(lower, upper)
    now = -(2**63)
    buffers: tuple[list[Any], list[Any]] = ([], [])
    for number, item in enumerate(items):
        if isinstance(item, int):
            if item > now:
                now = item
                assert rig.watermark(now) == []
                # A record is forgotten when the watermark has come to the last time that a partner may have.
                for side, last in ((0, upper), (1, -lower)):
                    buffers[side][:] = [record for record in buffers[side] if record[1] + max(last, 0) > now]
            continue
        side, key, time = item
        value = (key, number)
        outs = rig.records([(value, time)], side)
        if time < now:
            assert outs == ([Out(value, time, late=True)] if side == 0 else [])
            continue
        buffers[side].append((value, time))
        expected = []
        for other, at in buffers[1 - side]:
            left, right = ((value, time), (other, at)) if side == 0 else ((other, at), (value, time))
            if other[0] == key and left[1] + lower <= right[1] <= left[1] + upper:
                latest = max(left[1], right[1])
                expected.append(Out((left[0], right[0], left[1], right[1], latest), latest))
        assert sorted(outs) == sorted(expected)
        partners = [out.value[3 - side] for out in outs]
        assert partners == sorted(partners)
    rig.watermark(10_000)
    keyed = rig.operator.keyed
    assert (
        len(keyed.timeline("left-buffer")),
        len(keyed.timeline("right-buffer")),
        len(rig.operator.heap_timers.event),
    ) == (
        0,
        0,
        0,
    )


def test_records_need_timestamps() -> None:
    with pytest.raises(ProgramError, match="without a timestamp came to an interval join"):
        rig_of(0, 1).records([(("a", 1), None)])


def test_a_function_has_to_give_an_iterable() -> None:
    class Wrong(ProcessJoinFunction[Any, Any, Any]):
        def process_element(self, left: Any, right: Any, ctx: ProcessJoinFunction.Context) -> Any:
            return 5

    rig = Rig(Wrong(), OperatorKind.INTERVAL_JOIN, inputs=2, lower=0, upper=5, late_tags=(None, None))
    rig.records([(("a", 1), 1)], 0)
    with pytest.raises(ProgramError, match="process_element returned 5"):
        rig.records([(("a", 2), 2)], 1)

"""Window joins and co-groups over random streams, against plain Python."""

from __future__ import annotations

from itertools import product
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from firesteel.datastream.joined_streams import TaggedUnion
from tests.unit.datastream.fakes import FakeExecutor, environment
from tests.unit.windowing.harness import LATE, Rig
from tests.unit.windowing.oracle import Oracle
from tests.unit.windowing.test_against_oracle import LATENESS, assigner_of, in_order

RECORDS = st.tuples(st.integers(0, 1), st.sampled_from(["a", "a", 3]), st.integers(-12, 40))
STREAMS = st.lists(st.one_of(RECORDS, RECORDS, RECORDS, st.integers(-15, 50)), min_size=8, max_size=50)
SHAPES = st.one_of(
    st.builds(lambda size: {"size": size, "slide": size, "offset": 0}, st.integers(1, 20)),
    st.builds(lambda size, slide: {"size": size, "slide": slide, "offset": 0}, st.integers(1, 20), st.integers(1, 20)),
    st.builds(lambda gap: {"gap": gap}, st.integers(1, 8)),
)


@given(STREAMS, SHAPES, LATENESS, st.sampled_from(["join", "co_group"]))
def test_joins_and_co_groups(stream: list[Any], shape: dict[str, int], lateness: int, method: str) -> None:
    """Keys of the sides are read differently; sides of merged sessions may be in any order."""
    env = environment(FakeExecutor())
    ones, others = env.from_collection([("a", 1)]), env.from_collection([(1, "a")])
    streams = getattr(ones, method)(others).where(lambda record: record[0]).equal_to(lambda other: other[1])
    windowed = streams.window(assigner_of(shape)).allowed_lateness(lateness).side_output_late_data(LATE)
    if method == "join":
        result = windowed.apply(lambda left, right: (left, right))
    else:
        result = windowed.apply(lambda some, more: [(sorted(some), sorted(more, key=repr))])
    operator = result._inputs[0].source
    rig = Rig(operator.function, operator.kind, key=operator.key_selectors[0])
    known: dict[str, Any] = dict(shape)
    oracle = Oracle(**known, lateness=lateness)

    def expected(records: list[Any]) -> list[Any]:
        left = sorted(record[2] for record in records if record[1] == 0)
        right = sorted((record[2] for record in records if record[1] == 1), key=repr)
        return list(product(left, right)) if method == "join" else [(left, right)]

    now = -(2**63)
    for number, item in enumerate([*stream, 10_000]):
        if isinstance(item, tuple):
            side, key, time = item
            record = (key, number) if side == 0 else (number, key)
            outs = [out.value for out in rig.records([(TaggedUnion(side, record), time)]) if not out.late]
            results = oracle.record((key, side, record), time)
        elif item > now:
            now = item
            outs = [out.value for out in rig.watermark(now)]
            results = [result for _, result in oracle.watermark(now)]
        else:
            continue
        assert in_order(outs) == in_order([row for _, _, records in results for row in expected(records)])
    assert rig.entries == 0

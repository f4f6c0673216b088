"""Looking for the sessions of a key that a new one overlaps or touches."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from firesteel.windowing.columnar_sessions import merged
from firesteel.windowing.session_order import FEW, SessionOrder
from firesteel.windowing.windows import TimeWindow

SESSIONS = st.lists(
    st.tuples(st.integers(0, 2000), st.integers(1, 6)), min_size=20, max_size=60, unique_by=lambda pair: pair[0] // 20
)


@given(SESSIONS, st.lists(st.integers(0, 2000), max_size=8))
def test_many_sessions_of_a_key(sessions: list[tuple[int, int]], ends: list[int]) -> None:
    """As if all were looked at; also when some of them end in between."""
    order, open_now = SessionOrder(), set[TimeWindow]()
    many = False
    for number, (start, gap) in enumerate(sessions):
        new = TimeWindow(start, start + gap)
        touched = order.touched("key", open_now, new)
        assert touched == sorted(window for window in open_now if window.intersects(new))
        for window in touched:
            order.closed("key", window)
            open_now.remove(window)
            new = new.cover(window)
        order.opened("key", new)
        open_now.add(new)
        many = many or len(open_now) > FEW
        if number >= 20 and number - 20 < len(ends):
            for window in [window for window in open_now if window.end < ends[number - 20]]:
                order.closed("key", window)
                open_now.remove(window)
    assert many


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(-50, 50), st.integers(0, 9)), min_size=1, max_size=60),
    st.sampled_from([1, 2**40, 2**58]),
)
def test_intervals_of_arrays(intervals: list[tuple[int, int, int]], scale: int) -> None:
    """Each group is what can be reached from one of its intervals, however far apart times are."""
    keys, starts, lengths = np.array(intervals, np.int64).T
    starts, ends = starts * min(scale, 2**57), (starts + lengths) * min(scale, 2**57)
    sessions = merged(keys, starts, ends)
    group = np.empty(len(keys), np.int64)
    group[sessions.order] = sessions.group
    reached = (keys[:, None] == keys) & (starts[:, None] <= ends) & (ends[:, None] >= starts)
    for _ in intervals:
        reached = reached @ reached
    assert ((group[:, None] == group) == reached).all()
    assert (sessions.group[sessions.firsts] == np.arange(len(sessions.firsts))).all()

"""In which order results of asynchronous calls leave, beside a plain oracle."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from firesteel.runtime.operators.async_queue import OrderedResults, QueuedElement, ResultQueue, UnorderedResults

WATERMARK = "w"


def play(queue: ResultQueue, items: list[str], choices: list[int]) -> list[Any]:
    """Add all items and complete records in a drawn order, taking whatever may leave after each step."""
    left: list[Any] = []
    open_entries: list[QueuedElement] = []
    todo = list(items)
    draws = iter(choices)
    number = 0
    while todo or open_entries:
        draw = next(draws, 0)
        if todo and (draw % 2 == 0 or not open_entries):
            if todo.pop(0) == WATERMARK:
                queue.add(QueuedElement(None, number, is_watermark=True))
            else:
                entry = QueuedElement(number, number)
                open_entries.append(entry)
                queue.add(entry)
            number += 1
        else:
            entry = open_entries.pop(draw // 2 % len(open_entries))
            queue.complete(entry, [entry.value])
        while (ready := queue.peek()) is not None:
            queue.pop()
            assert ready.results is not None
            left.append((WATERMARK, ready.stamp) if ready.is_watermark else ("r", ready.results[0]))
    assert len(queue) == 0
    return left


STEPS = st.lists(st.integers(0, 50), max_size=80)
ITEMS = st.lists(st.sampled_from(["r", "r", "r", WATERMARK]), max_size=30)


@given(ITEMS, STEPS)
def test_ordered_results_leave_as_their_records_came(items: list[str], choices: list[int]) -> None:
    assert play(OrderedResults(), items, choices) == [(kind, number) for number, kind in enumerate(items)]


@given(ITEMS, STEPS)
def test_unordered_results_never_pass_a_watermark(items: list[str], choices: list[int]) -> None:
    left = play(UnorderedResults(), items, choices)
    assert sorted(left, key=lambda item: item[1]) == [(kind, number) for number, kind in enumerate(items)]
    for position, (kind, number) in enumerate(left):
        if kind == WATERMARK:
            assert all(other < number for _, other in left[:position])
            assert all(other > number for _, other in left[position + 1 :])


def test_unordered_results_leave_as_soon_as_they_are_done() -> None:
    queue = UnorderedResults()
    first, second = QueuedElement("a", 1), QueuedElement("b", 2)
    queue.add(first)
    queue.add(second)
    assert queue.peek() is None
    queue.complete(second, ["B"])
    assert queue.peek() is second
    queue.pop()
    assert queue.peek() is None
    assert len(queue) == 1


def test_ordered_results_wait_for_the_first() -> None:
    queue = OrderedResults()
    first, second = QueuedElement("a", 1), QueuedElement("b", 2)
    queue.add(first)
    queue.add(second)
    queue.complete(second, ["B"])
    assert queue.peek() is None
    queue.complete(first, [])
    assert queue.peek() is first


def test_a_watermark_behind_nothing_leaves_at_once() -> None:
    for queue in (OrderedResults(), UnorderedResults()):
        watermark = QueuedElement("w", 7, is_watermark=True)
        queue.add(watermark)
        assert queue.peek() is watermark

"""The most frequent keys of an exchange: bounds of the sketch, odd keys, and what of them is shown."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from firesteel.common import Types
from firesteel.core.errors import TaskInterrupt
from firesteel.expressions.keys import ColumnKey
from firesteel.graph.key_groups import KeyGroupAssigner
from firesteel.runtime.chain import hot_keys as hot_keys_module
from firesteel.runtime.chain.hot_keys import (
    CAPACITY,
    GATHER_SECONDS,
    HALF_LIFE,
    SAMPLE,
    SAMPLE_SECONDS,
    KeySketch,
    masked,
)
from firesteel.runtime.chain.partitioners import HashOutput
from firesteel.runtime.records.batch import Batch
from firesteel.runtime.records.columns import StreamColumns
from tests.unit.runtime.support import FakeOutput, ManualClock

ROW = Types.ROW_NAMED(["k", "n"], [Types.STRING(), Types.LONG()])


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    clock = ManualClock()
    monkeypatch.setattr(hot_keys_module, "_now", clock.monotonic)
    return clock


def feed(sketch: KeySketch, keys: list[Any], channel: int = 0) -> None:
    """Add keys, and let those that are gathered be a sample."""
    sketch.passed(len(keys))
    sketch._gathers_since = -GATHER_SECONDS
    sketch._keys.append(keys[0])
    sketch._key_channels.append(channel)
    sketch.add(keys[1:], [channel] * (len(keys) - 1))


@given(st.lists(st.lists(st.integers(0, 300), min_size=1, max_size=SAMPLE), min_size=1, max_size=12))
def test_counts_are_never_too_large_and_too_small_by_a_bounded_number(batches: list[list[int]]) -> None:
    sketch, exact = KeySketch(), Counter[int]()
    sketch._faded_at = now = hot_keys_module._now()
    for batch in batches:
        exact.update(batch)
        sketch._passed = len(batch)
        sketch._add(Counter(batch), dict.fromkeys(batch, 0), 1.0, now)
    assert len(sketch._counts) <= CAPACITY
    assert sketch.records == exact.total()
    assert sketch.lost <= exact.total() / (CAPACITY + 1)
    for key, count in exact.items():
        assert count - sketch.lost <= sketch._counts.get(key, 0.0) <= count


def test_a_key_of_sixty_percent_among_very_many_is_found(clock: ManualClock) -> None:
    sketch, chance = KeySketch(), random.Random(5)
    for _ in range(50):
        keys = ["hot" if chance.random() < 0.6 else f"key {chance.random()}" for _ in range(1000)]
        assert sketch.passed(len(keys))
        positions = sketch.positions(len(keys))
        assert len(positions) == SAMPLE
        sketch.add([keys[i] for i in positions], [3 for _ in positions])
        assert not sketch.passed(0), "the next batch is not looked at"
        clock.now += SAMPLE_SECONDS
    assert sketch.largest() is not None
    share, channel = sketch.largest() or (0.0, 0)
    assert 0.55 < share < 0.65
    assert channel == 3
    (first, *_) = sketch.top(10)
    assert (first.text, first.channel) == ("'hot'", 3)
    assert first.records == pytest.approx(share * sketch.records)


def test_records_that_were_not_looked_at_count_by_those_that_are(clock: ManualClock) -> None:
    sketch = KeySketch()
    feed(sketch, ["a"])
    for _ in range(10):
        assert not sketch.passed(100)
    clock.now += SAMPLE_SECONDS
    feed(sketch, ["b", "b"])
    assert sketch.top(1)[0].text == "'b'"
    assert sketch.top(1)[0].records == 1002


def test_small_batches_are_gathered(clock: ManualClock) -> None:
    """Batches of 3 hot records and of 2 others in turn, which a look at single batches would take as half and half."""
    sketch = KeySketch()
    for number in range(5000):
        keys = ["hot"] * 3 if number % 2 == 0 else ["other"] * 2
        if sketch.passed(len(keys)):
            sketch.add(keys, [0] * len(keys))
        clock.now += 0.001
    share, _ = sketch.largest() or (0.0, 0)
    assert share == pytest.approx(0.6, abs=0.02)


def test_records_of_long_ago_fade(clock: ManualClock) -> None:
    sketch = KeySketch()
    feed(sketch, ["old"] * 100)
    clock.now += 4 * HALF_LIFE
    feed(sketch, ["new"] * 10)
    assert [(key.text, round(key.records, 2)) for key in sketch.top(2)] == [("'new'", 10), ("'old'", 6.25)]


class Silent:
    def __repr__(self) -> str:
        raise ValueError("no text")


class Huge:
    def __repr__(self) -> str:
        return "x" * 1_000_000


def test_odd_keys(clock: ManualClock) -> None:
    sketch = KeySketch()
    nan = [float("nan") for _ in range(5)]
    feed(sketch, [None, None, "x" * 10_000, "y" * 10_000, ("a", 1), *nan, Silent(), Huge(), b"z" * 5000])
    texts = [key.text for key in sketch.top(20)]
    assert texts[0] == "nan", "each NaN is the same key"
    assert texts[1] == "None"
    assert all(len(text) <= 80 for text in texts)
    assert any(text.startswith("'xxxx") and "(10,000 long, " in text for text in texts)
    assert "('a', 1)" in texts
    assert any("Silent" in text for text in texts), "its repr raises"
    assert all(not isinstance(key, str) or len(key) < 1000 for key in sketch._counts), "long texts are not held"


def test_the_text_of_a_key_is_made_once(clock: ManualClock) -> None:
    texts = 0

    class Key:
        def __repr__(self) -> str:
            nonlocal texts
            texts += 1
            return "key"

    sketch = KeySketch()
    feed(sketch, [Key()])
    assert [sketch.top(5)[0].text for _ in range(3)] == ["key"] * 3
    assert texts == 1


def test_keys_whose_comparison_raises_are_counted_no_more(clock: ManualClock) -> None:
    class Broken:
        def __hash__(self) -> int:
            raise LookupError("broken")

    sketch = KeySketch()
    feed(sketch, ["a"])
    feed(sketch, [Broken()])
    assert sketch.refusal == "a key's comparison raised LookupError"
    assert sketch.top(5) == []
    assert sketch.largest() is None
    clock.now += 1
    assert not sketch.passed(1)


def test_a_cancellation_gets_through(clock: ManualClock) -> None:
    class Slow:
        def __hash__(self) -> int:
            raise TaskInterrupt

    with pytest.raises(TaskInterrupt):
        feed(KeySketch(), [Slow()])


def test_masked_keys_tell_nothing_but_which_are_equal(clock: ManualClock) -> None:
    sketch, other = KeySketch(), KeySketch()
    sketch.shown, other.shown = masked("secret of the job"), masked("secret of another job")
    for each in (sketch, other):
        feed(each, ["anna", "anna", "ben"])
    first, second = (key.text for key in sketch.top(2))
    assert first.startswith("masked ")
    assert first != second
    assert "anna" not in first
    assert other.top(1)[0].text != first
    assert sketch.top(1)[0].text == first


@pytest.mark.parametrize("dictionaries", [False, True])
def test_columns_and_rows_count_the_same_keys(clock: ManualClock, dictionaries: bool) -> None:
    records = [("hot" if n % 10 < 6 else f"key {n % 30}", n) for n in range(200)]
    outputs = []
    for values in (records, StreamColumns(ROW).fitted(pa.RecordBatch.from_pylist(
        [{"k": key, "n": n} for key, n in records]), "the test")):  # fmt: skip
        channels = [FakeOutput(down) for down in range(4)]
        selector: Any = ColumnKey(("k",), (0,)) if not isinstance(values, list) else lambda record: record[0]
        output = HashOutput("op", channels, selector, KeyGroupAssigner(4, 128), dictionaries=dictionaries)
        list(output.route(Batch(values)))
        outputs.append(output)
    rows, columns = outputs
    assert rows.sketch is not None
    assert columns.sketch is not None
    expected = sorted(rows.sketch.top(50))
    assert sorted(columns.sketch.top(50)) == expected
    assert rows.sketch.top(1)[0].records == 120
    assigner = KeyGroupAssigner(4, 128)
    assert {(key.text, key.channel) for key in expected} == {(repr(k), assigner(k)) for k, _ in records}


def test_one_channel_needs_no_sketch() -> None:
    assert HashOutput("op", [FakeOutput()], lambda record: record, KeyGroupAssigner(1, 128)).sketch is None

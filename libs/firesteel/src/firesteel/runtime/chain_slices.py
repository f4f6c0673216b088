"""Slices of a chain: how many records they take, and what is done with their results."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from itertools import groupby, islice, repeat
from typing import Any, Final

from firesteel.common.own_copies import COPIERS, as_given
from firesteel.runtime.batch import Timestamps, Values
from firesteel.runtime.chain_plan import LARGEST_SLICE, Segment
from firesteel.runtime.context import Stamp
from firesteel.runtime.operators import Operator
from firesteel.runtime.operators.timed import TIMER_DONE
from firesteel.runtime.side_outputs import SideRecord

TARGET_SECONDS: Final = 0.002
COLUMN_SECONDS: Final = 0.01
SMALLEST_COLUMNS: Final = 256
LARGEST_COLUMNS: Final = 1 << 20
Chunk = tuple[Segment, Values, Timestamps]
"""Records that leave a segment, with their timestamps."""


def adapt(segment: Segment, size: int, took: float, full: bool) -> None:
    """Fit the size of slices to the time that the last one took; ``full``: there was more for it to do."""
    if took > 2 * TARGET_SECONDS:
        segment.size = max(1, int(size * TARGET_SECONDS / took))
    elif took < TARGET_SECONDS / 2 and size == segment.size and full:
        segment.size = min(size * 2, LARGEST_SLICE)


def adapt_columns(segment: Segment, size: int, took: float) -> None:
    """The same for rows of columns."""
    if took > 2 * COLUMN_SECONDS:
        segment.column_size = max(SMALLEST_COLUMNS, int(size * COLUMN_SECONDS / took))
    elif took < COLUMN_SECONDS / 2 and size == segment.column_size:
        segment.column_size = min(size * 2, LARGEST_COLUMNS)


def stamped(pairs: Iterator[tuple[Any, int]], stamp: Stamp) -> Iterator[Any]:
    """The values of records with timestamps; ``stamp`` holds that of the value that was taken last (epoch ms)."""
    for value, stamp.value in pairs:
        yield value


def unstamped(records: Iterator[Any], stamp: Stamp) -> Iterator[Any]:
    """The values of records without timestamps; ``stamp`` is emptied before each."""
    for value in records:
        stamp.value = None
        yield value


def all_as_given(results: Iterable[Any]) -> list[Any]:
    """Results, each as it is when it is taken (``own_copies.as_given``)."""
    copiers = COPIERS
    return [result if (copier := copiers[result.__class__]) is None else copier(result) for result in results]


def with_stamps(
    pipeline: Iterator[Any], size: int, stamp: Stamp, *, copies: bool
) -> tuple[list[Any], list[int | None]]:
    """The next ``size`` results of a pipeline, or all that are left, and the timestamp of each (epoch ms, or None)."""
    results, stamps = [], []
    for result in islice(pipeline, size):
        results.append(as_given(result) if copies else result)
        stamps.append(stamp.value)
    return results, stamps


def pull_timers(
    pipeline: Iterator[Any], size: int, stamp: Stamp, deadline: float, *, copies: bool
) -> tuple[list[Any], list[int | None], bool]:
    """Results of timers, and whether there were no more; ends after a timer when the time is over."""
    results: list[Any] = []
    stamps: list[int | None] = []
    for result in pipeline:
        if result is TIMER_DONE:
            if time.perf_counter() >= deadline:
                return results, stamps, False
            continue
        results.append(as_given(result) if copies else result)
        stamps.append(stamp.value)
        if len(results) >= size:
            return results, stamps, False
    return results, stamps, True


def split(operator: Operator, segment: Segment, values: list[Any], stamps: list[Any] | None) -> list[Chunk]:
    """Results, and for each side output that is read its records."""
    if not any(value.__class__ is SideRecord or operator.is_tagged(value) for value in values):
        return [(segment, values, stamps)]
    main: tuple[list[Any], list[Any]] = ([], [])
    sides: dict[str, tuple[list[Any], list[Any]]] = {}
    for value, stamp in zip(values, stamps or repeat(None), strict=stamps is not None):
        if operator.is_tagged(value):  # it was yielded before the operator knew that there are tags
            value = operator.side_record(value)
        if value.__class__ is SideRecord:
            part = sides.setdefault(value.tag_id, ([], []))
            part[0].append(value.value)
        else:
            part = main
            part[0].append(value)
        part[1].append(stamp)
    parts = [(segment, main)] if main[0] else []
    parts += [(segment.sides[tag], part) for tag, part in sides.items() if tag in segment.sides]
    return [(target, part[0], None if stamps is None else part[1]) for target, part in parts]


def runs(chunk: Chunk) -> list[Chunk]:
    """Cut a chunk so that in each part either all records have timestamps or none has."""
    segment, values, stamps = chunk
    if stamps is None or None not in stamps:
        return [chunk]
    runs: list[Chunk] = []
    for without, pairs in groupby(zip(values, stamps, strict=True), key=lambda pair: pair[1] is None):
        part = list(pairs)
        runs.append((segment, [value for value, _ in part], None if without else [stamp for _, stamp in part]))
    return runs

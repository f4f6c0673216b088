"""Chains, state and exchange of several slots on one loop, with crashes at any moment; see ``data_plane.py``."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest

from firesteel.runtime.checkpoints.aligner import BarrierAligner
from firesteel.runtime.checkpoints.in_flight import InFlightLog
from firesteel.runtime.checkpoints.task_checkpoints import TaskCheckpoints
from firesteel.runtime.exchange.input import RemoteInputChannel
from firesteel.runtime.operator_base import key_check
from firesteel.runtime.operator_base.key_check import KeyCheck
from firesteel.runtime.operators import async_wait
from firesteel.runtime.records.batch import InBand
from firesteel.runtime.records.sizes import BatchSizes, batch_bytes
from firesteel.runtime.sources.source_time import SourceTime
from tests.simulation.seeds import check_seeds, first_that_fails, fresh_seeds, told_under_hash_seeds

SEEDS = 30
TRIED = 240
"""Seeds among which one finds broken code."""
LONG_SEEDS = 20_000
_REPEATED = range(4)
_STORIES = f"""
from tests.simulation.data_plane import DataPlaneStory
for seed in {_REPEATED}:
    story = DataPlaneStory(seed)
    story.run()
    print(*story.told, sep="\\n")
"""


@pytest.mark.smoke
@pytest.mark.timeout(600)
def test_every_record_counts_once_and_nothing_stalls() -> None:
    check_seeds(range(SEEDS), "data")


@pytest.mark.timeout(600)
def test_a_seed_tells_the_same_story_under_every_hash_seed() -> None:
    stories = told_under_hash_seeds(_STORIES)
    assert stories[0].count("records are out") >= len(_REPEATED)
    assert stories[0] == stories[1]


@pytest.mark.long
@pytest.mark.timeout(4 * 3600)
def test_many_seeds() -> None:
    check_seeds(fresh_seeds(LONG_SEEDS), "data")


def _large_ones_are_forgotten(real: Any) -> Any:
    def poll(channel: RemoteInputChannel) -> Any:
        rest = 0
        if channel._place is not None and channel.readable and isinstance(channel.inbox.queue[0], InBand):
            rest, channel._rest = channel._rest, 0
        try:
            return real(channel)
        finally:
            channel._rest += rest

    return poll


def _finished(time: SourceTime, split: str) -> None:
    time.splits.pop(split, None)


BROKEN: dict[str, tuple[Any, tuple[str, ...], int]] = {  # how, what is said of it, and the first seed that finds it
    "the rest of a large record is not granted behind an element": (
        mock.patch.object(RemoteInputChannel, "poll", _large_ones_are_forgotten(RemoteInputChannel.poll)),
        ("are not out", "does not end"),
        80,
    ),
    "a split that ends goes on to hold the watermark back": (
        mock.patch.object(SourceTime, "finished", _finished),
        ("all is at rest",),
        54,
    ),
    "what stands behind asynchronous calls is not opened": (
        mock.patch.object(async_wait.LaterResults, "open", return_value=None),
        ("was not opened",),
        0,
    ),
    "each NaN is a key of its own": (
        mock.patch.object(key_check, "with_one_nan", lambda key: key),
        ("NaN", "timers fire in order", "min() arg is an empty sequence"),
        6,
    ),
    "the size of what waits is a guess": (
        mock.patch.object(BatchSizes, "measure", lambda self, batch: batch_bytes(batch, quick=True)),
        ("bytes wait in a window",),
        41,
    ),
    "what a barrier has overtaken is not in the checkpoint": (
        mock.patch.object(InFlightLog, "write", return_value=None),
        ("AssertionError",),
        3,
    ),
    "what is behind a barrier counts as overtaken": (
        mock.patch.object(BarrierAligner, "has_arrived", return_value=False),
        ("AssertionError",),
        10,
    ),
    "a task goes on behind the savepoint with which the job stops": (
        mock.patch.object(TaskCheckpoints, "stopped_at", property(lambda _: 0, lambda _, number: None), create=True),
        ("come out behind the savepoint",),
        8,
    ),
    "keys may be of another kind after a restore": (
        mock.patch.object(KeyCheck, "_prove", return_value=None),
        ("leave all state behind",),
        3,
    ),
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("what", BROKEN)
def test_what_was_broken_once_is_found_out(what: str) -> None:
    patch, ways, first = BROKEN[what]
    with patch:
        _, failure = first_that_fails(range(first, first + TRIED), "data")
    assert any(words in failure for words in ways), failure

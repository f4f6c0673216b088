"""Samples of vertices: when they are taken, and when once more."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from firesteel.core.stacks import Samples
from firesteel.protocol import messages as m
from firesteel_dispatcher.flame_graphs import NOT_YET, FlameGraphs
from firesteel_dispatcher.settings import FlameGraphSettings
from tests.unit.runtime.support import ManualClock

BUSY = Samples(on_cpu=Counter({("main", "work"): 3}), off_cpu=Counter({("main", "wait"): 1}))


class Peer:
    """A TaskManager; what it has seen is said beforehand."""

    def __init__(self, *answers: dict[str, Samples]) -> None:
        self.answers, self.asked = list(answers), 0

    async def sample_stacks(self, _: m.SampleStacks) -> m.StackSamples:
        self.asked += 1
        by_subtask = self.answers.pop(0)
        return m.StackSamples({subtask: samples.to_plain() for subtask, samples in by_subtask.items()})


def graphs(clock: ManualClock) -> FlameGraphs:
    def run(work: Any, _: str) -> Any:
        asyncio.run(work)
        return work

    return FlameGraphs(FlameGraphSettings(), clock, run)


def look(flame_graphs: FlameGraphs, peer: Peer, subtask: int | None = None) -> Any:
    async def gateways() -> list[Any]:
        return [peer]

    return flame_graphs.of("job", "vertex", "full", subtask, gateways)


def test_samples_are_kept_until_they_are_old() -> None:
    clock, peer = ManualClock(), Peer({"0": BUSY, "1": BUSY}, {"0": BUSY})
    flame_graphs = graphs(clock)
    assert look(flame_graphs, peer)["data"]["value"] == 8
    assert look(flame_graphs, peer, 1)["data"]["value"] == 4
    assert peer.asked == 1
    clock.now += flame_graphs.settings.refresh_interval
    assert look(flame_graphs, peer)["data"]["value"] == 4
    assert peer.asked == 2


def test_where_nothing_was_seen_samples_are_taken_again_at_once() -> None:
    clock, peer = ManualClock(), Peer({}, {"0": Samples()}, {"0": BUSY})
    flame_graphs = graphs(clock)
    assert look(flame_graphs, peer) == {"endTimestamp": NOT_YET, "data": None}
    assert look(flame_graphs, peer)["data"] is None
    assert look(flame_graphs, peer)["data"]["value"] == 4
    assert peer.asked == 3

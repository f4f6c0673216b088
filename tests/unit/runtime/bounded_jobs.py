"""Runs the stages of bounded jobs in one thread: Spark's part is played by dictionaries, all else is real."""

from __future__ import annotations

import json
import pickle
import struct
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Self

from firesteel.checkpoint.metadata import OperatorState
from firesteel.connectors.enumerators import create_enumerator
from firesteel.graph.bounded import is_batch
from firesteel.graph.job_graph import JobGraph
from firesteel.protocol.stages import COLLECTED, STDERR, STDOUT, Stage, StageTaskInput
from firesteel.runtime.bounded.stage_main import stage_main
from firesteel_jobmaster.stages import plan_commit, plan_stages, prepared_states


class BoundedJob:
    """Its stages, and what came of them.

    Args:
        graph: of the job.
        blobs: of it.
        groups: so many key groups are in one bucket.
        starts: where tasks begin in a stage whose number of tasks depends on what there is to read; None: there are as
            many as may be, all but the last with as little as may be.

    Attributes:
        attempt: number of all tasks.
        queried: the rows of a query of Spark SQL, as Spark gives them to the one task that reads them.
    """

    attempt = 0
    queried: Sequence[bytes] = ()

    def __init__(
        self, graph: JobGraph, blobs: Mapping[str, bytes], groups: int = 1, starts: Sequence[int] | None = None
    ) -> None:
        assert is_batch(graph)
        self.graph, self.blobs, self.groups, self.starts = graph, blobs, groups, starts
        self.shuffle: dict[str, dict[int, list[bytes]]] = {}
        self.reports: list[dict[str, Any]] = []
        self.totals: list[tuple[int, ...]] = []
        self.collected: list[Any] = []
        self.printed = self.complained = ""

    def run(self) -> Self:
        for stage in plan_stages(self.graph, create_enumerator):
            stage = Stage.from_plain(json.loads(json.dumps(stage.to_plain())))
            stage = self.sized(stage)
            output: dict[int, list[bytes]] = defaultdict(list)
            for subtask in range(len(stage.tasks) if stage.query is None else 1):
                for partition, blob in self.task(stage, subtask, self.attempt):
                    output[partition].append(blob)
            self.shuffle[stage.id] = output
            for blob in output.pop(stage.partitions - 1):
                if blob[0] == COLLECTED:
                    self.collected += pickle.loads(blob[9:])
                elif blob[0] == STDOUT:
                    self.printed += blob[1:].decode()
                elif blob[0] == STDERR:
                    self.complained += blob[1:].decode()
                else:
                    self.reports.append(json.loads(blob[1:]))
        return self

    def sized(self, stage: Stage) -> Stage:
        """As the fleet puts tasks together."""
        if stage.sizing is None:
            return stage
        units = stage.tasks
        starts = [start for start in self.starts or range(len(units)) if start < len(units)][: stage.sizing.most]
        tasks = tuple(
            StageTaskInput(
                plain=joined(units[a].plain, units[b - 1].plain), keyed=joined(units[a].keyed, units[b - 1].keyed)
            )
            for a, b in pairwise([*starts, len(units)])
        )
        return replace(stage, tasks=tasks)

    def task(self, stage: Stage, subtask: int, attempt: int) -> list[tuple[int, bytes]]:
        out = iter(stage_main(stage.task, self.blobs, subtask, attempt, self.elements(stage, subtask)))
        numbered_blobs = [
            (int.from_bytes(place, "big", signed=True), blob) for place, blob in zip(out, out, strict=True)
        ]
        totals = [struct.unpack_from(">5q", blob) for partition, blob in numbered_blobs if partition < 0]
        assert totals[::2] == totals[1::2], "the second one only flushes the first"
        self.totals += totals[::2]
        return [(partition, blob) for partition, blob in numbered_blobs if partition >= 0]

    def elements(self, stage: Stage, subtask: int) -> Iterator[bytes]:
        if stage.query is not None:
            yield from self.queried
            return
        task = stage.tasks[subtask]
        if task.own is not None:
            yield task.own.encode()
            return
        if stage.sizing is not None:
            yield marker(-2 - len(stage.tasks))
        for number, dep, first, end in task.plain:
            yield marker(number)
            yield from self.read(stage, dep, first, end)
        count = task.keyed[0][3] - task.keyed[0][2] if task.keyed else 0
        for start in range(0, count, self.groups):
            yield marker(-1)
            for number, dep, first, end in task.keyed:
                yield marker(number)
                yield from self.read(stage, dep, first + start, min(end, first + start + self.groups))

    def read(self, stage: Stage, dep: int, first: int, end: int) -> Iterator[bytes]:
        for partition in range(first, end):
            yield from self.shuffle[stage.reads[dep]].get(partition, [])

    def commit(self) -> None:
        states = prepared_states(self.graph, self.reports)
        operators = [
            OperatorState(operator.id, operator.name, None, vertex.parallelism, vertex.max_parallelism, {
                subtask: states[vertex.id, subtask].operators[operator.id]
                for subtask in range(vertex.parallelism)
                if operator.id in states[vertex.id, subtask].operators
            })
            for vertex in self.graph.vertices
            for operator in vertex.operators
        ]  # fmt: skip
        self.task(plan_commit(self.graph, operators), 0, 9)


Pieces = tuple[tuple[int, int, int, int], ...]


def joined(first: Pieces, last: Pieces) -> Pieces:
    return tuple((*begin[:3], end[3]) for begin, end in zip(first, last, strict=True))


def marker(number: int) -> bytes:
    return b"\0" + number.to_bytes(4, "big", signed=True)

"""Jobs with checkpoints, as chance makes them."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import pairwise

from firesteel.graph.job_graph import JobEdge, JobGraph, JobVertex, OperatorInfo, SourceInfo

MAX_PARALLELISM = 16
AMPLE = 100_000
"""Restarts that no job uses up."""
_UNENDING = 10**9


@dataclass(frozen=True)
class CheckpointedJob:
    """What matters of a job for its tasks and for who looks on.

    Attributes:
        vertices: sources; those that count, if there are two; those that show results, if there are three.
        parallelism: of all of them.
        splits: id -> records.
        endless: they never end.
        union: there is union list state behind the sources.
        restarts: how often it may be restarted; none are allowed if 0.
        retention: of its checkpoints when it has ended.
        inline_threshold: bytes of state that travel with messages.
    """

    vertices: int
    parallelism: int
    splits: dict[str, int]
    endless: bool
    union: bool
    restarts: int
    retention: str
    inline_threshold: int
    max_parallelism: int = MAX_PARALLELISM

    def __str__(self) -> str:
        kind = "endless" if self.endless else f"{sum(self.splits.values())} records"
        return f"{self.parallelism} x {self.vertices} with checkpoints, {kind}, {self.restarts} restarts"


def draw_job(
    rng: random.Random, parallelism: int, chain: str, chain_bytes: int, number: int, restarts: int | None = None
) -> tuple[CheckpointedJob, JobGraph]:
    """A job.

    Args:
        rng: chance.
        parallelism: of all vertices.
        chain, chain_bytes: the blob that all vertices have.
        number: names it.
        restarts: how often it may be restarted; None: as chance will have it.
    """
    endless = rng.random() < 0.2
    splits = {str(i): _UNENDING if endless else rng.randint(5, 60) for i in range(rng.randint(1, 6))}
    some_end_alone = endless and len(splits) < parallelism  # behind them, union state would refuse every checkpoint
    job = CheckpointedJob(
        vertices=rng.randint(1, 3),
        parallelism=parallelism,
        splits=splits,
        endless=endless,
        union=rng.random() < 0.15 and not some_end_alone,
        restarts=rng.choice([0, 3, AMPLE, AMPLE, AMPLE]) if restarts is None else restarts,
        retention=rng.choice(["NO_EXTERNALIZED_CHECKPOINTS", "DELETE_ON_CANCELLATION", "RETAIN_ON_CANCELLATION"]),
        inline_threshold=rng.choice([0, 0, 1000]),
    )
    strategy = {"restart-strategy.type": "none"}
    if job.restarts:
        strategy = {
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": str(job.restarts),
            "restart-strategy.fixed-delay.delay": rng.choice(["0 s", "1 s", "5 s"]),
        }
    config = {
        "execution.checkpointing.interval": rng.choice(["1 s", "3 s", "10 s"]),
        "execution.checkpointing.timeout": rng.choice(["5 s", "20 s", "60 s"]),
        "execution.checkpointing.min-pause": rng.choice(["0 s", "0 s", "2 s"]),
        "execution.checkpointing.max-concurrent-checkpoints": rng.choice(["1", "1", "2", "3"]),
        "execution.checkpointing.tolerable-failed-checkpoints": rng.choice(["0", "2", "1000"]),
        "execution.checkpointing.num-retained": rng.choice(["1", "1", "2", "3"]),
        "execution.checkpointing.externalized-checkpoint-retention": job.retention,
        **strategy,
    }
    job_vertices = []
    for index in range(1, job.vertices + 1):
        vertex_id = f"{index:032x}"
        info = (OperatorInfo(vertex_id, f"V{index}", None, "map"),)
        source = None
        if index == 1:
            plain = [{"id": split, "data": {"records": count}} for split, count in splits.items()]
            source = SourceInfo(vertex_id, "trickle", {"splits": plain}, bounded=not endless)
        last = index == job.vertices
        job_vertices.append(
            JobVertex(vertex_id, f"V{index}", parallelism, MAX_PARALLELISM, "default", chain, info, source, last, None)
        )
    edges = tuple(
        JobEdge(i, a.id, b.id, a.id, 0, rng.choice(["HASH", "HASH", "REBALANCE", "FORWARD"]))
        for i, (a, b) in enumerate(pairwise(job_vertices))
    )
    job_id = f"{rng.getrandbits(128):032x}"
    return job, JobGraph(job_id, f"job {number}", tuple(job_vertices), edges, config, {chain: chain_bytes})

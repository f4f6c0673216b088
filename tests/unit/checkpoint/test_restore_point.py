"""What a checkpoint gives to a job whose chains differ from those of the job that took it."""

from __future__ import annotations

import pytest

from firesteel.checkpoint.handles import InlineState
from firesteel.checkpoint.metadata import CheckpointMetadata, OperatorState
from firesteel.checkpoint.restore_point import RestorePoint
from firesteel.checkpoint.subtask_state import InFlight, OperatorSubtaskState
from firesteel.core.errors import StateRestoreError
from firesteel.graph.job_graph import JobGraph, JobVertex, OperatorInfo

IDS = {name: name[0] * 32 for name in ("generate", "parse", "count")}
IN_FLIGHT = InFlight(0, "REBALANCE", InlineState(b"records"))


def point_of(*chains: tuple[str, ...]) -> RestorePoint:
    """Go on from records in flight to 'parse', in a job with these chains."""
    vertices = tuple(
        JobVertex(
            IDS[chain[0]], chain[0], 1, 128, "default", "",
            tuple(OperatorInfo(IDS[name], name, name, "map") for name in chain),
        )
        for chain in chains
    )  # fmt: skip
    written = OperatorState(IDS["parse"], "parse", "parse", 1, 128, {0: OperatorSubtaskState(in_flight=(IN_FLIGHT,))})
    metadata = CheckpointMetadata(7, "0" * 32, 0, (written,))
    return RestorePoint(metadata, "file:///chk-7", JobGraph("0" * 32, "job", vertices, ()), False)


@pytest.mark.parametrize(
    "chains", [(("generate",), ("parse",), ("count",)), (("generate",), ("parse", "count"))], ids=["alone", "head"]
)
def test_records_in_flight_are_replayed_by_the_task_that_begins_with_their_operator(
    chains: tuple[tuple[str, ...], ...],
) -> None:
    restore = point_of(*chains).subtask(IDS["parse"], 0)
    assert restore.operators[IDS["parse"]].in_flight == (IN_FLIGHT,)


def test_records_in_flight_are_not_lost_where_their_operator_begins_no_task_any_more() -> None:
    with pytest.raises(StateRestoreError, match=r"in flight to operator 'parse', which is chained behind 'generate'"):
        point_of(("generate", "parse"), ("count",))

"""The enumerators of sources in a JobGraph. An enumerator that a user wrote has a vertex of its own."""

from __future__ import annotations

from typing import Final

from firesteel.core.errors import GraphError, ProgramError
from firesteel.core.ids import OperatorId
from firesteel.functions.source import Boundedness, Source
from firesteel.graph.job_graph import USER_ENUMERATOR, JobVertex, OperatorInfo, SourceInfo
from firesteel.graph.node_ids import murmur3_128
from firesteel.graph.specs import OperatorKind, OperatorSpec
from firesteel.graph.stream_graph import StreamNode

_PREFIX: Final = "SplitEnumerator: "


def source_info(node: StreamNode, operator_id: OperatorId) -> SourceInfo:
    """Describe a source and the enumerator that hands out its splits.

    Raises:
        GraphError: the operator's function is not a source.
        ProgramError: the source has no enumerator, or its own check fails.
    """
    source = node.operator.function
    if not isinstance(source, Source):
        raise GraphError(f"operator {node.name!r}: {source!r} is not a Source")
    built_in = source.enumerator()
    if built_in is None and type(source).create_enumerator is Source.create_enumerator:
        raise ProgramError(
            f"operator {node.name!r}: {type(source).__name__} hands out no splits: it needs create_enumerator(), or "
            "enumerator() if a built-in one does"
        )
    return SourceInfo(
        operator_id=operator_id,
        enumerator=USER_ENUMERATOR if built_in is None else built_in.name,
        config={} if built_in is None else dict(built_in.config),
        bounded=source.boundedness is Boundedness.BOUNDED,
        replayable=source.replayable,
        coordinator=murmur3_128(f"enumerator of {operator_id}".encode()).hex() if built_in is None else None,
    )


def enumerator_spec(node: StreamNode, operator_id: str) -> OperatorSpec:
    """Return the specification of the operator that runs a source's enumerator."""
    return OperatorSpec(operator_id, _PREFIX + node.name, OperatorKind.ENUMERATOR, node.operator.function)


def enumerator_vertex(spec: OperatorSpec, source: JobVertex, chain: str) -> JobVertex:
    """Return the vertex that runs a source's enumerator, in a slot of the source's slot-sharing group.

    Args:
        spec: specification of its operator.
        source: vertex of the source.
        chain: SHA-256 of the pickled chain with that operator.
    """
    description = f"hands out the splits of {source.operators[0].name}"
    return JobVertex(
        id=spec.id,
        name=spec.name,
        parallelism=1,
        max_parallelism=1,
        slot_sharing_group=source.slot_sharing_group,
        chain=chain,
        operators=(OperatorInfo(spec.id, spec.name, None, spec.kind.value, description),),
        enumerates=source.id,
    )

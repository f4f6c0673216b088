"""Plans for users: the execution plan of a program, and the plan of a job in the REST interface."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from typing import Any, Final

from firesteel.graph.bounded import is_batch, sizing_of
from firesteel.graph.job_graph import JobGraph, JobVertex
from firesteel.graph.stream_graph import StreamGraph, StreamNode

AT_MOST_ONCE: Final = "AT_MOST_ONCE"
"""Guarantee of sources that can't be replayed: a restart loses the records since the last checkpoint."""


def execution_plan(graph: StreamGraph) -> str:
    """Return a program's operators as JSON text, in the form of Flink's ``getExecutionPlan()``; sinks come last."""
    nodes = sorted(graph.nodes.values(), key=lambda node: (node.is_sink, node.id))
    return json.dumps({"nodes": [_plan_node(graph, node) for node in nodes]}, indent=2)


def _plan_node(graph: StreamGraph, node: StreamNode) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "id": node.id,
        "type": node.name,
        "pact": "Data Source" if node.is_source else "Data Sink" if node.is_sink else "Operator",
        "contents": node.description,
        "parallelism": node.parallelism,
    }
    if node.is_source and not getattr(node.operator.function, "replayable", True):
        plain["guarantee"] = AT_MOST_ONCE
    if node.in_edges:
        plain["predecessors"] = [
            {
                "id": edge.source,
                "ship_strategy": edge.partitioner.value,
                "side": "second" if position else "first",
                **_columns(graph.edge_columns[edge].names if edge in graph.edge_columns else None),
            }
            for position, edge in enumerate(node.in_edges)
        ]
    return plain


def job_plan(graph: JobGraph) -> dict[str, Any]:
    """Return a job's vertices in the form of the REST interface's ``plan``. In batch mode each is a Spark stage."""
    return {
        "jid": graph.job_id,
        "name": graph.name,
        "type": "BATCH" if is_batch(graph) else "STREAMING",
        "nodes": [_job_plan_node(graph, vertex) for vertex in graph.vertices],
    }


def _job_plan_node(graph: JobGraph, vertex: JobVertex) -> dict[str, Any]:
    inputs = [edge for edge in graph.edges if edge.target == vertex.id]
    plain: dict[str, Any] = {
        "id": vertex.id,
        "parallelism": vertex.parallelism,
        "operator": "",
        "operator_strategy": "",
        "description": _description(vertex),
        "optimizer_properties": {},
    }
    if vertex.source is not None and not vertex.source.replayable:
        plain["guarantee"] = AT_MOST_ONCE
    sizing = sizing_of(graph, vertex) if is_batch(graph) else None
    if sizing is not None:
        plain["firesteel-parallelism"] = sizing._asdict()
    if inputs:
        plain["inputs"] = [
            {
                "num": number,
                "id": edge.source,
                "ship_strategy": edge.partitioner,
                "exchange": "blocking" if is_batch(graph) else "pipelined_bounded",
                **_columns(edge.columns),
            }
            for number, edge in enumerate(inputs)
        ]
    return plain


def _columns(names: Sequence[str] | None) -> dict[str, Any]:
    """Field with the columns of an edge, if it leaves some out."""
    return {} if names is None else {"columns": list(names)}


def _description(vertex: JobVertex) -> str:
    """Description of a vertex as HTML, one line for each operator."""
    lines = [html.escape(operator.description or operator.name) for operator in vertex.operators]
    return "".join(f"{'+- ' if position else ''}{line}<br/>" for position, line in enumerate(lines))

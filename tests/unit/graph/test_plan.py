from __future__ import annotations

import json

from firesteel.graph.node_ids import operator_ids
from firesteel.graph.plan import execution_plan, job_plan
from firesteel.graph.specs import OperatorKind, PartitionerKind
from tests.unit.graph.graphs import JOB_ID, Program, build, via


def test_execution_plan() -> None:
    program = Program()
    a = program.source(name="a", parallelism=1)
    program.sink(a, name="early", parallelism=1)
    b = program.source(name="b")
    program.add(OperatorKind.CO_MAP, via(a, PartitionerKind.BROADCAST), b, name="join", description="a with b")
    text = execution_plan(program.graph())
    assert json.loads(text) == {
        "nodes": [
            {"id": 1, "type": "Source: a", "pact": "Data Source", "contents": "Source: a", "parallelism": 1},
            {"id": 3, "type": "Source: b", "pact": "Data Source", "contents": "Source: b", "parallelism": 2},
            {
                "id": 4,
                "type": "join",
                "pact": "Operator",
                "contents": "a with b",
                "parallelism": 2,
                "predecessors": [
                    {"id": 1, "ship_strategy": "BROADCAST", "side": "first"},
                    {"id": 3, "ship_strategy": "FORWARD", "side": "second"},
                ],
            },
            {
                "id": 2,
                "type": "Sink: early",
                "pact": "Data Sink",
                "contents": "Sink: early",
                "parallelism": 1,
                "predecessors": [{"id": 1, "ship_strategy": "FORWARD", "side": "first"}],
            },
        ]
    }
    assert eval(text) == json.loads(text), "programs of PyFlink evaluate the text as Python"


def test_job_plan() -> None:
    program = Program()
    source = program.source(name="in <b>", parallelism=1)
    mapped = program.map(source, name="m", parallelism=1, description="a & b")
    program.sink(mapped, name="out", parallelism=3)
    graph = program.graph(job_name="the job")
    ids = operator_ids(graph)
    assert job_plan(build(graph)[0]) == {
        "jid": JOB_ID,
        "name": "the job",
        "type": "STREAMING",
        "nodes": [
            {
                "id": ids[1],
                "parallelism": 1,
                "operator": "",
                "operator_strategy": "",
                "description": "Source: in &lt;b&gt;<br/>+- a &amp; b<br/>",
                "optimizer_properties": {},
            },
            {
                "id": ids[3],
                "parallelism": 3,
                "operator": "",
                "operator_strategy": "",
                "description": "Sink: out<br/>",
                "optimizer_properties": {},
                "inputs": [{"num": 0, "id": ids[1], "ship_strategy": "REBALANCE", "exchange": "pipelined_bounded"}],
            },
        ],
    }

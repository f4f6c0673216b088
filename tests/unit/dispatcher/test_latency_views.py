"""Latencies from sources to operators as REST shows them: of all subtasks together, also of a job that has ended."""

from __future__ import annotations

from firesteel.functions.metrics import LATENCIES
from firesteel.protocol import messages as m
from firesteel.rest.latency_views import latencies
from firesteel.rest.views import job_details
from tests.archives import job_archive
from tests.unit.jobmaster.jobs import Driver, two_by_two, vertex_id


def test_latencies_of_subtasks_make_one_histogram_which_stays_when_the_job_has_ended() -> None:
    d = Driver(two_by_two())
    d.running()
    assert latencies(job_archive(d.core))["paths"] == []
    assert "firesteel-has-latencies" not in job_details(job_archive(d.core))
    source, sinks = vertex_id(1), d.ids()[2:]
    first = {LATENCIES: [{"source": source, "markers": 60, "buckets": [[10, 98], [20, 1]]}]}
    second = {LATENCIES: [{"source": source, "markers": 50, "buckets": [[10, 0], [31, 1]]}]}
    d.did(d.core.report_metrics(m.ReportMetrics(dict(zip(sinks, (first, second), strict=True)))))
    for id_ in d.ids():
        d.report(id_, "FINISHED")
    assert d.core.state.name == "FINISHED"
    archive = job_archive(d.core)
    assert job_details(archive)["firesteel-has-latencies"]
    (path,) = latencies(archive)["paths"]
    assert (path["source-id"], path["vertex-id"], path["is-end"]) == (source, vertex_id(2), True)
    assert (path["markers"], path["p50"], path["p95"], path["p99"], path["max"]) == (110, 10, 10, 20, 31)
    assert [(row["up-to"], row["count"]) for row in path["histogram"]] == [(10, 98), (20, 1), (31, 1)]

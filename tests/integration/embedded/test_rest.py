"""Flink's REST API on jobs that run and jobs that ended: the fields that clients read."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from firesteel.common import WatermarkStrategy
from firesteel.datastream.connectors.data_generator import DataGeneratorSource, RateLimiterStrategy
from tests.integration.embedded.programs import ended, new_environment, rest_of, running, until

pytestmark = pytest.mark.usefixtures("cluster")

CONFIG = {"refresh-interval", "timezone-name", "timezone-offset", "flink-version", "flink-revision", "features"}
OVERVIEW = {
    "taskmanagers", "slots-total", "slots-available", "jobs-running", "jobs-finished", "jobs-cancelled", "jobs-failed",
    "flink-version", "flink-commit",
}  # fmt: skip
JOBS_OVERVIEW = {
    "jid", "name", "jobType", "schedulerType", "start-time", "end-time", "duration", "state", "last-modification",
    "tasks", "pending-operators",
}  # fmt: skip
TASKS = {
    "total", "created", "scheduled", "deploying", "initializing", "running", "finished", "canceling", "canceled",
    "failed", "reconciling",
}  # fmt: skip
JOB = {
    "jid", "application-id", "name", "isStoppable", "state", "job-type", "schedulerType", "start-time", "end-time",
    "duration", "maxParallelism", "now", "timestamps", "vertices", "status-counts", "plan", "pending-operators",
}  # fmt: skip
JOB_STATES = {
    "INITIALIZING", "CREATED", "RUNNING", "FAILING", "FAILED", "CANCELLING", "CANCELED", "FINISHED", "RESTARTING",
    "SUSPENDED", "RECONCILING",
}  # fmt: skip
VERTEX = {
    "id", "slotSharingGroupId", "name", "maxParallelism", "parallelism", "status", "start-time", "end-time",
    "duration", "tasks", "metrics",
}  # fmt: skip
IO = {
    "read-bytes", "read-bytes-complete", "write-bytes", "write-bytes-complete", "read-records",
    "read-records-complete", "write-records", "write-records-complete", "accumulated-backpressured-time",
    "accumulated-idle-time", "accumulated-busy-time",
}  # fmt: skip
PLAN_NODE = {"id", "parallelism", "operator", "operator_strategy", "description"}
VERTEX_DETAILS = {"id", "name", "parallelism", "maxParallelism", "now", "subtasks"}
SUBTASK = {
    "subtask", "status", "attempt", "endpoint", "start-time", "end-time", "duration", "metrics", "taskmanager-id",
    "status-duration",
}  # fmt: skip
TASKMANAGER = {
    "id", "path", "dataPort", "jmxPort", "timeSinceLastHeartbeat", "slotsNumber", "freeSlots", "totalResource",
    "freeResource", "hardware", "memoryConfiguration",
}  # fmt: skip


class Api:
    def __init__(self, base: str) -> None:
        self.base = base

    def call(self, path: str, method: str = "GET", **headers: str) -> tuple[int, Any, Any]:
        request = Request(self.base + path, method=method, headers=headers)
        try:
            with urlopen(request) as answer:
                return answer.status, json.loads(answer.read()), answer.headers
        except HTTPError as error:
            with error:
                return error.code, json.loads(error.read()), error.headers

    def get(self, path: str) -> Any:
        status, body, headers = self.call(path)
        assert status == 200, (path, status, body)
        assert headers["Content-Type"].lower() == "application/json; charset=utf-8"
        assert headers["Access-Control-Allow-Origin"] is None
        assert self.call("/v1" + path)[0] == 200
        return body


def has(fields: set[str], answer: dict[str, Any]) -> None:
    assert fields <= answer.keys(), f"missing: {fields - answer.keys()}"


def generated(per_second: float | None = None) -> DataGeneratorSource[int]:
    return DataGeneratorSource(lambda i: i, None, RateLimiterStrategy(per_second))


@pytest.fixture(scope="module")
def job(cluster: None) -> Iterator[Any]:
    """A job with two vertices that runs until the tests are through."""
    env = new_environment(2)
    source = env.from_source(generated(1000), WatermarkStrategy.no_watermarks(), "numbers")
    source.key_by(lambda i: i % 7).map(lambda i: i).name("work").filter(lambda _: False).print()
    client = env.execute_async("watched")
    running(client)
    yield client
    client.cancel().result()
    assert ended(client) == "CANCELED"


def check_job(api: Api, job_id: str, state: str) -> None:
    job_details = api.get(f"/jobs/{job_id}")
    has(JOB, job_details)
    assert (job_details["jid"], job_details["state"], job_details["isStoppable"]) == (job_id, state, False)
    assert job_details["timestamps"].keys() == JOB_STATES
    assert (job_details["end-time"] == -1) is (state == "RUNNING")
    assert [node["id"] for node in job_details["plan"]["nodes"]] == [vertex["id"] for vertex in job_details["vertices"]]
    assert job_details["plan"]["jid"] == job_id
    for node in job_details["plan"]["nodes"]:
        has(PLAN_NODE, node)
    for vertex in job_details["vertices"]:
        has(VERTEX, vertex)
        assert vertex["metrics"].keys() == IO
        details = api.get(f"/jobs/{job_id}/vertices/{vertex['id']}")
        has(VERTEX_DETAILS, details)
        assert len(details["subtasks"]) == vertex["parallelism"]
        for subtask in details["subtasks"]:
            has(SUBTASK, subtask)
            assert subtask["metrics"].keys() == IO
        times = api.get(f"/jobs/{job_id}/vertices/{vertex['id']}/subtasktimes")
        has({"id", "name", "now", "subtasks"}, times)
        has({"id", "name", "now", "taskmanagers"}, api.get(f"/jobs/{job_id}/vertices/{vertex['id']}/taskmanagers"))
    assert api.get(f"/jobs/{job_id}/plan") == {"plan": job_details["plan"]}
    assert api.get(f"/jobs/{job_id}/status") == {"status": state}
    config = api.get(f"/jobs/{job_id}/config")
    has({"restart-strategy", "job-parallelism", "object-reuse-mode", "user-config"}, config["execution-config"])
    history = api.get(f"/jobs/{job_id}/exceptions?maxExceptions=10")["exceptionHistory"]
    has({"entries", "truncated"}, history)
    (mine,) = (job for job in api.get("/jobs/overview")["jobs"] if job["jid"] == job_id)
    has(JOBS_OVERVIEW, mine)
    assert mine["tasks"].keys() == TASKS
    assert mine["tasks"]["total"] == sum(vertex["parallelism"] for vertex in job_details["vertices"])
    assert {"id": job_id, "status": state} in api.get("/jobs")["jobs"]


def test_a_running_job(job: Any) -> None:
    api = Api(job.get_web_interface_url())
    job_id = str(job.get_job_id())
    has(CONFIG, api.get("/config"))
    assert api.get("/config")["flink-version"] == "2.3.0"
    overview = api.get("/overview")
    has(OVERVIEW, overview)
    assert (overview["taskmanagers"], overview["jobs-running"]) == (1, 1)
    assert overview["slots-total"] - overview["slots-available"] == 2
    check_job(api, job_id, "RUNNING")
    assert api.get(f"/jobs/{job_id}/execution-result") == {"status": {"id": "IN_PROGRESS"}}
    (taskmanager,) = api.get("/taskmanagers")["taskmanagers"]
    has(TASKMANAGER, taskmanager)
    assert taskmanager["slotsNumber"] - taskmanager["freeSlots"] == 2
    taskmanager_details = api.get(f"/taskmanagers/{taskmanager['id']}")
    has({*TASKMANAGER, "allocatedSlots", "metrics"}, taskmanager_details)
    assert {slot["jobId"] for slot in taskmanager_details["allocatedSlots"]} == {job_id}


def test_an_ended_job(cluster: None) -> None:
    env = new_environment(1)
    env.from_collection([1, 0]).map(lambda i: 1 // i).name("divide").print()
    client: Any = env.execute_async("fails")
    assert ended(client) == "FAILED"
    api, job_id = Api(client.get_web_interface_url()), str(client.get_job_id())
    check_job(api, job_id, "FAILED")
    result = api.get(f"/jobs/{job_id}/execution-result")
    assert result["status"] == {"id": "COMPLETED"}
    assert result["job-execution-result"]["application-status"] == "FAILED"
    assert "ZeroDivisionError" in result["job-execution-result"]["failure-cause"]["stack-trace"]
    (entry,) = api.get(f"/jobs/{job_id}/exceptions")["exceptionHistory"]["entries"]
    assert "ZeroDivisionError" in entry["stacktrace"]
    assert "divide" in entry["taskName"]
    assert api.call(f"/jobs/{job_id}?mode=cancel", "PATCH")[0] == 409
    assert api.call(f"/jobs/{job_id}/yarn-cancel")[0] == 401


def test_cancelling_over_rest(job: Any) -> None:
    api = Api(job.get_web_interface_url())
    for method, path in (("PATCH", ""), ("PATCH", "?mode=cancel")):
        env = new_environment(1)
        env.from_source(generated(10), WatermarkStrategy.no_watermarks(), "numbers").print()
        client = env.execute_async()
        running(client)
        assert api.call(f"/jobs/{client.get_job_id()}{path}", method)[0] == 202
        assert ended(client) == "CANCELED"
        check_job(api, str(client.get_job_id()), "CANCELED")


def test_what_is_refused(job: Any) -> None:
    api = Api(job.get_web_interface_url())
    port = api.base.rpartition(":")[2]
    path = f"/jobs/{job.get_job_id()}"
    for host in ("evil.example", f"evil.example:{port}", "localhost.evil.example"):
        assert api.call("/overview", Host=host)[0] == 403, host
    for origin in ("http://evil.example", "null", f"https://evil.example:{port}"):
        assert api.call(f"{path}?mode=cancel", "PATCH", Origin=origin)[0] == 403, origin
        assert api.call("/overview", Origin=origin)[0] == 403
    for host in (f"127.0.0.1:{port}", f"localhost:{port}"):
        assert api.call("/overview", Host=host, Origin=f"http://{host}")[0] == 200
    unknown = uuid.uuid4().hex
    for wrong in (f"/jobs/{unknown}", f"/jobs/{unknown}/plan", f"{path}/vertices/{unknown}", "/nowhere", "/v2/jobs"):
        status, body, _ = api.call(wrong)
        assert (status, list(body)) == (404, ["errors"]), wrong
    assert api.call("/jobs/not-an-id")[0] == 400
    assert api.call("/overview", "POST")[0] == 404
    assert api.call("/overview", "OPTIONS")[0] == 404
    assert api.call(f"/jobs/{job.get_job_id()}/collect/{unknown}")[0] == 401
    assert api.call("/jobs", "POST")[0] == 401
    assert rest_of(job)["state"] == "RUNNING"


def test_times_of_subtasks_add_up_and_a_slow_sink_slows_the_source(cluster: None) -> None:
    def slow(value: int) -> bool:
        time.sleep(0.001)
        return False

    env = new_environment(1)
    source = env.from_source(generated(), WatermarkStrategy.no_watermarks(), "fast")
    source.rebalance().filter(slow).name("slow").print()
    source.filter(lambda _: False).print("nothing")
    client = env.execute_async("back-pressure")
    running(client)

    def look() -> dict[str, dict[str, Any]]:
        return {vertex["name"]: vertex["metrics"] for vertex in rest_of(client)["vertices"]}

    until(lambda: all(sum_of(m) > 1000 for m in look().values()), "times being reported")
    began, first = time.monotonic(), look()
    until(lambda: all(sum_of(m) > sum_of(first[name]) + 4000 for name, m in look().items()), "times that grow")
    last, passed = look(), (time.monotonic() - began) * 1000
    client.cancel().result()
    assert ended(client) == "CANCELED"
    grown = {name: sum_of(last[name]) - sum_of(first[name]) for name in first}
    for name in first:  # a report that was looked at may have been some seconds old
        assert grown[name] < passed + 4000, name
    (fast,) = (name for name in first if "fast" in name)
    (late,) = (name for name in first if "slow" in name)
    pressed = last[fast]["accumulated-backpressured-time"] - first[fast]["accumulated-backpressured-time"]
    busy = last[late]["accumulated-busy-time"] - first[late]["accumulated-busy-time"]
    assert pressed > grown[fast] / 2
    assert busy > grown[late] / 2
    read = last[late]["read-records"] - first[late]["read-records"]
    assert 0 < read < grown[late] + 2 * 4096  # one takes more than 1 ms; they are counted by batches


def sum_of(metrics: dict[str, Any]) -> float:
    kinds = ("backpressured", "idle", "busy")
    return float(sum(metrics[f"accumulated-{kind}-time"] for kind in kinds))

"""Every endpoint of the REST API, on a cluster with a job; answers have the types that we have written down.

``rest_endpoints.tsv`` tells of each of Flink's endpoints which test calls it, and what it is answered there.
"""

from __future__ import annotations

import functools
import io
import json
import re
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote, urlencode
from urllib.request import Request, urlopen

import msgspec
import pytest
from hypothesis import given
from hypothesis import settings as of_hypothesis
from hypothesis import strategies as st

from firesteel.common import WatermarkStrategy
from firesteel.datastream import MapFunction, RuntimeContext
from firesteel.datastream.connectors.data_generator import DataGeneratorSource, RateLimiterStrategy
from firesteel.rest.endpoints import CallerRights, Endpoint
from firesteel_dispatcher.endpoints import ENDPOINTS
from tests.examples import examples
from tests.integration.embedded.programs import ended, new_environment, running, until

pytestmark = pytest.mark.usefixtures("cluster")
SECONDS = 60
TABLE = Path(__file__).with_name("rest_endpoints.tsv")
HERE = "integration/embedded/test_rest_endpoints.py::test_every_endpoint"


def table() -> list[list[str]]:
    """Method, path, status and test of each endpoint."""
    return [line.split("\t") for line in TABLE.read_text().splitlines()[1:]]


class Counted(MapFunction[int, int]):
    """Counts what it maps, and is busy with each record for a while, which costs no processor time."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen = runtime_context.get_metrics_group().counter("seen")
        print("a subtask opens")

    def map(self, value: int) -> int:
        self.seen.inc()
        time.sleep(0.01)
        return value


PATTERNS = [(endpoint, re.compile(re.sub(r"\{\w+\}", "[^/]+", endpoint.path))) for endpoint in ENDPOINTS]


class World:
    """A cluster, a job that runs on it, and what clients find there."""

    def __init__(self, client: Any, folder: Path) -> None:
        self.client, self.base, self.folder = client, client.get_web_interface_url(), folder
        self.token = client._rest._headers["Authorization"].removeprefix("Bearer ")
        self.job = str(client.get_job_id())
        self.seen: set[tuple[str, str, int]] = set()
        vertices = self.get(f"/jobs/{self.job}")["vertices"]
        self.vertex = next(vertex["id"] for vertex in vertices if "work" in vertex["name"])
        self.taskmanager = self.get("/taskmanagers")["taskmanagers"][0]["id"]
        self.seen.clear()

    def call(
        self, method: str, path: str, body: Any = None, token: bool = True, **headers: str
    ) -> tuple[int, bytes, Any]:
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        if token:
            headers["Authorization"] = f"Bearer {self.token}"
        headers.setdefault("Content-Type", "application/json")
        request = Request(self.base + path, data, method=method, headers=headers)
        try:
            with urlopen(request, timeout=SECONDS) as answer:
                response = answer.status, answer.read(), answer.headers
        except HTTPError as error:
            with error:
                response = error.code, error.read(), error.headers
        plain_path = path.partition("?")[0].removeprefix("/v1")
        row = next(
            (endpoint for endpoint, like in PATTERNS if endpoint.method == method and like.fullmatch(plain_path)), None
        )
        if row is not None:
            self.seen.add((method, row.flink_path, response[0]))
        return response

    def get(self, path: str) -> Any:
        status, body, _ = self.call("GET", path)
        assert status == 200, (path, status, body)
        return json.loads(body)

    def upload(self, name: str, content: bytes) -> tuple[int, Any]:
        edge = "edge-of-the-part"
        head = f'--{edge}\r\nContent-Disposition: form-data; name="jarfile"; filename="{name}"\r\n\r\n'
        data = head.encode() + content + f"\r\n--{edge}--\r\n".encode()
        kind = f"multipart/form-data; boundary={edge}"
        status, body, _ = self.call("POST", "/jars/upload", data, True, **{"Content-Type": kind})
        return status, json.loads(body)


@contextmanager
def a_job(folder: Path) -> Iterator[World]:
    """A job with two vertices and a counter, which takes checkpoints when it is told to."""
    env = new_environment(
        2,
        execution__checkpointing__interval="1h",
        execution__checkpointing__dir=str(folder / "checkpoints"),
        execution__checkpointing__savepoint_dir=str(folder / "savepoints"),
    )
    source: DataGeneratorSource[int] = DataGeneratorSource(lambda i: i, None, RateLimiterStrategy(40))
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    numbers.rebalance().map(Counted()).name("work").filter(lambda _: False).print()
    client = env.execute_async("watched")
    running(client)
    the_world = World(client, folder)
    yield the_world
    client.cancel().result()
    assert ended(client) == "CANCELED"


class Faults:
    """What did not hold, so that one run tells of all."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def expect(self, what: str, holds: bool, seen: Any = "") -> None:
        if not holds:
            self.found.append(f"{what}: {seen!r:.300}")

    def refuse(self) -> None:
        assert not self.found, "\n".join(self.found)


ASKED_BELOW = (
    "yarn-", "rescaling", "/datasets/", "rescales/details", "{trigger_id}", "flamegraph", "profiler/", "/jars",
    "/collect/",
)  # fmt: skip
"""In paths that are no plain reading: each has lines of its own in the test."""


def path_of(world: World, endpoint: Endpoint, checkpoint: int) -> str:
    """With this world's job, vertex and so on."""
    values = {
        "job_id": world.job,
        "application_id": world.job,
        "vertex_id": world.vertex,
        "subtask": 1,
        "attempt": 0,
        "checkpoint_id": checkpoint,
        "taskmanager_id": quote(world.taskmanager, safe=""),
        "filename": "slot-0.out",
    }
    return endpoint.path.format_map(values)


def test_every_endpoint(tmp_path: Path) -> None:
    faults = Faults()
    with a_job(tmp_path) as world:
        checkpoint = operations(world, faults)
        until(lambda: world.get(f"/jobs/{world.job}/accumulators")["user-task-accumulators"], "a counter")
        for endpoint in ENDPOINTS:
            if endpoint.method == "GET" and not any(word in endpoint.path for word in ASKED_BELOW):
                read(world, faults, endpoint, path_of(world, endpoint, checkpoint))
        stubs(world, faults)
        datasets(world, faults)
        logs(world, faults)
        metrics(world, faults)
        samples(world, faults)
        programs(world, faults)
        ends(world, faults)
        for method, path, status, test in table():
            if test == HERE:
                faults.expect(f"{method} {path} was asked", (method, path, int(status)) in world.seen)
        never_a_500(world)
    faults.refuse()


def test_the_table_names_a_test_of_each_endpoint() -> None:
    rows = {(method, path): test for method, path, _, test in table()}
    assert list(rows) == [(endpoint.method, endpoint.flink_path) for endpoint in ENDPOINTS if not endpoint.ours]
    for test in set(rows.values()):
        file, _, name = test.partition("::")
        assert f"def {name}(" in (TABLE.parents[2] / file).read_text(), test


def read(world: World, faults: Faults, endpoint: Endpoint, path: str) -> None:
    """Flink's shape, under both prefixes, whatever body comes along."""
    no_file = path in ("/jobmanager/log", "/jobmanager/stdout", "/jobmanager/logs/slot-0.out") or path.endswith("/log")
    for prefix in ("", "/v1"):
        status, body, headers = world.call("GET", prefix + path, {}, token=False)  # Java's client sends a body on GET
        if no_file:  # an embedded cluster logs as its program does
            faults.expect(path, (status, list(json.loads(body))) == (404, ["errors"]), body)
        elif endpoint.is_text:
            faults.expect(path, (status, headers["Content-Type"]) == (200, "text/plain; charset=utf-8"), body)
        else:
            faults.expect(path, status == 200, body)
            if status == 200:
                shape(faults, endpoint, body)
    status, body, _ = world.call("GET", f"{path}?nobody-knows-this=1")
    faults.expect(f"{path} with an unknown parameter", status == 400 and b"nobody-knows-this" in body, body)


def shape(faults: Faults, endpoint: Endpoint, body: bytes) -> None:
    """The type that we have written down."""
    try:
        msgspec.convert(json.loads(body), endpoint.answer)
    except msgspec.ValidationError as error:
        faults.expect(f"{endpoint.method} {endpoint.flink_path}", False, f"{error} in {body!r:.500}")


def row(method: str, flink_path: str) -> Endpoint:
    (endpoint,) = [listed for listed in ENDPOINTS if (listed.method, listed.flink_path) == (method, flink_path)]
    return endpoint


def done(world: World, faults: Faults, method: str, flink_path: str, path: str, body: Any = None) -> Any:
    """Call something that changes the cluster: without the token it is refused."""
    endpoint = row(method, flink_path)
    if endpoint.access is CallerRights.CHANGE:
        refused = world.call(method, path, body, token=False)[0]
        faults.expect(f"{method} {flink_path} without a token", refused == 401, refused)
    status, answer, _ = world.call(method, path, body)
    faults.expect(f"{method} {flink_path}", status == endpoint.status, answer)
    if status == endpoint.status:
        shape(faults, endpoint, answer)
    return json.loads(answer)


def operations(world: World, faults: Faults) -> int:
    """Checkpoints, savepoints and their removal; returns the id of a checkpoint."""
    job = f"/jobs/{world.job}"
    trigger = done(world, faults, "POST", "/jobs/:jobid/checkpoints", f"{job}/checkpoints", {"checkpointType": "FULL"})
    checkpoint = completed(
        world, faults, "/jobs/:jobid/checkpoints/:triggerid", f"{job}/checkpoints/{trigger['request-id']}"
    )
    trigger = done(world, faults, "POST", "/jobs/:jobid/savepoints", f"{job}/savepoints", {"formatType": "CANONICAL"})
    saved = completed(world, faults, "/jobs/:jobid/savepoints/:triggerid", f"{job}/savepoints/{trigger['request-id']}")
    path = {"savepoint-path": saved["location"]}
    trigger = done(world, faults, "POST", "/savepoint-disposal", "/savepoint-disposal", path)
    completed(world, faults, "/savepoint-disposal/:triggerid", f"/savepoint-disposal/{trigger['request-id']}")
    faults.expect("the savepoint is gone", not Path(saved["location"].removeprefix("file:")).exists())
    for wrong, body, field in (
        (f"{job}/savepoints", {"cancel-job": "yes"}, b"cancel-job"),
        (f"{job}/savepoints", {"directory": "/x"}, b"directory"),
        (f"{job}/stop", {"drain": 1}, b"drain"),
        (f"{job}/checkpoints", {"checkpointType": "HALF"}, b"checkpointType"),
        ("/savepoint-disposal", {}, b"savepoint-path"),
    ):
        status, answer, _ = world.call("POST", wrong, body)
        faults.expect(f"{wrong} with {body}", status == 400 and field in answer, answer)
    client = {"expiredTimestamp": 2**62}
    done(world, faults, "PATCH", "/jobs/:jobid/clientHeartbeat", f"{job}/clientHeartbeat", client)
    return int(checkpoint["checkpointId"])


def completed(world: World, faults: Faults, flink_path: str, path: str) -> Any:
    until(lambda: world.get(path)["status"]["id"] == "COMPLETED", path)
    _, body, _ = world.call("GET", path)
    shape(faults, row("GET", flink_path), body)
    return json.loads(body)["operation"]


def datasets(world: World, faults: Faults) -> None:
    """What cache() keeps is listed; one that is deleted is computed again."""
    env = new_environment(1, firesteel__cache__directory=str(world.folder))
    cached = env.from_collection([1, 2]).map(lambda i: i + 1).cache()
    faults.expect("its results", sorted(cached.execute_and_collect()) == [2, 3])
    datasets = world.get("/datasets")["dataSets"]
    mine = {folder.name for folder in world.folder.glob("firesteel-cache-*/*")}
    listed = [dataset for dataset in datasets if dataset["id"] in mine]
    faults.expect("it is listed", [dataset["isComplete"] for dataset in listed] == [True], (datasets, mine))
    trigger = done(world, faults, "DELETE", "/datasets/:datasetid", f"/datasets/{listed[0]['id']}")
    completed(world, faults, "/datasets/delete/:triggerid", f"/datasets/delete/{trigger['request-id']}")
    faults.expect("its files are gone", not list(world.folder.glob("firesteel-cache-*/*")))
    faults.expect("it is computed again", sorted(cached.execute_and_collect()) == [2, 3])
    env.close()


def stubs(world: World, faults: Faults) -> None:
    """What can't be here says so, with Flink's status and shape."""
    job, nobody = f"/jobs/{world.job}", "0" * 32
    requirements = world.get(f"{job}/resource-requirements")
    flink_path = "/jobs/:jobid/resource-requirements"
    done(world, faults, "PUT", flink_path, f"{job}/resource-requirements", requirements)
    more = {id_: {"parallelism": {"lowerBound": 3, "upperBound": 4}} for id_ in requirements}
    for method, path, body, expected in (
        ("GET", f"{job}/yarn-stop", None, 308),
        ("PATCH", f"{job}?mode=stop", None, 308),
        ("PATCH", f"{job}/rescaling?parallelism=3", None, 503),
        ("PATCH", f"{job}/rescaling", None, 400),
        ("GET", f"{job}/rescaling/{nobody}", None, 503),
        ("GET", f"{job}/rescales/details/{nobody}", None, 404),
        ("PUT", f"{job}/resource-requirements", more, 409),
        ("PUT", f"{job}/resource-requirements", {}, 400),
        ("PUT", f"{job}/resource-requirements", {**requirements, nobody: more[world.vertex]}, 400),
        ("POST", f"{job}/coordinators/x", {"serializedCoordinationRequest": ""}, 400),
        ("GET", f"{job}/checkpoints/{nobody}", None, 404),
        ("DELETE", f"/datasets/{nobody}", None, 404),
        ("GET", f"/datasets/delete/{nobody}", None, 404),
        ("GET", f"{job}/vertices/{nobody}/backpressure", None, 404),
        ("GET", f"{job}/vertices/nothing", None, 400),
        ("GET", f"{job}/vertices/{world.vertex}/subtasks/9", None, 404),
        ("GET", f"{job}/vertices/{world.vertex}/subtasks/x", None, 400),
        ("GET", f"{job}/exceptions?maxExceptions=many", None, 400),
        ("GET", "/taskmanagers/nobody", None, 404),
        ("GET", "/taskmanagers/nobody/metrics", None, 404),
        ("GET", "/taskmanagers/nobody/logs", None, 404),
        ("GET", f"/applications/{nobody}", None, 404),
        ("POST", f"/applications/{nobody}/cancel", None, 404),
        ("GET", f"/jobs/metrics?jobs={nobody}", None, 404),
        ("POST", "/config", None, 404),
    ):
        status, answer, _ = world.call(method, path, body)
        faults.expect(
            f"{method} {path}", (status, list(json.loads(answer))) == (expected, ["errors"]), (status, answer)
        )


def logs(world: World, faults: Faults) -> None:
    """What slots print can be read by ranges, and from the end."""
    where = f"/taskmanagers/{quote(world.taskmanager, safe='')}"
    names = {log["name"]: log["size"] for log in world.get(f"{where}/logs")["logs"]}
    text = b"a subtask opens\n"
    faults.expect("logs of slots", {"slot-0.out", "slot-1.out"} <= names.keys(), names)
    path = f"{where}/logs/slot-0.out"
    whole = world.call("GET", path)[1]
    faults.expect("a log", whole.count(text) >= 1 and len(whole) == names["slot-0.out"], whole)
    for byte_range, expected in (("bytes=2-8", whole[2:9]), ("bytes=2-", whole[2:]), ("bytes=-6", whole[-6:])):
        status, body, headers = world.call("GET", path, Range=byte_range)
        faults.expect(byte_range, (status, body) == (206, expected), (status, body))
        faults.expect(byte_range, headers["Content-Range"].endswith(f"/{len(whole)}"), headers["Content-Range"])
    faults.expect("beyond its end", world.call("GET", path, Range="bytes=9999999-")[0] == 416)
    faults.expect("its last line", world.call("GET", f"{path}?tail=1")[1] == text)
    faults.expect("no such log", world.call("GET", f"{where}/logs/..%2f..%2fetc%2fpasswd")[0] == 404)
    threads = "\n".join(one["stringifiedThreadInfo"] for one in world.get(f"{where}/thread-dump")["threadInfos"])
    faults.expect("threads of slots", "slot 1: " in threads and "in run_once" in threads, threads)


def metrics(world: World, faults: Faults) -> None:
    """Aggregates at every level, under Flink's names."""
    vertex = f"/jobs/{world.job}/vertices/{world.vertex}/subtasks/metrics"
    names = (
        "numRecordsInPerSecond", "busyTimeMsPerSecond", "backPressuredTimeMsPerSecond", "idleTimeMsPerSecond",
        "currentInputWatermark", "accumulateBusyTimeMs",
    )  # fmt: skip
    by_id = {metric["id"]: metric for metric in world.get(f"{vertex}?get={','.join(names)}")}
    faults.expect("aggregates of subtasks", set(by_id) == set(names), by_id)
    some = world.get(f"{vertex}?get=numRecordsIn&agg=min,max&subtasks=0")
    faults.expect("of one", set(some[0]) == {"id", "min", "max"} and some[0]["min"] == some[0]["max"], some)
    jobs = world.get(f"/jobs/metrics?get=numRestarts,lastCheckpointDuration&agg=max&jobs={world.job}")
    faults.expect("of jobs", [metric["id"] for metric in jobs] == ["numRestarts", "lastCheckpointDuration"], jobs)
    names_of_autoscaler = "Status.JVM.Memory.Heap.Max,Status.JVM.Memory.Heap.Used,Status.JVM.Memory.Metaspace.Used"
    names_of_autoscaler += ",Status.Flink.Memory.Managed.Used,Status.JVM.GarbageCollector.All.TimeMsPerSecond"
    of_all = world.get(f"/taskmanagers/metrics?get={names_of_autoscaler}&agg=min,max,avg")
    faults.expect(
        "what the autoscaler asks", [metric["id"] for metric in of_all] == names_of_autoscaler.split(","), of_all
    )
    faults.expect("heap", of_all and 0 < of_all[1]["max"] <= of_all[0]["max"], of_all)
    slots = world.get("/jobmanager/metrics?get=taskSlotsTotal,taskSlotsAvailable,numRunningJobs")
    faults.expect("slots", len(slots) == 3 and int(slots[0]["value"]) >= 2, slots)
    counters = world.get(f"/jobs/{world.job}/vertices/{world.vertex}/accumulators")["user-accumulators"]
    faults.expect(
        "accumulators", [(c["name"], int(c["value"]) > 0) for c in counters] == [("work.seen", True)], counters
    )


def profiled(world: World, where: str) -> bool:
    return bool(world.get(f"/{where}/profiler")["profilingList"][0]["status"] == "FINISHED")


def samples(world: World, faults: Faults) -> None:
    """Flame graphs hold the user's function; profiles of both kinds of processes come out."""
    path = f"/jobs/{world.job}/vertices/{world.vertex}/flamegraph"
    until(lambda: world.get(f"{path}?type=full")["data"], "samples")
    for kind in ("full", "on_cpu", "off_cpu"):
        body = world.call("GET", f"{path}?type={kind}")[1]
        shape(faults, row("GET", "/jobs/:jobid/vertices/:vertexid/flamegraph"), body)
    text = json.dumps(world.get(path))
    faults.expect("the user's function", "Counted.map" in text, text)
    wrong = world.call("GET", f"{path}?type=green")
    faults.expect("an unknown type", wrong[0] == 400 and b"type" in wrong[1], wrong)
    for where in ("jobmanager", f"taskmanagers/{quote(world.taskmanager, safe='')}"):
        flink_path = "/jobmanager/profiler" if where == "jobmanager" else "/taskmanagers/:taskmanagerid/profiler"
        done(world, faults, "POST", flink_path, f"/{where}/profiler", {"mode": "WALL", "duration": 1})
        until(functools.partial(profiled, world, where), where)
        name = world.get(f"/{where}/profiler")["profilingList"][0]["outputFile"]
        status, page, _ = world.call("GET", f"/{where}/profiler/{name}")
        faults.expect(f"{where}: a page", status == 200 and b"samples" in page and b"<script" not in page, page)
        faults.expect(f"{where}: a wrong one", world.call("GET", f"/{where}/profiler/none")[0] == 404)


PROGRAM = """
import sys
from firesteel.datastream import StreamExecutionEnvironment
from beside import twice

env = StreamExecutionEnvironment.get_execution_environment()
env.from_collection([int(one) for one in sys.argv[1:]]).map(twice).name("twice").print()
env.execute("uploaded")
"""


WHEEL = """
import sys
from firesteel.datastream import StreamExecutionEnvironment
from sums import twice

def run():
    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_collection([int(sys.argv[1])]).map(twice).print()
    env.execute(f"sums of {sys.argv[1]}")

def other():
    raise SystemExit("nobody wants this one")
"""


def archive(**files: str) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as packed:
        for name, text in files.items():
            packed.writestr(f"{name}.py", text)
    return content.getvalue()


def programs(world: World, faults: Faults) -> None:
    """A program is uploaded, planned, run, and removed; user code runs in a process of its own."""
    status, answer = world.upload("word_count.zip", archive(__main__=PROGRAM, beside="def twice(x): return 2 * x"))
    faults.expect("an upload", (status, answer.get("status")) == (200, "success"), answer)
    program = answer["filename"].rpartition("/")[2]
    listed = world.get("/jars")
    shape(faults, row("GET", "/jars"), json.dumps(listed).encode())
    faults.expect("it is listed", [file["id"] for file in listed["files"]] == [program], listed)
    for name, content, word in (
        ("x.py", b"def :", "no program of Python"),
        ("x.jar", archive(), "is empty"),
        ("x.txt", b"", "has to end in"),
        ("x.zip", b"nothing", "no archive"),
    ):
        status, answer = world.upload(name, content)
        said = answer["errors"][0]
        faults.expect(name, status == 400 and word in said and "multipart" not in said, answer)
    where = f"/jars/{program}"
    plan = done(world, faults, "GET", "/jars/:jarid/plan", f"{where}/plan?programArg=1,2&parallelism=2")
    faults.expect("its plan", "twice" in str(plan), plan)
    plan = done(world, faults, "POST", "/jars/:jarid/plan", f"{where}/plan", {"programArgsList": ["1"]})
    faults.expect("its plan by POST", "twice" in str(plan), plan)
    order = {"programArgsList": ["3", "4"], "jobId": "ab" * 16, "flinkConfiguration": {"pipeline.name": "by a client"}}
    answer = done(world, faults, "POST", "/jars/:jarid/run", f"{where}/run", order)
    faults.expect("its job has the id that was asked for", answer.get("jobid") == "ab" * 16, answer)
    until(lambda: world.get(f"/jobs/{'ab' * 16}/status")["status"] == "FINISHED", "the job of the program")
    begun = done(
        world, faults, "POST", "/jars/:jarid/run-application", f"{where}/run-application", {"programArgs": "5"}
    )
    application = begun["applicationid"]
    until(lambda: world.get(f"/applications/{application}")["status"] == "FINISHED", "the application")
    faults.expect("its job has its id", world.get(f"/jobs/{application}")["application-id"] == application)
    again = world.call("POST", f"/applications/{application}/cancel")
    faults.expect("it has ended", again[0] == 409, again)
    failed = world.call("POST", f"{where}/run", {"programArgsList": ["no number"]})
    faults.expect("what went wrong", failed[0] == 400 and b"ValueError" in failed[1], failed)
    unknown = world.call("POST", f"{where}/run", {"parallelism": "many"})
    faults.expect("a malformed field", unknown[0] == 400 and b"parallelism" in unknown[1], unknown)
    done(world, faults, "DELETE", "/jars/:jarid", where)
    faults.expect("it is gone", world.call("DELETE", where)[0] == 400)
    wheels(world, faults)


def wheels(world: World, faults: Faults) -> None:
    """A wheel is a program, too: its console scripts are what can be run."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as packed:
        packed.writestr("sums/__init__.py", "def twice(x): return 2 * x\n")
        packed.writestr("sums/main.py", WHEEL)
        scripts = "[console_scripts]\nother = sums.main:other\nsums = sums.main:run\n"
        packed.writestr("sums-1.2.dist-info/entry_points.txt", scripts)
    status, answer = world.upload("sums-1.2-py3-none-any.whl", content.getvalue())
    faults.expect("a wheel", (status, answer.get("status")) == (200, "success"), answer)
    (listed,) = world.get("/jars")["files"]
    entries = [entry["name"] for entry in listed["entry"]]
    faults.expect("its scripts", entries == ["sums.main:other", "sums.main:run"], listed)
    where = f"/jars/{listed['id']}"
    status, body, _ = world.call("POST", f"{where}/run", {})
    faults.expect("which one", status == 400 and b"sums.main:other, sums.main:run" in body, body)
    order = {"entryClass": "sums.main:run", "programArgsList": ["7"], "jobId": "cd" * 16}
    answer = done(world, faults, "POST", "/jars/:jarid/run", f"{where}/run", order)
    faults.expect("its job", answer.get("jobid") == "cd" * 16, answer)
    until(lambda: world.get(f"/jobs/{'cd' * 16}/status")["status"] == "FINISHED", "the job of the wheel")
    faults.expect("its name", world.get(f"/jobs/{'cd' * 16}")["name"] == "sums of 7")
    done(world, faults, "DELETE", "/jars/:jarid", where)


ENDLESS = """
from firesteel.common import WatermarkStrategy
from firesteel.datastream import StreamExecutionEnvironment
from firesteel.datastream.connectors.data_generator import DataGeneratorSource, RateLimiterStrategy

env = StreamExecutionEnvironment.get_execution_environment()
source = DataGeneratorSource(lambda i: i, None, RateLimiterStrategy(20))
env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").filter(lambda _: False).print()
env.execute("endless")
"""


def ends(world: World, faults: Faults) -> None:
    """An application is cancelled, a job stopped with a savepoint."""
    where = f"/jars/{world.upload('endless.py', ENDLESS.encode())[1]['filename'].rpartition('/')[2]}"

    def runs(job: str) -> bool:
        status, body, _ = world.call("GET", f"/jobs/{job}")
        return status == 200 and all(vertex["status"] == "RUNNING" for vertex in json.loads(body)["vertices"])

    begun = done(world, faults, "POST", "/jars/:jarid/run-application", f"{where}/run-application", {"parallelism": 1})
    application_id = begun["applicationid"]
    until(lambda: runs(application_id), "the application runs")
    done(world, faults, "POST", "/applications/:applicationid/cancel", f"/applications/{application_id}/cancel")
    until(lambda: world.get(f"/jobs/{application_id}/status")["status"] == "CANCELED", "the application is cancelled")
    other = done(world, faults, "POST", "/jars/:jarid/run", f"{where}/run", {"parallelism": 1})["jobid"]
    until(lambda: runs(other), "the job runs")
    body = {"targetDirectory": str(world.folder / "stopped"), "drain": False}
    trigger = done(world, faults, "POST", "/jobs/:jobid/stop", f"/jobs/{other}/stop", body)
    path = f"/jobs/{other}/savepoints/{trigger['request-id']}"
    saved = completed(world, faults, "/jobs/:jobid/savepoints/:triggerid", path)
    faults.expect("the savepoint", Path(saved["location"].removeprefix("file:"), "_metadata").exists(), saved)
    until(lambda: world.get(f"/jobs/{other}/status")["status"] == "FINISHED", "the job is stopped")
    done(world, faults, "DELETE", "/jars/:jarid", where)


HARMFUL = {("DELETE", "/cluster"), ("PATCH", "/jobs/{job_id}"), ("GET", "/jobs/{job_id}/yarn-cancel")}
FUZZED = [
    endpoint
    for endpoint in ENDPOINTS
    if (endpoint.method, endpoint.path) not in HARMFUL and "profiler" not in endpoint.path
]
ODD = st.one_of(
    st.text(max_size=8),
    st.sampled_from(["-1", "0", "1e3", "9" * 30, "\x00", "..", "%", "a,b", "0-9,3", "é", "0" * 32, "all"]),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def never_a_500(world: World) -> None:
    """Whatever is asked, the answer is in order, or says in Flink's shape what was wrong."""
    valid = {
        "job_id": world.job, "application_id": world.job, "vertex_id": world.vertex, "subtask": "0", "attempt": "0",
        "checkpoint_id": "1", "taskmanager_id": world.taskmanager, "filename": "slot-0.out",
    }  # fmt: skip

    @of_hypothesis(max_examples=examples(60), deadline=None)
    @given(st.data())
    def ask(data: st.DataObject) -> None:
        endpoint = data.draw(st.sampled_from(FUZZED))
        parts = {part: data.draw(st.just(valid[part]) | ODD if part in valid else ODD) for part in endpoint.parts}
        names = [parameter.name for parameter in endpoint.query if parameter.name != "wait-ms"]
        query = data.draw(st.dictionaries(st.sampled_from(names), ODD, max_size=3)) if names else {}
        fields = list(endpoint.body.__annotations__) if isinstance(endpoint.body, type) else ["x"]
        body = data.draw(st.dictionaries(st.sampled_from(fields), JSON, max_size=3) | JSON | st.binary(max_size=20))
        if (
            "run" in endpoint.path or "cancel" in endpoint.path or "stop" in endpoint.path
        ):  # what is in order would be done
            body = ["nothing"]
        text = endpoint.path.format_map({name: quote(part, safe="") or "%20" for name, part in parts.items()})
        status, answer, _ = world.call(endpoint.method, f"{text}?{urlencode(query)}" if query else text, body)
        assert status < 500 or status == 503, (endpoint, text, query, body, answer)
        if status >= 400:
            assert list(json.loads(answer)) == ["errors"], (endpoint, text, query, body, answer)

    ask()

"""What ``firesteel doctor`` makes of facts."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from firesteel.client.cli.doctor import _local, _nodes, _skew, _slow_checkpoints
from firesteel.client.cli.doctor_findings import (
    GIB,
    Facts,
    Finding,
    Level,
    Place,
    Port,
    TaskManagerFacts,
    findings,
    is_failed,
)
from firesteel.core.errors import FiresteelError

GOOD = Facts(
    (3, 11, 4),
    "0.1.0",
    versions={"aiohttp": "3.11"},
    services={"dispatcher": "0.1.0"},
    java="Java 17 at /opt/java",
    spark="4.3.0",
    physical_memory=16 * GIB,
    free_memory=8 * GIB,
    cores=4,
    slots=2,
    places=(Place("execution.checkpointing.dir", "/c", free=90 * GIB),),
    url="http://127.0.0.1:8081",
    cluster_version="0.1.0",
    skew_s=0.0,
    slots_total=4,
    slots_free=2,
    environment="e1",
    nodes=(TaskManagerFacts("tm1", "h1", "e1", "3.11.4"), TaskManagerFacts("tm2", "h2", "e1", "3.11.4")),
)


def bad(facts: Facts) -> list[Finding]:
    return [finding for finding in findings(facts) if finding.level is not Level.OK]


STATES = {"slow": "RUNNING", "fine": "RUNNING", "none": "RUNNING", "over": "FINISHED"}


def test_nothing_is_found_where_all_is_well() -> None:
    assert bad(GOOD) == []
    assert {finding.area for finding in findings(GOOD)} == {
        "python", "packages", "services", "java", "spark", "memory", "cores", "configuration", "storage", "cluster",
        "clock", "slots",
    }  # fmt: skip
    assert not is_failed(findings(GOOD), strict=True)


@pytest.mark.parametrize(
    ("change", "area", "level", "text", "remedy"),
    [
        ({"silent": {"jobmaster host": "refused"}}, "cluster", "error", "host does not answer", "jobmanager.sh start"),
        ({"silent": {"jobmaster of job a": "no"}}, "cluster", "error", "jobmaster of job a", "by itself"),
        ({"slow_checkpoints": {"job a": "the last took 310 s"}}, "checkpoints", "warning", "310 s", "parallelism"),
        ({"silent": {"resourcemanager": "gone"}, "nodes": ()}, "cluster", "error", "resourcemanager does", "start it"),
        ({"may_change": False}, "token", "error", "does not know this client's token", "--config-dir"),
        ({"python": (3, 10, 1)}, "python", "error", "3.10.1 is too old", "3.11"),
        ({"versions": {"a": None, "b": "1"}}, "packages", "error", "missing: a", "pip install"),
        ({"services": {"dispatcher": "0.2"}}, "services", "error", "dispatcher 0.2 beside", "same version"),
        ({"java_problem": "no Java"}, "java", "error", "no Java", "JAVA_HOME"),
        ({"spark_problem": "no jars"}, "spark", "error", "no jars", "pip install"),
        ({"process_size": 17 * GIB}, "memory", "error", "may use 17.0 GiB", "taskmanager.memory.process.size"),
        ({"free_memory": GIB // 2}, "memory", "warning", "512 MiB of 16.0 GiB", "end what is not needed"),
        ({"slots": 9}, "cores", "warning", "9 slots on 4 cores", "taskmanager.numberOfTaskSlots"),
        ({"settings_problem": "rest.port = 'x'"}, "configuration", "error", "rest.port", "config.yaml"),
        ({"warnings": ("rest.prt is unknown",)}, "configuration", "warning", "rest.prt", "config.yaml"),
        ({"secret_problem": "it can be read by others"}, "secret", "error", "read by others", "chmod 600"),
        ({"places": (Place("x", "/c", "Permission denied"),)}, "storage", "error", "x = /c: Permission", "writable"),
        ({"places": (Place("x", "/c", free=GIB),)}, "storage", "warning", "1.0 GiB are free", "make room"),
        ({"places": (Place("x", "/c", free=1 << 20),)}, "storage", "error", "1 MiB are free", "make room"),
        ({"ports": (Port("rest.port", "h", 8081, "Address already in use"),)}, "ports", "error", "8081", "rest.port"),
        ({"cluster_problem": "no cluster answers"}, "cluster", "error", "no cluster", "start-cluster.sh"),
        ({"cluster_version": "0.2.0"}, "cluster", "error", "has Firesteel 0.2.0", "firesteel==0.2.0"),
        ({"skew_s": -17.0}, "clock", "warning", "17 s behind", "time server"),
        ({"skew_s": 400.0}, "clock", "error", "400 s ahead of", "time server"),
        ({"nodes": ()}, "taskmanagers", "error", "no TaskManager", "taskmanager.sh"),
        ({"slots_free": 0}, "slots", "warning", "none of 4 slots", "cancel one"),
        (
            {"nodes": (*GOOD.nodes, TaskManagerFacts("tm3", "h3", "e9", "3.11.9"))},
            "packages",
            "warning",
            "tm3 on h3",
            "pip freeze",
        ),
        (
            {"nodes": (TaskManagerFacts("tm", "h", silent_s=40),)},
            "taskmanagers",
            "warning",
            "silent for 40 s",
            "host is up",
        ),
        (
            {"nodes": (TaskManagerFacts("tm", "h", free_memory=9, physical_memory=99),)},
            "taskmanagers",
            "warning",
            "began",
            "fewer",
        ),
    ],
)
def test_what_is_wrong_is_named_with_what_to_do(
    change: dict[str, Any], area: str, level: str, text: str, remedy: str
) -> None:
    (finding,) = bad(replace(GOOD, **change))
    assert (finding.area, finding.level.value) == (area, level)
    assert text in finding.text
    assert remedy in finding.remedy
    assert "-> " in finding.line()
    assert finding.plain()["level"] == level
    assert is_failed([finding], strict=False) is (level == "error")
    assert is_failed([finding], strict=True)


def test_slots_of_a_demo_may_share_cores() -> None:
    (cores,) = (finding for finding in findings(replace(GOOD, slots=8)) if finding.area == "cores")
    assert (cores.level.value, cores.text) == ("ok", "4, and a TaskManager has 8 slots")


def test_a_directory_is_tried_and_nothing_stays(tmp_path: Path) -> None:
    tried = _local(f"{tmp_path}/not/there/yet", "x")
    assert tried.problem == ""
    assert tried.free is not None
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("")
    assert _local(str(tmp_path / "file"), "x").problem.endswith("is no directory")
    assert _local("/proc/firesteel", "x").problem
    assert "s3://" in _local("hdfs://there/x", "x").problem


def test_slow_checkpoints_of_running_jobs_are_read_from_the_rest_api() -> None:
    answers = {
        "/jobs/overview": {"jobs": [{"jid": n, "name": f"job {n}", "state": s} for n, s in STATES.items()]},
        "/jobs/slow/checkpoints": {"warning": "the last took 310 s"},
        "/jobs/fine/checkpoints": {"warning": None},
    }

    class Rest:
        async def get(self, path: str) -> Any:
            if path not in answers:
                raise FiresteelError("it takes none")
            return answers[path]

    assert asyncio.run(_slow_checkpoints(cast(Any, Rest()))) == {"job slow (slow)": "the last took 310 s"}


def test_the_clock_of_a_header_has_whole_seconds() -> None:
    now = 1_700_000_000_500
    assert _skew("Tue, 14 Nov 2023 22:13:20 GMT", now) == 0.0
    assert _skew("Tue, 14 Nov 2023 22:14:20 GMT", now) == pytest.approx(59.5)
    assert _skew("yesterday", now) is None


def test_nodes_are_read_from_the_answer_of_the_rest_api() -> None:
    row = {
        "id": "tm",
        "path": "http://worker1:6122",
        "timeSinceLastHeartbeat": 60_000,
        "hardware": {"freeMemory": 5, "firesteel-environment": "e", "firesteel-python": "3.11.4"},
    }
    assert list(_nodes([row], 100_000)) == [TaskManagerFacts("tm", "worker1", "e", "3.11.4", 5, 0, 40.0)]
    assert next(_nodes([{"id": "old"}], 0)).environment == ""

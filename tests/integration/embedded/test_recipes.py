"""The recipes go on exactly where they were when a slot or the JobMaster dies, and bear what users send."""

from __future__ import annotations

import datetime
import json
import os
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pyarrow.dataset
import pytest
from examples.recipes import (
    alert_on_absence,
    csv_to_parquet,
    deduplicate,
    enrich_by_lookup,
    ml_scoring,
    sessionise,
    upgrade_a_job,
)

from firesteel.common import Duration, JobClient, Time
from firesteel.core.process import ProcessId, kill, wait_gone
from firesteel.datastream import StreamExecutionEnvironment
from tests.docs.recipe_oracles import DATA, records, texts, visits
from tests.integration.embedded.programs import family, new_environment, submitted_to, until

START = datetime.datetime(2026, 11, 27, 10)


def with_checkpoints(parallelism: int = 2, **options: str) -> StreamExecutionEnvironment:
    return new_environment(parallelism, **options).enable_checkpointing(200)


def put(folder: Path, name: str, lines: list[str]) -> None:
    """A file that appears at once."""
    folder.mkdir(exist_ok=True)
    (folder / f".{name}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / f".{name}").rename(folder / name)


def die(process: ProcessId) -> None:
    kill(process)
    assert not wait_gone([process], 20)


def drain(job: JobClient, folder: Path) -> None:
    """End the job as if its input had ended: what waits for event time comes, and all results are visible."""
    job.stop_with_savepoint(True, str(folder / "savepoints")).result()


def clicks(first: int, last: int) -> list[str]:
    """Clicks of twenty users, in which each user is silent for long now and then; one of nine comes twice."""
    lines = []
    for number in range(first, last):
        at = START + datetime.timedelta(seconds=number * 20 + number // 200 * 4000)
        click = {
            "id": f"c{number}",
            "user": f"ü{number * 31 % 20}",
            "page": f"/{number % 7}",
            "time": f"{at.isoformat()}Z",
        }
        lines += [json.dumps(click)] * (2 if number % 9 == 0 else 1)
    return lines


@pytest.mark.usefixtures("cluster")
def test_deduplicate_when_a_slot_dies(tmp_path: Path) -> None:
    source, out = tmp_path / "in", tmp_path / "out"
    put(source, "1.jsonl", [*clicks(0, 500), "", "{", "7", '{"id": null}', '{"user": "none"}'])
    (source / "empty.jsonl").touch()
    env = with_checkpoints()
    deduplicate.build(env, str(source), out, follow=True)
    job = env.execute_async("deduplicate")
    until(lambda: len(texts(out / "events")) == 500, "the first file is read")
    put(source, "2.jsonl", clicks(300, 2000))
    die(family(os.getpid())["slot"][0])
    put(source, "3.jsonl", clicks(1500, 2500))
    until(lambda: len(texts(out / "events")) >= 2500, "all files are read")
    drain(job, tmp_path)
    sent = Counter(json.loads(line)["id"] for line in clicks(0, 500) + clicks(300, 2000) + clicks(1500, 2500))
    assert Counter(event["id"] for event in records(out / "events")) == dict.fromkeys(sent, 1)
    assert Counter(event["id"] for event in records(out / "again")) == sent - Counter(sent.keys())
    assert len(texts(out / "bad")) == 4


def test_sessionise_when_the_jobmaster_dies(
    place: Mapping[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not place:
        pytest.skip("the embedded cluster's JobMaster is this process")
    monkeypatch.setattr(sessionise, "IDLE", Duration.of_millis(300))
    source, out = tmp_path / "in", tmp_path / "out"
    first, second = clicks(0, 600), clicks(600, 1200)
    put(source, "1.jsonl", [*first, "{}", '{"user": "x", "time": "soon"}'])
    with submitted_to(place):
        env = with_checkpoints()
        sessionise.build(env, str(source), out, follow=True)
        job = env.execute_async("visits")
        closed = [visit for visit in visits(first) if visit["to"] < f"{START + datetime.timedelta(hours=4):%FT%T}"]
        until(lambda: len(texts(out / "visits")) >= len(closed) > 20, "sessions are over")
        die(jobmaster_of(place))
        put(source, "2.jsonl", second)
        until(lambda: len(texts(out / "visits")) >= len(closed) + 20, "more sessions are over")
        put(source, "3.jsonl", [json.dumps(dict(json.loads(first[0]), id="late"))])
        until(lambda: texts(out / "late"), "a click is late")
        drain(job, tmp_path)
    assert records(out / "visits") == visits([*first, *second])
    assert ["'late'" in line for line in texts(out / "late")] == [True]
    assert len(texts(out / "bad")) == 2


def jobmaster_of(place: Mapping[str, str]) -> ProcessId:
    (record,) = Path(place["firesteel.security.secret-file"]).parents[1].glob("cluster/jobmasters/*.json")
    return ProcessId.from_plain(json.loads(record.read_text())["process"])


@pytest.mark.usefixtures("cluster")
def test_an_upgraded_job_goes_on_with_its_counts(tmp_path: Path) -> None:
    source, out = tmp_path / "in", tmp_path / "out"
    put(source, "1.jsonl", clicks(0, 300))
    env = with_checkpoints(1)
    env.set_max_parallelism(128)
    upgrade_a_job.build(env, str(source), out, version=1)
    job = env.execute_async("version 1")
    until(lambda: len(texts(out / "counts")) == len(clicks(0, 300)), "the first file is counted")
    savepoint = job.stop_with_savepoint(False, str(tmp_path / "savepoints")).result()
    put(source, "2.jsonl", [*clicks(300, 600), "[]"])
    env = with_checkpoints(2, **{"execution__state-recovery__path": savepoint})
    env.set_max_parallelism(128)
    upgrade_a_job.build(env, str(source), out, version=2)
    job = env.execute_async("version 2")
    until(lambda: len(texts(out / "counts")) == len(clicks(0, 600)), "the second file is counted")
    drain(job, tmp_path)
    everything, second = ([json.loads(line) for line in clicks(first, 600)] for first in (0, 300))
    actual = records(out / "counts")
    assert most(actual, "clicks", ["user"]) == Counter((click["user"],) for click in everything)
    on_pages = [line for line in actual if "page" in line]
    assert most(on_pages, "on this page", ["user", "page"]) == Counter((c["user"], c["page"]) for c in second)
    assert len(texts(out / "bad")) == 1


def most(lines: list[Any], count: str, key: list[str]) -> dict[tuple[str, ...], int]:
    """The last count of each key."""
    actual: dict[tuple[str, ...], int] = {}
    for line in lines:
        name = (*(line[field] for field in key),)
        actual[name] = max(actual.get(name, 0), line[count])
    return actual


@pytest.mark.usefixtures("cluster")
def test_absence_is_seen_when_nobody_says_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alert_on_absence, "IDLE", Duration.of_millis(200))
    monkeypatch.setattr(alert_on_absence, "OUT_OF_ORDER", Duration.of_millis(50))
    source, out = tmp_path / "in", tmp_path / "out"

    def beat(name: str, machine: str) -> str:
        now = datetime.datetime.now(datetime.UTC).isoformat()
        put(source, name, [json.dumps({"machine": machine, "time": now}), '{"machine": "", "time": null}'])
        return machine

    beat("1.jsonl", "Säge")
    env = with_checkpoints()
    alert_on_absence.build(env, str(source), out, silence=1.0, follow=True)
    job = env.execute_async("alerts")
    until(lambda: len(texts(out / "alerts")) == 1, "the machine is missed although no heartbeat takes time on")
    beat("2.jsonl", "Säge")
    until(lambda: len(texts(out / "alerts")) >= 3, "it is back, and missed again")
    job.cancel().result()
    states = [alert["state"] for alert in sorted(records(out / "alerts"), key=lambda alert: alert["since"])]
    assert states == ["silent", "back", "silent"] or states == ["silent", "silent", "back"]
    assert len(texts(out / "bad")) == 2


class Customers(BaseHTTPRequestHandler):
    """Fails at the first question about a customer, and never answers about one."""

    requests: ClassVar[list[str]] = []
    over = threading.Event()

    def do_GET(self) -> None:
        self.requests.append(self.path)
        if self.path == "/dead.json":
            self.over.wait(30)
        if self.requests.count(self.path) == 1:
            self.send_error(503)
        elif self.path == "/gone.json":
            self.send_error(404)
        else:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"name": self.path}).encode())

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def service() -> Iterator[str]:
    Customers.requests.clear()
    Customers.over.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Customers) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        Customers.over.set()
        server.shutdown()
        thread.join()


@pytest.mark.usefixtures("cluster")
def test_enrich_asks_once_and_bears_a_service_that_fails(
    service: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(enrich_by_lookup, "PATIENCE", Time.seconds(2))
    users = ["ann", "bob/../x", "gone", "dead"]
    lines = [json.dumps({"id": n, "user": users[n % 40] if n % 40 < 4 else "ann"}) for n in range(400)]
    put(tmp_path / "in", "1.jsonl", [*lines, '{"user": 7}', "x"])
    env = with_checkpoints()
    enrich_by_lookup.build(env, str(tmp_path / "in"), service, tmp_path)
    env.execute("enrich")
    enriched = records(tmp_path / "enriched")
    assert {line["user"]: line["customer"]["name"] for line in enriched} == {
        "ann": "/ann.json", "bob/../x": "/bob%2F..%2Fx.json",
    }  # fmt: skip
    unresolved = records(tmp_path / "unresolved")
    assert Counter((line["user"], line["problem"]) for line in unresolved) == {
        ("gone", "unknown customer"): 10, ("dead", "no answer"): 10,
    }  # fmt: skip
    assert sorted(line["id"] for line in enriched + unresolved) == [*range(400)]
    requests = Counter(Customers.requests)
    assert [requests[path] for path in ("/ann.json", "/bob%2F..%2Fx.json", "/gone.json")] == [2, 2, 2], (
        "once, and again"
    )
    assert len(texts(tmp_path / "bad")) == 2


@pytest.mark.usefixtures("cluster")
def test_files_with_odd_lines_as_a_stream(tmp_path: Path) -> None:
    lines = (DATA / "flights.csv").read_text().splitlines()
    odd = [
        "x,y",
        lines[1].replace(",UA,", ",U/Ä,"),
        lines[2].replace(",UA,", ",NA,"),
        lines[3].replace("2013-", "soon-"),
        lines[4].replace(",544,545,-1,", ",544,545,late,"),
    ]
    put(tmp_path / "in", "1.csv", [*lines[:400], *odd])
    put(tmp_path / "in", "2.csv", [lines[0]])
    (tmp_path / "in" / "empty.csv").touch()
    env = with_checkpoints()
    csv_to_parquet.build(env, str(tmp_path / "in"), tmp_path / "parquet")
    env.execute("flights")
    ml_scoring.build(env, str(tmp_path / "in"), str(DATA / "late_arrival.json"), tmp_path / "ml")
    env.execute("scores")
    table = pyarrow.dataset.dataset(tmp_path / "parquet" / "flights", partitioning="hive").to_table()
    assert table.num_rows == 400
    assert table.column("carrier").to_pylist().count("U/Ä") == 1
    assert sorted(line.split(":")[0].rpartition("/")[2][:5] for line in texts(tmp_path / "parquet" / "bad")) == [
        "1.csv", "1.csv", "no ca", "no ti",
    ]  # fmt: skip
    assert len(texts(tmp_path / "ml" / "bad")) == 2
    assert len(texts(tmp_path / "ml" / "scores")) + len(texts(tmp_path / "ml" / "unscored")) == 402

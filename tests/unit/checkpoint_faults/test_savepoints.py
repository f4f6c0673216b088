"""Savepoints of a whole job: what is in them, what a stop commits, and deaths in each step of it."""

from __future__ import annotations

import pickle
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from firesteel.checkpoint import savepoint_places, savepoints
from firesteel.checkpoint.comparison import compare, comparison_lines
from firesteel.checkpoint.handles import FileState
from firesteel.checkpoint.reader import inspect, inspection_lines, read_savepoint
from firesteel.checkpoint.state_reader import StateReader
from firesteel.config import Settings
from firesteel.core.errors import CheckpointCorruptedError, ConfigurationError
from firesteel.graph.job_archive import at_once
from firesteel.runtime.task import task as task_module
from firesteel_jobmaster.checkpoints.pending import SavepointTarget
from tests.unit.checkpoint_faults.whole_job import KEYS, OPEN, WholeJob

TRIGGER = "a" * 32
PATH = "execution.state-recovery.path"
CLAIM = "execution.state-recovery.claim-mode"


@pytest.fixture(autouse=True)
def _loops_end(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(task_module, "STEP_SECONDS", -1.0)
    yield
    while OPEN:
        OPEN.pop().close()


def ask(job: WholeJob, stop: str = "", trigger_id: str = TRIGGER, target: str = "", format: str = "CANONICAL") -> None:
    destination = SavepointTarget(target or str(job.directory / "savepoints"), format, stop)
    job.do(job.core.trigger_savepoint(trigger_id, destination))


def result(job: WholeJob, trigger_id: str = TRIGGER) -> dict[str, Any]:
    """What became of it; empty = nobody knows."""
    checkpoints = at_once(job.core.checkpoints.in_slices()) or {"triggers": {}}
    trigger: dict[str, Any] = checkpoints["triggers"].get(trigger_id, {})
    return trigger


def until_done(job: WholeJob, trigger_id: str = TRIGGER) -> str:
    job.until(lambda: result(job, trigger_id).get("status") != "IN_PROGRESS", "the savepoint is complete")
    assert "failure" not in result(job, trigger_id), result(job, trigger_id)
    return str(result(job, trigger_id)["location"])


def begun(directory: Path, seed: int = 0, parallelism: int = 2, **settings: Any) -> WholeJob:
    """A job that has taken a checkpoint, and has some way to go."""
    job = WholeJob(directory, seed, parallelism, **settings)
    job.until(job.has_completed(1), "a checkpoint")
    return job


def going_on(directory: Path, location: str, before: WholeJob, parallelism: int, **settings: Any) -> WholeJob:
    """A job that is started from a savepoint, and shows its results beside those of the one before."""
    return WholeJob(directory, 7, parallelism, shelf=before.shelf, **{PATH: location, **settings})


def test_a_savepoint_is_whole_and_changes_nothing_for_the_job(tmp_path: Path) -> None:
    job = begun(tmp_path)
    ask(job)
    location = Path(until_done(job))
    assert result(job)["checkpointId"] not in job.completed, "tasks were told of a savepoint"
    assert location.parent == tmp_path / "savepoints"
    assert location.name.startswith(f"savepoint-{job.graph.job_id[:6]}-")
    metadata = savepoints.read_savepoint_metadata(str(location))
    assert {Path(file).parent for file in metadata.files()} == {location}
    assert str(tmp_path) not in (location / "_metadata").read_text().partition("\n")[2]
    files = [handle for handle in metadata.handles() if isinstance(handle, FileState)]
    assert files
    for handle in files:
        savepoints.check_file(handle, StateReader(Settings()))
    statistics = at_once(job.core.checkpoints.in_slices())
    assert statistics is not None
    assert statistics["latest"]["SAVEPOINT"]["location"] == str(location)
    job.to_end()
    assert (location / "_metadata").exists()
    assert metadata.files() == set(map(str, location.iterdir())) - {str(location / "_metadata")}


def test_a_job_goes_on_from_its_checkpoint_and_not_from_a_savepoint(tmp_path: Path) -> None:
    job = begun(tmp_path)
    ask(job)
    shutil.rmtree(until_done(job))
    job.kill_jobmaster()
    job.to_end()


@pytest.mark.parametrize("stop", ["suspend", "drain"])
@pytest.mark.parametrize("format", ["CANONICAL", "NATIVE"])
def test_a_job_stops_and_goes_on_elsewhere(stop: str, format: str, tmp_path: Path) -> None:
    job = begun(tmp_path / "one", 3)
    ask(job, stop, format=format)
    location = until_done(job)
    assert job.state == "FINISHED"
    assert Counter(job.shelf.visible) < job.expected
    job.rest()
    assert job.left() == []
    moved = tmp_path / "moved"
    shutil.move(location, moved)
    second = going_on(tmp_path / "two", str(moved), job, 3)
    second.to_end()
    assert (moved / "_metadata").exists()


def test_from_three_to_five_to_one_to_four_to_three(tmp_path: Path) -> None:
    job = WholeJob(tmp_path / "0", 1, 3)
    for number, parallelism in enumerate((5, 1, 4, 3), 1):
        job.until(lambda job=job: job.core.graph.all_run(), "all tasks run")  # type: ignore[misc]
        ask(job, "suspend")
        location = until_done(job)
        job.rest()
        job = going_on(tmp_path / str(number), location, job, parallelism)
    assert Counter(job.shelf.visible) < job.expected
    job.to_end()


@pytest.mark.parametrize("stop", ["suspend", "drain"])
@pytest.mark.parametrize("death", ["slots", "jobmaster", "both"])
def test_deaths_in_each_step_of_a_stop(stop: str, death: str, tmp_path: Path) -> None:
    stopped = ran_on = 0
    for step in range(14):
        folder = tmp_path / str(step)
        chance = random.Random(step)
        job = begun(folder / "one", step)
        ask(job, stop)
        for _ in range(step):
            job.round()
        if not job.ended:
            if death != "jobmaster":
                job.kill_tasks()
            if death != "slots":
                job.kill_jobmaster()
        job.until(lambda job=job: job.ended, "the end")  # type: ignore[misc]
        assert job.state == "FINISHED", job.message()
        job.rest()
        outcome = result(job)
        if Counter(job.shelf.visible) == job.expected:
            assert "location" not in outcome, f"step {step}: it says that it was stopped"
            ran_on += 1
            continue
        stopped += 1
        assert "location" in outcome, f"step {step}: it was stopped, and nobody says where: {outcome}"
        second = going_on(folder / "two", outcome["location"], job, chance.randrange(1, 6))
        second.to_end()
    assert stopped
    assert ran_on


def test_when_a_stop_fails_the_job_goes_on(tmp_path: Path) -> None:
    job = begun(tmp_path)
    (tmp_path / "file").write_text("no directory")
    ask(job, "suspend", target=str(tmp_path / "file"))
    job.until(lambda: result(job)["status"] != "IN_PROGRESS", "the answer")
    assert "the savepoint's directory" in result(job)["failure"]
    attempts = job.attempts
    job.to_end()
    assert job.attempts == attempts


@pytest.mark.parametrize("stop", ["suspend", "drain"])
def test_when_a_stop_is_given_up_half_way_no_record_is_lost(stop: str, tmp_path: Path) -> None:
    given_up = 0
    for seed in range(6):
        folder = tmp_path / str(seed)
        job = begun(folder, seed)
        ask(job, stop)
        job.until(lambda folder=folder: (folder / "savepoints").exists(), "its directory")  # type: ignore[misc]
        for _ in range(seed % 3):
            job.round()
        shutil.rmtree(folder / "savepoints")
        job.until(lambda job=job: result(job).get("status") != "IN_PROGRESS", "the answer")  # type: ignore[misc]
        if "failure" in result(job):
            given_up += 1
            attempts = job.attempts
            job.to_end()
            assert stop == "drain" or job.attempts == attempts, "a suspended job goes on as it is"
    assert given_up


def test_no_other_savepoint_is_taken_while_a_job_stops(tmp_path: Path) -> None:
    job = begun(tmp_path)
    ask(job, "suspend")
    job.until(lambda: (tmp_path / "savepoints").exists(), "it has begun")
    ask(job, "", "b" * 32)
    assert "is being stopped" in result(job, "b" * 32)["failure"]
    until_done(job)


def test_cancel_with_a_savepoint(tmp_path: Path) -> None:
    job = begun(tmp_path)
    ask(job, "cancel")
    location = until_done(job)
    job.until(lambda: job.ended, "the end")
    assert job.state == "CANCELED"
    assert (Path(location) / "_metadata").exists()


@pytest.mark.parametrize("claim", ["CLAIM", "NO_CLAIM"])
def test_who_owns_what_a_job_starts_from(claim: str, tmp_path: Path) -> None:
    job = begun(tmp_path / "one")
    ask(job, "suspend")
    location = Path(until_done(job))
    job.rest()
    before = sorted(path.name for path in location.iterdir())
    second = going_on(tmp_path / "two", str(location), job, 2, **{CLAIM: claim})
    second.until(second.has_completed(1), "a checkpoint of its own")
    second.rest() if second.ended else second.until(lambda: not second.work, "clean-ups")
    if claim == "CLAIM":
        assert not location.exists()
    else:
        assert sorted(path.name for path in location.iterdir()) == before
    second.to_end()


def test_a_damaged_file_is_refused_by_name(tmp_path: Path) -> None:
    job = begun(tmp_path / "one")
    ask(job, "suspend")
    location = Path(until_done(job))
    job.rest()
    for path in sorted(location.iterdir()):
        whole = path.read_bytes()
        for at in (0, len(whole) // 2, len(whole) - 1):
            damaged = bytearray(whole)
            damaged[at] ^= 1
            path.write_bytes(damaged)
            with pytest.raises(CheckpointCorruptedError, match=path.name):
                inspect(str(location))
        path.write_bytes(whole)
    assert inspect(str(location))["type"] == "savepoint"


def test_what_is_in_it(tmp_path: Path) -> None:
    job = begun(tmp_path / "one")
    ask(job, "suspend")
    location = until_done(job)
    savepoint = read_savepoint(location)
    count, seen = (dict(savepoint.operator("number").state(name)) for name in ("count", "seen"))
    assert sorted(count) == list(range(KEYS))
    assert {key: len(values) for key, values in seen.items()} == count
    assert sum(count.values()) == len(job.shelf.visible)
    plain = inspect(location)
    number = next(operator for operator in plain["operators"] if operator["name"] == "number")
    sizes = {state["name"]: state for state in number["states"]}
    assert sizes["count"]["entries"] == sizes["seen"]["entries"] == KEYS
    assert all(int(group) in range(128) for group in sizes["count"]["by-key-group"])
    assert sum(sizes["count"]["by-key-group"].values()) == sizes["count"]["size"]
    text = "\n".join(inspection_lines(plain))
    assert "The job was stopped with it (suspend)." in text
    assert "number (uid 'number')" in text
    assert "largest-keys" not in text
    most = inspect(location, keys=2)["operators"][1]["states"]
    largest = next(state["largest-keys"] for state in most if state["name"] == "seen")
    assert [row["key"] for row in largest] == [
        str(key) for key, _ in savepoint.operator("number").state("seen").largest_keys(2)
    ]
    assert largest[0]["size"] == max(len(pickle.dumps(values, protocol=5)) for values in seen.values())
    assert f"    {largest[0]['key']}: {largest[0]['size']} bytes" in inspection_lines(inspect(location, keys=2))
    with pytest.raises(ConfigurationError, match="has no state 'other'"):
        savepoint.operator("number").state("other")
    with pytest.raises(ConfigurationError, match="has no operator 'other'"):
        savepoint.operator("other")


def test_what_has_changed_between_two(tmp_path: Path) -> None:
    job = begun(tmp_path / "one")
    before = inspect_states(first := savepoint_of(job))
    job.until(job.has_completed(4), "more checkpoints")
    after = inspect_states(second := savepoint_of(job, format="NATIVE"))
    comparison = compare(first, second)
    assert comparison["before"]["path"] == first
    assert comparison["after"]["type"] == "savepoint"
    number = next(operator for operator in comparison["operators"] if operator["name"] == "number")
    rows = {state["name"]: state for state in number["states"]}
    for name in ("count", "seen"):
        was, is_now = before["number", name], after["number", name]
        assert (rows[name]["base-entries"], rows[name]["base-size"]) == (was["entries"], was["size"])
        assert (rows[name]["entries"], rows[name]["size"]) == (is_now["entries"], is_now["size"])
    for operator in comparison["operators"]:
        assert operator["size"] >= sum(state["size"] for state in operator["states"])
    assert any(state["kind"] == "splits" for operator in comparison["operators"] for state in operator["states"])
    text = "\n".join(comparison_lines(comparison))
    assert f"{rows['seen']['size'] - rows['seen']['base-size']:+,}" in text
    backwards = compare(second, first)
    states = next(operator for operator in backwards["operators"] if operator["name"] == "number")["states"]
    opposite = {"grown": "shrunk", "shrunk": "grown", "same": "same"}
    assert {state["name"]: opposite[state["change"]] for state in states} == {
        name: row["change"] for name, row in rows.items()
    }


def savepoint_of(job: WholeJob, **options: str) -> str:
    ask(job, **options)
    return until_done(job)


def inspect_states(location: str) -> dict[tuple[str, str], Any]:
    operators = inspect(location)["operators"]
    return {(operator["name"], state["name"]): state for operator in operators for state in operator["states"]}


def test_only_savepoints_are_disposed_of(tmp_path: Path) -> None:
    job = begun(tmp_path)
    ask(job)
    location = Path(until_done(job))
    checkpoint = next((tmp_path / "checkpoints").rglob("chk-*/_metadata")).parent
    with pytest.raises(ConfigurationError, match="and no savepoint: nothing was removed"):
        savepoint_places.dispose(str(checkpoint))
    (location / "of somebody else").touch()
    savepoint_places.dispose(str(location))
    assert [path.name for path in location.iterdir()] == ["of somebody else"]
    job.to_end()

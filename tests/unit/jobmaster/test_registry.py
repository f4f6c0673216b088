from __future__ import annotations

import json
from pathlib import Path

import pytest

from firesteel.core.process import ProcessId
from firesteel.protocol import messages as m
from firesteel_jobmaster.registry import ProcessRegistry, RegisteredProcess

JOB = "ab" * 16


def entry(job_id: str = JOB, token: str = "tok") -> RegisteredProcess:
    start = m.StartJob({"job_id": job_id}, "http://d", "dt", "http://rm", "http://b")
    return RegisteredProcess(job_id, ProcessId(12, 345), "http://jm", token, start)


def test_what_is_written_is_read_again_by_nobody_else(tmp_path: Path) -> None:
    registry = ProcessRegistry(tmp_path / "cluster")
    registry.write(entry())
    registry.write(entry(token="newer"))
    assert registry.read(JOB) == entry(token="newer")
    assert ProcessRegistry(tmp_path / "cluster").read_all() == [entry(token="newer")]
    (file,) = registry.folder.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    assert registry.folder.stat().st_mode & 0o777 == 0o700
    assert registry.has(JOB)
    registry.remove(JOB)
    registry.remove(JOB)
    assert not registry.has(JOB)
    assert registry.read(JOB) is None


def test_tokens_are_not_shown() -> None:
    assert "tok" not in repr(entry())


@pytest.mark.parametrize(
    "damage",
    [
        lambda plain: "{half",
        lambda plain: "[]",
        lambda plain: json.dumps({**plain, "process": {"pid": "many", "start": 1}}),
        lambda plain: json.dumps({**plain, "token": 7}),
        lambda plain: json.dumps({**plain, "start": {}}),
        lambda plain: json.dumps({**plain, "job_id": "cd" * 16}),
        lambda plain: json.dumps({k: v for k, v in plain.items() if k != "address"}),
    ],
)
def test_a_damaged_file_is_set_aside_and_hurts_no_other(tmp_path: Path, damage: object) -> None:
    assert callable(damage)
    registry = ProcessRegistry(tmp_path)
    registry.write(entry())
    registry.write(entry("ef" * 16))
    path = registry.folder / f"{JOB}.json"
    path.write_text(damage(entry().to_plain()))
    assert registry.read_all() == [entry("ef" * 16)]
    assert not path.exists()
    assert path.with_suffix(".json.corrupt").exists()
    assert registry.read_all() == [entry("ef" * 16)]


def test_a_file_that_could_not_be_written_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = ProcessRegistry(tmp_path)
    registry.write(entry())

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        registry.write(entry(token="newer"))
    assert registry.read_all() == [entry()]
    assert len(list(registry.folder.iterdir())) == 1

"""``firesteel restart`` stops a job before it runs the program; if no job goes on then, that is said and no success."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from firesteel.client.cli import exit_codes, restart, savepoints
from firesteel.client.cli.arguments import parser
from firesteel.client.cli.main import main
from firesteel.client.console import Console
from firesteel.core.ids import JobId
from firesteel.core.running_clusters import RunningCluster

JOB = "ab" * 16
AGAIN = "firesteel run -s /sp/1 -n {program} 'two words'"


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FIRESTEEL_DEFINITIONS", "FIRESTEEL_CONF_DIR"):
        monkeypatch.setenv(name, "")
    monkeypatch.setattr("firesteel.client.cli.local_cluster.running_clusters", list)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.setattr(restart, "connect", lambda settings: None)
    monkeypatch.setattr(restart, "stopped", lambda *arguments: ("Savepoint completed.", {"location": "/sp/1"}))


def restarted(folder: Path, program: str) -> tuple[int, str]:
    """The exit code, and the command that goes on from the savepoint."""
    file = folder / "program.py"
    file.write_text(program)
    words = ["restart", "-n", JOB, str(file), "two words"]
    try:
        code = main(words)
    except SystemExit as leave:
        code = int(leave.code or 0)
    return code, AGAIN.format(program=file)


@pytest.mark.parametrize(
    ("program", "code"),
    [
        ("", exit_codes.FAILED),
        ("import sys; sys.exit(2)", 2),
        ("import no_such_module", exit_codes.FAILED),
        ("raise KeyboardInterrupt", exit_codes.INTERRUPTED),
    ],
    ids=["no job", "its arguments", "an error", "Ctrl-C"],
)
def test_a_program_that_submits_nothing_leaves_no_job_and_says_how_to_go_on(
    program: str, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result, again = restarted(tmp_path, program)
    assert result == code
    said = capsys.readouterr().err
    assert f"job {JOB} is stopped, and no job goes on in its place" in said
    assert said.endswith(f"{again}\n")


@pytest.mark.parametrize("end", ["", "raise KeyboardInterrupt", "raise ValueError"])
def test_a_job_that_was_submitted_is_not_to_be_started_a_second_time(
    end: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = f"from firesteel.client.context import current\ncurrent().submitted.append('cd')\n{end}\n"
    code, _ = restarted(tmp_path, program)
    assert (code == exit_codes.DONE) is (end == "")
    assert "firesteel run -s" not in capsys.readouterr().err


def test_users_who_stop_waiting_for_a_stop_hear_that_it_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Cluster:
        def __getattr__(self, name: str) -> Any:
            return self if name == "rest" else lambda *arguments, **keywords: name

    def wait_for(console: Console, connection: Cluster, what: str, request: str) -> None:
        if request == "savepoint_location":
            raise KeyboardInterrupt

    monkeypatch.setattr(savepoints, "wait_for", wait_for)
    with pytest.raises(KeyboardInterrupt):
        savepoints.stopped(parser().parse_args(["stop", JOB]), Console(), Cluster(), JobId(JOB))  # type: ignore[arg-type]
    assert f"the cluster goes on with what it was asked to do to job {JOB}" in capsys.readouterr().err


def test_where_several_clusters_run_each_is_named_by_its_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its ``config.yaml`` may have the address of the other one: a port on the command line goes before it."""
    clusters = []
    for port in (8081, 45881):
        (tmp_path / str(port)).mkdir()
        (tmp_path / str(port) / "config.yaml").write_text("rest.port: 8081\n")
        clusters.append(RunningCluster(tmp_path / str(port), f"http://localhost:{port}"))
    monkeypatch.setattr("firesteel.client.cli.local_cluster.running_clusters", lambda: clusters)
    assert main(["list"]) == exit_codes.WRONG
    said = capsys.readouterr().err
    assert f"-m localhost:8081 ({tmp_path}/8081), or -m localhost:45881 ({tmp_path}/45881)" in said

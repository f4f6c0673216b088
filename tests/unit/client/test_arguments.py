"""From the command line to settings."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from firesteel.client.cli import exit_codes
from firesteel.client.cli.arguments import parser
from firesteel.client.cli.definitions import settings_of, settings_of_run, settings_of_upgrade, state_recovery
from firesteel.client.cli.local_cluster import use_local_cluster
from firesteel.client.cli.main import main
from firesteel.client.console import Console
from firesteel.config import options
from firesteel.config.definitions import handed_on
from firesteel.config.settings import Settings
from firesteel.core.errors import ConfigurationError
from firesteel.core.running_clusters import RunningCluster
from firesteel_dispatcher import standalone_job


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FIRESTEEL_DEFINITIONS", "FIRESTEEL_CONF_DIR"):
        monkeypatch.setenv(name, "")
    monkeypatch.setattr("firesteel.client.cli.local_cluster.running_clusters", list)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", list(sys.argv))


def run_settings(*words: str) -> Settings:
    return settings_of_run(parser().parse_args(["run", *words, "program.py"]))


def test_what_follows_the_program_is_the_programs() -> None:
    parsed = parser().parse_args(["run", "-py", "-p", "3", "program.py", "-d", "-p", "7", "--help"])
    assert (parsed.program, parsed.parallelism, parsed.detached) == ("program.py", 3, False)
    assert parsed.arguments == ["-d", "-p", "7", "--help"]


def test_a_run_is_attached_and_remote_unless_somebody_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = run_settings()
    assert settings.get(options.EXECUTION_TARGET) == "remote"
    assert settings.get(options.EXECUTION_ATTACHED)
    assert not settings.get(options.EXECUTION_SHUTDOWN_ON_ATTACHED_EXIT)
    assert not run_settings("-d").get(options.EXECUTION_ATTACHED)
    assert run_settings("-t", "local").get(options.EXECUTION_TARGET) == "local"
    assert run_settings("-Dexecution.target=local").get(options.EXECUTION_TARGET) == "local"
    monkeypatch.setenv("FIRESTEEL_OPTION_EXECUTION_TARGET", "local")
    assert run_settings().get(options.EXECUTION_TARGET) == "local"
    assert run_settings("-t", "remote").get(options.EXECUTION_TARGET) == "remote"


def test_options_become_settings_that_the_program_inherits() -> None:
    settings = run_settings("-m", "there:9081", "-p", "3", "-pyfs", "a.py,b.zip", "-sae", "-Drest.port=1", "-D", "a=b")
    assert settings.get(options.REST_ADDRESS) == "there"
    assert settings.get(options.REST_PORT) == 9081
    assert settings.get(options.PARALLELISM_DEFAULT) == 3
    assert settings.get(options.PYTHON_FILES) == "a.py,b.zip"
    assert settings.get(options.EXECUTION_SHUTDOWN_ON_ATTACHED_EXIT)
    assert set(settings.layers().values()) == {"command line"}
    assert "rest.address=there" in handed_on()


@pytest.mark.parametrize("text", ["there", "there:", ":8081", "there:port", "a@there:1", "there:1/x"])
def test_a_malformed_address_is_named(text: str) -> None:
    with pytest.raises(ConfigurationError, match=f"-m {text}: expected host:port"):
        settings_of(parser().parse_args(["list", "-m", text]))


def test_addresses_in_brackets_and_urls_are_read() -> None:
    settings = settings_of(parser().parse_args(["list", "-m", "[::1]:9081"]))
    assert (settings.get(options.REST_ADDRESS), settings.get(options.REST_PORT)) == ("::1", 9081)
    settings = settings_of(parser().parse_args(["list", "-m", "http://there:9081/"]))
    assert (settings.get(options.REST_ADDRESS), settings.get(options.REST_PORT)) == ("there", 9081)


def test_the_config_dir_goes_before_the_environments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.yaml").write_text("taskmanager.memory.process.size: 3 gb\n")
    assert main(["memory", "--config-dir", str(tmp_path)]) == exit_codes.DONE
    assert os.environ["FIRESTEEL_CONF_DIR"] == str(tmp_path)
    assert "3,072 MiB" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["memory", "--config-dir", "nowhere"], "nowhere: there is no config.yaml in it"),
        (["run", "nowhere.py"], "'nowhere.py' is not a file"),
        (["list", "-Drest.port=x"], "rest.port = 'x'"),
        (["list", "-Dx"], "expected -Dkey=value"),
        (["cancel"], "name the job"),
        (["restart", "x", "nowhere.py"], "'nowhere.py' is not a file"),
        (["savepoint"], "name the job"),
        (["savepoint", "inspect", "ftp://x/y"], "not of ftp://"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == exit_codes.WRONG
    shown = capsys.readouterr().err
    assert said in shown
    assert "Traceback" not in shown


def test_the_cluster_that_is_used_is_named_as_a_shell_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "a cluster #1"
    folder.mkdir()
    (folder / "config.yaml").touch()
    clusters = [RunningCluster(folder, "http://127.0.0.1:1")]
    monkeypatch.setattr("firesteel.client.cli.local_cluster.running_clusters", lambda: clusters)
    use_local_cluster(parser().parse_args(["list"]), Console())
    words = shlex.split(capsys.readouterr().err.splitlines()[0])
    assert words[-2:] == ["--config-dir", str(folder)]


def test_a_misspelt_option_of_flinks_is_named_with_its_neighbour(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["memory", "-Dtaskmanager.memory.procss.size=2g"]) == exit_codes.WRONG
    said = capsys.readouterr().err
    assert "taskmanager.memory.procss.size (from command line; did you mean taskmanager.memory.process.size" in said
    assert "is not configured" in said


def test_a_reader_that_leaves_early_gets_no_traceback() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "firesteel", "memory", "-Dtaskmanager.memory.process.size=2g"]
    try:
        ended = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True)
    finally:
        os.close(writer)
    assert (ended.returncode, ended.stderr) == (exit_codes.FAILED, "")


def test_an_unknown_verb_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ran"]) == exit_codes.WRONG
    assert capsys.readouterr().err == (
        "firesteel: there is no verb 'ran'. Do you mean `firesteel run`? `firesteel --help` lists them\n"
    )


def test_a_program_that_is_no_python_shows_nothing_of_ours(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "program.py").write_text("def f(:\n")
    assert main(["info", str(tmp_path / "program.py")]) == exit_codes.FAILED
    shown = capsys.readouterr().err.splitlines()
    assert shown[0] == f'  File "{tmp_path}/program.py", line 1'
    assert shown[-1] == "SyntaxError: invalid syntax"


PLAN = """
from firesteel.datastream import StreamExecutionEnvironment
env = StreamExecutionEnvironment.get_execution_environment()
env.from_sequence(1, 9).key_by(lambda i: i).map(str).set_parallelism(2).print()
"""


def test_info_shows_the_plan_and_runs_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = tmp_path / "program.py"
    program.write_text(PLAN + "env.execute('planned')\nprint('not reached')\n")
    assert main(["info", "-p", "3", str(program)]) == exit_codes.DONE
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Job 'planned': 3 tasks, 3 slots"
    assert [line.split()[0] for line in lines[2:]] == ["#", "1", "2", "3"]
    assert "1 HASH" in lines[4]
    assert "2 REBALANCE" in lines[5]
    assert main(["info", "--json", str(program)]) == exit_codes.DONE
    assert '"type": "Source: Sequence Source"' in capsys.readouterr().out


def test_info_says_when_there_is_no_job_or_the_program_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "program.py"
    program.write_text(PLAN)
    assert main(["info", str(program)]) == exit_codes.FAILED
    assert "executes no job" in capsys.readouterr().err
    program.write_text("def fail():\n    return 1 // 0\n\n\nfail()\n")
    assert main(["info", str(program)]) == exit_codes.FAILED
    shown = capsys.readouterr().err
    assert shown.startswith("Traceback")
    assert "ZeroDivisionError" in shown
    assert "runpy" not in shown


def test_the_commands_of_the_page_about_yarn_are_understood() -> None:
    page = (Path(__file__).parents[3] / "docs" / "yarn.md").read_text()
    blocks = re.findall(r"^```sh\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    commands = [line for block in blocks for line in block.replace("\\\n", " ").strip().splitlines()]
    assert len(commands) >= 6
    for command in commands:
        name, *words = shlex.split(command)
        assert name == "firesteel"
        parsed = parser().parse_args(words)
        settings_of(parsed).check()


@pytest.mark.parametrize(
    "words",
    [["-s", "/there", "program.py", "more"], ["program.py", "-s", "/there", "more"],
     ["program.py", "more", "--fromSavepoint", "/there"]],
)  # fmt: skip
def test_the_savepoint_of_an_upgrade_may_stand_behind_the_program(words: list[str]) -> None:
    parsed = parser().parse_args(["upgrade", "--dry-run", *words])
    assert settings_of_upgrade(parsed).get(options.STATE_RECOVERY_PATH) == "/there"
    assert (parsed.program, parsed.arguments) == ("program.py", ["more"])


def test_an_upgrade_without_a_savepoint_is_refused() -> None:
    parsed = parser().parse_args(["upgrade", "--dry-run", "program.py", "-s"])
    with pytest.raises(ConfigurationError, match="Say it with -s PATH"):
        settings_of_upgrade(parsed)


@pytest.mark.parametrize(
    ("path", "uri"),
    [("chk-7", str(Path.cwd() / "chk-7")), ("/a/chk-7", "/a/chk-7"), ("s3://b/chk-7", "s3://b/chk-7")],
)
def test_what_a_program_goes_on_from_is_found_from_everywhere(path: str, uri: str) -> None:
    """Services have other working directories."""
    expected = [f"execution.state-recovery.path={uri}", "execution.state-recovery.ignore-unclaimed-state=true"]
    assert state_recovery(parser().parse_args(["run", "-n", "-s", path, "p.py"])) == expected
    assert set(expected) <= set(standalone_job.definitions_of(standalone_job.parser().parse_args(
        ["-n", "-s", path, "-py", __file__]
    )))  # fmt: skip
    mode = state_recovery(parser().parse_args(["run", "-s", path, "-claim", "claim", "p.py"]))
    assert mode == [expected[0], "execution.state-recovery.claim-mode=CLAIM"]
    assert state_recovery(parser().parse_args(["run", "p.py"])) == []

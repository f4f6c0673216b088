"""Flags of ``flink`` that are refused, completion, and the page of the command line."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from firesteel.client.cli import completion, exit_codes, targets
from firesteel.client.cli.arguments import APPLICATION_TARGETS, CLUSTER_TARGETS, SESSION_TARGETS, parser
from firesteel.client.cli.definitions import read
from firesteel.client.cli.main import PLUGIN_VERBS, TWO_WORDS, VERBS, main
from firesteel.client.cli.reference import page
from firesteel.client.loop_thread import LoopThread
from firesteel.core.errors import JobNotFoundError, PeerUnreachableError
from firesteel.core.plugins import import_target, known_names
from firesteel.core.secret import rest_token

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "-c", "org.Main", "x.jar"], "-c is not supported: Java programs"),
        (["run", "--classpath", "x", "p.py"], "--classpath is not supported"),
        (["info", "-j", "x.jar"], "-j is not supported"),
        (["run", "-pypath", "x", "p.py"], "use -pyfs"),
        (["run", "-yjm", "1g", "p.py"], "YARN"),
        (["run", "-t", "yarn-per-job", "p.py"], "yarn-per-job: that target is gone"),
        (["run", "-t", "kubernetes-per-job", "p.py"], "is none of: local, remote, kubernetes-session, yarn-session"),
        (["run", "-t", "moon", "p.py"], "'moon' is none of: local, remote, kubernetes-session, yarn-session"),
        (["list", "-t", "local"], "'local' is none of: remote"),
        (["list", "-z", "x"], "-z is not supported: say which cluster"),
        (["savepoint", "-j", "x", "7"], "no program is needed"),
        (["logs", "-n", "-5", "x"], "number of lines"),
        (["top", "-i", "0"], "no number of seconds"),
    ],
)
def test_what_flink_has_and_we_have_not_is_refused_by_name(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == exit_codes.WRONG
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "--detach", "p.py"], "firesteel run: there is no option --detach. Do you mean --detached?"),
        (["savepoint", "--typ=native"], "firesteel savepoint: there is no option --typ. Do you mean --type?"),
        (["list", "--qqqq"], "firesteel list: there is no option --qqqq. `firesteel list --help` tells more"),
        (["list", "x"], "firesteel list: 'x' is one word too many."),
        (["run"], "firesteel run: the following arguments are required: program.py."),
        (["--versio"], "firesteel: there is no option --versio. Do you mean --version?"),
    ],
)
def test_a_word_that_is_not_known_is_answered_in_one_line_by_its_verb(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == exit_codes.WRONG
    shown = capsys.readouterr()
    assert shown.err.startswith(said)
    assert (shown.out, shown.err.count("\n")) == ("", 1)


def test_the_command_alone_lists_its_verbs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == exit_codes.WRONG
    assert {"run", "list", "cancel"} <= {line.split()[0] for line in capsys.readouterr().err.splitlines() if line}


def test_the_package_runs_as_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "firesteel", "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stdout.split()[0]) == (0, "firesteel")


def test_with_json_the_first_line_of_standard_output_is_the_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("firesteel.client.cli.local_cluster.running_clusters", list)
    monkeypatch.setenv("FIRESTEEL_DEFINITIONS", "")  # the command hands its own on to the program
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.setattr(sys, "path", list(sys.path))
    program = tmp_path / "submits.py"
    program.write_text(
        "from firesteel.client.context import current\ncurrent().console.say('Job has been submitted')\n"
    )
    assert main(["run", "-d", "--json", str(program)]) == exit_codes.DONE
    shown = capsys.readouterr()
    assert json.loads(shown.out) == {"jobs": [], "running": []}
    assert "Job has been submitted" in shown.err


def test_verbs_of_flink_are_refused_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["modify", "x"]) == exit_codes.WRONG
    assert "a running job can't be rescaled" in capsys.readouterr().err


def test_python_options_become_settings() -> None:
    words = ["run", "-pyreq", "r.txt", "-pyarch", "a.zip#d", "-pyexec", "/opt/python", "p.py"]
    assert read(parser().parse_args(words)) == [
        "python.requirements=r.txt", "python.archives=a.zip#d", "python.executable=/opt/python",
    ]  # fmt: skip


def test_errors_are_json_where_somebody_asks_for_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("firesteel.client.cli.local_cluster.running_clusters", list)
    assert main(["cancel", "--json"]) == exit_codes.WRONG
    shown = capsys.readouterr()
    assert json.loads(shown.out) == {"error": shown.err.strip().partition(": ")[2], "exit-code": exit_codes.WRONG}
    assert main(["memory", "--json", "-Dtaskmanager.memory.process.size=2g"]) == exit_codes.DONE
    assert json.loads(capsys.readouterr().out)["totalProcessMemory"] == 2 << 30


def test_a_module_is_run_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    package = tmp_path / "pack_of_test_cli"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "part.py").write_text("NAME = 'planned by module'\n")
    (package / "job.py").write_text(
        "from .part import NAME\nfrom firesteel.datastream import StreamExecutionEnvironment\n"
        "env = StreamExecutionEnvironment.get_execution_environment()\nenv.from_sequence(1, 2).print()\n"
        "env.execute(NAME)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.setenv("FIRESTEEL_DEFINITIONS", "")
    assert main(["info", "-pym", "pack_of_test_cli.job"]) == exit_codes.DONE
    assert "planned by module" in capsys.readouterr().out
    assert main(["info", "-pym", "pack_of_test_cli.nothing"]) == exit_codes.WRONG
    assert "no such module" in capsys.readouterr().err


def test_programs_and_who_asks_a_cluster_and_who_starts_slots_import_nothing_of_what_slots_do() -> None:
    verbs = ", ".join(f"firesteel.client.cli.{name}" for name in ("main", "jobs", "programs", "savepoints", "logs"))
    names = ("dispatcher", "resourcemanager", "jobmaster", "taskmanager")
    services = ", ".join(f"firesteel_{name}.__main__" for name in names)
    program = (
        f"import sys, firesteel.datastream, {verbs}, {services}\n"
        "found = [m for m in sys.modules if m.startswith(('numpy', 'pyarrow', 'pyspark', 'firesteel.runtime.task'))]\n"
        "sys.exit(' '.join(found) or None)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_verb_of_two_words_is_named_as_it_was_typed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["savepoint", "inspect", str(tmp_path / "nothing")]) == exit_codes.FAILED
    assert capsys.readouterr().err.startswith("firesteel savepoint inspect: ")


def test_every_verb_has_its_function() -> None:
    assert set(PLUGIN_VERBS) == known_names("firesteel.commands")
    assert {*APPLICATION_TARGETS} == known_names(targets.APPLICATIONS)
    assert {*SESSION_TARGETS, *CLUSTER_TARGETS} - {"local", "remote"} == known_names(targets.SESSIONS)
    assert all(callable(import_target(f"firesteel.client.cli.{function}")) for function in VERBS.values())


COMPLETED_LINES = """
import io, json, os, sys
from firesteel.client.cli.arguments import parser
from firesteel.client.cli.completion import complete
def ends(code):
    raise InterruptedError
answers = []
for line in json.load(sys.stdin):
    os.environ |= {"_ARGCOMPLETE": "1", "_ARGCOMPLETE_IFS": chr(10), "COMP_LINE": line, "COMP_POINT": str(len(line))}
    answer = io.StringIO()
    try:
        complete(parser(), answer, ends)
    except InterruptedError:
        answers.append([word.rstrip() for word in answer.getvalue().split(chr(10)) if word])
print(json.dumps(answers), flush=True)
os._exit(0)
"""


def completed(*lines: str) -> list[list[str]]:
    """What a shell hears for lines with the cursor at their end. In a process: argcomplete closes its descriptor 9."""
    done = subprocess.run(
        [sys.executable, "-c", COMPLETED_LINES], input=json.dumps(lines), capture_output=True, text=True, check=True
    )
    answers: list[list[str]] = json.loads(done.stdout)
    return answers


def test_a_shell_completes_verbs_options_and_values(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("")
    offered = {
        "firesteel ca": ["cancel"],
        "firesteel list --j": ["--json", "--jobmanager"],
        "firesteel savepoint --format N": ["NATIVE"],
        "firesteel completion z": ["zsh"],
        "firesteel run -t l": ["local"],
        "firesteel logs job": ["jobmanager"],
        "firesteel run -D state.backend.t": ["state.backend.type="],
        "firesteel run -D execution.checkpointing.mode=EX": ["execution.checkpointing.mode=EXACTLY_ONCE"],
        "firesteel run -D pipeline.object-reuse=t": ["pipeline.object-reuse=true"],
        "firesteel run -D jobmanager.rpc.address=": [],
        f"firesteel run {tmp_path}/prog": [str(program)],
        f"firesteel list --config-dir {tmp_path}/p": [str(program)],
        f"firesteel list -m {tmp_path}/p": [],  # an address is no file
    }
    *answers, verbs, options = completed(*offered, "firesteel ", "firesteel run -")
    assert dict(zip(offered, answers, strict=True)) == offered
    assert set(verbs) == {*VERBS, *PLUGIN_VERBS, "--help", "--version"} - {*TWO_WORDS}
    assert "--detached" in options
    assert not {"-c", "--class", "-z"} & set(options), "what is refused"


def values_of(action: argparse.Action, parsed: argparse.Namespace) -> list[str]:
    return list(completion.ValuesCompleter()(prefix="", action=action, parser=parser(), parsed_args=parsed))


def test_ids_of_jobs_that_go_on_are_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completion, "_ask", lambda ask, parsed: {parsed.verb: ""})
    parsed = argparse.Namespace(verb="of this verb's cluster")
    job = argparse.Action([], "job", metavar="JOB")
    owner = argparse.Action([], "owner", metavar="JOB|TASKMANAGER|jobmanager")
    assert values_of(job, parsed) == ["of this verb's cluster"]
    assert values_of(owner, parsed) == ["jobmanager", "of this verb's cluster"]


class Cluster:
    """Answers that a cluster gives to questions of the shell."""

    def __init__(self, jobs: list[tuple[str, str, str]], checkpoints: Mapping[str, Any] | None = None) -> None:
        self.jobs, self.checkpoints = jobs, checkpoints or {}

    async def get(self, path: str) -> Any:
        if path == "/jobs/overview":
            names = ("jid", "name", "state")
            return {"jobs": [{**dict(zip(names, job, strict=True)), "start-time": 0} for job in self.jobs]}
        answer = self.checkpoints[path.split("/")[2]]
        if isinstance(answer, Exception):
            raise answer
        return {"history": answer}


def offered_by(monkeypatch: pytest.MonkeyPatch, cluster: Any, verb: str, action: argparse.Action) -> dict[str, str]:
    """What a shell offers for a word of a verb, with this cluster."""
    loop = LoopThread("test")
    connection = SimpleNamespace(loop=loop, rest=cluster)
    monkeypatch.setattr("firesteel.client.connections.connect", lambda settings: connection)
    monkeypatch.setattr("firesteel.client.cli.definitions.settings_of", lambda parsed: None)
    monkeypatch.setattr(completion, "_ANSWER_SECONDS", 20)
    monkeypatch.setenv("FIRESTEEL_CONF_DIR", "/")
    parsed = argparse.Namespace(verb=verb, config_dir="/")
    try:
        return completion.ValuesCompleter()(prefix="/nothing", action=action, parser=parser(), parsed_args=parsed)
    finally:
        loop.close()


def test_names_and_ids_of_jobs_are_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(
        [
            ("a1", "orders", "RUNNING"), ("a2", "twice", "RUNNING"), ("a3", "twice", "RESTARTING"),
            ("a4", "old", "FINISHED"), ("a5", "-D", "RUNNING"), ("a6", "\x1b[2J", "RUNNING"),
        ]
    )  # fmt: skip
    job = argparse.Action([], "jobs", metavar="JOB")
    running = offered_by(monkeypatch, cluster, "cancel", job)
    assert running == {
        "orders": "a1", "a1": "orders (RUNNING)", "a2": "twice (RUNNING)", "a3": "twice (RESTARTING)",
        "a5": "-D (RUNNING)", "a6": "?[2J (RUNNING)",
    }  # fmt: skip
    assert {*offered_by(monkeypatch, cluster, "show", job)} - {*running} == {"old", "a4"}


def test_savepoints_are_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    done = {"status": "COMPLETED", "is_savepoint": True, "discarded": False}
    history = [
        {**done, "external_path": "/s/savepoint-1"},
        {**done, "external_path": "/s/chk-7/_metadata", "is_savepoint": False},
        {**done, "external_path": "/s/chk-6", "discarded": True},
        {"status": "FAILED", "is_savepoint": True},
        {**done, "external_path": ""},
    ]
    jobs = [("a1", "orders", "RUNNING"), ("a2", "gone", "FAILED")]
    cluster = Cluster(jobs, {"a1": history, "a2": JobNotFoundError("gone")})
    paths = {"/s/savepoint-1": "savepoint of orders", "/s/chk-7": "checkpoint of orders"}
    for destination in ("restore_path", "path"):
        action = argparse.Action([], destination, metavar="PATH")
        assert offered_by(monkeypatch, cluster, "run", action) == paths
    removed = offered_by(monkeypatch, cluster, "savepoint", argparse.Action([], "dispose", metavar="PATH"))
    assert removed == {"/s/savepoint-1": "savepoint of orders"}, "a checkpoint belongs to its job"
    assert offered_by(monkeypatch, cluster, "run", argparse.Action([], "config_dir", metavar="PATH")) == {}


@pytest.mark.parametrize("answer", [None, {"jobs": [{}]}, PeerUnreachableError("no")])
def test_a_cluster_with_another_answer_is_silence(monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
    class Odd:
        async def get(self, path: str) -> Any:
            if isinstance(answer, Exception):
                raise answer
            return answer

    assert offered_by(monkeypatch, Odd(), "cancel", argparse.Action([], "jobs", metavar="JOB")) == {}


def test_a_cluster_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = threading.Event()
    monkeypatch.setattr(completion, "_ANSWER_SECONDS", 0.01)
    monkeypatch.setattr(completion, "_ask", lambda ask, parsed: {str(answers.wait()): ""})
    job = argparse.Action([], "job", metavar="JOB")
    assert values_of(job, argparse.Namespace()) == []
    answers.set()


def test_bash_asks_the_command(tmp_path: Path) -> None:
    """With the script that is printed for it."""
    command = tmp_path / "firesteel"
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m firesteel "$@"\n')
    command.chmod(0o755)
    code = (
        'eval "$(firesteel completion bash)"; COMP_WORDS=(firesteel ca); COMP_CWORD=1; COMP_LINE="firesteel ca"; '
        'COMP_POINT=12; COMP_TYPE=9; $(complete -p firesteel | sed "s/.*-F \\([^ ]*\\).*/\\1/") firesteel; '
        'echo "${COMPREPLY[@]}"'
    )
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    bash = shutil.which("bash")
    assert bash is not None
    done = subprocess.run([bash, "-c", code], capture_output=True, text=True, env=environment)
    assert (done.stdout.split(), done.stderr) == (["cancel"], "")


@pytest.mark.parametrize(("shell", "words"), [("zsh", "compdef"), ("fish", "complete --command firesteel")])
def test_other_shells_have_scripts_too(shell: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == exit_codes.DONE
    assert words in capsys.readouterr().out


def test_the_page_of_the_command_line_is_up_to_date() -> None:
    shown = (ROOT / "docs" / "cli.md").read_text()
    assert page(shown) == shown, "run: python -m firesteel.client.cli.reference docs/cli.md"


def test_the_token_is_that_of_the_file_or_is_made_from_the_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    secret, token = "s" * 40, "t" * 40
    (tmp_path / "config.yaml").write_text("{}\n")
    monkeypatch.setenv("FIRESTEEL_CONF_DIR", str(tmp_path))
    assert main(["token"]) == exit_codes.WRONG
    assert "--config-dir" in capsys.readouterr().err
    for name, text in (("cluster-secret", secret), ("rest-token", token)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o600)
    assert main(["token"]) == exit_codes.DONE
    assert capsys.readouterr().out == f"{rest_token(secret)}\n"
    assert main(["token", "--json", "-D", "firesteel.rest.token-file=rest-token"]) == exit_codes.DONE
    assert json.loads(capsys.readouterr().out) == {"token": token}

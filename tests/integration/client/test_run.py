"""``firesteel run`` and its sisters against a cluster that is not the program's own."""

from __future__ import annotations

import os
import re
import signal
import socket
import sys
from pathlib import Path

import pytest

from firesteel.core import process
from tests.integration.client.conftest import Remote
from tests.integration.embedded.programs import program

pytestmark = pytest.mark.timeout(400)
COMMAND = ["-m", "firesteel"]
HEAD = """
import sys
from firesteel.common import Configuration, WatermarkStrategy
from firesteel.datastream import StreamExecutionEnvironment
from firesteel.datastream.connectors.data_generator import DataGeneratorSource, RateLimiterStrategy

env = StreamExecutionEnvironment.get_execution_environment()
"""
ENDLESS = """
source = DataGeneratorSource(lambda i: i, None, RateLimiterStrategy.per_second(1_000))
numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
numbers.filter(lambda i: i < 0).print()
env.execute("endless")
"""
BESIDE = """
import lazily


class Doubler:
    def __call__(self, i):
        from pack.deep import plus_one

        return lazily.twice(plus_one(i))
"""
SHIPS = (
    HEAD
    + """
from beside import Doubler

assert env.get_parallelism() == 1
stream = env.from_collection([1, 2, 3]).map(Doubler())
if sys.argv[1:] == ["print"]:
    stream.print()
    print("net runtime", env.execute("printing").get_net_runtime() >= 0)
else:
    with stream.execute_and_collect("collecting") as results:
        print(sorted(results), sys.argv[1:])
"""
)


def command(folder: Path, *words: str, **more: str):  # type: ignore[no-untyped-def]
    """The command in a process of its own."""
    return program(folder, *COMMAND, *words, **more)


def job_id_in(text: str) -> str:
    """The id that the command prints."""
    match = re.search(r"Job has been submitted with JobID ([0-9a-f]{32})", text)
    assert match, text
    return match[1]


def with_modules(folder: Path) -> None:
    (folder / "beside.py").write_text(BESIDE)
    (folder / "lazily.py").write_text("def twice(i):\n    return 2 * i\n")
    (folder / "pack").mkdir()
    (folder / "pack" / "__init__.py").write_text("")
    (folder / "pack" / "deep.py").write_text("def plus_one(i):\n    return i + 1\n")
    (folder / "program.py").write_text("import pack\n" + SHIPS)


@pytest.mark.smoke
def test_results_come_back_and_modules_beside_the_program_travel(folder: Path, remote: Remote) -> None:
    with_modules(folder)
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    path = str(folder / "program.py")
    with program(folder, *COMMAND, "run", *remote.options, path, "a", "-b", cwd=elsewhere) as run:
        assert run.end() == 0, run.err
    assert "[4, 6, 8] ['a', '-b']\n" in run.out
    job = job_id_in(run.out)
    remote.until_state(job, "FINISHED")
    assert "Traceback" not in run.err


def test_an_attached_run_tells_how_it_went_and_where_prints_go(folder: Path, remote: Remote) -> None:
    with_modules(folder)
    with command(folder, "run", *remote.options, "program.py", "print") as run:
        assert run.end() == 0, run.err
    job = job_id_in(run.out)
    assert run.out.splitlines()[1:] == [
        f"Job with JobID {job} has finished.",
        run.out.splitlines()[2],
        "net runtime True",
    ]
    assert re.fullmatch(r"Job Runtime: \d+ ms", run.out.splitlines()[2])
    assert run.err.count("print() writes to the standard output of the TaskManagers") == 1
    assert "printing: " in run.err or remote.get(f"/jobs/{job}")["duration"] < 1000
    assert "\x1b" not in run.err


def test_a_missing_module_is_named_with_what_to_do_and_shipping_it_helps(folder: Path, remote: Remote) -> None:
    library = folder / "library"
    library.mkdir()
    (library / "far_away.py").write_text("def triple(i):\n    return 3 * i\n")
    (folder / "program.py").write_text(
        HEAD + "import far_away\nprint(list(env.from_collection([7]).map(far_away.triple).execute_and_collect()))\n"
    )
    with command(folder, "run", *remote.options, "program.py", PYTHONPATH=str(library)) as run:
        assert run.end() == 1
    assert "no module 'far_away': install it" in run.err, run.err
    assert "env.add_python_file(...) or `firesteel run -pyfs far_away.py`" in run.err
    with command(folder, "run", *remote.options, "-pyfs", "library/far_away.py", "program.py") as run:
        assert run.end() == 0, run.err
    assert "[21]" in run.out


def test_a_module_that_is_imported_late_is_named_too_and_may_be_added_by_the_program(
    folder: Path, remote: Remote
) -> None:
    (folder / "late.py").write_text("def triple(i):\n    return 3 * i\n")
    late = "def triple(i):\n    import late\n    return late.triple(i)\n"
    rest = "print(list(env.from_collection([7]).map(triple).execute_and_collect()))\n"
    (folder / "program.py").write_text(HEAD + late + rest)
    with command(folder, "run", *remote.options, "program.py") as run:
        assert run.end() == 1
    assert "slots find no module 'late': install it" in run.err, run.err
    (folder / "program.py").write_text(HEAD + late + "env.add_python_file('late.py')\n" + rest)
    with command(folder, "run", *remote.options, "program.py") as run:
        assert run.end() == 0, run.err
    assert "[21]" in run.out


def test_detached_it_prints_the_id_and_leaves_and_list_and_cancel_do_the_rest(folder: Path, remote: Remote) -> None:
    text = HEAD.replace("environment()", "environment(Configuration().set_string('pipeline.name', 'named'))") + ENDLESS
    (folder / "program.py").write_text(text)
    (folder / "config.yaml").write_text("parallelism.default: 1\nexecution.buffer-timeout.interval: 5 ms\n")
    options = ["--config-dir", ".", "-Dexecution.buffer-timeout.interval=7 ms"]
    with command(folder, "run", "-d", *options, *remote.options, "program.py") as run:
        assert run.end() == 0, run.err
    job = job_id_in(run.out)
    try:
        remote.until_state(job, "RUNNING")
        shown = {
            row["key"]: (row["value"], row["origin"]) for row in remote.get(f"/jobs/{job}/config")["firesteel-config"]
        }
        assert shown["execution.buffer-timeout.interval"] == ("7 ms", "command line")
        assert shown["parallelism.default"] == ("1", str(folder / "config.yaml"))
        assert shown["pipeline.name"] == ("named", "program")
        assert shown["execution.attached"] == ("false", "command line")
        assert shown["pipeline.max-parallelism"] == ("-1", "default")
        with command(folder, "list", "-r", *remote.options) as shown:
            assert shown.end() == 0, shown.err
        assert re.search(
            rf"^\d\d\.\d\d\.\d{{4}} \d\d:\d\d:\d\d : {job} : endless \(RUNNING\)$", shown.out, re.MULTILINE
        )
        with command(folder, "cancel", *remote.options, job) as cancelled:
            assert cancelled.end() == 0, cancelled.err
        assert cancelled.out == f"Cancelled job {job}.\n"
        remote.until_state(job, "CANCELED")
    finally:
        remote.cancel(job)
    with command(folder, "cancel", *remote.options, job) as again:
        assert again.end() == 1
    assert "has already ended" in again.err
    with command(folder, "list", "-a", *remote.options) as listed:
        assert listed.end() == 0
    assert f"{job} : endless (CANCELED)" in listed.out.partition("Terminated Jobs")[2]


def test_a_client_that_is_killed_leaves_its_job_running(folder: Path, remote: Remote) -> None:
    (folder / "program.py").write_text(HEAD + ENDLESS)
    with command(folder, "run", *remote.options, "program.py") as run:
        job = job_id_in(run.line())
        try:
            remote.until_state(job, "RUNNING")
            os.kill(run.pid, signal.SIGKILL)
            run.popen.wait()
            assert process.descendants(run.pid) == []
            assert remote.until_state(job, "RUNNING")
        finally:
            remote.cancel(job)


@pytest.mark.long
def test_a_client_that_is_terminated_takes_its_job_along_if_it_shall(folder: Path, remote: Remote) -> None:
    (folder / "program.py").write_text(HEAD + ENDLESS)
    with command(folder, "run", "-sae", *remote.options, "program.py") as run:
        job = job_id_in(run.line())
        remote.until_state(job, "RUNNING")
        os.kill(run.pid, signal.SIGTERM)
        assert run.end() == 143, run.err
    remote.until_state(job, "CANCELED")


@pytest.mark.long
def test_the_cluster_cancels_the_job_of_a_client_that_was_killed_if_it_shall(folder: Path, remote: Remote) -> None:
    (folder / "program.py").write_text(HEAD + ENDLESS)
    short = ["-D", "client.heartbeat.interval=200 ms", "-D", "client.heartbeat.timeout=15 s"]
    with command(folder, "run", "--shutdownOnAttachedExit", *short, *remote.options, "program.py") as run:
        job = job_id_in(run.line())
        remote.until_state(job, "RUNNING")
        os.kill(run.pid, signal.SIGKILL)
        run.popen.wait()
    remote.until_state(job, "CANCELED")


def test_ctrl_c_without_a_terminal_cancels(folder: Path, remote: Remote) -> None:
    (folder / "program.py").write_text(HEAD + ENDLESS)
    with command(folder, "run", *remote.options, "program.py") as run:
        job = job_id_in(run.line())
        run.until_said("RUNNING")  # it waits for the job, and shows how far that is
        os.kill(run.pid, signal.SIGINT)
        assert run.end() == 130, run.err
    assert f"Job {job} was cancelled." in run.err
    assert remote.until_state(job, "CANCELED")
    assert "Traceback" not in run.err


def test_a_program_that_ends_early_says_which_of_its_jobs_run_on(folder: Path, remote: Remote) -> None:
    rest = ENDLESS.replace("env.execute(", "env.execute_async(") + "raise ValueError('too early')\n"
    (folder / "program.py").write_text(HEAD + rest)
    with command(folder, "run", *remote.options, "program.py") as run:
        assert run.end() == 1
    job = job_id_in(run.out)
    try:
        assert "ValueError: too early" in run.err
        assert f"Job {job} runs on; `firesteel cancel {job}` cancels it." in run.err
        remote.until_state(job, "RUNNING")
    finally:
        remote.cancel(job)


def test_results_that_nobody_reads_any_more_cancel_the_job(folder: Path, remote: Remote) -> None:
    text = (
        ENDLESS.partition("numbers.filter")[0] + "results = numbers.execute_and_collect('left')\nprint(next(results))\n"
    )
    (folder / "program.py").write_text(HEAD + text)
    with command(folder, "run", *remote.options, "program.py") as run:
        assert run.end() == 0, run.err
    remote.until_state(job_id_in(run.out), "CANCELED")


@pytest.mark.smoke
def test_the_users_error_comes_back(folder: Path, remote: Remote) -> None:
    (folder / "program.py").write_text(
        HEAD + "env.from_collection([1, 0]).map(lambda i: 1 // i).print()\nenv.execute()\n"
    )
    with command(folder, "run", *remote.options, "program.py") as run:
        assert run.end() == 1
    assert "raised ZeroDivisionError" in run.err
    assert "at the record 0" in run.err
    assert "firesteel/client" not in run.err


def test_the_program_itself_may_name_the_cluster(folder: Path, remote: Remote) -> None:
    host, _, port = remote.address.partition(":")
    settings = {"execution.target": "remote", "rest.address": host, "rest.port": port}
    settings["firesteel.rest.token-file"] = remote.options[-1].partition("=")[2]
    head = HEAD.replace("environment()", f"environment(Configuration.from_dict({settings}))")
    (folder / "program.py").write_text(head + "print(list(env.from_collection([5]).map(str).execute_and_collect()))\n")
    with program(folder, "program.py") as run:
        assert run.end() == 0, run.err
    assert (run.out, run.err) == ("['5']\n", "")


def test_no_cluster_wrong_token_and_no_token_are_one_sentence_each(folder: Path, remote: Remote) -> None:
    (folder / "program.py").write_text(HEAD + ENDLESS)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        with command(folder, "run", "-m", f"127.0.0.1:{port}", "program.py") as run:
            assert run.end() == 1
    assert f"no cluster answers at http://127.0.0.1:{port} (Connection refused)" in run.err
    assert "start-cluster.sh" in run.err
    assert "-t local" in run.err
    where = ["-m", remote.address]
    with command(folder, "run", *where, "program.py", FIRESTEEL_SECRET="not the secret of it") as run:
        assert run.end() == 1
    assert "refuses this client (its token is made from FIRESTEEL_SECRET)" in run.err
    with command(folder, "run", *where, "program.py") as run:
        assert run.end() == 1
    assert "refuses this client (it has no token: set firesteel.security.secret-file" in run.err
    assert "Traceback" not in run.err
    assert len(run.err.splitlines()) == 1


def test_a_program_does_not_find_the_secret_in_its_environment(folder: Path, remote: Remote) -> None:
    (folder / "program.py").write_text("import os, sys\nsys.exit(7 if 'FIRESTEEL_SECRET' not in os.environ else 8)\n")
    with command(folder, "run", "-m", remote.address, "program.py", FIRESTEEL_SECRET="0123456789abcdef") as run:
        assert run.end() == 7, run.err


def test_a_refused_graph_brings_the_clusters_reason(folder: Path, remote: Remote) -> None:
    text = "env.from_collection(['x' * (2 << 20)]).print()\nenv.execute()\n"
    options = ["-D", "firesteel.collection.max-bytes=1 mb"]
    (folder / "program.py").write_text(HEAD + text)
    with command(folder, "run", *remote.options, *options, "program.py") as run:
        assert run.end() == 1
    assert "more than firesteel.collection.max-bytes = 1048576" in run.err
    assert sys.executable not in run.err

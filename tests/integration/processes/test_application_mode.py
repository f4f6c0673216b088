"""Application mode: a cluster for one program, which ends with it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from firesteel.core.process import identify, kill, wait_gone
from tests.integration.processes.cluster import BIN, PATIENCE, free_ports, rest_call, wait_until

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.timeout(600)
SECRET = "0123456789abcdef" * 2
TWO_JOBS = """
import sys
from firesteel.datastream import StreamExecutionEnvironment
from helper_module import times

for number in range(2):
    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_collection([1, 2, 3]).map(times).print()
    if number == 0:
        print("ended", env.execute("first").get_job_id(), flush=True)
    else:
        client = env.execute_async("second")
print("arguments", sys.argv[1:], flush=True)
if "raise" in sys.argv:
    raise ValueError("main is broken")
sys.exit(int(sys.argv[1]))
"""
ENDLESS = """
from firesteel.common import WatermarkStrategy
from firesteel.datastream import StreamExecutionEnvironment
from firesteel.datastream.connectors.data_generator import DataGeneratorSource

env = StreamExecutionEnvironment.get_execution_environment()
env.from_collection([1, 2, 3]).print()
env.execute("first")
env = StreamExecutionEnvironment.get_execution_environment()
numbers = env.from_source(DataGeneratorSource(lambda i: i), WatermarkStrategy.no_watermarks(), "numbers")
numbers.filter(lambda i: i < 0).print()
env.execute("endless")
"""


class Home:
    """A configuration with ports of its own, and programs; after ``close`` no process of it is left."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="a"))
        self.conf = self.folder / "conf"
        self.conf.mkdir()
        self.mark = f"FIRESTEEL_TEST_APPLICATION={uuid.uuid4().hex}"
        rpc, resourcemanager, jobmaster, self.port = free_ports(4)
        (self.conf / "config.yaml").write_text(
            f"jobmanager.rpc.port: {rpc}\n"
            f"firesteel.resourcemanager.port: {resourcemanager}\n"
            f"firesteel.jobmaster.port: {jobmaster}\n"
            f"rest.port: {self.port}\n"
            f"firesteel.cluster.directory: {self.folder / 'cluster'}\n"
            f"firesteel.run.directory: {self.folder / 'r'}\n"
            "firesteel.resourcemanager.driver: local-process\n"
            "taskmanager.numberOfTaskSlots: 2\n"
            "slotmanager.number-of-slots.max: 2\n"
            "firesteel.jvm.archive-in-background: false\n"
        )
        secret = self.conf / "cluster-secret"
        secret.touch(mode=0o600)
        secret.write_text(SECRET)
        (self.folder / "helper_module.py").write_text("def times(i):\n    return i * 10\n")
        self.program("two_jobs.py", TWO_JOBS)
        self.program("endless.py", ENDLESS)
        self.output = self.folder / "output"
        self.own: list[Path] = []

    def program(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    def environment(self) -> dict[str, str]:
        name, _, value = self.mark.partition("=")
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("FIRESTEEL_")}
        return {**inherited, "FIRESTEEL_CONF_DIR": str(self.conf), name: value, "TMPDIR": str(self.folder)}

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-P", "-m", "firesteel_dispatcher.standalone_job", *words]
        with self.output.open("ab") as out:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=self.environment(), cwd=self.folder,
                start_new_session=True,
            )  # fmt: skip

    def rest(self, path: str) -> Any:
        try:
            status, answer = rest_call(f"http://127.0.0.1:{self.port}", "GET", path, secret=SECRET)
        except OSError:
            return None
        return answer if status == 200 else None

    def jobs(self) -> dict[str, str]:
        return {row["name"]: row["state"] for row in (self.rest("/jobs/overview") or {"jobs": []})["jobs"]}

    def said(self) -> str:
        return self.output.read_text(errors="replace") if self.output.exists() else ""

    def processes(self, *, command: str = "") -> list[Any]:
        identities = []
        for entry in Path("/proc").iterdir():
            try:
                marked = self.mark.encode() in (entry / "environ").read_bytes().split(b"\0")
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except (OSError, ValueError):
                continue
            identity = identify(int(entry.name)) if marked and entry.name.isdigit() else None
            if identity is not None and (not command or command.encode() in words):
                identities.append(identity)
        return identities

    def logs_of(self, said: str) -> Path:
        """Where ``run-application`` says that its logs are."""
        path = Path(said.partition("Its logs are in ")[2].partition(";")[0])
        self.own.append(path.parent)
        return path

    def close(self) -> None:
        left = wait_gone(self.processes(), 15)
        for process in self.processes():
            kill(process)
        wait_gone(self.processes(), 10)
        said = self.said()
        for folder in [self.folder, *self.own]:
            shutil.rmtree(folder, ignore_errors=True)
        assert not left, f"{len(left)} processes were left\n{said}"


@pytest.fixture
def home() -> Iterator[Home]:
    application_home = Home()
    try:
        yield application_home
    finally:
        application_home.close()


def test_the_cluster_ends_with_the_program_and_has_its_exit_code(home: Home) -> None:
    # Its program does not need the name for others, which may lead here later, or never.
    elsewhere = ["-Drest.address=nowhere.invalid", "-Drest.bind-address=127.0.0.1"]
    command = [str(BIN / "firesteel"), "run-application", *elsewhere, "two_jobs.py", "7", "-x"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE * 4, env=home.environment(), cwd=home.folder,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 7, done.stdout + done.stderr
    assert "arguments ['7', '-x']" in done.stdout
    assert "ended " in done.stdout
    assert "the program ended with 7" in done.stderr
    (last,) = [line for line in done.stdout.splitlines() if "(two_jobs.py) is FAILED: " in line]
    assert "the program ended with 7" in last, "Kubernetes shows one line"
    logs = home.logs_of(done.stderr)
    assert {path.name for path in logs.iterdir()} >= {"dispatcher.log", "jobmaster.log", "standalone-job.log"}
    assert "10\n20\n30\n" in "".join(path.read_text() for path in logs.glob("workers/*.out")), "what print() has shown"
    assert not (logs.parent / "conf").exists(), "the secret is gone"


@pytest.mark.long
def test_jobs_of_execute_async_are_waited_for_and_exceptions_of_main_are_told(home: Home) -> None:
    assert home.start("--python", "two_jobs.py", "0").wait(PATIENCE * 4) == 0, home.said()
    assert "(two_jobs.py) is FINISHED" in home.said()
    options = ["-D", "execution.shutdown-on-application-finish=false"]
    process = home.start(*options, "--python", "two_jobs.py", "raise")

    def failed() -> Any:
        overview = home.rest("/applications/overview") or {"applications": []}
        return next((row["id"] for row in overview["applications"] if row["status"] == "FAILED"), None)

    application = wait_until(failed, "the application failed", PATIENCE * 4)
    (entry,) = home.rest(f"/applications/{application}/exceptions")["exceptionHistory"]["entries"]
    assert entry["exceptionName"] == "ValueError"
    assert "main is broken" in entry["stacktrace"]
    assert "helper_module" not in entry["stacktrace"]
    assert {row["name"] for row in home.rest(f"/applications/{application}")["jobs"]} == {"first", "second"}
    assert home.rest(f"/jobs/{application}")["application-id"] == application
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 143


@pytest.mark.long
def test_a_killed_dispatcher_runs_main_again_but_no_job_that_has_ended(home: Home) -> None:
    process = home.start("--python", "endless.py")
    wait_until(lambda: home.jobs() == {"first": "FINISHED", "endless": "RUNNING"}, "the second job runs", PATIENCE * 4)
    before = {row["jid"]: row["start-time"] for row in home.rest("/jobs/overview")["jobs"]}
    (main,) = home.processes(command="firesteel.client.program_process")
    (dispatcher,) = home.processes(command="firesteel_dispatcher")
    kill(dispatcher)
    assert not wait_gone([main], PATIENCE), "main() dies with its Dispatcher"
    wait_until(lambda: home.said().count("was submitted before") == 2, "main() runs again", PATIENCE * 4)
    assert {row["jid"]: row["start-time"] for row in home.rest("/jobs/overview")["jobs"]} == before
    # all of it stops, and the next start goes on
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 143
    process = home.start("--python", "endless.py")
    wait_until(lambda: home.jobs() == {"first": "FINISHED", "endless": "RUNNING"}, "it goes on", PATIENCE * 4)
    assert {row["jid"] for row in home.rest("/jobs/overview")["jobs"]} == set(before)
    application = next(row["id"] for row in home.rest("/applications/overview")["applications"])
    url = f"http://127.0.0.1:{home.port}"
    assert rest_call(url, "POST", f"/applications/{application}/cancel", secret=SECRET)[0] == 202
    assert process.wait(PATIENCE * 2) == 0, home.said()
    assert "(endless.py) is CANCELED" in home.said()


@pytest.mark.long
def test_a_killed_main_runs_again_and_the_end_of_the_cluster_cancels_it(home: Home) -> None:
    process = home.start("--python", "endless.py")
    wait_until(lambda: home.jobs() == {"first": "FINISHED", "endless": "RUNNING"}, "the second job runs", PATIENCE * 4)
    before = {row["jid"]: row["start-time"] for row in home.rest("/jobs/overview")["jobs"]}
    (main,) = home.processes(command="firesteel.client.program_process")
    kill(main)
    wait_until(lambda: home.said().count("was submitted before") == 2, "main() runs again", PATIENCE * 4)
    assert {row["jid"]: row["start-time"] for row in home.rest("/jobs/overview")["jobs"]} == before
    (resourcemanager,) = home.processes(command="firesteel_resourcemanager")
    kill(resourcemanager)
    wait_until(lambda: "resourcemanager has ended (killed by signal 9)" in home.said(), "it is started again", PATIENCE)
    assert rest_call(f"http://127.0.0.1:{home.port}", "DELETE", "/cluster", secret=SECRET)[0] == 200
    assert process.wait(PATIENCE * 4) == 0, home.said()
    assert "(endless.py) is CANCELED" in home.said()


@pytest.mark.long
def test_main_has_the_packages_of_its_jobs(home: Home) -> None:
    packages = home.folder / "packages"
    packages.mkdir()
    with zipfile.ZipFile(packages / "ninefold-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("ninefold.py", "def times(i):\n    return i * 9\n")
        wheel.writestr("ninefold-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: ninefold\nVersion: 1.0\n")
        wheel.writestr("ninefold-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("ninefold-1.0.dist-info/RECORD", "")
    (home.folder / "requirements.txt").write_text("ninefold==1.0\n")
    folder = home.folder / "program"
    folder.mkdir()
    (folder / "__main__.py").write_text(
        "import sys\n"
        "from ninefold import times\n"
        "from firesteel.datastream import StreamExecutionEnvironment\n"
        "env = StreamExecutionEnvironment.get_execution_environment()\n"
        "with env.from_collection([1, 2, 3]).map(times).execute_and_collect() as results:\n"
        "    print('results', sorted(results), sys.argv[1:], flush=True)\n"
    )
    command = [str(BIN / "firesteel"), "run-application", "-pyreq", "requirements.txt#packages", "program", "one"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE * 6, env=home.environment(), cwd=home.folder,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "results [9, 18, 27] ['one']" in done.stdout
    home.logs_of(done.stderr)


@pytest.mark.long
def test_the_script_starts_and_stops_an_application(home: Home) -> None:
    bin = home.folder / "bin"
    shutil.copytree(ROOT / "deploy" / "standalone" / "bin", bin)

    def script(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(bin / "standalone-job.sh"), *words], capture_output=True, text=True, timeout=PATIENCE * 4,
            env=home.environment() | {"FIRESTEEL_PYTHON": sys.executable, "FIRESTEEL_START_SECONDS": "600"},
            cwd=home.folder, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    assert "There is no application to stop" in script("stop").stdout
    wrong = script("start", "--python", "nothing.py")
    assert wrong.returncode == 1
    assert "is not there" in wrong.stderr
    started = script("start", "--python", "endless.py")
    assert started.returncode == 0, started.stdout + started.stderr
    assert f"(endless.py): http://127.0.0.1:{home.port}" in started.stdout
    again = script("start", "--python", "endless.py")
    assert again.returncode == 1
    assert "an application runs already" in again.stderr
    wait_until(lambda: home.jobs().get("first") == "FINISHED", "the first job ends", PATIENCE * 4)
    assert list((home.folder / "log").glob("firesteel-*-dispatcher-0-*.log")), "each service has a log of its own"
    stopped = script("stop")
    assert stopped.returncode == 0, stopped.stderr
    assert not wait_gone(home.processes(), PATIENCE)


@pytest.mark.long
def test_a_client_that_dies_takes_its_cluster_along_where_that_was_said(home: Home) -> None:
    command = [str(BIN / "firesteel"), "run-application", "-sae", "endless.py"]
    with home.output.open("wb") as out:
        client = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=home.environment(), cwd=home.folder
        )
    wait_until(lambda: "has been submitted" in home.said(), "the first job is submitted", PATIENCE * 4)
    client.kill()
    client.wait()
    home.logs_of(home.said())
    assert not wait_gone(home.processes(), PATIENCE)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--python", "nothing.py"], "is not there"),
        (["--python", "ftp://name/program.py"], "no file system for ftp"),
        (["--python", "conf"], "no __main__.py"),
        (["--python", "two_jobs.py", "--job-id", "x"], "not a job id"),
        ([], "no program is named"),
    ],
)
def test_what_can_not_be_run_is_told_in_words(home: Home, words: list[str], said: str) -> None:
    from firesteel_dispatcher.standalone_job import main  # in this process: nothing is started

    before, folder = signal.getsignal(signal.SIGTERM), Path.cwd()
    os.chdir(home.folder)
    try:
        with pytest.MonkeyPatch.context() as patch, home.output.open("w") as out:
            patch.setattr(sys, "stderr", out)
            assert main(["--config-dir", str(home.conf), *words]) == 2
    finally:
        os.chdir(folder)
        signal.signal(signal.SIGTERM, before)
    assert said in home.said()

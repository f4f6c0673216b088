"""Life, death and refusals of a service process."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from firesteel.core.run_directory import is_held
from tests.integration.processes.cluster import PATIENCE, wait_until

SCRIPT = Path(__file__).with_name("tiny_service.py")
SECRET = "0123456789abcdef-tiny"


class Tiny:
    """Starts the service and looks at what it leaves."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.conf, self.runs, self.pid_file = folder / "conf", folder / "r", folder / "run" / "pid"
        self.conf.mkdir()
        (self.conf / "config.yaml").write_text(
            f"firesteel.run.directory: {self.runs}\nfiresteel.cluster.directory: {folder / 'cluster'}\n"
        )
        self.started: list[subprocess.Popen[str]] = []

    def launch(
        self, *options: str, listen: tuple[str, str, str] = ("127.0.0.1", "0", ""), stubborn: bool = False,
        secret: str | None = SECRET,
    ) -> subprocess.Popen[str]:  # fmt: skip
        environment = {key: value for key, value in os.environ.items() if not key.startswith("FIRESTEEL_OPTION")}
        if secret is not None:
            environment["FIRESTEEL_SECRET"] = secret
        command = [sys.executable, str(SCRIPT), "--config-dir", str(self.conf), *options, "--", *listen]
        if stubborn:
            command.append("stubborn")
        process = subprocess.Popen(
            command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=self.folder
        )
        self.started.append(process)
        return process

    def start(self, *options: str, stubborn: bool = False) -> tuple[subprocess.Popen[str], str]:
        """A process that listens, and its address."""
        process = self.launch("--log-file", str(self.folder / "log"), *options, stubborn=stubborn)
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("firesteel-tiny listens on http://127.0.0.1:"), line or process.communicate()
        assert process.stdout.readline() == f"firesteel.cluster.directory is {self.folder / 'cluster'}\n"
        return process, line.split()[-1]

    def refusal(self, *options: str, **rest: object) -> tuple[int, str]:
        """Exit code and stderr of a process that does not start."""
        process = self.launch("--log-file", str(self.folder / "log"), *options, **rest)  # type: ignore[arg-type]
        _, said = process.communicate(timeout=PATIENCE)
        return process.returncode, said


@pytest.fixture
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tiny]:
    tiny_services = Tiny(tmp_path_factory.mktemp("t"))
    yield tiny_services
    for process in tiny_services.started:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=PATIENCE)


def get(address: str, path: str) -> dict[str, str]:
    with urllib.request.urlopen(address + path, timeout=PATIENCE) as answer:
        return dict(json.loads(answer.read()))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_order(tiny: Tiny, number: int) -> None:
    process, address = tiny.start("--pid-file", str(tiny.pid_file))
    pid, start, listens = wait_until(
        lambda: (lines := tiny.pid_file.read_text().split()) and len(lines) == 3 and lines, "the pid file is whole"
    )
    assert (int(pid), listens) == (process.pid, address)
    assert int(start) > 0
    assert get(address, "/health") == {"status": "OK", "service": "tiny"}
    assert len([path for path in tiny.runs.iterdir() if path.is_dir()]) == 1
    for directory in (tiny.runs, tiny.folder / "cluster"):
        assert is_held(directory), f"a cleaner of /tmp would take files out of {directory.name}"
    process.send_signal(number)
    assert process.wait(PATIENCE) == 0
    assert not tiny.pid_file.exists()
    assert not [path for path in tiny.runs.iterdir() if path.is_dir()]
    assert stat.S_IMODE((tiny.folder / "cluster").stat().st_mode) == 0o700
    assert (tiny.folder / "cluster" / "was-here").exists(), "the cluster's directory stays"
    assert not is_held(tiny.runs)
    assert not is_held(tiny.folder / "cluster")
    log = (tiny.folder / "log").read_text()
    assert f"{signal.Signals(number).name}: stops" in log
    assert "tiny stopped" in log
    assert SECRET not in log


def test_a_second_signal_ends_it_at_once(tiny: Tiny) -> None:
    process, _ = tiny.start(stubborn=True)
    assert process.stdout is not None
    process.send_signal(signal.SIGTERM)
    assert process.stdout.readline() == "draining\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 1


def test_a_failed_background_task_ends_it_with_1(tiny: Tiny) -> None:
    process, address = tiny.start()
    get(address, "/fail")
    _, said = process.communicate(timeout=PATIENCE)
    assert (process.returncode, said) == (1, "firesteel-tiny: RuntimeError: lost my way\n")


def test_a_service_may_end_itself(tiny: Tiny) -> None:
    process, address = tiny.start()
    get(address, "/end")
    assert process.wait(PATIENCE) == 0


def test_children_do_not_inherit_the_secret(tiny: Tiny) -> None:
    process, address = tiny.start()
    environment = get(address, "/child")["environment"]
    assert "PATH=" in environment
    assert SECRET not in environment
    shown = Path(f"/proc/{process.pid}/environ").read_bytes()
    assert b"FIRESTEEL_SECRET=***" in shown, "the system shows the environment that a process was started with"
    assert SECRET.encode() not in shown


def test_a_taken_port_is_one_sentence(tiny: Tiny) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        code, said = tiny.refusal(listen=("127.0.0.1", str(port), ""))
    refusal = f"firesteel-tiny: tiny can't listen on 127.0.0.1:{port}: Address already in use: process {os.getpid()} ("
    assert code == 1
    assert said.startswith(refusal)
    assert said.count("\n") == 1


def test_a_pid_file_of_a_running_process_is_respected_and_one_of_a_dead_process_is_not(tiny: Tiny) -> None:
    first, _ = tiny.start("--pid-file", str(tiny.pid_file))
    code, said = tiny.refusal("--pid-file", str(tiny.pid_file))
    assert (code, said) == (1, f"firesteel-tiny: is running already, as process {first.pid} ({tiny.pid_file})\n")
    assert tiny.pid_file.read_text().split()[0] == str(first.pid)
    first.kill()
    first.wait(PATIENCE)
    assert tiny.pid_file.exists()
    second, _ = tiny.start("--pid-file", str(tiny.pid_file))
    assert tiny.pid_file.read_text().split()[0] == str(second.pid)


@pytest.mark.parametrize(
    ("options", "rest", "text"),
    [
        (["-Drest.port=many"], {}, "rest.port = 'many' (from command line) is not valid"),
        (["-Dfiresteel.rest.prot=1"], {}, "There is no option firesteel.rest.prot"),
        (["-Drest.port"], {}, "expected -Dkey=value"),
        (["--config-dir", "nowhere"], {}, "nowhere/config.yaml can't be read"),
        ([], {"secret": None}, "There is no cluster secret"),
        ([], {"secret": "short"}, "has 5 characters"),
        (["-Dfiresteel.security.secret-file=missing"], {}, "missing can't be read: No such file or directory"),
        ([], {"listen": ("0.0.0.0", "0", "")}, "binds to all interfaces (0.0.0.0)"),
    ],
)
def test_a_wrong_configuration_is_told_in_words(
    tiny: Tiny, options: list[str], rest: dict[str, object], text: str
) -> None:
    code, said = tiny.refusal(*options, **rest)
    assert code == 2
    assert said.startswith("firesteel-tiny: ")
    assert text in said
    assert "Traceback" not in said
    assert not [path for path in tiny.runs.glob("*") if path.is_dir()]


def test_a_secret_file_that_others_may_read_is_refused(tiny: Tiny) -> None:
    file = tiny.conf / "cluster-secret"
    file.write_text(SECRET)
    file.chmod(0o640)
    code, said = tiny.refusal(secret=None)
    assert code == 2
    assert "has the mode 0640: others may read it; chmod 600 it." in said
    file.chmod(0o600)
    process = tiny.launch(secret=None)
    assert process.stdout is not None
    assert "listens on" in process.stdout.readline()

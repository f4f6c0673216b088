"""``firesteel run-application``: a cluster on this host for one program, which ends with it."""

from __future__ import annotations

import argparse
import importlib.util
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, Final

from firesteel.client.cli import exit_codes
from firesteel.client.cli.definitions import read
from firesteel.client.console import Console
from firesteel.config import options
from firesteel.config.load import CONF_DIR_VARIABLE, CONFIG_FILE, load_settings
from firesteel.config.option import Option
from firesteel.core.environment import SECRET_VARIABLE
from firesteel.core.errors import ConfigurationError, FiresteelError
from firesteel.core.run_directory import is_held, private_directory
from firesteel.core.secret import SECRET_FILE_NAME
from firesteel.core.text_output import ESCAPED
from firesteel.service.remains import has_remains

_SUPERVISOR: Final = "firesteel_dispatcher.standalone_job"
_LOOK: Final = 0.1
_START_SECONDS: Final = 300.0
_LOG: Final = "standalone-job.log"
_PREFIX: Final = "application-"
_KEPT_LOGS: Final = 20
_LOG_SECONDS: Final = 14 * 86_400.0
_PORTS: Final[Sequence[Option[int]]] = (
    options.JOBMANAGER_RPC_PORT,
    options.RESOURCEMANAGER_PORT,
    options.JOBMASTER_PORT,
)


def run_here(parsed: argparse.Namespace, console: Console) -> int:
    """``firesteel run-application -t standalone``."""
    if importlib.util.find_spec(_SUPERVISOR.partition(".")[0]) is None:
        raise ConfigurationError("the services are not installed beside this command: pip install firesteel-dispatcher")
    config_variable = os.environ.get(CONF_DIR_VARIABLE)
    folder = Path(config_variable) if config_variable else None
    settings = load_settings(config_file=folder / CONFIG_FILE if folder else None, definitions=read(parsed))
    settings.check()
    _remove_old()
    home = private_directory(None, f"{_PREFIX}{secrets.token_hex(4)}")
    conf, logs = home / "conf", home / "log"
    for directory in (conf, logs):
        directory.mkdir(mode=0o700)
    if folder is not None:
        for name in (CONFIG_FILE, "rest-token"):
            if (folder / name).exists():
                shutil.copyfile(folder / name, conf / name)
                (conf / name).chmod(0o600)
    else:
        (conf / CONFIG_FILE).touch(mode=0o600)
    secret = conf / SECRET_FILE_NAME
    secret.touch(mode=0o600)
    secret.write_text(secrets.token_hex(32), encoding="utf-8")
    cluster_definitions = [f"{options.CLUSTER_DIRECTORY.key}={home / 'cluster'}", f"{options.SECRET_FILE.key}={secret}"]
    if not settings.is_set(options.HA_CLUSTER_ID):
        cluster_definitions.append(f"{options.HA_CLUSTER_ID.key}={home.name}")
    if not settings.is_set(options.RESOURCEMANAGER_DRIVER):
        cluster_definitions.append(f"{options.RESOURCEMANAGER_DRIVER.key}=local-process")
    cluster_definitions += [
        f"{option.key}={port}" for option, port in zip(_PORTS, _free_ports(len(_PORTS)), strict=True)
    ]
    command = [
        sys.executable, "-P", "-m", _SUPERVISOR, "--config-dir", str(conf), "--log-file", str(logs / _LOG),
        "--own-directory", str(home), *(["--while-stdin"] if parsed.shutdown_on_exit else []),
        *(word for definition in [*cluster_definitions, *read(parsed)] for word in ("-D", definition)),
        *_of_program(parsed),
    ]  # fmt: skip
    return _Started(command, logs, console, parsed).follow()


def _remove_old() -> None:
    """Remove directories of clusters that have ended.

    A cluster that ended in order leaves only its logs: those of the last ``_KEPT_LOGS`` stay for ``_LOG_SECONDS``. The
    directory of one that was killed stays as long, and longer while any of its processes runs.
    """
    now = time.time()  # noqa: TID251 # compared with times of files
    ended: list[tuple[float, Path]] = []
    for home in private_directory(None).glob(f"{_PREFIX}*"):
        try:
            ages = [now - path.lstat().st_mtime for path in home.rglob("*")]
            only_logs = [path.name for path in home.iterdir()] == ["log"]
        except OSError:  # it changes
            continue
        age = min(ages, default=0.0)
        if only_logs:
            ended.append((age, home))
        elif age > _LOG_SECONDS and not is_held(home) and not has_remains(home / "cluster"):
            shutil.rmtree(home, ignore_errors=True)
    for number, (age, home) in enumerate(sorted(ended)):
        if number >= _KEPT_LOGS or age > _LOG_SECONDS:
            shutil.rmtree(home, ignore_errors=True)


def _of_program(parsed: argparse.Namespace) -> list[str]:
    words = []
    if parsed.as_module:
        name = parsed.program.partition(":")[0].replace(".", "/")
        if Path(f"{name}.py").is_file() or Path(name).is_dir():
            words += ["--python", str(Path.cwd())]
        words += ["--pyModule", parsed.program]
    else:
        words += ["--python", parsed.program]
    for name, option in (("python_files", "--pyFiles"), ("restore_path", "--fromSavepoint"), ("job_id", "--job-id")):
        if getattr(parsed, name) is not None:
            words += [option, getattr(parsed, name)]
    if parsed.claim_mode is not None:
        words += ["-D", f"{options.STATE_RECOVERY_CLAIM_MODE.key}={parsed.claim_mode.upper()}"]
    if parsed.ignore_unclaimed:
        words.append("--allowNonRestoredState")
    return [*words, "--", *parsed.arguments]


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for port_socket in sockets:
            port_socket.bind(("127.0.0.1", 0))
        return [port_socket.getsockname()[1] for port_socket in sockets]


class _Started:
    """The supervisor of the cluster, a process in a session of its own."""

    def __init__(self, command: Sequence[str], logs: Path, console: Console, parsed: argparse.Namespace) -> None:
        self._logs, self._console, self._parsed = logs, console, parsed
        self._out = logs / "standalone-job.out"
        with self._out.open("wb") as out:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE if parsed.shutdown_on_exit else subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={name: value for name, value in os.environ.items() if name != SECRET_VARIABLE},
                start_new_session=True,
            )

    def follow(self) -> int:
        """Wait as the command line says; returns the exit code."""
        try:
            if not self._wait_up():
                return self._ended()
            if self._parsed.detached:
                return exit_codes.DONE
            return self._wait_end()
        except KeyboardInterrupt:
            return self._interrupted()

    def _wait_up(self) -> bool:
        deadline = time.monotonic() + _START_SECONDS
        while self._process.poll() is None:
            line = next(
                (output_line for output_line in self._said().splitlines() if output_line.startswith("application ")),
                None,
            )
            if line is not None:
                self._console.say(line)
                self._console.note(f"Its logs are in {self._logs}; process {self._process.pid} is the cluster.")
                return True
            if time.monotonic() > deadline:
                self._process.terminate()
                raise FiresteelError(f"the cluster was not up after {_START_SECONDS:g} s: see {self._logs}")
            time.sleep(_LOOK)
        return False

    def _wait_end(self) -> int:
        path, position = self._logs / "dispatcher.out", 0
        while True:
            ended = self._process.poll() is not None
            position = self._show(path, position)
            if ended:
                return self._ended()
            time.sleep(_LOOK)

    def _show(self, path: Path, position: int) -> int:
        """Show what the program has printed behind a position, without the Dispatcher's own lines.

        Returns:
            The position behind the last line shown.
        """
        try:
            with path.open("rb") as file:
                return self._show_lines(file, position)
        except FileNotFoundError:
            return position

    def _show_lines(self, file: BinaryIO, position: int) -> int:
        file.seek(position)
        for line in file:
            if not line.endswith(b"\n") and self._process.poll() is None:
                break
            position += len(line)
            if not line.startswith((b"firesteel-dispatcher ", b"firesteel.cluster.directory is ")):
                self._console.say(line.decode(errors=ESCAPED).rstrip("\n"))
        return position

    def _ended(self) -> int:
        for line in self._said().splitlines():
            if not line.startswith("application "):
                self._console.note(line)
        last = next(
            (
                output_line
                for output_line in reversed(self._said().splitlines())
                if output_line.startswith("application ")
            ),
            None,
        )
        if last is not None and " is " in last:
            self._console.say(last)
        for name in ("conf", "cluster"):  # of one that was refused before it began
            shutil.rmtree(self._logs.parent / name, ignore_errors=True)
        return self._process.wait()

    def _interrupted(self) -> int:
        if self._parsed.shutdown_on_exit:
            self._console.note("firesteel run-application: interrupted; the cluster ends")
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait()
            except KeyboardInterrupt:
                pass
        elif self._process.poll() is None:
            self._console.note(
                f"firesteel run-application: left; the application runs on, and `kill {self._process.pid}` ends its "
                "cluster"
            )
        return exit_codes.INTERRUPTED

    def _said(self) -> str:
        return self._out.read_text(encoding="utf-8", errors=ESCAPED)

"""A Spark executor of a TaskManager. Its slots outlive the driver (``SlotsExecutor.java``), but not the TaskManager."""

from __future__ import annotations

import itertools
import os
import shutil
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from firesteel.config.options import TASKMANAGER_HOST
from firesteel.core import log_files
from firesteel.core.errors import FleetError
from firesteel.core.run_directory import RunDirectory
from firesteel.core.secret import spark_secret
from firesteel.protocol.messages import ExecutorSpec
from firesteel.spark import background, jvm
from firesteel.spark.archive import archive_for
from firesteel.spark.hosts import spark_host
from firesteel.spark.java import find_java
from firesteel.spark.mains import SLOT_MAIN, STAGE_MAIN
from firesteel.spark.own_classes import refuse_other_spark
from firesteel.spark.owned_process import OwnedProcess, end_together
from firesteel.spark.slot_task import EXECUTOR_VARIABLE
from firesteel.spark.spark_settings import encryption, unix_sockets
from firesteel.spark.workers import prepare_daemon, put_on_path, workers_environment

_MAIN = "firesteel.spark.SlotsExecutor"
_LEAST_HEAP_MB = 128
_EXIT_SECONDS = 5.0
_MAKER_SECONDS = 3.0
_PRELOADED = (SLOT_MAIN.__module__, STAGE_MAIN.__module__, "firesteel.datastream")
"""What processes of slots and of stages begin with, and the API, which the modules of most programs import."""

_KEPT_LOGS = 50
"""Logs of executors that have ended which stay in a log directory."""

_numbers = itertools.count()
_writing: set[Path] = set()
"""Logs of the executors of this process."""


def _log_of(executor_id: str, run_directory: Path, folder: Path | None) -> Path:
    """A log for an executor; the oldest ones of this host make room for it."""
    if folder is None:
        return run_directory / f"executor-{executor_id}.log"
    prefix = f"executor-{socket.gethostname()}-"
    log_files.keep_newest(folder, f"{prefix}*.log*", _KEPT_LOGS, lambda path: path in _writing)
    log = folder / f"{prefix}{executor_id}.log"
    _writing.add(log)
    return log


class ExecutorProcess:
    """One executor JVM together with the daemon that forks its workers; they end with this process.

    Args:
        spec: what the ResourceManager asks for.
        secret: of the cluster; that of Spark is made from it.
        run_directory: where sockets, logs and scratch files go; it stays the caller's.
        bind_host: address that it binds to.
        host: name or address under which others reach it.
        java_home: the Java to use; by default `firesteel.spark.java.find_java` looks for one.
        memory_mb: its heap in MiB; it carries no records.
        archive: start the JVM from its class-data archive if there is one (`firesteel.spark.archive`).
        environment: variables for it and the workers, beside those of this process.
        preload: modules that the daemon imports before it forks.
        make_archive: have missing archives made in the background, some time after the start.
        recording: flags of a JVM that is to write an archive.
        log_directory: where the log stays, with those of the newest other executors; by default it is in the run
            directory.

    Raises:
        FleetError: it can't be started. That it can't reach the driver shows later: it ends.
    """

    def __init__(
        self,
        spec: ExecutorSpec,
        *,
        secret: str,
        run_directory: RunDirectory,
        bind_host: str = "127.0.0.1",
        host: str = "",
        java_home: str | None = None,
        memory_mb: int = jvm.DEFAULT_HEAP_MB,
        archive: bool = True,
        environment: Mapping[str, str] | None = None,
        preload: Sequence[str] = _PRELOADED,
        make_archive: bool = False,
        recording: tuple[str, ...] = (),
        log_directory: Path | None = None,
    ) -> None:
        if memory_mb < _LEAST_HEAP_MB:
            raise FleetError(f"An executor needs a heap of at least {_LEAST_HEAP_MB} MiB, not {memory_mb}.")
        if not spec.executor_id.isdecimal():
            raise FleetError(f"Spark wants decimal executor ids, not {spec.executor_id!r}.")
        refuse_other_spark()
        java = find_java(java_home)
        self.executor_id = spec.executor_id
        number = next(_numbers) % 1000  # short, for the sockets' sake
        self._scratch = run_directory.subdir(f"e{number}")
        self._sockets = run_directory.subdir(f"w{number}")
        self._prepared = run_directory.socket_path(f"p{number}")
        self._log = _log_of(spec.executor_id, run_directory.path, log_directory)
        self._arguments = self._scratch / "arguments"
        self._archive = archive_for(java, "executor") if archive and not recording else None
        flags = recording if self._archive is None else self._archive.flags_to_use()
        self._from_archive = self._archive is not None and bool(flags)
        local = self._scratch / "local"
        local.mkdir(mode=0o700, exist_ok=True)
        variables = workers_environment(
            run_directory,
            python=sys.executable,
            preload=preload,
            prepared=self._prepared,
            more={
                **(environment or {}),
                **put_on_path(run_directory.subdir("bin"), os.environ),
                EXECUTOR_VARIABLE: spec.executor_id,
                "SPARK_LOCAL_DIRS": str(local),
            },
        )
        host = spark_host(host or bind_host, TASKMANAGER_HOST.key)
        command = jvm.command_line(
            java,
            _MAIN,
            scratch=self._scratch,
            heap_mb=memory_mb,
            flags=[*flags, *self._settings(memory_mb), f"@{self._arguments}"],
            arguments=[
                *(str(self._arguments), "--driver-url", spec.driver_url, "--executor-id", spec.executor_id),
                *("--hostname", host, "--bind-address", bind_host, "--cores", str(spec.cores)),
                *("--app-id", spec.app_id, "--resourceProfileId", "0"),
            ],
        )
        self._daemon: OwnedProcess | None = None
        self._jvm: OwnedProcess | None = None
        self._maker: OwnedProcess | None = None
        try:
            self._write_secret(spark_secret(secret, spec.spark_salt))
            self._jvm = OwnedProcess("Java", command, variables, self._log)
            self._daemon = prepare_daemon(sys.executable, variables, self._log)
            if make_archive and archive and not recording:
                self._maker = background.start_owned(java, "hosted")
        except OSError as error:
            self.stop(grace=0.0)
            raise FleetError(f"Executor {spec.executor_id} could not be started: {error}.") from error
        except BaseException:
            self.stop(grace=0.0)
            raise

    def _settings(self, memory_mb: int) -> list[str]:
        """Spark's settings that an executor needs before it hears those of the driver, or that are its own."""
        settings = {**encryption(), **unix_sockets(self._sockets)}
        if memory_mb < jvm.DEFAULT_HEAP_MB:
            settings["spark.testing.reservedMemory"] = str((memory_mb << 20) // 2)
        return [f"-D{name}={value}" for name, value in settings.items()]

    def _write_secret(self, secret: str) -> None:
        """Into a file that Java reads arguments from; the executor removes it as its first deed."""
        handle = os.open(self._arguments, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(f'"-Dspark.authenticate.secret={secret}"\n')

    @property
    def pid(self) -> int:
        assert self._jvm is not None
        return self._jvm.pid

    @property
    def log(self) -> Path:
        """What the JVM, the daemon and the workers write."""
        return self._log

    def is_running(self) -> bool:
        """Whether the JVM runs. When it has ended, `stop` has to be called nevertheless."""
        if self._jvm is not None and self._jvm.is_running():
            log_files.bound(self._log)
            return True
        if self._arguments.exists():  # it did not get as far as our first line
            self._arguments.unlink(missing_ok=True)
            if self._archive is not None and self._from_archive:
                self._archive.discard()
        return False

    def exit_reason(self) -> str:
        """How the JVM ended, in words, e.g. ``killed by signal 9``."""
        return "not started" if self._jvm is None else self._jvm.exit_reason()

    def log_tail(self) -> str:
        """The last lines of the log."""
        return jvm.log_tail(self._log)

    def stop(self, grace: float = _EXIT_SECONDS) -> None:
        """End it with all its slots and remove its files, but not the log. May be called again.

        Args:
            grace: seconds for the JVM to end in order.
        """
        if self._maker is not None:
            self._maker.release()  # it ends while we do
        if self._jvm is not None:
            end_together(self._jvm, self._daemon, grace)
        elif self._daemon is not None:
            self._daemon.end(grace)
        if self._maker is not None:
            end_together(self._maker, None, min(grace, _MAKER_SECONDS))
        _writing.discard(self._log)
        for directory in (self._scratch, self._sockets):
            shutil.rmtree(directory, ignore_errors=True)
        self._prepared.unlink(missing_ok=True)

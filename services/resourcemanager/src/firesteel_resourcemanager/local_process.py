"""The provider ``local-process``: it starts TaskManagers as processes on the ResourceManager's host.

Below its directory, of mode 0700: ``conf`` with the settings and the secret of the cluster, and for each worker
``<id>.pid`` (as ``firesteel.service.pid_file``; empty for the moment in which the process is being started),
``<id>.log`` and ``<id>.out`` (what it prints). Pid files are how a later ResourceManager finds workers.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from firesteel.config.load import CONF_DIR_VARIABLE, CONFIG_FILE, ENVIRONMENT_PREFIX
from firesteel.config.options import (
    LOG_MAX,
    RESOURCEMANAGER_ADDRESS,
    SECRET_FILE,
    TASKMANAGER_RESOURCE_ID,
    TASKMANAGER_RPC_PORT,
    TASKMANAGER_SLOTS,
)
from firesteel.core.environment import SECRET_VARIABLE
from firesteel.core.errors import RunDirectoryError
from firesteel.core.files import replace_file
from firesteel.core.log_files import keep_old, last_lines
from firesteel.core.process import ProcessId, ask_to_end, descendants, identify, is_running, kill, wait_gone
from firesteel.core.run_directory import private_directory
from firesteel.core.secret import SECRET_FILE_NAME
from firesteel.protocol.provider import ProviderContext, WorkerError, WorkerSpec
from firesteel.service.pid_file import read_pid_file
from firesteel.spark.hosted_provider import HostedProvider

logger = logging.getLogger(__name__)

PROGRAM: Final = (sys.executable, "-P", "-m", "firesteel_taskmanager")
STOP_GRACE: Final = 10.0
"""Seconds that a worker has to end in order."""
NAMELESS_GRACE: Final = 30.0
"""Seconds after which a worker whose pid is not known, since its start was cut off, counts as never started."""
_KILL_SECONDS: Final = 5.0
_POLL: Final = 0.05
_LOGS_KEPT: Final = 20
"""Workers that have ended whose logs stay."""
_TAIL_BYTES: Final = 4000


@dataclass
class _Worker:
    id: str
    found_at: float
    popen: subprocess.Popen[bytes] | None = None
    """Process of the worker; None if a former ResourceManager has started it."""
    process: ProcessId | None = None
    kill_at: float | None = None
    """Monotonic seconds at which its time to end in order is up; None: it was not asked to end, or it was killed."""
    family: list[ProcessId] = field(default_factory=list)
    """Descendants that it had when it was killed."""


class LocalProcessProvider(HostedProvider):
    """Starts TaskManager processes; safe with any number of threads.

    Args:
        context: settings, clock and directory of the ResourceManager.
        program: command of a worker, which gets the arguments of ``firesteel-taskmanager``.
    """

    is_active = True

    def __init__(self, context: ProviderContext, program: Sequence[str] = PROGRAM) -> None:
        super().__init__(context)
        self._program = tuple(program)
        self._directory = context.directory / "workers"
        self._guard = threading.Lock()
        """Held while the fields below are used."""
        self._workers: dict[str, _Worker] = {}
        self._ended: list[tuple[str, str]] = []
        self._closed = False

    # -- contract

    def recover(self, resourcemanager_address: str) -> list[str]:
        """Write the configuration of workers, and find the workers that run.

        Raises:
            WorkerError: the directory can't be used.
        """
        try:
            private_directory(self._directory)
            self._write_configuration(resourcemanager_address)
            names = sorted(path.stem for path in self._directory.glob("*.pid") if not path.name.startswith("."))
        except (OSError, RunDirectoryError) as error:
            raise WorkerError(f"The directory of workers {self._directory} can't be used: {error}") from error
        with self._guard:
            now = self.context.clock.monotonic()
            for name in names:
                process = read_pid_file(self._pid_file(name))
                if process is not None and not is_running(process):
                    self._pid_file(name).unlink(missing_ok=True)
                else:
                    self._workers[name] = _Worker(name, now, process=process)
            return list(self._workers)

    def start_worker(self, spec: WorkerSpec) -> None:
        """Start the process of a worker, in a session of its own.

        Raises:
            WorkerError: the process can't be started.
        """
        name = spec.worker_id
        if not name.replace("-", "").isalnum():
            raise WorkerError(f"{name!r} is not an id of a worker: letters, digits and - are expected")
        with self._guard:
            if self._closed:
                raise WorkerError("the provider is closed")
            if name in self._workers:
                return
            try:
                self._remove_old_logs()
                self._write_private(self._pid_file(name), "")
                popen = self._popen(spec)
            except OSError as error:
                self._pid_file(name).unlink(missing_ok=True)
                raise WorkerError(f"The process of worker {name} can't be started: {error}") from error
            worker = _Worker(name, self.context.clock.monotonic(), popen, identify(popen.pid))
            self._workers[name] = worker
            try:
                if worker.process is not None:
                    self._write_private(self._pid_file(name), f"{worker.process.pid}\n{worker.process.start}\n")
            except OSError as error:  # the worker writes the same itself
                logger.warning("the pid file of worker %s can't be written: %s", name, error)
        logger.info("worker %s is process %d", name, popen.pid)

    def stop_worker(self, worker_id: str) -> None:
        """Send SIGTERM to a worker; ``ended_workers`` sends SIGKILL if it has not ended after ``STOP_GRACE``."""
        with self._guard:
            worker = self._workers.get(worker_id)
            if worker is not None:
                self._ask_to_end(worker)

    def ended_workers(self) -> list[tuple[str, str]]:
        """Look at all processes, and kill those whose time is up."""
        with self._guard:
            for worker in list(self._workers.values()):
                self._look(worker)
            ended, self._ended = self._ended, []
            return ended

    def terminate(self) -> None:
        """End all workers, and forget the configuration; logs stay."""
        with self._guard:
            self._closed = True
            for worker in self._workers.values():
                self._ask_to_end(worker)
        deadline = time.monotonic() + STOP_GRACE
        while not self._all_gone() and time.monotonic() < deadline:
            time.sleep(_POLL)
        with self._guard:
            for worker in list(self._workers.values()):
                self._kill(worker)
                self._look(worker)
        for name in (CONFIG_FILE, SECRET_FILE_NAME):
            (self._directory / "conf" / name).unlink(missing_ok=True)

    def close(self) -> None:
        """Start no more workers. Threads wait for our own children, so that these leave no zombies."""
        with self._guard:
            self._closed = True
            for worker in self._workers.values():
                if worker.popen is not None and worker.popen.poll() is None:
                    threading.Thread(target=worker.popen.wait, name=f"end of {worker.id}", daemon=True).start()
            self._workers.clear()

    # -- files

    def _pid_file(self, name: str) -> Path:
        return self._directory / f"{name}.pid"

    def _write_configuration(self, resourcemanager_address: str) -> None:
        folder = private_directory(self._directory / "conf")
        self._write_private(folder / SECRET_FILE_NAME, self.context.secret)
        settings = self.context.settings.to_plain() | {
            SECRET_FILE.key: str(folder / SECRET_FILE_NAME),
            RESOURCEMANAGER_ADDRESS.key: resourcemanager_address.removeprefix("http://"),
            TASKMANAGER_RPC_PORT.key: "0",
        }
        settings.pop(TASKMANAGER_RESOURCE_ID.key, None)
        self._write_private(folder / CONFIG_FILE, json.dumps(settings, indent=1))  # JSON is YAML, too

    @staticmethod
    def _write_private(path: Path, text: str) -> None:
        replace_file(path, text.encode(), durable=False)

    def _remove_old_logs(self) -> None:
        outputs = [path for path in self._directory.glob("*.out") if path.stem not in self._workers]
        for path in sorted(outputs, key=lambda p: p.stat().st_mtime)[: -_LOGS_KEPT or None]:
            for log in self._directory.glob(f"{path.stem}.log*"):
                log.unlink(missing_ok=True)
            path.unlink(missing_ok=True)

    def _last_words(self, name: str) -> str:
        """The last line that a worker printed: services say in one sentence why they end."""
        try:
            lines = last_lines(self._directory / f"{name}.out", _TAIL_BYTES)
        except OSError:
            return ""
        return lines[-1] if lines else ""

    # -- processes

    def _popen(self, spec: WorkerSpec) -> subprocess.Popen[bytes]:
        name = spec.worker_id
        command = [
            *self._program,
            *("--config-dir", str(self._directory / "conf")),
            *("--pid-file", str(self._pid_file(name))),
            *("--log-file", str(self._directory / f"{name}.log")),
            *("-D", f"{TASKMANAGER_RESOURCE_ID.key}={name}"),
            *("-D", f"{TASKMANAGER_SLOTS.key}={spec.slots}"),
        ]
        environment = {
            key: value
            for key, value in os.environ.items()
            if key not in (SECRET_VARIABLE, CONF_DIR_VARIABLE) and not key.startswith(ENVIRONMENT_PREFIX)
        }
        out = self._directory / f"{name}.out"
        keep_old(out, self.context.settings.get(LOG_MAX))
        with out.open("ab") as output:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )

    def _ask_to_end(self, worker: _Worker) -> None:
        self._identify(worker)
        if worker.kill_at is None and worker.process is not None and is_running(worker.process):
            worker.kill_at = self.context.clock.monotonic() + STOP_GRACE
            ask_to_end(worker.process)

    def _identify(self, worker: _Worker) -> None:
        if worker.process is None:
            worker.process = read_pid_file(self._pid_file(worker.id))

    def _look(self, worker: _Worker) -> None:
        """See whether a worker has ended; the guard is held."""
        self._identify(worker)
        now = self.context.clock.monotonic()
        if worker.kill_at is not None and now >= worker.kill_at:
            self._kill(worker)
        cause = self._end_of(worker, now)
        if cause and not any(is_running(process) for process in worker.family):
            words = self._last_words(worker.id)
            self._ended.append((worker.id, f"{cause}: {words}" if words else cause))
            self._pid_file(worker.id).unlink(missing_ok=True)
            del self._workers[worker.id]

    def _end_of(self, worker: _Worker, now: float) -> str:
        """How a worker has ended; empty if it runs."""
        if worker.popen is not None:
            code = worker.popen.poll()
            return "" if code is None else f"killed by signal {-code}" if code < 0 else f"exit code {code}"
        if worker.process is None:
            return "its process never came to life" if now >= worker.found_at + NAMELESS_GRACE else ""
        return "" if is_running(worker.process) else "its process has ended"

    def _kill(self, worker: _Worker) -> None:
        """Kill a worker with all its descendants, once; the guard is held."""
        worker.kill_at = None
        if worker.process is None or not is_running(worker.process):
            return
        logger.warning("worker %s does not end in order and is killed", worker.id)
        worker.family = descendants(worker.process.pid)
        for process in (worker.process, *worker.family):
            kill(process)
        if worker.popen is not None:
            worker.popen.wait(_KILL_SECONDS)
        wait_gone([worker.process, *worker.family], _KILL_SECONDS)

    def _all_gone(self) -> bool:
        with self._guard:
            for worker in list(self._workers.values()):
                self._look(worker)
            return not self._workers

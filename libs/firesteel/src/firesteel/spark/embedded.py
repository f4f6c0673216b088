"""The embedded fleet: Spark ``local[...]`` in a JVM that belongs to this process."""

from __future__ import annotations

import atexit
import logging
import operator
import os
import pickle
import secrets
import shutil
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

from firesteel.core import process
from firesteel.core.errors import FleetError
from firesteel.core.run_directory import RunDirectory
from firesteel.protocol.fleet import SlotLaunch, SlotOutcome
from firesteel.protocol.messages import ExecutorSpec
from firesteel.spark.archive import archive_for
from firesteel.spark.context import OwnContext, refuse_foreign_context
from firesteel.spark.driver import RUN_DIRECTORY_VARIABLE, DriverJvm, child_environment, log_path
from firesteel.spark.java import Java, find_java
from firesteel.spark.own_thread import OwnThread
from firesteel.spark.owned_process import OwnedProcess
from firesteel.spark.quiet import without_py4j_log
from firesteel.spark.slot_task import SlotMain, SlotTask, decode_end, encode_launch, probe
from firesteel.spark.worker_path import PATH_VARIABLE, worker_environment

logger = logging.getLogger(__name__)

_DAEMON_MODULE = "firesteel.runtime.daemon"
_PREPARED_VARIABLE = "FIRESTEEL_PREPARED_DAEMON"  # read by firesteel.runtime.prepared_daemon
_PRELOAD_VARIABLE = "FIRESTEEL_PRELOAD"  # read by firesteel.runtime.daemon
_ANSWER_SECONDS = 20.0
"""How long a short call into the JVM may take before the JVM counts as stuck."""
_CANCEL_SECONDS = 2.0
_END_SECONDS = 2.0
_PROBE_SECONDS = 60.0
_PROBE_FAILURES = 3

_POOLS = """\
<?xml version="1.0"?>
<allocations>
  <pool name="slots"><schedulingMode>FIFO</schedulingMode><weight>1000</weight><minShare>{slots}</minShare></pool>
</allocations>
"""
"""A core that becomes free goes to a waiting slot before it goes to a task of a bounded stage."""


class EmbeddedFleet:
    """Slots as tasks of a Spark of our own; implements `firesteel.protocol.fleet.Fleet`.

    Args:
        slots: how many slots may run at once.
        spare_cores: task places beside the slots, for bounded stages.
        slot_main: the function that a slot runs; workers must be able to import it.
        run_directory: where sockets, logs and scratch files go; it stays the caller's.
        java_home: the Java to use; by default `firesteel.spark.java.find_java` looks for one.
        python: the workers' interpreter.
        environment: variables for the JVM and the workers, beside those of this process.
        archive: start the JVM from its class-data archive if there is one (`firesteel.spark.archive`).
        recording: flags of a JVM that is to write one.
    """

    def __init__(
        self,
        *,
        slots: int,
        spare_cores: int,
        slot_main: SlotMain,
        run_directory: RunDirectory,
        java_home: str | None = None,
        python: str = sys.executable,
        environment: Mapping[str, str] | None = None,
        archive: bool = True,
        recording: tuple[str, ...] = (),
    ) -> None:
        if slots < 1 or spare_cores < 0:
            raise ValueError(f"slots must be at least 1 and spare_cores at least 0, not {slots} and {spare_cores}")
        self._slots, self._spare_cores = slots, spare_cores
        self._slot_main = pickle.dumps(slot_main)
        self._preload = [m for m in (getattr(slot_main, "__module__", None), SlotTask.__module__) if m]
        self._run_directory, self._java_home, self._python = run_directory, java_home, python
        self._environment, self._archive, self._recording = dict(environment or {}), archive, recording
        self._owner = os.getpid()
        self._life = threading.Lock()
        """Held by start and stop."""
        self._guard = threading.Lock()
        """Held for a moment around the fields below."""
        self._ready = self._aborted = False
        self._jvm: DriverJvm | None = None
        self._daemon: OwnedProcess | None = None
        self._context: OwnContext | None = None
        self._thread: OwnThread | None = None
        self._running: dict[str, Any] = {}
        """allocation id -> py4j's handle of the job's future; None while the job is being submitted."""
        self._cancelled: set[str] = set()
        self._ended: list[tuple[str, SlotOutcome, str]] = []

    def start(self) -> None:
        """Start the JVM and the context, and see a worker run; nothing is left when that fails.

        Raises:
            FleetError: it can't be started; the message says what to do.
        """
        if sys.platform == "win32":
            raise FleetError("Slots do not run on Windows; build graphs here and submit them to a cluster on Linux.")
        with self._life:
            if self._thread is not None:
                raise FleetError("The fleet is running already.")
            refuse_foreign_context()
            java = find_java(self._java_home)
            archive = archive_for(java) if self._archive and not self._recording else None
            flags = self._recording if archive is None else archive.flags_to_use()
            self._aborted = False
            try:
                self._start(java, flags)
            except FleetError:
                if archive is None or not flags or self._aborted:
                    raise
                archive.discard()
                self._start(java, ())

    def _start(self, java: Java, flags: tuple[str, ...]) -> None:
        """Under the life lock: all of the start, or nothing."""
        environment = self._child_environment()
        jvm = DriverJvm(java, self._run_directory, environment, flags)
        self._jvm, self._thread = jvm, OwnThread("firesteel-spark")
        atexit.register(self.stop)
        try:
            self._daemon = self._prepare_daemon(environment)
            self._thread.call(lambda: self._open(jvm))
            self._ready = True
        except BaseException as error:
            tail = jvm.log_tail()
            jvm.end(grace=0.0)  # else the own thread could still be at it
            self._shut_down()
            if self._aborted:
                raise FleetError("The fleet was stopped while it started.") from error
            if isinstance(error, FleetError) or not isinstance(error, Exception):
                raise
            raise FleetError(f"Spark could not be started: {error}\n{tail}") from error

    @property
    def slots_outlive_driver(self) -> bool:
        """Workers are children of the driver JVM: no."""
        return False

    def executor_for(self, taskmanager_id: str, cores: int) -> ExecutorSpec | None:
        """None: the driver JVM itself runs the slots."""
        return None

    def attached_executors(self) -> frozenset[str] | None:
        """None: there are no executors to wait for."""
        return None

    def start_slot(self, launch: SlotLaunch) -> None:
        """Submit the one-task job of a slot.

        Raises:
            FleetError: the fleet does not run, or knows this allocation already.
        """
        thread = self._thread
        with self._guard:
            if thread is None or not self.is_alive():
                raise FleetError(f"The fleet is not running: slot {launch.allocation_id} can't be started.")
            if launch.allocation_id in self._running:
                raise FleetError(f"Slot {launch.allocation_id} was started before.")
            self._running[launch.allocation_id] = None
        try:
            future = thread.call(lambda: self._submit(encode_launch(launch), self._slot_main, launch.allocation_id))
        except Exception as error:
            with self._guard:
                self._running.pop(launch.allocation_id, None)
            raise FleetError(f"Slot {launch.allocation_id} could not be started: {error}") from error
        with self._guard:
            if launch.allocation_id in self._running:
                self._running[launch.allocation_id] = future
            cancelled = launch.allocation_id in self._cancelled
        if cancelled:
            self.cancel_slot(launch.allocation_id)

    def ended_slots(self) -> list[tuple[str, SlotOutcome, str]]:
        """(allocation id, outcome, message) of each slot that ended since the last call."""
        self._collect()
        with self._guard:
            ended, self._ended = self._ended, []
        return ended

    def cancel_slot(self, allocation_id: str) -> None:
        """Cancel the slot's job. After that its process may be killed and is not started again."""
        thread, context = self._thread, self._context
        with self._guard:
            if allocation_id not in self._running or thread is None or context is None:
                return
            self._cancelled.add(allocation_id)
            future = self._running[allocation_id]
            if future is None:
                return  # it is being submitted; `start_slot` sees the mark

        def cancel() -> None:
            context.spark.cancelJobsWithTag(_tag(allocation_id))
            # Spark only takes a note of it; before the job has ended a killed process would be started again.
            deadline = time.monotonic() + _CANCEL_SECONDS
            while not future.isDone() and time.monotonic() < deadline:
                time.sleep(0.002)

        try:
            thread.call(cancel, _ANSWER_SECONDS)
        except Exception as error:
            logger.warning("slot %s was not cancelled: %s", allocation_id, error)

    def is_alive(self) -> bool:
        """Whether slots can be started now: the JVM runs and the context is open."""
        jvm, context = self._jvm, self._context
        return self._ready and jvm is not None and jvm.is_running() and context is not None and context.is_open()

    def stop(self, grace: float = 0.0) -> None:
        """End all slots, the context and the JVM. May be called at any time, again, and from a forked child.

        Args:
            grace: seconds for the JVM to end by itself once Spark has stopped; there is nothing that it must still do.
        """
        if os.getpid() != self._owner:
            return
        starting = self._jvm
        with without_py4j_log():
            if not self._life.acquire(blocking=False):
                if starting is not None and not self._ready:
                    self._aborted = True
                    starting.popen.kill()
                self._life.acquire()
            try:
                self._shut_down(grace)
            finally:
                self._life.release()

    def exercise(self) -> None:
        """Run a small bounded stage with a shuffle."""
        thread, context = self._thread, self._context
        if thread is not None and context is not None:
            thread.call(lambda: context.spark.parallelize(range(8), 2).map(_pair).reduceByKey(operator.add).collect())

    def _child_environment(self) -> dict[str, str]:
        inside = [str(self._run_directory.path)]
        path = worker_environment(sys.path, os.environ, leave_out=inside)
        if self._python != sys.executable:
            del path[PATH_VARIABLE]  # another interpreter has a standard library of its own
        ours = {
            **path,
            RUN_DIRECTORY_VARIABLE: str(self._run_directory.path),
            _PRELOAD_VARIABLE: ",".join(self._preload),
            _PREPARED_VARIABLE: str(self._run_directory.socket_path("prepared")),
        }
        return child_environment(os.environ, {**ours, **self._environment})

    def _prepare_daemon(self, environment: Mapping[str, str]) -> OwnedProcess:
        """Have a worker daemon load what it needs while the JVM starts; Spark finds it by a variable."""
        variables = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "YES", **environment}
        command = [self._python, "-m", _DAEMON_MODULE, "--prepare", environment[_PREPARED_VARIABLE]]
        return OwnedProcess("The worker daemon", command, variables, log_path(self._run_directory))

    def _settings(self) -> dict[str, str]:
        pools = self._run_directory.path / "pools.xml"
        pools.write_text(_POOLS.format(slots=self._slots), encoding="utf-8")
        return {
            "spark.master": f"local[{self._slots + self._spare_cores},1000000]",
            "spark.app.name": "firesteel",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.authenticate": "true",  # local mode too has RPC and block ports, which any local user could reach
            "spark.authenticate.secret": secrets.token_hex(32),
            "spark.local.dir": str(self._run_directory.subdir("local")),
            "spark.python.daemon.module": _DAEMON_MODULE,
            "spark.python.worker.reuse": "false",
            "spark.python.unix.domain.socket.enabled": "true",
            "spark.python.unix.domain.socket.dir": str(self._run_directory.subdir("w")),
            "spark.scheduler.mode": "FAIR",
            "spark.scheduler.allocation.file": pools.as_uri(),
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.ui.retainedJobs": "100",
            "spark.ui.retainedStages": "100",
            "spark.ui.retainedTasks": "1000",
            "spark.metrics.executorMetricsSource.enabled": "false",
            "spark.metrics.staticSources.enabled": "false",
        }

    def _open(self, jvm: DriverJvm) -> None:
        """On the own thread: context, then one worker as a proof."""
        import pyspark  # noqa: F401 - takes half a second, while the JVM starts

        address = jvm.wait_ready()
        context = OwnContext(jvm, address, self._settings(), self._python)
        self._context = context
        context.spark.setLocalProperty("spark.scheduler.pool", "slots")
        nothing = encode_launch(SlotLaunch("probe", "", "", ""))
        future = self._submit(nothing, pickle.dumps(probe), "probe")
        deadline, look = time.monotonic() + _PROBE_SECONDS, 0
        while not future.isDone():
            failures = self._failed_tasks() if look % 50 == 49 else 0
            if failures >= _PROBE_FAILURES or time.monotonic() > deadline or not jvm.is_running():
                raise FleetError(
                    f"Python workers do not start (interpreter {self._python}, {failures} attempts failed):\n"
                    f"{jvm.log_tail()}"
                )
            look += 1
            time.sleep(0.01)
        (answer,) = future.get()
        outcome, message = decode_end(bytes(answer))
        if outcome is not SlotOutcome.RETURNED:
            raise FleetError(f"Python workers do not run slots:\n{message}")

    def _failed_tasks(self) -> int:
        """Failed attempts of the one job there is."""
        assert self._context is not None
        tracker = self._context.spark.statusTracker()
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        return max((stage.numFailedTasks for stage in stages if stage is not None), default=0)

    def _submit(self, launch: bytes, slot_main: bytes, allocation_id: str) -> Any:
        """On the own thread: make the job and hand it to Spark."""
        from pyspark.core.rdd import RDD
        from pyspark.serializers import NoOpSerializer

        assert self._context is not None
        spark = self._context.spark
        one: Any = RDD(spark._jsc.parallelize([launch], 1), spark, NoOpSerializer())
        job: Any = one.mapPartitions(SlotTask(slot_main))
        job._jrdd_deserializer = NoOpSerializer()  # bytes both ways: the driver unpickles nothing
        made = job._jrdd
        tag = _tag(allocation_id)
        spark.addJobTag(tag)
        try:
            return made.collectAsync()
        finally:
            spark.removeJobTag(tag)

    def _collect(self) -> None:
        """Move slots that ended from the running to the ended ones."""
        thread, jvm = self._thread, self._jvm
        with self._guard:
            watched = {name: future for name, future in self._running.items() if future is not None}
        if not watched or thread is None or jvm is None:
            return
        found: list[tuple[str, SlotOutcome, str]] = []
        if jvm.is_running():
            try:
                found = thread.call(lambda: self._look_at(watched), _ANSWER_SECONDS)
            except Exception as error:
                if jvm.is_running():
                    logger.warning("the Spark driver does not answer: %s", error or type(error).__name__)
                    return
        if not jvm.is_running():
            lost = f"the Spark driver JVM ended ({jvm.exit_reason()})"
            known = {name for name, _, _ in found}
            found += [(name, SlotOutcome.LOST, lost) for name in watched if name not in known]
        self._report(found)

    def _look_at(self, watched: Mapping[str, Any]) -> list[tuple[str, SlotOutcome, str]]:
        """On the own thread: those of the futures that are done."""
        from py4j.protocol import Py4JJavaError

        found = []
        for name, future in watched.items():
            if not future.isDone():
                continue
            try:
                (answer,) = future.get()
                outcome, message = decode_end(bytes(answer))
            except Py4JJavaError as error:
                text = str(error.java_exception.getMessage()).partition("\n")[0]
                outcome, message = SlotOutcome.LOST, "cancelled" if name in self._cancelled else text
            found.append((name, outcome, message))
        return found

    def _report(self, found: list[tuple[str, SlotOutcome, str]]) -> None:
        with self._guard:
            for name, outcome, message in found:
                if name in self._running:  # another caller may have reported it meanwhile
                    del self._running[name]
                    self._cancelled.discard(name)
                    self._ended.append((name, outcome, message))

    def _shut_down(self, grace: float = 0.0) -> None:
        """Under the life lock."""
        jvm, thread = self._jvm, self._thread
        if jvm is None or thread is None:
            return
        atexit.unregister(self.stop)
        self._ready = False
        try:
            thread.call(lambda: self._close_context(jvm), _ANSWER_SECONDS)
        except Exception as error:  # stuck: a call into a dead JVM comes back
            logger.warning("Spark did not stop in order: %s", error or type(error).__name__)
        self._end_processes(jvm, grace)
        thread.stop(_ANSWER_SECONDS)
        with self._guard:
            names = list(self._running)
        self._report([(name, SlotOutcome.LOST, "the fleet was stopped") for name in names])
        self._jvm = self._daemon = self._thread = None
        for name in ("w", "local", "tmp"):
            shutil.rmtree(self._run_directory.path / name, ignore_errors=True)
        (self._run_directory.path / "prepared").unlink(missing_ok=True)

    def _close_context(self, jvm: DriverJvm) -> None:
        """On the own thread, so that whatever opens a context has come to its end."""
        context, self._context = self._context, None
        if context is not None:
            context.close(jvm.is_running())

    def _end_processes(self, jvm: DriverJvm, grace: float) -> None:
        """Spark has stopped, or is beyond that."""
        daemon = self._daemon
        family = jvm.family() + (daemon.family() if daemon is not None else [])
        jvm.end(grace)
        if daemon is not None:
            daemon.end(grace=_END_SECONDS)  # sees the end of its input, and sends SIGHUP to its workers
        for straggler in process.wait_gone(family, _END_SECONDS):
            process.kill(straggler)
        process.wait_gone(family, _END_SECONDS)


def _pair(number: int) -> tuple[int, int]:
    return number % 2, 1


def _tag(allocation_id: str) -> str:
    return f"slot-{allocation_id}"

"""The embedded fleet: Spark ``local[...]`` in a JVM that belongs to this process."""

from __future__ import annotations

import atexit
import logging
import os
import secrets
import shutil
import sys
import threading
import time
from collections.abc import Mapping

from firesteel.core.errors import FleetError
from firesteel.core.run_directory import RunDirectory
from firesteel.protocol.fleet import SlotLaunch, SlotOutcome
from firesteel.protocol.messages import ExecutorSpec
from firesteel.spark import background
from firesteel.spark.archive import start_from_archive
from firesteel.spark.context import OwnContext, refuse_foreign_context
from firesteel.spark.driver import DriverJvm, log_path
from firesteel.spark.java import Java, find_java
from firesteel.spark.jvm import log_tail
from firesteel.spark.own_classes import refuse_other_spark
from firesteel.spark.own_thread import OwnThread
from firesteel.spark.owned_process import OwnedProcess, end_together
from firesteel.spark.quiet import without_py4j_log
from firesteel.spark.slot_jobs import ANSWER_SECONDS, Ended, SlotJobs
from firesteel.spark.slot_task import SlotMain, probe
from firesteel.spark.spark_settings import common_settings, small_stage, unix_sockets
from firesteel.spark.stage_jobs import StageJobs, StageMain, StagesFleet
from firesteel.spark.workers import prepare_daemon, workers_environment

logger = logging.getLogger(__name__)

_PROBE_SECONDS = 60.0
_PROBE_FAILURES = 3


class EmbeddedFleet(StagesFleet):
    """Slots as tasks of a Spark of our own; implements `firesteel.protocol.fleet.Fleet`.

    Args:
        slots: how many slots may run at once.
        spare_cores: task places beside the slots, and as many as bounded stages may take; 0: any that is free.
        slot_main: the function that a slot runs; workers must be able to import it.
        stage_main: the same of tasks of bounded stages; None = there are none.
        run_directory: where sockets, logs and scratch files go; it stays the caller's.
        java_home: the Java to use; by default `firesteel.spark.java.find_java` looks for one.
        python: the workers' interpreter.
        environment: variables for the JVM and the workers, beside those of this process.
        archive: start the JVM from its class-data archive if there is one (`firesteel.spark.archive`).
        make_archive: have the archive made in the background when the fleet has ended, if there is none.
        recording: flags of a JVM that is to write one.
        ui: with Spark's own pages.
    """

    def __init__(
        self,
        *,
        slots: int,
        spare_cores: int,
        slot_main: SlotMain,
        run_directory: RunDirectory,
        stage_main: StageMain | None = None,
        java_home: str | None = None,
        python: str = sys.executable,
        environment: Mapping[str, str] | None = None,
        archive: bool = True,
        make_archive: bool = False,
        recording: tuple[str, ...] = (),
        ui: bool = False,
    ) -> None:
        if slots < 1 or spare_cores < 0:
            raise ValueError(f"slots must be at least 1 and spare_cores at least 0, not {slots} and {spare_cores}")
        self._slots, self._spare_cores, self._ui = slots, spare_cores, ui
        self._jobs = SlotJobs(slot_main, outlive=False)
        self._stages = StageJobs(stage_main)
        self._preload = [m for main in (slot_main, stage_main) if (m := getattr(main, "__module__", None))]
        self._run_directory, self._java_home, self._python = run_directory, java_home, python
        self._environment, self._archive, self._recording = dict(environment or {}), archive, recording
        self._make_archive = make_archive and archive and not recording
        self._java: Java | None = None
        """The Java that the JVM runs on; None while there is none."""
        self._owner = os.getpid()
        self._life = threading.Lock()
        """Held by start and stop."""
        self._ready = self._aborted = False
        self._jvm: DriverJvm | None = None
        self._daemon: OwnedProcess | None = None
        self._context: OwnContext | None = None
        self._thread: OwnThread | None = None

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
            refuse_other_spark()
            java = find_java(self._java_home)
            self._aborted = False
            start_from_archive(
                java,
                "embedded",
                lambda flags: self._start(java, flags),
                use=self._archive,
                recording=self._recording,
                aborted=lambda: self._aborted,
            )
            self._java = java

    def _start(self, java: Java, flags: tuple[str, ...]) -> None:
        """Start JVM, context and daemon; after a failure nothing of them is left. Needs the life lock."""
        environment = workers_environment(
            self._run_directory,
            python=self._python,
            preload=self._preload,
            prepared=self._run_directory.socket_path("prepared"),
            more=self._environment,
        )
        jvm = DriverJvm(java, self._run_directory, environment, flags)
        self._jvm, self._thread = jvm, OwnThread("firesteel-spark")
        atexit.register(self.stop)
        try:
            self._daemon = prepare_daemon(self._python, environment, log_path(self._run_directory))
            thread = self._thread
            thread.call(lambda: self._open(jvm, thread))
            self._ready = True
        except BaseException as error:
            tail = log_tail(jvm.log)
            jvm.end(grace=0.0)  # first of all, else the own thread could still be in a call into it
            self._shut_down()
            if self._aborted:
                raise FleetError("The fleet was stopped while it started.") from error
            if isinstance(error, FleetError) or not isinstance(error, Exception):
                raise
            raise FleetError(f"Spark could not be started: {error}\n{tail}") from error

    @property
    def slots_outlive_driver(self) -> bool:
        """False: workers are children of the driver JVM."""
        return False

    def executor_for(self, taskmanager_id: str, cores: int) -> ExecutorSpec | None:
        """Returns None: the driver JVM itself runs the slots."""
        return None

    def attached_executors(self) -> frozenset[str] | None:
        """Returns None: there are no executors to wait for."""
        return None

    def start_slot(self, launch: SlotLaunch) -> None:
        """Submit the one-task job of a slot.

        Raises:
            FleetError: the fleet does not run, or knows this allocation already.
        """
        if not self.is_alive():
            raise FleetError(f"The fleet is not running: slot {launch.allocation_id} can't be started.")
        self._jobs.start(launch, "")

    def ended_slots(self) -> list[Ended]:
        """(allocation id, outcome, message) of each slot that ended since the last call."""
        try:
            return self._jobs.take_ended()
        except TimeoutError:
            return []

    def cancel_slot(self, allocation_id: str) -> None:
        """Cancel the slot's job. After that its process may be killed and is not started again."""
        self._jobs.cancel(allocation_id)

    def is_alive(self) -> bool:
        """Whether slots can be started now: the JVM runs and the context is open."""
        jvm, context = self._jvm, self._context
        return self._ready and jvm is not None and jvm.is_running() and context is not None and context.is_open()

    def detach(self) -> None:
        """Stop the fleet: its slots are children of this process, and nobody could attach to them later."""
        self.stop()

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
            thread.call(lambda: small_stage(context))

    def _settings(self) -> dict[str, str]:
        return {
            **common_settings(self._run_directory.path, secrets.token_hex(32), self._ui),
            **unix_sockets(self._run_directory.subdir("w")),
            "spark.master": "local[firesteel]",
            "spark.firesteel.localCores": str(self._slots + self._spare_cores),
            "spark.firesteel.spareCores": str(self._spare_cores),
            "spark.task.maxFailures": "1000000",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
        }

    def _open(self, jvm: DriverJvm, thread: OwnThread) -> None:
        """Open the context, on the own thread, and run a probe in one worker: a wrong interpreter fails here."""
        import pyspark  # noqa: F401 - takes half a second, while the JVM starts

        address = jvm.wait_ready()
        context = OwnContext(address, self._settings(), self._python, jvm.popen)
        self._context = context
        proof = SlotJobs(probe, outlive=False)
        proof.connect(thread, context, jvm)
        proof.start(SlotLaunch("probe", "", "", ""), "")
        deadline, look = time.monotonic() + _PROBE_SECONDS, 0
        while not (ended := proof.take_ended()):
            failures = self._failed_tasks() if look % 50 == 49 else 0
            if failures >= _PROBE_FAILURES or time.monotonic() > deadline or not jvm.is_running():
                raise FleetError(
                    f"Python workers do not start (interpreter {self._python}, {failures} attempts failed):\n"
                    f"{log_tail(jvm.log)}"
                )
            look += 1
            time.sleep(0.01)
        _, outcome, message = ended[0]
        if outcome is not SlotOutcome.RETURNED:
            raise FleetError(f"Python workers do not run slots: {message}\n{log_tail(jvm.log)}")
        self._jobs.connect(thread, context, jvm)
        self._stages.connect(thread, context)

    def _failed_tasks(self) -> int:
        """Number of failed attempts of the only job, which is the probe."""
        assert self._context is not None
        tracker = self._context.spark.statusTracker()
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        return max((stage.numFailedTasks for stage in stages if stage is not None), default=0)

    def _shut_down(self, grace: float = 0.0) -> None:
        """End slots, context, JVM and daemon, and remove their files. Needs the life lock."""
        jvm, thread = self._jvm, self._thread
        if jvm is None or thread is None:
            return
        atexit.unregister(self.stop)
        self._ready = False
        try:
            thread.call(lambda: self._close_context(jvm), ANSWER_SECONDS)
        except Exception as error:  # stuck: a call into a dead JVM comes back
            logger.warning("Spark did not stop in order: %s", error or type(error).__name__)
        end_together(jvm, self._daemon, grace)
        thread.stop(ANSWER_SECONDS)
        self._jobs.disconnect("the fleet was stopped")
        self._stages.disconnect()
        self._jvm = self._daemon = self._thread = None
        for name in ("w", "local", "tmp"):
            shutil.rmtree(self._run_directory.path / name, ignore_errors=True)
        (self._run_directory.path / "prepared").unlink(missing_ok=True)
        java, self._java = self._java, None
        if java is not None and self._make_archive:
            background.start_detached(java, "embedded")

    def _close_context(self, jvm: DriverJvm) -> None:
        """Close the context; runs on the own thread, behind any call that is still opening one."""
        context, self._context = self._context, None
        if context is not None:
            context.close(stop=jvm.is_running())

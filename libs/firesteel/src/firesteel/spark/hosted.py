"""The hosted fleet: a driver JVM that outlives the ResourceManager, and executors that outlive the driver.

TaskManagers start the executors (`firesteel.spark.executor`); files are those of `firesteel.spark.driver_home`.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from firesteel import __version__
from firesteel.config.options import JOBMANAGER_RPC_ADDRESS
from firesteel.core.errors import FleetError
from firesteel.core.secret import derive, spark_secret
from firesteel.protocol.fleet import SlotLaunch
from firesteel.protocol.messages import ExecutorSpec
from firesteel.spark import background
from firesteel.spark.archive import start_from_archive
from firesteel.spark.context import OwnContext, reason_of, refuse_foreign_context
from firesteel.spark.driver_home import DriverHome, LockedDriver
from firesteel.spark.hosts import spark_host
from firesteel.spark.java import Java, find_java
from firesteel.spark.jvm import child_environment, log_tail
from firesteel.spark.own_classes import SPARK, refuse_other_spark
from firesteel.spark.own_thread import OwnThread
from firesteel.spark.owned_process import OwnedProcess, end_together
from firesteel.spark.quiet import without_py4j_log
from firesteel.spark.slot_jobs import ANSWER_SECONDS, Ended, SlotJobs
from firesteel.spark.slot_task import SlotMain
from firesteel.spark.spark_settings import common_settings, encryption, heartbeats, small_stage
from firesteel.spark.stage_jobs import StageJobs, StageMain, StagesFleet
from firesteel.spark.workers import PYTHON

logger = logging.getLogger(__name__)
T = TypeVar("T")

_EXIT_SECONDS = 10.0
_CANCEL_MILLISECONDS = 5_000
"""Time for Spark to cancel the jobs of all slots, so that executors leave at once."""
_MAKER_SECONDS = 3.0
_LOOK_SECONDS = 3.0
"""Seconds for the driver to say whether it has executors when we leave; one that does not answer may have some."""
_SILENCES = 3
"""Calls in a row that the driver may leave unanswered before it is killed; slots survive that."""


class HostedFleet(StagesFleet):
    """Slots on executors of TaskManagers; implements `firesteel.protocol.fleet.Fleet`.

    Args:
        slot_main: the function that a slot runs; workers must be able to import it.
        stage_main: the same of tasks of bounded stages; None = there are none.
        cluster_directory: made if missing; of mode 0700.
        secret: of the cluster; that of Spark is made from it.
        bind_host: address that the driver binds to.
        advertised_host: name or address under which executors find the driver; by default ``bind_host``.
        spare_cores: cores of each executor that tasks of bounded stages may take; 0: any that is free.
        java_home: the Java to use; by default `firesteel.spark.java.find_java` looks for one.
        archive: start the JVM from its class-data archive if there is one (`firesteel.spark.archive`).
        orphan_timeout: seconds after which the driver ends by itself when nobody is attached.
        heartbeat_timeout: seconds after which an executor that does not answer is given up.
        make_archive: have missing archives made in the background, some time after the start.
        recording: flags of a JVM that is to write an archive.
        ui: with Spark's own pages.
    """

    def __init__(
        self,
        *,
        slot_main: SlotMain,
        cluster_directory: Path,
        secret: str,
        bind_host: str = "127.0.0.1",
        advertised_host: str = "",
        spare_cores: int = 1,
        java_home: str | None = None,
        archive: bool = True,
        orphan_timeout: float = 60.0,
        heartbeat_timeout: float = 50.0,
        make_archive: bool = False,
        recording: tuple[str, ...] = (),
        stage_main: StageMain | None = None,
        ui: bool = False,
    ) -> None:
        if spare_cores < 0 or orphan_timeout <= 0 or heartbeat_timeout <= 0:
            raise ValueError("spare_cores must be at least 0, and both timeouts more than 0")
        self._jobs, self._secret = SlotJobs(slot_main, outlive=True), secret
        self._stages = StageJobs(stage_main)
        self._bind_host, self._ui = bind_host, ui
        self._host = spark_host(advertised_host or bind_host, JOBMANAGER_RPC_ADDRESS.key)
        self._spare_cores, self._heartbeat_timeout = spare_cores, heartbeat_timeout
        self._java_home, self._archive, self._recording = java_home, archive, recording
        self._orphan_timeout = orphan_timeout
        self._make_archive = make_archive and archive and not recording
        self._maker: OwnedProcess | None = None
        """The process that makes class-data archives in the background."""
        self._home = DriverHome(cluster_directory, self._made_for())
        self._owner = os.getpid()
        self._life = threading.Lock()
        """Held by start, stop and detach."""
        self._guard = threading.Lock()
        """Held while the driver's record is changed."""
        self._ready = self._aborted = self._launching = False
        self._silences = 0
        self._driver: LockedDriver | None = None
        self._context: OwnContext | None = None
        self._thread: OwnThread | None = None

    @property
    def slots_outlive_driver(self) -> bool:
        """Executors stay until their last slot has ended."""
        return True

    def start(self) -> None:
        """Attach to the driver that runs, or start one.

        Raises:
            FleetError: the driver can't be started, or another process has the fleet.
        """
        if sys.platform == "win32":
            raise FleetError("Slots do not run on Windows.")
        with self._life:
            driver = self._driver
            if self._thread is not None and (driver is None or not driver.is_early):
                raise FleetError("The fleet is running already.")
            java = self._checked_java() if driver is None else find_java(self._java_home)
            self._home.claim()
            self._aborted, self._silences = False, 0
            try:
                if not self._adopt() and not self._attach():
                    self._launch(java)
                self._ready = True
            except BaseException:
                self._home.release()
                raise
            if self._make_archive:
                self._maker = background.start_owned(java, "hosted")

    def start_early(self) -> None:
        """Start a driver before we lead; ``start`` takes it, unless the former leader's driver still runs.

        Does nothing if it is up already.

        Raises:
            FleetError: it can't be started.
        """
        with self._life:
            driver = self._driver
            if driver is not None and driver.is_early and not driver.jvm.is_running():
                self._end(driver, 0.0)
            if self._thread is None:
                java = self._checked_java()
                self._aborted = False
                self._launch(java, early=True)

    def _checked_java(self) -> Java:
        refuse_foreign_context()
        refuse_other_spark()
        return find_java(self._java_home)

    def _adopt(self) -> bool:
        """Take the driver that was started early; False if there is none, or the former leader's driver still runs.

        Slots may run on that one's executors, so ours is ended in its favour.
        """
        driver, context = self._driver, self._context
        if driver is None:
            return False
        runs = driver.jvm.is_running() and context is not None and context.is_open()
        if runs and not self._home.has_driver():
            try:
                self._home.adopt(driver)
            except OSError as error:
                text = f"The cluster's directory can't be written: {error.strerror or error}."
                raise FleetError(text) from error
            logger.info("the driver with pid %d was up already", driver.record.pid)
            return True
        self._end_driver(driver, _EXIT_SECONDS)
        return False

    def _made_for(self) -> dict[str, Any]:
        """Versions and settings that a driver depends on; one with other values can't be taken over."""
        return {
            "firesteel": __version__,
            "spark": SPARK,
            "python": f"{sys.version_info[0]}.{sys.version_info[1]}",
            "bind_host": self._bind_host,
            "host": self._host,
            "spare_cores": self._spare_cores,
            "heartbeat_timeout": self._heartbeat_timeout,
            "secret": derive(self._secret, "driver"),  # tells secrets apart, and tells neither of them
        }

    def _attach(self) -> bool:
        """Take over the driver that a former ResourceManager has left; False if there is none to take over."""
        driver = self._home.find()
        if driver is None:
            return False
        pid = driver.record.pid
        try:
            self._connect(driver, None)
        except FleetError as error:
            if self._aborted:
                raise
            logger.warning("the driver with pid %d can't be taken over: %s; its slots go on", pid, error)
            return False
        logger.info("attached to the driver with pid %d, which knows %d slots", pid, len(self._jobs.known()))
        return True

    def _launch(self, java: Java, early: bool = False) -> None:
        """Start a new driver; after a failure nothing of it is left."""
        self._launching = True
        try:
            start_from_archive(
                java,
                "driver",
                lambda flags: self._launch_with(java, flags, early),
                use=self._archive,
                recording=self._recording,
                aborted=lambda: self._aborted,
            )
        finally:
            self._launching = False

    def _launch_with(self, java: Java, flags: tuple[str, ...], early: bool) -> None:
        driver = self._home.launch(java, child_environment(os.environ, {}), self._orphan_timeout, flags, early=early)
        self._connect(driver, self._settings(driver))

    def _settings(self, driver: LockedDriver) -> dict[str, str]:
        return {
            **common_settings(driver.jvm.directory, spark_secret(self._secret, driver.record.spark_salt), self._ui),
            **encryption(),
            **heartbeats(self._heartbeat_timeout),
            "spark.master": "firesteel",
            "spark.driver.host": self._host,
            "spark.driver.bindAddress": self._bind_host,
            "spark.firesteel.spareCores": str(self._spare_cores),
            # A slot waits for a core of its executor, and everything else takes any.
            "spark.locality.wait": "0s",
            "spark.locality.wait.process": "30s",
        }

    def _connect(self, driver: LockedDriver, conf: dict[str, str] | None) -> None:
        """Open the SparkContext of a driver, or end the driver.

        Args:
            driver: locked by us.
            conf: settings of a new context; None = use the one that is there.

        Raises:
            FleetError: Spark did not start or did not answer; the driver was ended.
        """
        thread = OwnThread("firesteel-spark")
        self._driver, self._thread = driver, thread
        timeout = ANSWER_SECONDS if conf is None else None
        try:
            if self._aborted:  # before there was a driver that could be killed
                raise FleetError("The fleet was stopped while it started.")
            with without_py4j_log():
                thread.call(lambda: self._open(driver, thread, conf), timeout)
        except BaseException as error:
            tail = log_tail(driver.jvm.log)
            driver.jvm.end(grace=0.0)  # first of all, else the own thread could still be in a call into it
            self._disconnect(stop=False)
            self._home.forget(driver, keep_record=True)
            if self._aborted:
                raise FleetError("The fleet was stopped while it started.") from error
            if isinstance(error, FleetError) or not isinstance(error, Exception):
                raise
            text = "the driver does not answer" if isinstance(error, TimeoutError) else str(error)
            raise FleetError(f"Spark could not be started: {text}\n{tail}") from error

    def _open(self, driver: LockedDriver, thread: OwnThread, conf: dict[str, str] | None) -> None:
        """Open the context; runs on the fleet's own thread, as all calls into the JVM do."""
        import pyspark  # noqa: F401 - takes half a second, while the JVM starts

        address = driver.record.gateway if conf is None else driver.jvm.wait_ready()
        context = OwnContext(address, conf, PYTHON)
        self._context = context
        if conf is not None:
            port = context.spark._jsc.sc().conf().get("spark.driver.port")
            record = replace(
                driver.record,
                gateway_port=address.port,
                gateway_secret=address.secret,
                driver_url=f"spark://CoarseGrainedScheduler@{self._host}:{port}",
                app_id=str(context.spark.applicationId),
            )
            self._home.save(driver, record)
        self._jobs.connect(thread, context, driver.jvm)
        self._stages.connect(thread, context)

    def executor_for(self, taskmanager_id: str, cores: int) -> ExecutorSpec | None:
        """What a TaskManager has to start so that slots can run on it; each call names another executor.

        Raises:
            FleetError: the fleet does not run.
        """
        with self._guard:
            driver = self._driver
            if driver is None or not self.is_alive():
                raise FleetError(f"The fleet is not running: there is no executor for TaskManager {taskmanager_id}.")
            try:
                executor = self._home.new_executor(driver)
            except OSError as error:
                raise FleetError(f"The cluster's directory can't be written: {error.strerror or error}.") from error
            record = driver.record
        logger.info("executor %s is for TaskManager %s", executor, taskmanager_id)
        return ExecutorSpec(executor, record.driver_url, record.app_id, record.spark_salt, cores)

    def attached_executors(self) -> frozenset[str] | None:
        """Ids of the executors that can take slots now."""
        return self._executors() or frozenset()

    def _executors(self, seconds: float = ANSWER_SECONDS) -> frozenset[str] | None:
        """Ids of the executors that the driver has; None if it does not answer in time."""
        thread, context = self._thread, self._context
        if thread is None or context is None or not self.is_alive():
            return None
        try:
            names = thread.call(lambda: str(context.slots.executors(context.spark._jsc.sc())), seconds)
        except Exception as error:  # py4j raises whatever comes; silence is counted
            self._no_answer(error)
            return None
        self._silences = 0
        return frozenset(name for name in names.split("\n") if name)

    def start_slot(self, launch: SlotLaunch) -> None:
        """Submit the job of a slot, pinned to its executor.

        Raises:
            FleetError: the fleet does not run, or knows this allocation already.
        """
        if not self.is_alive():
            raise FleetError(f"The fleet is not running: slot {launch.allocation_id} can't be started.")
        if not launch.executor_id:
            raise FleetError(f"Slot {launch.allocation_id} names no executor.")
        self._jobs.start(launch, launch.executor_id)

    def ended_slots(self) -> list[Ended]:
        """(allocation id, outcome, message) of each slot that ended since the last call.

        Slots that run when the driver dies are not among them: only their TaskManagers know their end.
        """
        try:
            return self._jobs.take_ended()
        except TimeoutError as error:
            self._no_answer(error)
            return []

    def cancel_slot(self, allocation_id: str) -> None:
        """Cancel the slot's job. After that its process may be killed and is not started again."""
        self._jobs.cancel(allocation_id)

    def is_alive(self) -> bool:
        """Whether slots can be started now: the driver runs, and we are attached to it."""
        driver, context = self._driver, self._context
        return (
            self._ready and driver is not None and driver.jvm.is_running() and context is not None and context.is_open()
        )

    def _no_answer(self, error: Exception) -> None:
        """Count a call without an answer; after ``_SILENCES`` in a row the driver is killed, for a new one to start.

        Slots survive that: executors outlive their driver.
        """
        driver = self._driver
        if driver is None or not driver.jvm.is_running():
            return
        self._silences += 1
        logger.warning("the Spark driver does not answer: %s", error or type(error).__name__)
        if self._silences >= _SILENCES:
            logger.error("the Spark driver (pid %d) is killed, since it does not answer", driver.jvm.identity.pid)
            driver.jvm.kill()

    def in_jvm(self, call: Callable[[Any], T], seconds: float = ANSWER_SECONDS) -> T:
        """Run a function with py4j's view of the driver's JVM; for providers that talk to a cluster manager from there.

        All calls into the JVM come one after the other, and slots start and end by such calls: it has to be short.

        Args:
            call: takes the view (``jvm.java.lang.System``); what it raises is passed on.
            seconds: to wait for it; it may still come to its end later.

        Raises:
            FleetError: the fleet does not run, or there is no answer in time.
        """
        thread, context = self._thread, self._context
        if thread is None or context is None or not self.is_alive():
            raise FleetError("The fleet is not running: there is no JVM to ask.")
        try:
            return thread.call(lambda: call(context.spark._jvm), seconds)
        except TimeoutError as error:
            raise FleetError(f"The Spark driver has not answered within {seconds:g} s.") from error

    def exercise(self) -> None:
        """Run a small bounded stage with a shuffle."""
        thread, context = self._thread, self._context
        if thread is not None and context is not None:
            thread.call(lambda: small_stage(context))

    def detach(self) -> None:
        """Leave the driver and its slots to whoever attaches next; the fleet can be started again.

        A driver that is being started, or has no executor, has nothing for a successor: it ends. One that is being
        attached to is waited for.
        """
        if not self._life.acquire(blocking=False):
            if self._launching:
                self._abort()
            self._life.acquire()
        try:
            driver = self._driver
            if driver is not None and driver.is_early:
                self._end(driver, _EXIT_SECONDS)
            elif driver is not None and self._executors(_LOOK_SECONDS) == frozenset():
                logger.info("the driver with pid %d has no executor: it ends", driver.record.pid)
                self._end(driver, _EXIT_SECONDS)
            elif driver is not None:
                logger.info("the driver with pid %d goes on for the next ResourceManager", driver.record.pid)
                self._disconnect(stop=False)
                driver.lock.release()
                self._home.release()
        finally:
            self._life.release()

    def stop(self, grace: float = _EXIT_SECONDS) -> None:
        """End all slots, the context and the driver. May be called at any time, again, and from a forked child.

        A driver that we are not attached to is left alone; slots of one that has died go on.

        Args:
            grace: seconds for the JVM to end by itself once Spark has stopped.
        """
        if os.getpid() != self._owner:
            return
        if not self._life.acquire(blocking=False):
            if not self._ready:
                self._abort()
            self._life.acquire()
        try:
            if self._driver is not None:
                self._end(self._driver, grace)
        finally:
            self._life.release()

    def _abort(self) -> None:
        """Have `start`, which is under way in another thread, end the driver and fail."""
        self._aborted = True
        if (starting := self._driver) is not None:
            starting.jvm.kill()

    def _end(self, driver: LockedDriver, grace: float) -> None:
        """End the driver that we are attached to, and let another process have the fleet. Needs the life lock."""
        self._end_driver(driver, grace)
        self._home.release()

    def _end_driver(self, driver: LockedDriver, grace: float) -> None:
        was_running = driver.jvm.is_running()
        self._disconnect(stop=was_running)
        driver.jvm.end(grace if was_running else 0.0)
        self._home.forget(driver, keep_record=not was_running)

    def _disconnect(self, stop: bool) -> None:
        """Forget the driver; with ``stop`` its context is stopped, and so the JVM ends. Needs the life lock."""
        driver, thread = self._driver, self._thread
        maker, self._maker = self._maker, None
        if maker is not None:
            maker.release()  # it ends while we do
        self._ready = False
        if driver is not None and thread is not None:
            try:
                with without_py4j_log():
                    thread.call(lambda: self._close_context(stop), ANSWER_SECONDS)
            except Exception as error:
                logger.warning("Spark did not stop in order: %s", error or type(error).__name__)
                if stop:
                    driver.jvm.kill()  # a call into a dead JVM comes back
            thread.stop(ANSWER_SECONDS)
        self._jobs.disconnect("the fleet was stopped" if stop else None)
        self._stages.disconnect()
        if maker is not None:
            end_together(maker, None, _MAKER_SECONDS)
        self._driver = self._thread = None

    def _close_context(self, stop: bool) -> None:
        """Close the context; runs on the own thread, behind any call that is still opening one."""
        context, self._context = self._context, None
        if context is not None:
            try:
                if stop and context.is_open():
                    _cancel_all(context)
            finally:
                context.close(stop=stop)


def _cancel_all(context: OwnContext) -> None:
    """Cancel all slots: else executors would stay for them when the driver goes."""
    try:
        cancelled = context.slots.cancelAll(context.spark._jsc.sc(), _CANCEL_MILLISECONDS)
    except Exception as error:  # the JVM died meanwhile, or somebody stopped the context in it
        logger.warning("the slots were not cancelled: %s", reason_of(error))
    else:
        if not cancelled:
            logger.warning("Spark has not confirmed that all slots are cancelled")

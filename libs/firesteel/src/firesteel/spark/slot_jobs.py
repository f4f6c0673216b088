"""Slots as Spark jobs of one task, for any fleet: how they start, end and are cancelled.

The jobs themselves are kept in the driver (``Slots.java``), so that they are found again by whoever attaches next.
"""

from __future__ import annotations

import logging
import pickle
import threading
from typing import Any

from firesteel.core.errors import FleetError
from firesteel.protocol.fleet import SlotLaunch, SlotOutcome
from firesteel.spark.context import OwnContext, reason_of
from firesteel.spark.driver import Driver
from firesteel.spark.own_thread import OwnThread
from firesteel.spark.quiet import without_py4j_log
from firesteel.spark.slot_task import SlotMain, SlotTask, decode_end, encode_launch

logger = logging.getLogger(__name__)

ANSWER_SECONDS = 20.0
"""How long a short call into the JVM may take before the JVM counts as stuck."""
_CANCEL_MILLISECONDS = 2_000

Ended = tuple[str, SlotOutcome, str]


class SlotJobs:
    """The slots of one driver. Methods may be called from any number of threads.

    Args:
        slot_main: the function that a slot runs; workers must be able to import it.
        outlive: whether running slots go on when the driver dies: they are forgotten then, not reported.
    """

    def __init__(self, slot_main: SlotMain, *, outlive: bool) -> None:
        self._task, self._outlive = SlotTask(pickle.dumps(slot_main)), outlive
        self._guard = threading.Lock()
        """Held for a moment around the fields below."""
        self._running: dict[str, bool] = {}
        """allocation id -> whether its job was submitted."""
        self._cancelled: set[str] = set()
        self._ended: list[Ended] = []
        self._link: tuple[OwnThread, OwnContext, Driver] | None = None

    def connect(self, thread: OwnThread, context: OwnContext, driver: Driver) -> None:
        """Use this driver, and take over slots that run there already. Runs on the own thread."""
        running_slots = [name for name in str(context.slots.started()).split("\n") if name]
        with self._guard:
            self._link = thread, context, driver
            self._running.update(dict.fromkeys(running_slots, True))

    def disconnect(self, message: str | None) -> None:
        """Forget the driver. Slots that still run are reported as lost with this message; without one, forgotten."""
        with self._guard:
            self._link = None
            names = list(self._running)
            if message is None:
                self._forget(names)
        self._report([(name, SlotOutcome.LOST, message or "") for name in names])

    def known(self) -> frozenset[str]:
        """Allocation ids of slots whose end was not reported."""
        with self._guard:
            return frozenset(self._running)

    def start(self, launch: SlotLaunch, executor_id: str) -> None:
        """Submit the job of a slot.

        Args:
            launch: what travels to it.
            executor_id: where it has to run; if Spark does not have that one, the slot is reported as MISPLACED. Empty:
                anywhere.

        Raises:
            FleetError: the driver is not there, or knows this allocation already.
        """
        name = launch.allocation_id
        with self._guard:
            if self._link is None:
                raise FleetError(f"The fleet is not running: slot {name} can't be started.")
            if name in self._running:
                raise FleetError(f"Slot {name} was started before.")
            self._running[name] = False
            thread, context, _ = self._link
        try:
            placed = thread.call(lambda: self._submit(context, launch, executor_id))
        except Exception as error:  # py4j raises whatever comes; the reason is told
            with self._guard:
                self._forget([name])
            raise FleetError(f"Slot {name} could not be started: {reason_of(error)}") from error
        if not placed:
            self._report([(name, SlotOutcome.MISPLACED, f"executor {executor_id} is not attached to the driver")])
            return
        with self._guard:
            if name in self._running:
                self._running[name] = True
            cancelled = name in self._cancelled
        if cancelled:  # while it was being submitted, when there was no job yet to cancel
            self.cancel(name)

    def submit(self, context: OwnContext, launch: SlotLaunch, task: SlotTask, executor_id: str = "") -> bool:
        """Hand a slot's job to Spark; False if Spark has no such executor. Runs on the own thread."""
        from pyspark.core.rdd import RDD
        from pyspark.serializers import NoOpSerializer

        spark = context.spark
        partition = context.slots.partition(spark._jsc, encode_launch(launch), executor_id)
        if partition is None:
            return False
        launch_data: Any = RDD(partition, spark, NoOpSerializer())
        job: Any = launch_data.mapPartitions(task)
        job._jrdd_deserializer = NoOpSerializer()  # bytes both ways: the driver unpickles nothing
        context.slots.start(job._jrdd, launch.allocation_id)
        return True

    def _submit(self, context: OwnContext, launch: SlotLaunch, executor_id: str) -> bool:
        return self.submit(context, launch, self._task, executor_id)

    def cancel(self, name: str) -> None:
        """Cancel the job of a slot. After that its process may be killed and is not started again."""
        with self._guard:
            if name not in self._running or self._link is None:
                return
            self._cancelled.add(name)
            if not self._running[name]:
                return  # it is being submitted; `start` sees the mark
            thread, context, driver = self._link

        def cancel() -> bool:
            with without_py4j_log():
                return bool(context.slots.cancel(context.spark._jsc.sc(), name, _CANCEL_MILLISECONDS))

        try:
            if not thread.call(cancel, ANSWER_SECONDS):
                logger.warning("Spark has not confirmed that slot %s is cancelled", name)
        except Exception as error:
            if driver.is_running():  # else the slot ends with it, which is told where it is noticed
                logger.warning("slot %s was not cancelled: %s", name, reason_of(error))

    def take_ended(self) -> list[Ended]:
        """Slots that ended since the last call.

        Raises:
            TimeoutError: the driver runs, but does not answer.
        """
        self._look()
        with self._guard:
            ended, self._ended = self._ended, []
        return ended

    def _look(self) -> None:
        """Move slots that ended from the running to the ended ones."""
        with self._guard:
            if self._link is None or not self._running:
                return
            thread, context, driver = self._link

        def take() -> str:
            with without_py4j_log():
                return str(context.slots.takeEnded())

        if driver.is_running():
            try:
                self._report(self._read(thread.call(take, ANSWER_SECONDS)))
            except TimeoutError:
                if driver.is_running():
                    logger.warning("the Spark driver does not answer")
                    raise
            except Exception as error:
                if driver.is_running():
                    logger.warning("the Spark driver does not answer: %s", reason_of(error))
        if not driver.is_running():
            with self._guard:
                names = [name for name, submitted in self._running.items() if submitted]
                if self._outlive:
                    self._forget(names)
            lost = f"the Spark driver JVM ended ({driver.exit_reason()})"
            self._report([(name, SlotOutcome.LOST, lost) for name in names])

    def _read(self, lines: str) -> list[Ended]:
        """Decode the answer of ``Slots.takeEnded`` (Java)."""
        ended_slots: list[Ended] = []
        for line in lines.splitlines():
            name, _, end = line.partition("\t")
            if end.startswith("="):
                outcome, message = decode_end(end[1:].encode())
            else:
                cancelled = name in self._cancelled
                outcome, message = SlotOutcome.LOST, "cancelled" if cancelled else end[1:]
            ended_slots.append((name, outcome, message))
        return ended_slots

    def _report(self, ended_slots: list[Ended]) -> None:
        with self._guard:
            for name, outcome, message in ended_slots:
                if name in self._running:  # another caller may have reported it meanwhile
                    self._forget([name])
                    self._ended.append((name, outcome, message))

    def _forget(self, names: list[str]) -> None:
        for name in names:
            self._running.pop(name, None)
            self._cancelled.discard(name)

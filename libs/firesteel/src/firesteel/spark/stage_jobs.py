"""Runs of bounded stages as Spark jobs, for any fleet; a JobMaster decides which stages run and how."""

from __future__ import annotations

import json
import logging
import pickle
import struct
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final, TypeVar

from firesteel.core.errors import FleetError
from firesteel.graph.bounded import Sizing
from firesteel.protocol.stages import (
    Places,
    RunLook,
    Stage,
    StageProgress,
    StageQuery,
    StageRun,
    StageTaskInput,
    TaskProgress,
)
from firesteel.spark.context import OwnContext, reason_of
from firesteel.spark.own_thread import OwnThread
from firesteel.spark.quiet import without_py4j_log
from firesteel.spark.slot_jobs import ANSWER_SECONDS

logger = logging.getLogger(__name__)
START_SECONDS: Final = 60.0
QUERY_FORMATS: Final = frozenset(("parquet",))
"""Formats of files that queries may read."""
PARTITION_BYTES: Final = 16 << 20
"""Bytes of compressed files for each partition of a query's shuffles: several times as many as rows in memory. Spark
joins partitions that turn out to be small."""
MOST_PARTITIONS: Final = 2000
T = TypeVar("T")
StageMain = Callable[[Mapping[str, Any], Mapping[str, bytes], int, int, Iterator[bytes]], Iterator[bytes]]
"""The function of a task: takes the stage's ``task``, the blobs, subtask, attempt and input; yields its output."""


class StageFunction:
    """The function of all tasks of a stage.

    Args:
        stage_main: the pickled function, unpickled in here.
        task: of the stage, as JSON.
        blobs: of the job.
    """

    def __init__(self, stage_main: bytes, task: str, blobs: Mapping[str, bytes]) -> None:
        self._stage_main, self._task, self._blobs = stage_main, task, dict(blobs)

    def __call__(self, subtask: int, elements: Iterator[bytes]) -> Iterator[bytes]:
        """Run one task in a Spark worker; yields partition number and blob in turn."""
        from pyspark import TaskContext

        context = TaskContext.get()
        # Spark's attempts of this task, not its taskAttemptId, which counts the tasks of all jobs of the driver.
        retries = 0 if context is None else int(context.attemptNumber())
        main: StageMain = pickle.loads(self._stage_main)
        task = json.loads(self._task)
        return main(task, self._blobs, subtask, task.get("attempt", 0) + retries, elements)


class StageJobs:
    """The runs of one driver. Methods may be called from any number of threads.

    Args:
        stage_main: what a task does; workers must be able to import it.
    """

    def __init__(self, stage_main: StageMain | None) -> None:
        self._stage_main = None if stage_main is None else pickle.dumps(stage_main)
        self._guard = threading.Lock()
        self._link: tuple[OwnThread, OwnContext] | None = None

    def connect(self, thread: OwnThread, context: OwnContext) -> None:
        """Use this driver from now on."""
        with self._guard:
            self._link = thread, context

    def disconnect(self) -> None:
        """Forget the driver and its runs: further calls raise ``FleetError``."""
        with self._guard:
            self._link = None

    def start(self, run: StageRun) -> None:
        """Submit a run; one that was submitted before goes on.

        Raises:
            FleetError: the driver is not there, or refused.
        """
        if self._stage_main is None:
            raise FleetError("this fleet runs no bounded stages")
        try:
            self._call(lambda context: self._submit(context, run), START_SECONDS)
        except FleetError:
            raise
        except Exception as error:  # py4j raises whatever comes; the reason is told
            raise FleetError(f"stages could not be started: {reason_of(error)}") from error

    def look(self, run_id: str, places: Places | None = None, known_stages: Collection[str] = ()) -> RunLook:
        """Ask for the progress of a run.

        Args:
            run_id: of the run.
            places: executors and slots that its tasks may use from now on; None = as before.
            known_stages: stages whose tasks are left out of the answer, since the caller knows their ends.

        Raises:
            FleetError: the driver is not there, or does not answer.
        """

        def look(context: OwnContext) -> RunLook:
            stages = context.stages
            with without_py4j_log():
                if places is not None:
                    stages.place(run_id, _lines(places))
                state, _, message = str(stages.state(run_id)).partition(": ")
                lines = str(stages.progress(context.spark._jsc, run_id, "\n".join(known_stages)))
                return RunLook(state, message, _progress(lines), _pages(str(stages.pages(context.spark._jsc))))

        try:
            return self._call(look)
        except TimeoutError as error:
            raise FleetError("the Spark driver does not answer") from error

    def results(self, run_id: str) -> list[bytes]:
        """The results that the tasks of a finished run have reported, in no order.

        Raises:
            FleetError: the driver is not there, or does not answer.
        """
        return self._call(lambda context: [bytes(result) for result in context.stages.results(run_id)], START_SECONDS)

    def drop(self, run_id: str) -> None:
        """End a run, if it goes on, and remove what it has left. Nothing happens if it is not known."""
        self._drop(lambda context: context.stages.drop(context.spark._jsc, run_id))

    def drop_all(self, owner: str) -> None:
        """Do the same with all runs of a job."""
        self._drop(lambda context: context.stages.dropAll(context.spark._jsc, owner))

    def _drop(self, call: Callable[[OwnContext], None]) -> None:
        """Call the driver; without one there is nothing to drop. Failures are logged, as nobody waits for this."""
        try:
            with without_py4j_log():
                self._call(call)
        except FleetError:
            return
        except Exception as error:  # py4j raises whatever comes when the driver dies
            logger.warning("stages may be left in Spark: %s", reason_of(error) or type(error).__name__)

    def _call(self, call: Callable[[OwnContext], T], seconds: float = ANSWER_SECONDS) -> T:
        with self._guard:
            link = self._link
        if link is None:
            raise FleetError("the fleet is not running: stages can't be run")
        thread, context = link
        return thread.call(lambda: call(context), seconds)

    def _submit(self, context: OwnContext, run: StageRun) -> None:
        """Submit a run, on the own thread. Each stage is a Spark job that begins when all its inputs have ended."""
        assert self._stage_main is not None
        from pyspark.core.rdd import RDD
        from pyspark.serializers import NoOpSerializer

        spark, stages = context.spark, context.stages
        if str(stages.state(run.id)) != "unknown":
            return  # it was submitted before, and goes on
        stages.begin(spark._jsc, run.id, run.owner)
        if run.places is not None:
            stages.place(run.id, _lines(run.places))
        for stage in run.stages:
            if stage.query is None:
                spec = _spec(stage.tasks, stage.sizing, stage.bucket_bytes)
                read = stages.input(spark._jsc, run.id, list(stage.reads), bytearray(spec))
            else:
                read = _query(context, run, stage, stage.query)
            function: Any = StageFunction(self._stage_main, json.dumps(dict(stage.task)), run.blobs)
            pairs: Any = RDD(read, spark, NoOpSerializer()).mapPartitionsWithIndex(function, True)
            pairs._bypass_serializer = True
            stages.output(run.id, stage.id, list(stage.reads), pairs._jrdd, stage.partitions)
        outputs = tuple((number, number, s.partitions - 1, s.partitions) for number, s in enumerate(run.stages))
        names = [stage.id for stage in run.stages]
        results = stages.input(spark._jsc, run.id, names, bytearray(_spec((StageTaskInput(plain=outputs),))))
        stages.submit(spark._jsc, run.id, results, run.cores, run.description)


class StagesFleet:
    """The part of ``firesteel.protocol.fleet.Fleet`` that runs bounded stages."""

    _stages: StageJobs

    def start_stages(self, run: StageRun) -> None:
        """Submit a run (``StageJobs.start``)."""
        self._stages.start(run)

    def look_at_stages(self, run_id: str, places: Places | None = None, known: Collection[str] = ()) -> RunLook:
        """Ask for the progress of a run (``StageJobs.look``)."""
        return self._stages.look(run_id, places, known)

    def stage_results(self, run_id: str) -> list[bytes]:
        """Results of a finished run (``StageJobs.results``)."""
        return self._stages.results(run_id)

    def drop_stages(self, run_id: str) -> None:
        """End and remove a run (``StageJobs.drop``)."""
        self._stages.drop(run_id)

    def drop_stages_of(self, owner: str) -> None:
        """End and remove all runs of a job (``StageJobs.drop_all``)."""
        self._stages.drop_all(owner)


def check_query(query: StageQuery) -> None:
    """Check that a query touches nothing but Spark SQL.

    Raises:
        FleetError: it has a setting that is not Spark SQL's, or a format that queries may not read.
    """
    refused = [key for key in query.settings if not key.startswith("spark.sql.")]
    refused += [table.format for table in query.tables if table.format not in QUERY_FORMATS]
    if refused:
        raise FleetError(f"a query of Spark SQL can't have {', '.join(refused)}")


def _query(context: OwnContext, run: StageRun, stage: Stage, query: StageQuery) -> Any:
    """What a stage reads with a query in front of it."""
    check_query(query)
    volume = sum(table.bytes for table in query.tables)
    partitions = min(MOST_PARTITIONS, max(2 * run.cores, volume // PARTITION_BYTES))
    settings = {"spark.sql.shuffle.partitions": str(partitions), **query.settings}
    tables = [
        [table.name, table.format, table.columns, dict(table.options), list(table.files)] for table in query.tables
    ]
    recursions = [list(recursion) for recursion in query.recursions]
    return context.stages.query(
        context.spark._jsc,
        run.id,
        stage.id,
        query.text,
        settings,
        tables,
        recursions,
        query.max_iterations,
        query.tasks,
    )


def _spec(tasks: tuple[StageTaskInput, ...], sizing: Sizing | None = None, bucket_bytes: int = 0) -> bytes:
    """Encode the input of tasks as bytes, in the format that ``Stages.input`` (Java) reads."""
    parts = [b"\0" if sizing is None else struct.pack(">biiq", 1, *sizing), struct.pack(">i", len(tasks))]
    for task in tasks:
        own_input = None if task.own is None else task.own.encode()
        parts.append(struct.pack(">i", -1) if own_input is None else struct.pack(">i", len(own_input)) + own_input)
        parts.append(struct.pack(">q", bucket_bytes))
        for pieces in (task.plain, task.keyed):
            parts.append(struct.pack(">i", len(pieces)))
            parts += [struct.pack(">4i", *piece) for piece in pieces]
    return b"".join(parts)


def _lines(places: Places) -> str:
    """Encode places as lines of text, in the format that ``Stages.place`` (Java) reads."""
    return "".join(f"{executor}\t{cores}\t{slots}\n" for executor, (cores, slots) in places.items())


def _pages(url: str) -> str:
    """Address of Spark's pages: it names the driver's host, but listens at 127.0.0.1 (``jvm.child_environment``)."""
    return f"http://127.0.0.1:{url.rsplit(':', 1)[1]}" if ":" in url else ""


def _progress(lines: str) -> dict[str, StageProgress]:
    """Decode the answer of ``Stages.progress`` (Java): a line for each stage, followed by lines of its tasks."""
    progress_by_stage: dict[str, StageProgress] = {}
    last = ""
    for line in lines.splitlines():
        name, *fields = line.split("\t")
        if name:
            last = name
            tasks, active, complete, failed, number = map(int, fields)
            progress_by_stage[name] = StageProgress(tasks, active, complete, failed, number)
        else:
            subtask, status, *totals = fields
            task = TaskProgress(int(subtask), status, *map(int, totals))
            progress_by_stage[last] = progress_by_stage[last]._replace(
                subtasks=(*progress_by_stage[last].subtasks, task)
            )
    return progress_by_stage

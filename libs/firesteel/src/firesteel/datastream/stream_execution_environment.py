"""The environment in which a program begins: its settings, its sources, and the execution of what it describes.

A stream adds its operators here (``_add``); ``execute()`` makes a graph of those that were added since the last call.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable
from copy import copy, deepcopy
from typing import Any, Final, NoReturn, Self

from firesteel.common.configuration import Configuration
from firesteel.common.execution_config import ExecutionConfig
from firesteel.common.executor import ClusterJobs, CollectingJobClient, ExecutorFactory, PipelineExecutor
from firesteel.common.io import InputFormat
from firesteel.common.job_client import JobClient
from firesteel.common.job_execution_result import JobExecutionResult
from firesteel.common.job_id import JobID
from firesteel.common.job_status import JobStatus
from firesteel.common.restart_strategy import RestartStrategyConfiguration
from firesteel.common.submitted_jobs import SubmittedJob, submitted_jobs
from firesteel.common.typeinfo import TypeDescriptor, TypeInformation
from firesteel.common.watermark_strategy import WatermarkStrategy
from firesteel.config import Option, Settings
from firesteel.config import options as opt
from firesteel.connectors.collection import CollectionSource
from firesteel.connectors.number_sequence import NumberSequenceSource
from firesteel.connectors.socket_text import SocketTextSource
from firesteel.core import plugins
from firesteel.core.errors import JobError, UnsupportedFeatureError
from firesteel.core.machine import usable_cores
from firesteel.datastream import checks, event_time
from firesteel.datastream.caches import Cache, Caches
from firesteel.datastream.checkpoint_config import CheckpointConfig
from firesteel.datastream.checkpointing_mode import CheckpointingMode
from firesteel.datastream.closeable_iterator import CloseableIterator
from firesteel.datastream.data_stream import DataStream
from firesteel.datastream.environment_settings import (
    apply_settings,
    buffer_timeout_ms,
    graph_settings,
    program_settings,
    restart_options,
    restart_strategy_of,
    warn_of_losses,
    warn_of_settings,
    with_execution_config,
)
from firesteel.datastream.execution_mode import RuntimeExecutionMode
from firesteel.datastream.near_names import NearNames
from firesteel.datastream.notebook_cards import cluster_of, environment_card
from firesteel.datastream.operator_settings import group_name
from firesteel.datastream.slot_sharing_group import SlotSharingGroup
from firesteel.datastream.state_backend import StateBackend, state_backend_of
from firesteel.datastream.state_checks import check_state
from firesteel.datastream.time_characteristic import TimeCharacteristic
from firesteel.functions.coroutines import refuse_coroutines
from firesteel.functions.source import Source
from firesteel.functions.source_function import ParallelSourceFunction, SourceFunction
from firesteel.graph.node_ids import operator_ids
from firesteel.graph.plan import execution_plan
from firesteel.graph.projections import push_down
from firesteel.graph.specs import OperatorKind
from firesteel.graph.stream_graph import StreamGraph, StreamInput, Transformation

__all__ = ["StreamExecutionEnvironment"]

logger = logging.getLogger(__name__)
_CANCEL_SECONDS: Final = 60.0


class StreamExecutionEnvironment(NearNames):
    """Makes streams, holds the program's settings, and executes what was built.

    Get one with ``StreamExecutionEnvironment.get_execution_environment()``. Settings come, later ones winning, from
    ``config.yaml``, environment variables, the command line, the configuration given, and the methods called.

    Args:
        configuration: the program's settings.
        executor: what to submit to; by default the one that ``execution.target`` names.

    Raises:
        ConfigurationError: an option that the environment reads has a bad value.
        UnsupportedFeatureError: the settings ask for BATCH mode.

    Examples:
        ```python
        from firesteel.datastream import StreamExecutionEnvironment

        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
        env.from_collection(["to", "be"]).map(str.upper).print()
        env.execute("capitals")
        ```

        ```text
        TO
        BE
        ```
    """

    def __init__(self, configuration: Configuration | None = None, executor: PipelineExecutor | None = None) -> None:
        self._configuration = Configuration()
        self._config = ExecutionConfig()
        self._time_characteristic = TimeCharacteristic.EventTime
        self._executor = executor
        self._pending: list[Transformation] = []
        self._next_id = 1
        self._default_local_parallelism: int | None = None
        self._caches = Caches()
        self._warned_of_no_jvm: set[str] = set()
        apply_settings(program_settings(self._configuration), self._config)
        self.configure(Configuration() if configuration is None else configuration)

    # --- settings --------------------------------------------------------------------------------------------------

    @staticmethod
    def get_execution_environment(configuration: Configuration | None = None) -> StreamExecutionEnvironment:
        """Returns a new environment with these settings."""
        return StreamExecutionEnvironment(configuration)

    def with_same_settings(self) -> StreamExecutionEnvironment:
        """Returns an environment with the same settings in which nothing is built: for a job of its own."""
        other = copy(self)
        other._configuration, other._config = Configuration(self._configuration), deepcopy(self._config)
        other._pending, other._next_id, other._caches = [], 1, Caches()
        return other

    def get_config(self) -> ExecutionConfig:
        """Returns the program's settings; changes to them count."""
        return self._config

    def configure(self, configuration: Configuration) -> None:
        """Adds settings; those given here win over earlier ones.

        Raises:
            ConfigurationError: a value that the environment itself reads is not valid.
        """
        if not isinstance(configuration, Configuration):
            raise TypeError(f"configure() takes a Configuration, not {type(configuration).__name__}")
        added = Configuration(self._configuration).add_all(configuration)
        graph_settings(program_settings(added), 1)  # checks the values
        apply_settings(Settings(configuration.to_dict()), self._config)
        self._configuration = added

    def set_parallelism(self, parallelism: int) -> StreamExecutionEnvironment:
        """Sets the parallelism of operators that are added from now on and name none.

        Raises:
            ValueError: less than 1.
        """
        self._config.set_parallelism(checks.whole_number("the parallelism", parallelism, 1))
        return self

    def get_parallelism(self) -> int:
        """Returns the parallelism of operators that name none; if it was not set, the executor's default."""
        parallelism = self._config.get_parallelism()
        return parallelism if parallelism > 0 else self._default_parallelism()

    def set_max_parallelism(self, max_parallelism: int) -> StreamExecutionEnvironment:
        """Sets the number of key groups of operators that name none.

        Raises:
            ValueError: not between 1 and 32768.
        """
        most = checks.MAX_PARALLELISM
        self._config.set_max_parallelism(checks.whole_number("the max parallelism", max_parallelism, 1, most))
        return self

    def get_max_parallelism(self) -> int:
        """Returns the number of key groups; -1 if it was not set."""
        return self._config.get_max_parallelism()

    def set_buffer_timeout(self, timeout_millis: int) -> StreamExecutionEnvironment:
        """Sets how long results may wait for their batch to fill: 0 = not at all, -1 = until it is full.

        Raises:
            ValueError: less than -1.
        """
        checks.whole_number("the buffer timeout", timeout_millis, -1)
        self._configuration.set_boolean(opt.EXECUTION_BUFFER_TIMEOUT_ENABLED.key, timeout_millis >= 0)
        if timeout_millis >= 0:
            self._configuration.set_string(opt.EXECUTION_BUFFER_TIMEOUT_INTERVAL.key, f"{timeout_millis} ms")
        return self

    def get_buffer_timeout(self) -> int:
        """Returns the buffer timeout in ms; -1 = until the batch is full."""
        return buffer_timeout_ms(self._settings())

    def disable_operator_chaining(self) -> StreamExecutionEnvironment:
        """Runs each operator as a task of its own."""
        self._configuration.set_boolean(opt.PIPELINE_OPERATOR_CHAINING.key, False)
        return self

    def is_chaining_enabled(self) -> bool:
        """Returns whether operators may be chained."""
        return self._settings().get(opt.PIPELINE_OPERATOR_CHAINING)

    def is_chaining_of_operators_with_different_max_parallelism_enabled(self) -> bool:
        """Returns whether operators with different max parallelisms may be chained."""
        return self._settings().get(opt.PIPELINE_CHAIN_DIFFERENT_MAX_PARALLELISM)

    def set_runtime_mode(self, execution_mode: RuntimeExecutionMode) -> StreamExecutionEnvironment:
        """Sets how the program is run.

        ``BATCH``: on Spark's stages, with results at the end; all sources have to be bounded. ``AUTOMATIC``: so if they
        are, else ``STREAMING``.
        """
        if not isinstance(execution_mode, RuntimeExecutionMode):
            raise TypeError(f"set_runtime_mode() takes a RuntimeExecutionMode, not {type(execution_mode).__name__}")
        self._configuration.set_string(opt.EXECUTION_RUNTIME_MODE.key, execution_mode.value)
        return self

    def get_runtime_mode(self) -> RuntimeExecutionMode:
        """Returns how the program is run, as far as it says so itself."""
        mode = self._configuration.get_string(opt.EXECUTION_RUNTIME_MODE.key, RuntimeExecutionMode.STREAMING.value)
        return RuntimeExecutionMode(str(mode).upper())

    def get_default_local_parallelism(self) -> int:
        """Returns the number of usable cores, unless it was set."""
        return self._default_local_parallelism or usable_cores()

    def set_default_local_parallelism(self, parallelism: int) -> None:
        """Sets the parallelism that is taken where nothing else says.

        Raises:
            ValueError: less than 1.
        """
        self._default_local_parallelism = checks.whole_number("the parallelism", parallelism, 1)

    def register_slot_sharing_group(self, slot_sharing_group: SlotSharingGroup) -> StreamExecutionEnvironment:
        """Accepts a group whose name operators may use later.

        Raises:
            UnsupportedFeatureError: the group names resources.
        """
        if not isinstance(slot_sharing_group, SlotSharingGroup):
            kind = type(slot_sharing_group).__name__
            raise TypeError(f"register_slot_sharing_group() takes a SlotSharingGroup, not {kind}")
        group_name(slot_sharing_group)
        return self

    # --- checkpoints, state and restarts ---------------------------------------------------------------------------

    def get_checkpoint_config(self) -> CheckpointConfig:
        """Returns the settings of checkpoints; changes to them count."""
        return CheckpointConfig(lambda: self._configuration, self._settings)

    def enable_checkpointing(self, interval: int, mode: CheckpointingMode | None = None) -> Self:
        """Sets the time between two checkpoints, in ms, and their mode.

        With checkpoints a job that fails goes on from the last one (docs: Checkpoints).

        Raises:
            ValueError: less than 10 ms.
        """
        config = self.get_checkpoint_config().set_checkpoint_interval(interval)
        if mode is not None:
            config.set_checkpointing_mode(mode)
        return self

    def get_checkpoint_interval(self) -> int:
        """Returns the time between two checkpoints in ms; -1 if none are wanted."""
        return self.get_checkpoint_config().get_checkpoint_interval()

    def get_checkpointing_mode(self) -> CheckpointingMode:
        """Returns the mode of checkpoints."""
        return self.get_checkpoint_config().get_checkpointing_mode()

    def get_checkpointing_consistency_mode(self) -> CheckpointingMode:
        """Returns the mode of checkpoints (the name since Flink 1.20)."""
        return self.get_checkpointing_mode()

    def is_unaligned_checkpoints_enabled(self) -> bool:
        """Returns whether checkpoints overtake records in flight."""
        return self.get_checkpoint_config().is_unaligned_checkpoints_enabled()

    def is_force_unaligned_checkpoints(self) -> bool:
        """Returns whether checkpoints overtake even where partitioners do not allow it."""
        return self.get_checkpoint_config().is_force_unaligned_checkpoints()

    def enable_changelog_state_backend(self, enabled: bool) -> Self:
        """Asks for changes of state to be written continuously; kept with the job, there is no such backend."""
        self._configuration.set_boolean(opt.STATE_CHANGELOG.key, bool(enabled))
        return self

    def is_changelog_state_backend_enabled(self) -> bool | None:
        """Returns what was set; None if nothing was."""
        settings = self._settings()
        return settings.get(opt.STATE_CHANGELOG) if settings.is_set(opt.STATE_CHANGELOG) else None

    def set_default_savepoint_directory(self, directory: str) -> Self:
        """Sets where savepoints go that name no directory."""
        self._configuration.set_string(
            opt.SAVEPOINT_DIRECTORY.key, checks.some_text("the savepoint directory", directory)
        )
        return self

    def get_default_savepoint_directory(self) -> str | None:
        """Returns where savepoints go that name no directory; None if it was not set."""
        return self._settings().get(opt.SAVEPOINT_DIRECTORY)

    def set_state_backend(self, state_backend: StateBackend) -> Self:
        """Sets where keyed state lives (PyFlink 1.x; later versions use ``state.backend.type``).

        A backend that this version does not have is named in a warning when the program is submitted.
        """
        if not isinstance(state_backend, StateBackend):
            raise TypeError(
                f"set_state_backend() takes a StateBackend such as HashMapStateBackend(), not "
                f"{type(state_backend).__name__}"
            )
        for key, text in state_backend.to_options().items():
            self._configuration.set_string(key, text)
        return self

    def get_state_backend(self) -> StateBackend | None:
        """Returns where keyed state lives, with its settings; None if nothing was set, or a plug-in."""
        return state_backend_of(self._settings())

    def set_stream_time_characteristic(self, characteristic: TimeCharacteristic) -> Self:
        """Sets the interval of watermarks for a time (PyFlink 1.x): none by processing time, 200 ms else.

        Which time windows and timers go by they say themselves. ``IngestionTime`` is event time here; its timestamps
        come from a ``WatermarkStrategy``.
        """
        if not isinstance(characteristic, TimeCharacteristic):
            raise TypeError(f"set_stream_time_characteristic() takes a TimeCharacteristic, not {characteristic!r}")
        self._time_characteristic = characteristic
        by_clock = characteristic is TimeCharacteristic.ProcessingTime
        self._config.set_auto_watermark_interval(0 if by_clock else 200)
        return self

    def get_stream_time_characteristic(self) -> TimeCharacteristic:
        """Returns what ``set_stream_time_characteristic`` set; event time by default, as since Flink 1.12."""
        return self._time_characteristic

    def set_restart_strategy(self, restart_strategy_configuration: RestartStrategyConfiguration) -> Self:
        """Sets what happens when a job fails (PyFlink 1.x; later versions use ``restart-strategy.type``)."""
        if not isinstance(restart_strategy_configuration, RestartStrategyConfiguration):
            raise TypeError(
                "set_restart_strategy() takes RestartStrategies.fixed_delay_restart(...) or the like, not "
                f"{type(restart_strategy_configuration).__name__}"
            )
        for option, value in restart_options(restart_strategy_configuration):
            text = option.type.show(value)
            option.parse(text)
            self._configuration.set_string(option.key, text)
        return self

    def get_restart_strategy(self) -> RestartStrategyConfiguration:
        """Returns what happens when a job fails, as far as ``RestartStrategies`` has a name for it."""
        return restart_strategy_of(self._settings())

    # --- Python files, packages, archives --------------------------------------------------------------------------

    def add_python_file(self, file_path: str) -> None:
        """Sends a Python file along with the jobs: a module, an archive (.zip, .whl, .egg) or a directory.

        Slots find what is in it before everything else. Modules that the program imports from its own directory travel
        by themselves.
        """
        self._append(opt.PYTHON_FILES, checks.path_in_list("the path of a Python file", file_path))

    def set_python_requirements(self, requirements_file_path: str, requirements_cache_dir: str | None = None) -> None:
        """Gives the job's slots the packages of a requirements.txt.

        They are installed by pip on each host that runs slots of the job, once for the same dependencies, into a
        virtual environment that also sees what the cluster has; it is removed when no job uses it.

        Args:
            requirements_file_path: the file.
            requirements_cache_dir: a directory with packages; if it is given, pip asks no index.
        """
        path = checks.path_in_list("the path of the requirements", requirements_file_path)
        if requirements_cache_dir is not None:
            path += "#" + checks.path_in_list("the directory of packages", requirements_cache_dir)
        self._configuration.set_string(opt.PYTHON_REQUIREMENTS.key, path)

    def add_python_archive(self, archive_path: str, target_dir: str | None = None) -> None:
        """Unpacks an archive in the working directory of the job's slots, before any function runs.

        Args:
            archive_path: a .zip, .whl, .egg, .tar, .tar.gz or .tgz file.
            target_dir: name of the directory to make for it; None = the archive's file name, as in PyFlink.
        """
        path = checks.path_in_list("the path of an archive", archive_path)
        if target_dir is not None:
            path += "#" + checks.path_in_list("the target directory", target_dir)
        self._append(opt.PYTHON_ARCHIVES, path)

    def set_python_executable(self, python_exec: str) -> None:
        """Chooses the Python interpreter of the job's slots, by its path on the hosts that run them.

        A relative path starts from the directories of ``add_python_archive``: ``venv.zip/venv/bin/python``. It has to
        be of the same minor version as the program's, and to have Firesteel of the cluster's version. Functions find
        its path in the environment variable ``python``.
        """
        text = checks.some_text("the Python executable", python_exec)
        self._configuration.set_string(opt.PYTHON_EXECUTABLE.key, text)

    def add_jars(self, *jars_path: str) -> None:
        """Accepted and ignored, since no JVM carries records; said once in a warning.

        Connectors for which PyFlink needs a jar come with Firesteel under PyFlink's names, or not at all.
        """
        self._ignored("add_jars", opt.PIPELINE_JARS, jars_path)

    def add_classpaths(self, *classpaths: str) -> None:
        """Accepted and ignored, like ``add_jars``."""
        self._ignored("add_classpaths", opt.PIPELINE_CLASSPATHS, classpaths)

    def register_cached_file(self, file_path: str, name: str, executable: bool = False) -> NoReturn:
        """Refused: nothing in Python reads Flink's distributed cache.

        Raises:
            UnsupportedFeatureError: always.
        """
        raise UnsupportedFeatureError(
            f"register_cached_file({name!r}): functions in Python have no way to read Flink's distributed cache; send "
            "the file with add_python_archive(), and open it by its name in the working directory"
        )

    # --- sources ---------------------------------------------------------------------------------------------------

    def from_collection(self, collection: Iterable[Any], type_info: TypeDescriptor | None = None) -> DataStream:
        """A stream of records that the program holds in memory; its parallelism is 1.

        They travel with the program: for data beyond ``firesteel.collection.max-bytes`` use a file source.

        Raises:
            TypeError: the collection can't be iterated, or ``type_info`` is no type information.
        """
        if isinstance(collection, (str, bytes)) or not isinstance(collection, Iterable):
            raise TypeError(f"from_collection() takes a list or another collection, not {type(collection).__name__}")
        declared = checks.declared_type("type_info", type_info)
        coerce_to = checks.coerced(declared)
        source = CollectionSource(list(collection), coerce_to)
        stream = self._add_stream("Collection Source", OperatorKind.SOURCE, source, (), declared, coerce_to=coerce_to)
        stream._inputs[0].source.non_parallel = True
        return stream

    def from_sequence(self, start: int, end: int) -> DataStream:
        """A stream of the numbers from ``start`` to ``end``, both included, cut into a part for each subtask.

        Each part comes in order; a subtask that is done with its part takes over one that nobody has begun.

        Raises:
            ProgramError: ``start`` is greater than ``end``.
        """
        source = NumberSequenceSource(start, end)
        return self.from_source(source, WatermarkStrategy.no_watermarks(), "Sequence Source")

    def from_source(
        self,
        source: Source[Any],
        watermark_strategy: WatermarkStrategy,
        source_name: str,
        type_info: TypeDescriptor | None = None,
    ) -> DataStream:
        """A stream of a source's records.

        The strategy gives records their timestamps and makes watermarks, one for each split of the source; that of the
        source is the smallest.

        Raises:
            TypeError: not a source, strategy, name or type.
        """
        if not isinstance(source, Source):
            raise TypeError(f"from_source() takes a firesteel.functions.source.Source, not {type(source).__name__}")
        refuse_coroutines("from_source()", source)
        strategy = event_time.check_strategy(watermark_strategy)
        produced = source.produced_type() if type_info is None else type_info
        declared = checks.declared_type("type_info", produced)
        strategy = event_time.fitted_strategy(strategy, declared, wrap=self._settings().get(opt.EXPRESSIONS_WRAP))
        extra = event_time.source_settings(strategy, source)
        coerce_to = None if type_info is None else checks.coerced(declared)
        name = checks.some_text("source_name", source_name)
        return self._add_stream(name, OperatorKind.SOURCE, source, (), declared, coerce_to=coerce_to, extra=extra)

    def add_source(
        self,
        source_func: SourceFunction[Any] | Source[Any],
        source_name: str = "Custom Source",
        type_info: TypeDescriptor | None = None,
    ) -> DataStream:
        """A stream of what a ``SourceFunction`` gives; parallelism 1 unless it is a ``ParallelSourceFunction``.

        What it gave can't be read again after a failure: at most once. A ``Source`` is read as by ``from_source``,
        without watermarks: ``FlinkKafkaConsumer`` is one.

        Raises:
            TypeError: not a source function, name or type.
        """
        from firesteel.connectors.source_function import SourceFunctionSource

        if isinstance(source_func, Source):
            return self._without_watermarks(source_func, source_name, type_info)
        checks.check_class("add_source", source_func, SourceFunction)
        stream = self._without_watermarks(SourceFunctionSource(source_func), source_name, type_info)
        if not isinstance(source_func, ParallelSourceFunction):
            stream._inputs[0].source.non_parallel = True
        return stream

    def create_input(self, input_format: InputFormat, type_info: TypeDescriptor | None = None) -> DataStream:
        """A stream of an input format's records.

        Raises:
            TypeError: not an input format or type.
        """
        if not isinstance(input_format, InputFormat):
            raise TypeError(
                f"create_input() takes a firesteel.common.io.InputFormat, not {type(input_format).__name__}; there is "
                "no JVM for those of Java"
            )
        refuse_coroutines("create_input()", input_format)
        return self._without_watermarks(input_format.source(), "Custom Input", type_info)

    def read_text_file(self, file_path: str | os.PathLike[str], charset_name: str = "UTF-8") -> DataStream:
        """A stream of the lines of a file, or of all files below a folder. A method of PyFlink 1.x.

        Raises:
            ProgramError: the path is on another file system, or the charset is not known.
        """
        from firesteel.connectors.file_source import FileSource, StreamFormat

        lines = StreamFormat.text_line_format(charset_name)
        return self._without_watermarks(
            FileSource.for_record_stream_format(lines, file_path).build(), "Custom File Source", None
        )

    def socket_text_stream(self, hostname: str, port: int, delimiter: str = "\n", max_retries: int = 0) -> DataStream:
        """A stream of text that a server sends; parallelism 1. Java's ``socketTextStream``.

        What was read can't be read again after a failure: at most once.

        Args:
            hostname: of the server.
            port: of the server.
            delimiter: behind each record.
            max_retries: how often to connect again when the connection ends or can't be made; -1 = for ever.

        Raises:
            ProgramError: the port, the delimiter or the number is not valid.
        """
        stream = self._without_watermarks(
            SocketTextSource(hostname, port, delimiter, max_retries), "Socket Stream", None
        )
        stream._inputs[0].source.non_parallel = True
        return stream

    # --- execution -------------------------------------------------------------------------------------------------

    def execute(self, job_name: str | None = None) -> JobExecutionResult:
        """Runs what was added since the last call, and waits for its end. Ctrl-C cancels the job.

        Under ``firesteel run -d`` it returns when the cluster has accepted the job.

        Raises:
            ProgramError, ConfigurationError: refused; nothing was deployed.
            JobError: the job did not finish.
        """
        client = self._submit(*self._take(job_name))
        try:
            result = client.wait()
        except JobError:
            submitted_jobs.remove(client)
            raise
        if result.is_job_execution_result():  # else nobody waited
            submitted_jobs.remove(client)
        return result

    def execute_async(self, job_name: str | None = None) -> JobClient:
        """Starts what was added since the last call; returns when the cluster has accepted it.

        Raises:
            ProgramError, ConfigurationError: refused; nothing was deployed.
        """
        return self._submit(*self._take(job_name))

    def cancel_jobs(self) -> list[JobID]:
        """Cancels the jobs that this process has left running in the environment's cluster; waits for their ends.

        They may come from earlier environments: a cell of a notebook that is run again makes a new one. Jobs that
        others have submitted to the cluster go on.

        Returns:
            The ids of the jobs that were cancelled.

        Raises:
            RpcError: the cluster does not answer.
            TimeoutError: a job has not ended after a minute.
        """
        deadline = time.monotonic() + _CANCEL_SECONDS
        clients = [job.client for job, _ in self._running_jobs()]
        requests = [client.cancel() for client in clients]
        for client, request in zip(clients, requests, strict=True):
            try:
                request.result(max(0.0, deadline - time.monotonic()))
                client.get_job_execution_result().result(max(0.0, deadline - time.monotonic()))
            except JobError:  # cancelled, or ended in another way meanwhile
                pass
            submitted_jobs.remove(client)
        return [client.get_job_id() for client in clients]

    def cluster_jobs(self) -> ClusterJobs | None:
        """Returns the jobs of the cluster that jobs are submitted to; None if there is no cluster yet.

        Raises:
            RpcError: no cluster answers, or it refuses the client.
        """
        return self._get_executor().cluster_jobs(Configuration(self._configuration))

    def get_execution_plan(self) -> str:
        """Returns the operators that the next ``execute()`` will run, as JSON text; takes nothing away.

        Raises:
            GraphError: the graph is empty or refused.
        """
        return execution_plan(self._stream_graph(None))

    def close(self) -> None:
        """Releases what the environment holds, results of ``cache()`` too; it can be used again. Idempotent."""
        self._caches.close()
        if self._executor is not None:
            self._executor.close()

    def __repr__(self) -> str:
        where = " at ".join(cluster_of(self._settings()))
        return f"<StreamExecutionEnvironment: jobs run on {where}, {len(self._pending)} operators for the next one>"

    def _repr_html_(self) -> str:
        settings, set_here = self._settings(), self._configuration.to_dict()
        return environment_card(settings, set_here, self.get_parallelism(), self._pending, self._running_jobs())

    # --- inside ----------------------------------------------------------------------------------------------------

    def _running_jobs(self) -> list[tuple[SubmittedJob, JobStatus | None]]:
        """The jobs of this process that have not ended in the environment's cluster, with their states."""
        cluster = cluster_of(self._settings())
        return submitted_jobs.running(lambda job: job.cluster == cluster)

    def _add(
        self,
        name: str,
        kind: OperatorKind,
        function: Any,
        inputs: tuple[tuple[StreamInput, ...], ...],
        *,
        coerce_to: TypeInformation | None = None,
        key_selectors: tuple[Callable[[Any], Any], ...] = (),
        extra: dict[str, Any] | None = None,
    ) -> Transformation:
        check_state(name, kind, function)
        transformation = Transformation(
            id=self._next_id,
            name=name,
            kind=kind,
            function=function,
            inputs=inputs,
            key_selectors=key_selectors,
            coerce_to=coerce_to,
            extra=extra or {},
            parallelism=self._config.get_parallelism(),
        )
        self._next_id += 1
        if inputs:
            self._pending.append(transformation)
        return transformation

    def _add_stream(
        self,
        name: str,
        kind: OperatorKind,
        function: Any,
        inputs: tuple[tuple[StreamInput, ...], ...],
        type_info: TypeInformation,
        *,
        coerce_to: TypeInformation | None = None,
        key_selectors: tuple[Callable[[Any], Any], ...] = (),
        extra: dict[str, Any] | None = None,
    ) -> DataStream:
        """Add an operator, and return the stream of its results."""
        transformation = self._add(
            name, kind, function, inputs, coerce_to=coerce_to, key_selectors=key_selectors, extra=extra
        )
        return DataStream(self, (StreamInput(transformation),), type_info)

    def _settings(self) -> Settings:
        return program_settings(self._configuration)

    def _add_aside(self, name: str, kind: OperatorKind, inputs: tuple[tuple[StreamInput, ...], ...]) -> Transformation:
        """Add an operator that stands in a graph only if the graph is made with it as an end (the sink of a cache)."""
        transformation = self._add(name, kind, None, inputs)
        self._pending.remove(transformation)
        return transformation

    def _stream_graph(self, job_name: str | None) -> StreamGraph:
        return self._with_caches(job_name)[0]

    def _with_caches(self, job_name: str | None) -> tuple[StreamGraph, list[Cache]]:
        """The graph of the pending operators, and the caches whose results its job will write."""
        settings = program_settings(with_execution_config(self._configuration, self._config))
        settings_of_graph = graph_settings(settings, self._default_parallelism(), job_name)
        caches = self._caches.prepare(self._pending, settings.get(opt.CACHE_DIRECTORY))
        ends = [*self._pending, *(cache.sink for cache in caches)]
        graph = StreamGraph.from_transformations(ends, settings_of_graph)
        if settings.get(opt.PROJECTION_PUSH_DOWN):
            push_down(graph)
        return graph, caches

    def _take(self, job_name: str | None) -> tuple[StreamGraph, list[Cache]]:
        """Makes the graph and forgets the operators: what was refused is not tried again with the next program."""
        try:
            return self._with_caches(job_name if job_name is None else checks.some_text("the job name", job_name))
        finally:
            self._pending.clear()

    def _submit(self, graph: StreamGraph, caches: list[Cache]) -> CollectingJobClient:
        configuration = with_execution_config(self._configuration, self._config)
        warn_of_settings(program_settings(configuration))
        warn_of_losses(graph, self._settings())
        client = self._get_executor().submit(graph, configuration)
        submitted_jobs.add(client, cluster_of(self._settings()))
        for cache in caches:
            cache.is_written(client)
        return client

    def _collect(self, inputs: tuple[StreamInput, ...], job_name: str | None) -> CloseableIterator:
        buffer_bytes = self._settings().get(opt.COLLECT_BUFFER_BYTES)
        sink = self._add(
            "Data Stream Collect Sink", OperatorKind.COLLECT, None, (inputs,), extra={"buffer_bytes": buffer_bytes}
        )
        sink.non_parallel = sink.internal = True
        name = job_name if job_name is not None else self._settings().get(opt.PIPELINE_NAME) or "DataStream Collect"
        graph, caches = self._take(name)
        operator_id = operator_ids(graph)[sink.id]
        client = self._submit(graph, caches)
        return CloseableIterator(client.collect(operator_id), client)

    def _default_parallelism(self) -> int:
        return self._default_local_parallelism or self._get_executor().default_parallelism()

    def _get_executor(self) -> PipelineExecutor:
        if self._executor is None:
            target = self._settings().get(opt.EXECUTION_TARGET)
            factory: ExecutorFactory = plugins.load("firesteel.executors", target)
            self._executor = factory(Configuration(self._configuration))
        return self._executor

    def _append(self, option: Option[Any], text: str) -> None:
        earlier_paths = self._settings().get(option)
        self._configuration.set_string(option.key, f"{earlier_paths},{text}" if earlier_paths else text)

    def _ignored(self, method: str, option: Option[Any], paths: tuple[str, ...]) -> None:
        new_paths = [checks.some_text(f"an argument of {method}()", path) for path in paths]
        earlier_paths = self._settings().get(option)
        self._configuration.set_string(option.key, ";".join([*([earlier_paths] if earlier_paths else []), *new_paths]))
        if method not in self._warned_of_no_jvm:
            self._warned_of_no_jvm.add(method)
            logger.warning(
                "%s() has no effect: no JVM carries the records of Firesteel, whose connectors are in "
                "firesteel.datastream.connectors",
                method,
            )

    def _without_watermarks(self, source: Source[Any], name: str, type_info: TypeDescriptor | None) -> DataStream:
        return self.from_source(source, WatermarkStrategy.no_watermarks(), name, type_info)

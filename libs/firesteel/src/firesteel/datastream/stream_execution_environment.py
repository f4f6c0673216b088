"""``StreamExecutionEnvironment``: where a program begins and from where it is executed. PyFlink's names."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

from firesteel.common.configuration import Configuration
from firesteel.common.execution_config import ExecutionConfig
from firesteel.common.executor import CollectingJobClient, ExecutorFactory, PipelineExecutor
from firesteel.common.job_client import JobClient
from firesteel.common.job_execution_result import JobExecutionResult
from firesteel.common.typeinfo import TypeDescriptor, TypeInformation
from firesteel.common.watermark_strategy import WatermarkStrategy
from firesteel.config import Settings
from firesteel.config import options as opt
from firesteel.core import plugins
from firesteel.core.errors import UnsupportedFeatureError
from firesteel.core.machine import usable_cores
from firesteel.datastream import checks
from firesteel.datastream.caches import Cache, Caches
from firesteel.datastream.closeable_iterator import CloseableIterator
from firesteel.datastream.data_stream import DataStream
from firesteel.datastream.environment_checkpoints import EnvironmentCheckpoints
from firesteel.datastream.environment_files import EnvironmentFiles
from firesteel.datastream.environment_settings import apply_settings, program_settings, with_execution_config
from firesteel.datastream.environment_sources import EnvironmentSources
from firesteel.datastream.execution_mode import RuntimeExecutionMode
from firesteel.datastream.guarantees import warn_of_losses, warn_of_settings
from firesteel.datastream.operator_settings import group_name
from firesteel.datastream.slot_sharing_group import SlotSharingGroup
from firesteel.datastream.state_checks import check_state
from firesteel.datastream.time_methods import check_strategy, fitted_strategy, source_time
from firesteel.functions.coroutines import refuse_coroutines
from firesteel.functions.source import Source
from firesteel.graph.node_ids import operator_ids
from firesteel.graph.plan import execution_plan
from firesteel.graph.projections import push_down
from firesteel.graph.specs import OperatorKind
from firesteel.graph.stream_graph import (
    DEFAULT_JOB_NAME,
    GraphSettings,
    StreamGraph,
    StreamInput,
    Transformation,
)

__all__ = ["StreamExecutionEnvironment"]

_MILLISECOND = timedelta(milliseconds=1)


class StreamExecutionEnvironment(EnvironmentCheckpoints, EnvironmentFiles, EnvironmentSources):
    """Makes streams, holds the program's settings, and executes what was built.

    Get one with ``StreamExecutionEnvironment.get_execution_environment()``. Settings come, later ones winning, from
    ``config.yaml``, environment variables, the command line, the configuration given, and the methods called.

    Args:
        configuration: the program's settings.
        executor: what to submit to; by default the one that ``execution.target`` names.

    Raises:
        ConfigurationError: an option that the environment reads has a bad value.
        UnsupportedFeatureError: the settings ask for BATCH mode.
    """

    def __init__(self, configuration: Configuration | None = None, executor: PipelineExecutor | None = None) -> None:
        self._configuration = Configuration()
        self._config = ExecutionConfig()
        self._executor = executor
        self._pending: list[Transformation] = []
        self._next_id = 1
        self._default_local_parallelism: int | None = None
        self._caches = Caches()
        apply_settings(program_settings(self._configuration), self._config)
        self.configure(Configuration() if configuration is None else configuration)

    # --- settings --------------------------------------------------------------------------------------------------

    @staticmethod
    def get_execution_environment(configuration: Configuration | None = None) -> StreamExecutionEnvironment:
        """Returns a new environment with these settings."""
        return StreamExecutionEnvironment(configuration)

    def get_config(self) -> ExecutionConfig:
        """Returns the program's settings; changes to them count."""
        return self._config

    def configure(self, configuration: Configuration) -> None:
        """Adds settings; those given here win over earlier ones.

        Raises:
            ConfigurationError: a value that the environment itself reads is not valid.
            UnsupportedFeatureError: BATCH mode.
        """
        if not isinstance(configuration, Configuration):
            raise TypeError(f"configure() takes a Configuration, not {type(configuration).__name__}")
        added = Configuration(self._configuration).add_all(configuration)
        _graph_settings(program_settings(added), 1)  # checks the values
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
        return _buffer_timeout_ms(self._settings())

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
        """Sets how the program is run; ``AUTOMATIC`` runs as ``STREAMING``.

        Raises:
            UnsupportedFeatureError: ``BATCH``.
        """
        if not isinstance(execution_mode, RuntimeExecutionMode):
            raise TypeError(f"set_runtime_mode() takes a RuntimeExecutionMode, not {type(execution_mode).__name__}")
        _refuse_batch(execution_mode.value)
        self._configuration.set_string(opt.EXECUTION_RUNTIME_MODE.key, execution_mode.value)
        return self

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

    # --- sources ---------------------------------------------------------------------------------------------------

    def from_collection(self, collection: Iterable[Any], type_info: TypeDescriptor | None = None) -> DataStream:
        """A stream of records that the program holds in memory; its parallelism is 1.

        They travel with the program: for data beyond ``firesteel.collection.max-bytes`` use a file source.

        Raises:
            TypeError: the collection can't be iterated, or ``type_info`` is no type information.
        """
        from firesteel.connectors.collection import CollectionSource

        if isinstance(collection, (str, bytes)) or not isinstance(collection, Iterable):
            raise TypeError(f"from_collection() takes a list or another collection, not {type(collection).__name__}")
        declared = checks.declared_type("type_info", type_info)
        coerce_to = checks.coerced(declared)
        source = CollectionSource(list(collection), coerce_to)
        made = self._add("Collection Source", OperatorKind.SOURCE, source, (), coerce_to=coerce_to)
        made.non_parallel = True
        return DataStream(self, (StreamInput(made),), declared)

    def from_sequence(self, start: int, end: int) -> DataStream:
        """A stream of the numbers from ``start`` to ``end``, both included, cut into a part for each subtask.

        Each part comes in order; a subtask that is done with its part takes over one that nobody has begun.

        Raises:
            ProgramError: ``start`` is greater than ``end``.
        """
        from firesteel.connectors.number_sequence import NumberSequenceSource

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
        strategy = check_strategy(watermark_strategy)
        produced = source.produced_type() if type_info is None else type_info
        declared = checks.declared_type("type_info", produced)
        strategy = fitted_strategy(strategy, declared, wrap=self._settings().get(opt.EXPRESSIONS_WRAP))
        extra = source_time(strategy, source)
        coerce_to = None if type_info is None else checks.coerced(declared)
        name = checks.some_text("source_name", source_name)
        made = self._add(name, OperatorKind.SOURCE, source, (), coerce_to=coerce_to, extra=extra)
        return DataStream(self, (StreamInput(made),), declared)

    # --- execution -------------------------------------------------------------------------------------------------

    def execute(self, job_name: str | None = None) -> JobExecutionResult:
        """Runs what was added since the last call, and waits for its end. Ctrl-C cancels the job.

        Under ``firesteel run -d`` it returns when the cluster has accepted the job.

        Raises:
            ProgramError, ConfigurationError: refused; nothing was deployed.
            JobError: the job did not finish.
        """
        return self._submit(*self._take(job_name)).wait()

    def execute_async(self, job_name: str | None = None) -> JobClient:
        """Starts what was added since the last call; returns when the cluster has accepted it.

        Raises:
            ProgramError, ConfigurationError: refused; nothing was deployed.
        """
        return self._submit(*self._take(job_name))

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

    # --- inside ----------------------------------------------------------------------------------------------------

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
        made = Transformation(
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
            self._pending.append(made)
        return made

    def _settings(self) -> Settings:
        return program_settings(self._configuration)

    def _aside(self, name: str, kind: OperatorKind, inputs: tuple[tuple[StreamInput, ...], ...]) -> Transformation:
        """A transformation that no graph holds unless it is named."""
        made = self._add(name, kind, None, inputs)
        self._pending.remove(made)
        return made

    def _stream_graph(self, job_name: str | None) -> StreamGraph:
        return self._with_caches(job_name)[0]

    def _with_caches(self, job_name: str | None) -> tuple[StreamGraph, list[Cache]]:
        """The graph, and the caches that it fills."""
        settings = program_settings(with_execution_config(self._configuration, self._config))
        graph_settings = _graph_settings(settings, self._default_parallelism(), job_name)
        caches = self._caches.look(self._pending, settings.get(opt.CACHE_DIRECTORY))
        ends = [*self._pending, *(cache.sink for cache in caches)]
        graph = StreamGraph.from_transformations(ends, graph_settings)
        if settings.get(opt.PROJECTION_PUSH_DOWN):
            push_down(graph)
        return graph, caches

    def _take(self, job_name: str | None) -> tuple[StreamGraph, list[Cache]]:
        """The graph is taken out first: what was refused is not tried again with the next program."""
        try:
            return self._with_caches(job_name if job_name is None else checks.some_text("the job name", job_name))
        finally:
            self._pending.clear()

    def _submit(self, graph: StreamGraph, caches: list[Cache]) -> CollectingJobClient:
        configuration = with_execution_config(self._configuration, self._config)
        warn_of_settings(program_settings(configuration))
        warn_of_losses(graph, self._settings())
        client = self._get_executor().submit(graph, configuration)
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


def _graph_settings(settings: Settings, parallelism: int, job_name: str | None = None) -> GraphSettings:
    _refuse_batch(settings.get(opt.EXECUTION_RUNTIME_MODE))
    return GraphSettings(
        parallelism=parallelism,
        job_name=job_name or settings.get(opt.PIPELINE_NAME) or DEFAULT_JOB_NAME,
        max_parallelism=settings.get(opt.PIPELINE_MAX_PARALLELISM),
        buffer_timeout_ms=_buffer_timeout_ms(settings),
        chaining=settings.get(opt.PIPELINE_OPERATOR_CHAINING),
        chain_different_max_parallelism=settings.get(opt.PIPELINE_CHAIN_DIFFERENT_MAX_PARALLELISM),
        auto_generate_uids=settings.get(opt.PIPELINE_AUTO_GENERATE_UIDS),
        strict_integers=settings.get(opt.TYPES_STRICT_INTEGERS),
        object_reuse=settings.get(opt.PIPELINE_OBJECT_REUSE),
    )


def _buffer_timeout_ms(settings: Settings) -> int:
    if not settings.get(opt.EXECUTION_BUFFER_TIMEOUT_ENABLED):
        return -1
    interval = settings.get(opt.EXECUTION_BUFFER_TIMEOUT_INTERVAL)
    return -(-interval // _MILLISECOND)  # rounded up: a timeout below 1 ms is not none


def _refuse_batch(mode: str) -> None:
    if mode == RuntimeExecutionMode.BATCH.value:
        raise UnsupportedFeatureError(
            "runtime mode BATCH is not in this version of firesteel; bounded input runs to its end in STREAMING mode"
        )

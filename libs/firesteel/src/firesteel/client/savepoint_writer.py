"""Writes savepoints without a job: state made from the rows of a database or a table, for a program to start from.

Names are those of Flink's State Processor API. Everything happens in this process, and state is in its memory until
``write`` returns.
"""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import pyarrow as pa

from firesteel.checkpoint.chunks import frame
from firesteel.checkpoint.handles import FileState, StateHandle
from firesteel.checkpoint.metadata import CheckpointMetadata, OperatorState
from firesteel.checkpoint.savepoint_places import make_savepoint, savepoint_directory
from firesteel.checkpoint.savepoints import PROPERTY, SavepointDirectory, SavepointInfo, read_savepoint_metadata
from firesteel.checkpoint.state_reader import StateReader
from firesteel.checkpoint.subtask_state import KeyedState, KeyKinds, OperatorSubtaskState
from firesteel.common import Configuration, Row
from firesteel.config import Settings
from firesteel.config.load import load_settings
from firesteel.core.clock import SystemClock
from firesteel.core.errors import CheckpointStorageError, ProgramError
from firesteel.functions.functions import Function, KeySelector, RuntimeContext
from firesteel.graph.key_groups import KeyGroupAssigner
from firesteel.graph.key_hash import KEY_HASH_VERSION
from firesteel.graph.key_kinds import kind_of, merged
from firesteel.graph.node_ids import murmur3_128
from firesteel.runtime.loop.metrics import MetricRegistry
from firesteel.runtime.operator_base.base import KEYED
from firesteel.runtime.operator_base.context import TaskInfo, TaskRuntimeContext
from firesteel.state.backend import KeyedStateParameters
from firesteel.state.heap import HeapKeyedState
from firesteel.state.snapshots import Purpose

__all__ = [
    "KeyedStateBootstrapFunction",
    "OperatorIdentifier",
    "OperatorTransformation",
    "SavepointWriter",
]

_NO_JOB: Final = "0" * 32
_COPIED: Final = 1 << 20
_PART: Final = KEYED


class KeyedStateBootstrapFunction(Function):
    """Writes state for each record; it is the state that the operator's own function will ask for: same descriptors."""

    class Context:
        """What is known of the record.

        Args:
            key: of the record.
        """

        def __init__(self, key: Any) -> None:
            self._key = key

        def get_current_key(self) -> Any:
            """Returns the record's key."""
            return self._key

    @abstractmethod
    def process_element(self, value: Any, ctx: KeyedStateBootstrapFunction.Context) -> None:
        """Writes state of the record's key."""


@dataclass(frozen=True)
class OperatorIdentifier:
    """An operator of the program that is to begin with the savepoint.

    Attributes:
        operator_id: 32 hex digits.
        uid: from which it was made; None if that is not known.
    """

    operator_id: str
    uid: str | None = None

    @staticmethod
    def for_uid(uid: str) -> OperatorIdentifier:
        """The operator with this uid."""
        return OperatorIdentifier(murmur3_128(uid.encode()).hex(), uid)

    @staticmethod
    def for_uid_hash(uid_hash: str) -> OperatorIdentifier:
        """The operator of this id, as REST shows it."""
        return OperatorIdentifier(uid_hash)


class StateBootstrapTransformation:
    """Records, their keys, and the function that makes state of them."""

    def __init__(
        self, records: Iterable[Any], key_selector: Callable[[Any], Any], function: KeyedStateBootstrapFunction
    ) -> None:
        self._records, self._key_of, self._function = records, key_selector, function

    def written(self, keyed: HeapKeyedState, context: RuntimeContext) -> KeyKinds:
        """Write the state of all records into a backend; returns the kinds of their keys.

        Raises:
            ProgramError: the function yields records, or is a coroutine.
        """
        kinds: list[Any] = []
        classes: set[type[Any]] = set()
        function, key_of = self._function, self._key_of
        function.open(context)
        for record in self._records:
            keyed.key = key = key_of(record)
            if type(key) not in classes or isinstance(key, tuple):
                classes.add(type(key))
                kinds = merged([*kinds, kind_of(key)])
            result = function.process_element(record, function.Context(key))
            if inspect.isgenerator(result) or inspect.isawaitable(result):
                raise ProgramError(f"{type(function).__name__}.process_element() writes state, and yields nothing")
        function.close()
        return KeyKinds(tuple(kinds), proved=False)


class KeyedOperatorTransformation:
    """Records with a key selector, from which keyed state is made."""

    def __init__(self, records: Iterable[Any], key_selector: Callable[[Any], Any]) -> None:
        self._records, self._key_selector = records, key_selector

    def transform(self, function: KeyedStateBootstrapFunction) -> StateBootstrapTransformation:
        """Makes state of them.

        Raises:
            TypeError: the function is none.
        """
        if not isinstance(function, KeyedStateBootstrapFunction):
            raise TypeError(f"transform() takes a KeyedStateBootstrapFunction, not {function!r}")
        return StateBootstrapTransformation(self._records, self._key_selector, function)


class OneInputOperatorTransformation:
    """Records from which operator state is made, or keyed state behind ``key_by``."""

    def __init__(self, records: Iterable[Any]) -> None:
        self._records = records

    def key_by(self, key_selector: KeySelector[Any, Any] | Callable[[Any], Any]) -> KeyedOperatorTransformation:
        """Gives them keys: those that the program's ``key_by`` gives."""
        selector = key_selector.get_key if isinstance(key_selector, KeySelector) else key_selector
        return KeyedOperatorTransformation(self._records, selector)


class OperatorTransformation:
    """Where state comes from."""

    @staticmethod
    def bootstrap_with(data: Iterable[Any]) -> OneInputOperatorTransformation:
        """Records: anything that can be iterated over. Of Arrow (table, batch, reader) each row is a ``Row``."""
        return OneInputOperatorTransformation(_rows(data))


def _rows(data: Iterable[Any]) -> Iterable[Any]:
    if isinstance(data, pa.RecordBatch):
        return _rows_of([data])
    if isinstance(data, pa.Table):
        return _rows_of(data.to_batches())
    if isinstance(data, pa.RecordBatchReader):
        return _rows_of(data)
    return data


def _rows_of(batches: Iterable[pa.RecordBatch]) -> Iterator[Row]:
    for batch in batches:
        for values in batch.to_pylist():
            yield Row(**values)


class SavepointWriter:
    """Builds a savepoint, from which a job can begin. ``write`` stores it.

    ::

        rows = OperatorTransformation.bootstrap_with(table).key_by(lambda row: row.id).transform(Totals())
        writer = SavepointWriter.new_savepoint(max_parallelism=128)
        writer.with_operator(OperatorIdentifier.for_uid("totals"), rows).write("/mnt/savepoints/begin")
    """

    def __init__(self, max_parallelism: int, source: CheckpointMetadata | None, settings: Settings) -> None:
        self._max_parallelism, self._source, self._settings = max_parallelism, source, settings
        self._added: dict[str, tuple[OperatorIdentifier, StateBootstrapTransformation]] = {}
        self._removed: set[str] = set()

    @staticmethod
    def new_savepoint(max_parallelism: int = 128, configuration: Configuration | None = None) -> SavepointWriter:
        """Begins a savepoint without operators.

        Args:
            max_parallelism: of its operators; those of the program need the same one.
            configuration: options ``s3.*``, on top of those of the configuration directory.

        Raises:
            ValueError: the maximum parallelism is out of range.
        """
        if not 1 <= max_parallelism <= 1 << 15:
            raise ValueError(f"a maximum parallelism is 1 to {1 << 15}, and not {max_parallelism}")
        return SavepointWriter(max_parallelism, None, _settings(configuration))

    @staticmethod
    def from_existing_savepoint(path: str, configuration: Configuration | None = None) -> SavepointWriter:
        """Begins a savepoint with the operators of another one, which stays as it is.

        Raises:
            CheckpointError: there is none, or it is damaged.
            ConfigurationError: it is no path.
        """
        settings = _settings(configuration)
        source_savepoint = read_savepoint_metadata(path, settings)
        most = max((operator.max_parallelism for operator in source_savepoint.operators), default=128)
        return SavepointWriter(most, source_savepoint, settings)

    def with_operator(
        self, identifier: OperatorIdentifier, transformation: StateBootstrapTransformation
    ) -> SavepointWriter:
        """Adds an operator's state.

        Raises:
            ProgramError: there is such an operator already; remove it first.
        """
        copied_operators = () if self._source is None else self._source.operators
        present_ids = {operator.operator_id for operator in copied_operators} - self._removed
        if identifier.operator_id in present_ids | self._added.keys():
            raise ProgramError(
                f"the savepoint has state of operator {identifier.uid or identifier.operator_id!r} already: call "
                "remove_operator() first"
            )
        self._added[identifier.operator_id] = identifier, transformation
        return self

    def remove_operator(self, identifier: OperatorIdentifier) -> SavepointWriter:
        """Leaves out an operator's state."""
        self._removed.add(identifier.operator_id)
        self._added.pop(identifier.operator_id, None)
        return self

    def write(self, path: str) -> str:
        """Reads the records and writes the savepoint.

        Args:
            path: of its directory, which must not be there; or ``s3://bucket/directory``.

        Returns:
            The path.

        Raises:
            CheckpointStorageError: it can't be written; nothing is left of it.
            ConfigurationError: it is no path.
        """
        location = make_savepoint(path, self._settings)
        directory = savepoint_directory(location, self._settings)
        try:
            source_operators = [] if self._source is None else self._source.operators
            operators = [
                self._copied(operator, directory)
                for operator in source_operators
                if operator.operator_id not in self._removed
            ]
            operators += [self._bootstrapped(*added, directory) for added in self._added.values()]
            return directory.write(self._metadata(tuple(operators)))
        except BaseException:
            directory.give_up()
            raise

    def _metadata(self, operators: tuple[OperatorState, ...]) -> CheckpointMetadata:
        properties = {"job_name": "", "key_hash": KEY_HASH_VERSION, PROPERTY: SavepointInfo().to_plain()}
        number, job_id = 1, _NO_JOB
        if self._source is not None:
            properties = {**properties, **self._source.properties, PROPERTY: SavepointInfo().to_plain()}
            number, job_id = self._source.checkpoint_id, self._source.job_id
        return CheckpointMetadata(number, job_id, SystemClock().epoch_ms(), operators, properties)

    def _bootstrapped(
        self,
        identifier: OperatorIdentifier,
        transformation: StateBootstrapTransformation,
        directory: SavepointDirectory,
    ) -> OperatorState:
        most, clock = self._max_parallelism, SystemClock()
        name = identifier.uid or identifier.operator_id
        assigner = KeyGroupAssigner(most, most)
        keyed = HeapKeyedState(
            KeyedStateParameters(
                key_group_of=assigner,
                key_groups_of_keys=assigner.assign,
                key_groups=range(most),
                max_parallelism=most,
                clock=clock,
                operator=name,
            )
        )
        info = TaskInfo(_NO_JOB, "", "bootstrap", name, 0, 1, most, 0)
        kinds = transformation.written(keyed, TaskRuntimeContext(info, name, keyed, MetricRegistry(clock)))
        snapshot = keyed.snapshot(purpose=Purpose(1, canonical=True))
        with directory.open_state_stream(1, name) as stream:
            for chunks in snapshot:
                for chunk in chunks:
                    for piece in frame(chunk.state, chunk.key_group, chunk.count, chunk.data):
                        stream.write(piece)
            handle = stream.close()
        states = tuple(info.to_json() for info in snapshot.states)
        keyed.close()
        written = OperatorSubtaskState(keyed={_PART: KeyedState(states, (0, most - 1), (handle,))}, keys=kinds)
        return OperatorState(identifier.operator_id, name, identifier.uid, 1, most, {0: written})

    def _copied(self, operator: OperatorState, directory: SavepointDirectory) -> OperatorState:
        """The state of an operator that is taken over, with files of the new savepoint."""
        copy = partial(self._copy, StateReader(self._settings), directory)
        subtasks = {number: subtask.moved(copy) for number, subtask in operator.subtasks.items()}
        return OperatorState(
            operator.operator_id,
            operator.name,
            operator.uid,
            operator.parallelism,
            operator.max_parallelism,
            subtasks,
            operator.finished,
            operator.enumerator,
        )

    @staticmethod
    def _copy(reader: StateReader, directory: SavepointDirectory, handle: StateHandle) -> StateHandle:
        if not isinstance(handle, FileState):
            return handle
        with reader.open_state(handle) as source, directory.open_state_stream(1) as stream:
            while data := source.read(_COPIED):
                stream.write(data)
            copied = stream.close()
        if isinstance(copied, FileState) and copied.checksum != handle.checksum:
            raise CheckpointStorageError(f"{handle.path} is not what was written: its checksum is another one")
        return copied


def _settings(configuration: Configuration | None) -> Settings:
    return load_settings(program=configuration.to_dict() if configuration is not None else {})

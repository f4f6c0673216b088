"""The error tree. A class is named by what its reader has to do next; fields carry what a program may need.

FiresteelError
├── ProgramError               the program is wrong: change it
│   ├── GraphError             the graph is refused before anything is deployed
│   ├── UnsupportedFeatureError  not in this version; the message says so in one sentence
│   ├── SerializationError     a function or value can't be pickled; names the attribute
│   ├── KeyTypeError           a value can't be a key (also a TypeError)
│   ├── StateMigrationError    state that was written before does not fit its type now; names the field
│   ├── StateRestoreError      a checkpoint does not fit the job that is to go on from it
│   └── TypeMismatchError      a record does not fit its declared type (also a TypeError)
├── SuppressRestartsError      raised by a function: another attempt would fail as well
├── MalformedDataError         input of a connector can't be read; names file, line or offset (also a ValueError)
├── CheckpointError            a checkpoint can't be taken, written or read
│   ├── CheckpointStorageError  where checkpoints are kept does not take or give something
│   │   ├── CheckpointVersionError  another release has written it: go on with that one
│   │   └── StateAwayError      a host can't read the state of a task for now
│   ├── CommitError            results of a sink can't be made visible
│   └── CheckpointCorruptedError  a file of a checkpoint is missing, damaged or foreign
├── ConfigurationError         an option is unknown or has a bad value (also a ValueError)
├── JobError                   what happened to a job, seen by the client
│   ├── JobFailedError
│   │   └── UserFunctionError  a user's function raised inside a slot
│   ├── JobCancelledError
│   └── JobNotFoundError
├── NoResourceAvailableError   not enough slots
├── TaskMemoryExceededError    a slot used more memory than its share
├── FleetError                 Spark, Java or a slot process could not be started or was lost
│   └── JavaNotFoundError
├── RunDirectoryError          the run directory can't be used
├── RpcError                   a call to another service failed
│   ├── UnauthorizedError      the caller's secret or token is missing or wrong
│   ├── FencedError            the caller's or callee's leader token is stale
│   └── PeerUnreachableError
├── ProtocolError              a peer sent something malformed; names peer and reason
└── IllegalTransitionError     our own bug: a state machine was asked for a move it does not have
"""

from __future__ import annotations

from typing import Any


class FiresteelError(Exception):
    """Root of all errors that Firesteel raises on purpose."""

    def _render_traceback_(self) -> list[str]:
        """The traceback that a notebook's cell shows: the user's own lines (the name is IPython's)."""
        from firesteel.core.notebook import render_traceback

        return render_traceback(self)


class ProgramError(FiresteelError):
    """The user's program must be changed."""


class GraphError(ProgramError):
    """The graph is refused before anything is deployed."""


class UnsupportedFeatureError(ProgramError):
    """The feature is not in this version."""


class SerializationError(ProgramError):
    """A function or value can't be sent to a slot."""


class KeyTypeError(ProgramError, TypeError):
    """A value of this type can't be a key."""


class TypeMismatchError(ProgramError, TypeError):
    """A record does not fit its declared type.

    Attributes:
        field: path of the field, such as ``f1.price``; empty for the record itself.
        declared: text of the declared type.
        value: shortened ``repr`` of the value found.
    """

    def __init__(self, field: str, declared: str, value: str, reason: str = "") -> None:
        place = f"field {field!r}" if field else "the record"
        text = f"{place} is declared as {declared} but holds {value}"
        super().__init__(f"{text}: {reason}" if reason else text)
        self.field, self.declared, self.value, self.reason = field, declared, value, reason

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.field, self.declared, self.value, self.reason)


class StateMigrationError(ProgramError):
    """State that was written before does not fit the type that it is asked for with now.

    Attributes:
        state: its name.
        field: path of the field, empty for the value itself.
        remedy: what to do.
    """

    def __init__(
        self, state: str, field: str, reason: str, remedy: str = "give it another name or its old type"
    ) -> None:
        place = f"field {field!r} of state {state!r}" if field else f"state {state!r}"
        super().__init__(f"{place} can't be read with its type of now: {reason}; {remedy}")
        self.state, self.field, self.reason, self.remedy = state, field, reason, remedy

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.state, self.field, self.reason, self.remedy)


class StateRestoreError(ProgramError):
    """A checkpoint does not fit the job that is to go on from it; the message names the operator."""


class StateDatabaseError(FiresteelError):
    """The database that keeps an operator's state on a local disk failed; the job goes on from its last checkpoint.

    Attributes:
        operator: whose state it is.
        directory: of the database.
        reason: what it said.
    """

    def __init__(self, operator: str, directory: str, reason: str) -> None:
        super().__init__(f"the state of operator {operator!r} in {directory} can't be used: {reason}")
        self.operator, self.directory, self.reason = operator, directory, reason

    def __reduce__(self) -> tuple[type[StateDatabaseError], tuple[str, str, str]]:
        return StateDatabaseError, (self.operator, self.directory, self.reason)


class SuppressRestartsError(FiresteelError):
    """Raised by a function, or as the cause of what it raises: the job fails at once, whatever its restart strategy."""


class FileSystemError(FiresteelError):
    """Files of sources or sinks can't be read, listed or written for now; the message says where and why."""


class MalformedDataError(FiresteelError, ValueError):
    """Input of a connector can't be read.

    Attributes:
        path: of the file; empty where the input is no file.
        offset: byte at which the record or block begins, in the decompressed data; None = not known.
        line: number of the line, from 1; None = not known.
        reason: what is wrong with it.
    """

    def __init__(self, path: str, offset: int | None, line: int | None, reason: str) -> None:
        places = [path] if path else []
        if line is not None:
            places.append(f"line {line}")
        if offset is not None:
            places.append(f"byte {offset}")
        super().__init__(f"{', '.join(places)}: {reason}" if places else reason)
        self.path, self.offset, self.line, self.reason = path, offset, line, reason

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.path, self.offset, self.line, self.reason)


class CheckpointError(FiresteelError):
    """A checkpoint can't be taken, written or read."""


class CheckpointStorageError(CheckpointError):
    """The storage of checkpoints does not take or give something: no space, no permission, no answer."""


class CheckpointVersionError(CheckpointStorageError):
    """A checkpoint has a format that this release does not know. Nothing is wrong with it: other releases read it.

    Attributes:
        path: of the file.
        reason: which version it has, and which ones are known here.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path, self.reason = path, reason

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.path, self.reason)


class StateAwayError(CheckpointStorageError):
    """The state that a task goes on from can't be read on its host for now; the message names the host."""


class CheckpointNumberTakenError(CheckpointStorageError):
    """The place of a checkpoint holds another one, of somebody else.

    Attributes:
        message: what is there, and what to do.
        highest: no larger number is taken.
    """

    def __init__(self, message: str, highest: int) -> None:
        super().__init__(message)
        self.message, self.highest = message, highest

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.message, self.highest)


class CommitError(CheckpointError):
    """Results of a sink can't be made visible: they are kept in the last checkpoint.

    Attributes:
        sink: name of the operator.
        reason: what is wrong.
    """

    def __init__(self, sink: str, reason: str) -> None:
        super().__init__(f"results of sink {sink!r} {reason}")
        self.sink, self.reason = sink, reason

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.sink, self.reason)


class CheckpointCorruptedError(CheckpointError):
    """A file of a checkpoint can't be used, and no repeat will help.

    Attributes:
        path: of the file.
        reason: what is wrong with it.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path, self.reason = path, reason

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.path, self.reason)


class ConfigurationError(FiresteelError, ValueError):
    """An option is unknown or its value is wrong."""


class TaskInterrupt(BaseException):
    """Raised inside user code of a cancelled task. ``except Exception`` there does not hold it.

    Where the runtime catches whatever user code raises, it lets this one through: it is the runtime's own.
    """


class JobError(FiresteelError):
    """Root of the errors about a job.

    Attributes:
        job_id: the job's id, 32 hex digits.
    """

    def __init__(self, message: str, job_id: str = "") -> None:
        super().__init__(message)
        self.job_id = job_id


class JobFailedError(JobError):
    """The job ended as FAILED; ``__cause__`` is the reason where it is known."""


class UserFunctionError(JobFailedError):
    """A user's function raised inside a slot; ``__cause__`` is the user's exception where it could be brought back.

    Attributes:
        operator: name of the operator whose function raised.
        subtask: index of the subtask, from 0.
        attempt: attempt number of the execution, from 0.
        record: shortened ``repr`` of the record at hand, or None.
        traceback_text: the user's own traceback, without frames of the runtime.
        error_class: qualified name of the user's exception class.
    """

    def __init__(
        self,
        message: str,
        job_id: str = "",
        *,
        operator: str = "",
        subtask: int = -1,
        attempt: int = 0,
        record: str | None = None,
        traceback_text: str = "",
        error_class: str = "",
    ) -> None:
        super().__init__(message, job_id)
        self.operator, self.subtask, self.attempt = operator, subtask, attempt
        self.record, self.traceback_text, self.error_class = record, traceback_text, error_class


class JobCancelledError(JobError):
    """The job ended as CANCELED."""


class JobNotFoundError(JobError):
    """No job has this id."""


class NoResourceAvailableError(FiresteelError):
    """The cluster has fewer slots than the job needs, and no more will come."""


class TaskMemoryExceededError(FiresteelError):
    """A slot used more memory than its share of its TaskManager's; its process was killed."""


class FleetError(FiresteelError):
    """Spark, Java or a slot process could not be started, or was lost."""


class TaskManagerStoppedError(FleetError):
    """A TaskManager was told to stop while tasks ran there; whoever has told it so may know why."""


class JavaNotFoundError(FleetError):
    """No Java of version 17 or later was found."""


class RunDirectoryError(FiresteelError):
    """The run directory can't be used."""


class RpcError(FiresteelError):
    """A call to another service failed."""


class UnauthorizedError(RpcError):
    """The caller's secret or token is missing or wrong."""


class UnsafeArchiveError(FiresteelError):
    """An archive has entries outside of itself, or unpacks to more than there is room for."""


class FencedError(RpcError):
    """The message carries the token of a leader that is no longer there."""


class PeerUnreachableError(RpcError):
    """The peer did not answer."""


class ProtocolError(FiresteelError):
    """A peer sent something malformed.

    Attributes:
        peer: who sent it.
        reason: what was wrong.
    """

    def __init__(self, peer: str, reason: str) -> None:
        super().__init__(f"{peer}: {reason}")
        self.peer, self.reason = peer, reason


class IllegalTransitionError(FiresteelError):
    """A state machine was asked for a move that its table does not have."""


def class_name(class_or_error: type | BaseException) -> str:
    """The name of a class, or of that of an error, with its module unless it is one of the builtins."""
    cls = type(class_or_error) if isinstance(class_or_error, BaseException) else class_or_error
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"

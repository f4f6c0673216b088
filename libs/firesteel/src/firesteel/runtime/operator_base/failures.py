"""Describes an exception as a ``TaskFailure``: whose fault it is, which operator and record, the user's own traceback.

Operator and record are read from the frames in the traceback; ``firesteel.runtime.operator_base.base`` tells how.
"""

from __future__ import annotations

import base64
import os
import pickle
import traceback
from collections.abc import Iterator, Mapping
from types import FrameType, TracebackType
from typing import Any, Final

import cloudpickle

import firesteel
from firesteel.core.call_each import RECORD_FRAMES
from firesteel.core.errors import (
    CheckpointVersionError,
    ConfigurationError,
    GraphError,
    KeyTypeError,
    ProgramError,
    StateAwayError,
    StateMigrationError,
    StateRestoreError,
    SuppressRestartsError,
    TypeMismatchError,
    UnsupportedFeatureError,
    class_name,
)
from firesteel.core.plugins import loaded_folders
from firesteel.core.short_repr import short_repr
from firesteel.protocol.deployment import TaskFailure
from firesteel.runtime.operator_base.context import TaskInfo
from firesteel.runtime.operator_base.sites import UserCode

_MESSAGE_LIMIT: Final = 8_000
_TRACEBACK_LIMIT: Final = 64_000
_PICKLE_LIMIT: Final = 256 * 1024
_ROOT: Final = os.path.dirname(os.path.abspath(firesteel.__file__))
_OURS: Final = tuple(
    os.path.join(_ROOT, part)
    for part in ("runtime" + os.sep, "state" + os.sep, "graph" + os.sep, "windowing" + os.sep, "core" + os.sep)
)
_COERCION: Final = os.path.join(_ROOT, "common", "coerce")
_FINAL: Final = (
    SuppressRestartsError, GraphError, UnsupportedFeatureError, StateMigrationError, StateRestoreError,
    ConfigurationError,
)  # fmt: skip
"""Errors that depend neither on the moment nor on a record, so that another attempt would fail as well."""
_LONGEST_CHAIN: Final = 100
_GENERATED: Final = "<firesteel "
Site = tuple[str | None, str | None]
"""The name of an operator, and its current record as text."""


def describe_failure(
    error: BaseException, info: TaskInfo | None = None, kind: str | None = None, *, deploying: bool = False
) -> TaskFailure:
    """Describe an exception for the JobMaster and the user.

    Args:
        error: the exception.
        info: description of the task; None = no task in particular.
        kind: as in ``TaskFailure``; None = derived from the exception and where it was raised.
        deploying: whether the task was being built; then errors of the program are permanent.
    """
    site = _site_of(error)
    error = _as_raised(error)
    operator, record = site
    kind = kind or _kind(error, operator)
    users_fault = kind in ("user", "type")
    return TaskFailure(
        kind=kind,
        error_class=class_name(error),
        message=_text(error)[:_MESSAGE_LIMIT],
        traceback=_format(error, users_fault)[-_TRACEBACK_LIMIT:],
        operator=operator or "",
        vertex_name=info.task_name if info else "",
        subtask=info.subtask if info else -1,
        attempt=info.attempt if info else 0,
        record=record,
        pickled=_pickled(error),
        recoverable=not _is_final(error, (*_FINAL, ProgramError) if deploying else _FINAL),
    )


def _is_final(error: BaseException | None, kinds: tuple[type[BaseException], ...]) -> bool:
    """Whether an exception, or one in its chain of causes, is of one of these classes."""
    for _ in range(_LONGEST_CHAIN):
        if error is None:
            return False
        if isinstance(error, kinds):
            return True
        error = error.__cause__
    return False


def _as_raised(error: BaseException) -> BaseException:
    """Undo Python's conversion of a user's ``StopIteration`` into a ``RuntimeError`` at the edge of a generator."""
    cause = error.__cause__
    converted = isinstance(error, RuntimeError) and isinstance(cause, StopIteration | StopAsyncIteration)
    return cause if converted and cause is not None and " raised Stop" in _text(error) else error


def _site_of(error: BaseException) -> Site:
    """Find operator and record of an exception in its own traceback, or in those of its causes.

    The traceback of a converted ``StopIteration`` comes first: that of the ``RuntimeError`` only begins where the
    generator that called the user's function was itself called, which may be in the next operator.
    """
    raised = _as_raised(error)
    candidates = [raised, error] if raised is not error else [error]
    cause = error.__cause__
    while cause is not None and len(candidates) < _LONGEST_CHAIN:
        candidates.append(cause)
        cause = cause.__cause__
    for candidate in candidates:
        site = find_site(candidate.__traceback__)
        if site[0] is not None:
            return site
    return None, None


def find_site(trace: TracebackType | None) -> Site:
    """Find the name of the innermost operator in a traceback, and its current record; None if they are not known."""
    operator: UserCode | None = None
    record: str | None = None
    for frame in reversed(list(_frames(trace))):
        values = frame.f_locals
        if operator is None and record is None and frame.f_code in RECORD_FRAMES and "value" in values:
            record = short_repr(values["value"])
        owner = values.get("self")
        if isinstance(owner, UserCode) and (operator is None or owner is operator):
            operator = owner
            record = _at_hand(values) if record is None else record
        if operator is not None and record is not None:
            break
    return (None, None) if operator is None else (operator.name, record)


def _at_hand(values: Mapping[str, Any]) -> str | None:
    """The current record, or the window that is evaluated, from the locals of an operator's frame."""
    if "value" in values:
        return short_repr(values["value"])
    if "window" in values and "key" in values:
        return f"{short_repr(values['window'])} of key {short_repr(values['key'])}"
    return None


def _frames(trace: TracebackType | None) -> Iterator[FrameType]:
    while trace is not None:
        yield trace.tb_frame
        trace = trace.tb_next


def _kind(error: BaseException, operator: str | None) -> str:
    if isinstance(error, TypeMismatchError):
        return "type"
    if isinstance(error, StateAwayError | CheckpointVersionError):
        return "external"
    if operator is not None or isinstance(error, ProgramError | KeyTypeError):
        return "user"
    return "internal"


def _text(error: BaseException) -> str:
    if isinstance(error, StopIteration) and not error.args:
        return "next() had nothing left to return; next(iterator, default) returns the default instead"
    try:
        return str(error)
    except BaseException as inner:
        return f"<{type(error).__name__} whose str raises {type(inner).__name__}>"


def is_runtime_file(name: str) -> bool:
    """Whether this file is the runtime's or a state backend's: its frames are left out of the user's traceback."""
    return name.startswith((*_OURS, _COERCION, _GENERATED, *loaded_folders("firesteel.state_backends")))


def _format(error: BaseException, only_user_frames: bool) -> str:
    try:
        report = traceback.TracebackException.from_exception(error, compact=True)
    except BaseException:  # an exception with a hostile __str__ or __cause__
        return f"{class_name(error)}: {_text(error)}\n"
    if only_user_frames:
        _strip(report, set())
    return "".join(report.format())


def _strip(report: traceback.TracebackException | None, seen: set[int]) -> None:
    if report is None or id(report) in seen:
        return
    seen.add(id(report))
    ours = [is_runtime_file(frame.filename) for frame in report.stack]
    begin = ours.index(True) if True in ours else 0  # frames in front of the runtime's are those of Spark's worker
    users = [frame for frame, is_ours in zip(report.stack[begin:], ours[begin:], strict=True) if not is_ours]
    report.stack = traceback.StackSummary.from_list(users)
    _strip(report.__cause__, seen)
    _strip(report.__context__, seen)


def _pickled(error: BaseException) -> str | None:
    for dumps in (pickle.dumps, cloudpickle.dumps):
        try:
            data = dumps(error, protocol=5)
            pickle.loads(data)
        except BaseException:  # user code runs in there
            continue
        return base64.b64encode(data).decode() if len(data) <= _PICKLE_LIMIT else None
    return None

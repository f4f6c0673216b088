"""What all messages have in common: plain JSON form, strict reading, and the codes of refused calls."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from enum import StrEnum
from functools import cache
from typing import Any, Self

from firesteel.core.errors import ProtocolError, RpcError

RPC_VERSION = 1
"""Version of the envelope and of all messages; another one is refused with ``VERSION``."""


class RpcCode(StrEnum):
    """Why a call was refused."""

    FENCED = "FENCED"
    NOT_FOUND = "NOT_FOUND"
    UNKNOWN_EXECUTION = "UNKNOWN_EXECUTION"
    """The JobMaster is the right one, and has no such attempt of a task (any more)."""
    UNKNOWN_PLACEMENT = "UNKNOWN_PLACEMENT"
    """The TaskManager does not know (any more) where the tasks of a submit run: it has to be shared first."""
    BAD_REQUEST = "BAD_REQUEST"
    REFUSED = "REFUSED"
    """The message is well, but what it is about (a graph, its settings) is not, and never will be."""
    UNAUTHORIZED = "UNAUTHORIZED"
    ANOTHER_PROCESS = "ANOTHER_PROCESS"
    """The call does not name the process that answers: its caller learns the identity, and calls again."""
    INTERNAL = "INTERNAL"
    VERSION = "VERSION"
    NO_RESOURCES = "NO_RESOURCES"
    GONE = "GONE"
    """What was asked for was there, and can't be had any more."""


class RpcFault(RpcError):
    """The callee refused a call, or failed in it; handlers raise it, and callers get it.

    Attributes:
        code: why.
        said: what the callee said, without where it was called.
    """

    def __init__(self, code: RpcCode, message: str, said: str | None = None) -> None:
        super().__init__(message)
        self.code, self.said = code, message if said is None else said


@dataclass(frozen=True)
class Message:
    """Base of the payloads of calls and answers.

    Fields may be text, numbers, truth values, ``None``, mappings, lists or tuples of these, and other messages.
    Fields that the receiver does not know are ignored, so that a newer sender may add some.
    """

    def to_plain(self) -> dict[str, Any]:
        """As JSON-able data."""
        return {f.name: _plain(getattr(self, f.name)) for f in fields(self)}

    @classmethod
    def from_plain(cls, plain: Any) -> Self:
        """Check and read what a peer sent.

        Raises:
            ProtocolError: a field is missing or of a wrong type; the message names it.
        """
        name = cls.__name__
        if not isinstance(plain, Mapping):
            raise ProtocolError(name, f"a JSON object is expected, not {type(plain).__name__}")
        values: dict[str, Any] = {}
        hints = _hints(cls)  # type: ignore[arg-type] # type[Self] is hashable
        for f in fields(cls):
            if f.name in plain:
                values[f.name] = _read(hints[f.name], plain[f.name], f"{name}.{f.name}")
            elif f.default is MISSING and f.default_factory is MISSING:
                raise ProtocolError(name, f"field {f.name!r} is missing")
        return cls(**values)


@dataclass(frozen=True)
class Empty(Message):
    """Nothing to say."""


@cache
def _hints(cls: type[Message]) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _plain(value: Any) -> Any:
    if isinstance(value, Message):
        return value.to_plain()
    if isinstance(value, Mapping):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(v) for v in value]
    return value


def _read(hint: Any, value: Any, where: str) -> Any:
    if hint is Any:
        return value
    origin = typing.get_origin(hint)
    arguments = typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        (rest,) = (a for a in arguments if a is not type(None))
        return _read(rest, value, where)
    if origin in (tuple, list):
        if not isinstance(value, list | tuple):
            raise _wrong(where, "a list", value)
        items = [_read(arguments[0], v, f"{where}[{i}]") for i, v in enumerate(value)]
        return tuple(items) if origin is tuple else items
    if origin is not None:  # Mapping[str, X]
        if not isinstance(value, Mapping) or not all(isinstance(k, str) for k in value):
            raise _wrong(where, "an object", value)
        if arguments[1] is Any:
            return dict(value)
        return {k: _read(arguments[1], v, f"{where}[{k!r}]") for k, v in value.items()}
    if issubclass(hint, Message):
        return hint.from_plain(value)
    if hint is float and type(value) is int:
        return float(value)
    if type(value) is not hint:
        raise _wrong(where, {str: "text", int: "an integer", float: "a number", bool: "true or false"}[hint], value)
    return value


def _wrong(where: str, expected: str, value: Any) -> ProtocolError:
    return ProtocolError(where, f"{expected} is expected, not {type(value).__name__} {value!r:.80}")

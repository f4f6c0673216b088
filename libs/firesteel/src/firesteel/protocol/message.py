"""The base of all messages: their plain JSON form, strict reading, and the codes of refused calls."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self

from firesteel.common.plain import read_plain, to_plain
from firesteel.core.errors import ProtocolError, RpcError

RPC_VERSION = 1
"""Version of the envelope and of all messages; another one is refused with ``VERSION``."""


class RpcCode(StrEnum):
    """Why a call was refused."""

    FENCED = "FENCED"
    NOT_FOUND = "NOT_FOUND"
    UNKNOWN_EXECUTION = "UNKNOWN_EXECUTION"
    """The JobMaster has no such attempt of a task, or has none any more."""
    UNKNOWN_PLACEMENT = "UNKNOWN_PLACEMENT"
    """The TaskManager does not know the placement of a submit, or not any more: it has to be shared first."""
    BAD_REQUEST = "BAD_REQUEST"
    REFUSED = "REFUSED"
    """The message is well-formed, but its content (a graph, its settings) is wrong, so no repeat will help."""
    UNAUTHORIZED = "UNAUTHORIZED"
    ANOTHER_PROCESS = "ANOTHER_PROCESS"
    """The call does not name the process that answers; the caller learns its identity, and repeats the call."""
    INTERNAL = "INTERNAL"
    VERSION = "VERSION"
    NO_RESOURCES = "NO_RESOURCES"
    GONE = "GONE"
    """The requested thing existed, and does not any more."""


class RpcFault(RpcError):
    """The callee refused a call, or failed in it; handlers raise it, and callers get it.

    Attributes:
        code: kind of the refusal.
        said: the callee's own message, without the URL of the call.
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
        plain: dict[str, Any] = to_plain(self)
        return plain

    @classmethod
    def from_plain(cls, plain: Any) -> Self:
        """Check and read the plain form that a peer sent.

        Raises:
            ProtocolError: a field is missing or of a wrong type; the message names it.
        """
        return read_plain(cls, plain, cls.__name__, ProtocolError)


@dataclass(frozen=True)
class Empty(Message):
    """A message without fields."""

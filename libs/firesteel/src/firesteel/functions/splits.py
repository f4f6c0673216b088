"""Splits: what a source hands to its readers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

__all__ = ["Plain", "SimpleVersionedSerializer", "Split"]

T = TypeVar("T")
Plain = None | bool | int | float | str | list[Any] | dict[str, Any]
"""What JSON can carry."""


@dataclass(frozen=True)
class Split:
    """A part of a source that one reader reads: versioned plain data.

    Attributes:
        id: unique within the source.
        data: what to read; only the source's own code looks inside. JSON-able, unless the source has a serializer of
            its own (``Source.get_split_serializer``).
        position: where to go on; None = from the start. JSON-able.
        version: of the layout of ``data`` and ``position``; that of the serializer, if there is one.
    """

    id: str
    data: Mapping[str, Plain] | Any
    position: Plain = None
    version: int = 1

    def to_plain(self) -> dict[str, Any]:
        """The split as data that JSON can carry; checkpoints and messages hold it in this form."""
        return {"id": self.id, "data": dict(self.data), "position": self.position, "version": self.version}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Split:
        """The inverse of ``to_plain``."""
        return cls(plain["id"], plain["data"], plain.get("position"), plain.get("version", 1))

    def at(self, position: Plain) -> Split:
        """The same split at another position."""
        return Split(self.id, self.data, position, self.version)


class SimpleVersionedSerializer(ABC, Generic[T]):
    """Makes bytes of objects and objects of bytes, also of those that an older version of it wrote."""

    @abstractmethod
    def get_version(self) -> int:
        """Of what ``serialize`` writes; from 0. A number never comes to mean another layout."""

    @abstractmethod
    def serialize(self, obj: T) -> bytes:
        """The bytes of an object."""

    @abstractmethod
    def deserialize(self, version: int, serialized: bytes) -> T:
        """The object.

        Args:
            version: ``get_version`` of the serializer that wrote it.
            serialized: what it wrote.

        Raises:
            Exception: the version is not known, or the bytes are damaged. The task fails with it.
        """

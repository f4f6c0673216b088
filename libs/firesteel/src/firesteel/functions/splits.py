"""Splits: the parts of a source that its enumerator assigns to readers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

__all__ = ["Plain", "SimpleVersionedSerializer", "Split"]

T = TypeVar("T")
Plain = None | bool | int | float | str | list[Any] | dict[str, Any]
"""Data that JSON can represent."""


@dataclass(frozen=True)
class Split:
    """A part of a source that one reader reads: versioned plain data.

    Attributes:
        id: unique within the source.
        data: description of the part; only the source's own code interprets it. JSON-able, unless the source has a
            serializer of its own (``Source.get_split_serializer``).
        position: where reading continues; None = at the start. JSON-able.
        version: version of the layout of ``data`` and ``position``; the serializer's version, if there is one.

    Examples:
        ```python
        from firesteel.datastream.connectors import Split

        split = Split("lines.txt", {"path": "/data/lines.txt"}, position=0)
        print(split.at(120).position)
        ```

        ```text
        120
        ```
    """

    id: str
    data: Mapping[str, Plain] | Any
    position: Plain = None
    version: int = 1

    def to_plain(self) -> dict[str, Any]:
        """Return the split as plain data, the form that checkpoints and messages carry."""
        return {"id": self.id, "data": dict(self.data), "position": self.position, "version": self.version}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Split:
        """Make a split from the plain data of ``to_plain``."""
        return cls(plain["id"], plain["data"], plain.get("position"), plain.get("version", 1))

    def at(self, position: Plain) -> Split:
        """Return the same split at another position."""
        return Split(self.id, self.data, position, self.version)


class SimpleVersionedSerializer(ABC, Generic[T]):
    """Serializes objects, and deserializes them from the bytes of any of its versions.

    Examples:
        ```python
        import json

        from firesteel.datastream.connectors import SimpleVersionedSerializer


        class AsJson(SimpleVersionedSerializer):
            def get_version(self):
                return 1

            def serialize(self, obj):
                return json.dumps(obj).encode()

            def deserialize(self, version, serialized):
                return json.loads(serialized)


        print(AsJson().deserialize(1, AsJson().serialize([1, 2])))
        ```

        ```text
        [1, 2]
        ```
    """

    @abstractmethod
    def get_version(self) -> int:
        """Return the version of the layout that ``serialize`` writes, from 0; each layout needs its own version."""

    @abstractmethod
    def serialize(self, obj: T) -> bytes:
        """Return the bytes of an object."""

    @abstractmethod
    def deserialize(self, version: int, serialized: bytes) -> T:
        """Return the object.

        Args:
            version: ``get_version`` of the serializer that wrote the bytes.
            serialized: the bytes.

        Raises:
            Exception: the version is not known, or the bytes are damaged. The task fails with it.
        """

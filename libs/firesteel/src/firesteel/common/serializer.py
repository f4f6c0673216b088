"""Serialisers of single values to byte streams, with PyFlink's names."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import IO, Any, Generic, TypeVar

from typing_extensions import override

__all__ = ["TypeSerializer", "VoidNamespaceSerializer"]

T = TypeVar("T")


class TypeSerializer(ABC, Generic[T]):
    """Writes values of one type to a stream, and reads them from it; both must agree in the number of bytes.

    Examples:
        ```python
        import io

        from firesteel.common import TypeSerializer


        class Text(TypeSerializer):
            def serialize(self, element, stream):
                data = element.encode()
                stream.write(len(data).to_bytes(4, "big") + data)

            def deserialize(self, stream):
                return stream.read(int.from_bytes(stream.read(4), "big")).decode()


        stream = io.BytesIO()
        Text().serialize("tea", stream)
        stream.seek(0)
        print(Text().deserialize(stream))
        ```

        ```text
        tea
        ```
    """

    @abstractmethod
    def serialize(self, element: T, stream: IO[bytes]) -> None:
        """Writes a value to the stream."""

    @abstractmethod
    def deserialize(self, stream: IO[bytes]) -> T:
        """Reads one value from the stream."""

    def __eq__(self, other: object) -> bool:
        return self.__dict__ == other.__dict__ if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash(type(self).__qualname__)


class VoidNamespaceSerializer(TypeSerializer[Any]):
    """Writes nothing: the namespace of state outside windows."""

    @override
    def serialize(self, element: Any, stream: IO[bytes]) -> None: ...

    def deserialize(self, stream: IO[bytes]) -> Any:
        """Reads nothing and returns empty bytes."""
        return b""

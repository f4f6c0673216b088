"""Tags of side outputs. PyFlink's name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from firesteel.common.typeinfo import RowTypeInfo, TypeDescriptor, TypeInformation, Types, as_type_info

__all__ = ["OutputTag", "tags_exist"]

T = TypeVar("T")


class OutputTag(Generic[T]):
    """A side output: its name, and the type of its records.

    A process function sends a record there with ``yield tag, value``; ``stream.get_side_output(tag)`` reads it. Tags
    are equal if their ids and types are.

    Attributes:
        tag_id: unique among the side outputs of an operator.
        type_info: type of the records; any Python object (pickled) if the program gives none.

    Raises:
        ValueError: the id is empty.
        TypeError: the id is not a str, or the type is not type information.

    Examples:
        ```python
        from firesteel.datastream import OutputTag, ProcessFunction, StreamExecutionEnvironment

        BAD = OutputTag("bad")


        class Parse(ProcessFunction):
            def process_element(self, value, ctx):
                if value.isdigit():
                    yield int(value)
                else:
                    yield BAD, value


        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
        numbers = env.from_collection(["1", "x", "2"]).process(Parse())
        print(list(numbers.get_side_output(BAD).execute_and_collect()))
        ```

        ```text
        ['x']
        ```
    """

    __slots__ = ("tag_id", "type_info")

    def __init__(  # without the type of self, type checkers would ask for an annotation of every tag
        self: OutputTag[Any], tag_id: str, type_info: TypeDescriptor | Sequence[TypeDescriptor] | None = None
    ) -> None:
        if not isinstance(tag_id, str):
            raise TypeError(f"the id of an OutputTag is a str, not {type(tag_id).__name__}")
        if not tag_id:
            raise ValueError("the id of an OutputTag is empty; give each side output a name of its own")
        description = f"the type of OutputTag {tag_id!r}"
        if isinstance(type_info, list):
            type_info = RowTypeInfo([as_type_info(field_type, lambda: description) for field_type in type_info])
        self._set(
            tag_id, Types.PICKLED_BYTE_ARRAY() if type_info is None else as_type_info(type_info, lambda: description)
        )

    def _set(self, tag_id: str, type_info: TypeInformation) -> None:
        global _tags_exist
        _tags_exist = True
        self.tag_id, self.type_info = tag_id, type_info

    def __getstate__(self) -> Any:
        return self.tag_id, self.type_info

    def __setstate__(self, state: Any) -> None:
        self._set(*state)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, OutputTag):
            return NotImplemented
        return (self.tag_id, self.type_info) == (other.tag_id, other.type_info)

    def __hash__(self) -> int:
        return hash(self.tag_id)

    def __repr__(self) -> str:
        return f"OutputTag({self.tag_id!r}, {self.type_info})"


_tags_exist = False


def tags_exist() -> bool:
    """Whether any tag exists in this process: without one no function can yield to a side output."""
    return _tags_exist

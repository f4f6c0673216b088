"""Sends malformed records to a side output."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from firesteel.connectors.malformed import MalformedRecord
from firesteel.functions.functions import ProcessFunction
from firesteel.functions.output_tag import OutputTag

__all__ = ["MalformedToSideOutput"]


class MalformedToSideOutput(ProcessFunction[Any, Any]):
    """Sends each ``MalformedRecord`` to a side output, and all other records on.

    It is used behind sources that are built with ``on_malformed(MalformedPolicy.EMIT)``:
    ``stream.process(MalformedToSideOutput(tag), output_type=row_type)``, then ``get_side_output(tag)``.

    Args:
        tag: tag of the side output, without a type, because malformed records are Python objects.

    Examples:
        ```python
        from firesteel.datastream import OutputTag
        from firesteel.datastream.connectors.file_system import MalformedToSideOutput

        MALFORMED = OutputTag("malformed")
        divide = MalformedToSideOutput(MALFORMED)  # stream.process(divide), behind a source with MalformedPolicy.EMIT
        ```
    """

    def __init__(self, tag: OutputTag[Any]) -> None:
        if not isinstance(tag, OutputTag):
            raise TypeError(f"MalformedToSideOutput takes an OutputTag, not {type(tag).__name__}")
        self.tag = tag

    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterator[Any]:
        """Emit the record, or send it to the side output."""
        if isinstance(value, MalformedRecord):
            yield self.tag, value
        else:
            yield value

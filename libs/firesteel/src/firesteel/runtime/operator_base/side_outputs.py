"""Side outputs inside a chain."""

from __future__ import annotations

from typing import Any, NamedTuple

from firesteel.runtime.records.batch import Batch


class SideRecord:
    """What an operator yields in place of a result to send a value to a side output.

    The chain routes it to those who read the tag, with the timestamp at hand, and drops it when nobody does. Only
    operators whose ``tagged`` is true may yield it: the results of others are not looked at.

    Attributes:
        tag_id: of the ``OutputTag``.
        value: the record, already fitted to the tag's type.
    """

    __slots__ = ("tag_id", "value")

    def __init__(self, tag_id: str, value: Any) -> None:
        self.tag_id = tag_id
        self.value = value

    def __repr__(self) -> str:
        return f"SideRecord({self.tag_id!r}, {self.value!r})"


class SideBatch(NamedTuple):
    """What an operator over columns gives in place of a batch to send one to a side output.

    Attributes:
        tag_id: of the ``OutputTag``.
        batch: columns, or records that are fitted to the tag's type.
    """

    tag_id: str
    batch: Batch

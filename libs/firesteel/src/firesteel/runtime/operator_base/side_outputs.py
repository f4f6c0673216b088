"""Records and batches of side outputs, as they travel inside a chain."""

from __future__ import annotations

from typing import Any, NamedTuple

from firesteel.runtime.records.batch import Batch


class SideRecord:
    """Yielded by an operator in place of a result, to send a value to a side output.

    The chain routes it to the readers of the tag, with the timestamp of the record in flight, and drops it if there are
    none. Only operators whose ``tagged`` is true may yield it: the results of others are not looked at.

    Attributes:
        tag_id: id of the ``OutputTag``.
        value: the record, fitted to the type of the tag.
    """

    __slots__ = ("tag_id", "value")

    def __init__(self, tag_id: str, value: Any) -> None:
        self.tag_id = tag_id
        self.value = value

    def __repr__(self) -> str:
        return f"SideRecord({self.tag_id!r}, {self.value!r})"


class SideBatch(NamedTuple):
    """Yielded by an operator over columns in place of a batch, to send a batch to a side output.

    Attributes:
        tag_id: id of the ``OutputTag``.
        batch: columns, or records that are fitted to the type of the tag.
    """

    tag_id: str
    batch: Batch

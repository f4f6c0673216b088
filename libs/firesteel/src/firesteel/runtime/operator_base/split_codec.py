"""Converts splits of a source between the objects that its own code uses and plain data."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any, Final

from firesteel.core.errors import ProgramError
from firesteel.core.short_repr import short_repr
from firesteel.functions.source import Source, Split

_SERIALIZED: Final = "serialized"


class SplitCodec:
    """Converts the splits of one source.

    Args:
        name: name of the operator, for errors.
        source: the source, which may have a serializer of splits.
    """

    def __init__(self, name: str, source: Source[Any]) -> None:
        self._name, self._serializer = name, source.get_split_serializer()

    def to_plain(self, split: Split) -> dict[str, Any]:
        """Convert a split to plain data, for messages and checkpoints.

        Raises:
            ProgramError: it is not a ``Split``, or its data are not plain and the source has no serializer.
        """
        if not isinstance(split, Split):
            raise ProgramError(f"source {self._name!r}: {short_repr(split, 80)} is no Split")
        if self._serializer is not None:
            data = {_SERIALIZED: base64.b64encode(self._serializer.serialize(split.data)).decode("ascii")}
            split = Split(split.id, data, split.position, self._serializer.get_version())
        elif not isinstance(split.data, Mapping):
            raise self._not_plain(split)
        plain = split.to_plain()
        if not is_plain(plain):
            raise self._not_plain(split)
        return plain

    def from_plain(self, split: Split) -> Split:
        """Convert a split with plain data to one as the source's code knows it.

        Raises:
            ProgramError: it was written with a serializer and the source has none, or the other way round.
        """
        serialized = isinstance(split.data, Mapping) and set(split.data) == {_SERIALIZED}
        if self._serializer is None and not serialized:
            return split
        if self._serializer is None or not serialized:
            now, before = ("no", "with one") if self._serializer is None else ("a", "without")
            raise ProgramError(
                f"source {self._name!r} has {now} serializer of splits, and split {split.id!r} was written {before}: "
                "give the source another uid to begin anew"
            )
        data = self._serializer.deserialize(split.version, base64.b64decode(str(split.data[_SERIALIZED])))
        return Split(split.id, data, split.position, split.version)

    def check_position(self, split_id: str, position: Any) -> None:
        """Check that the position of a split that is being read is plain data.

        Raises:
            ProgramError: it is not.
        """
        if not is_plain(position):
            raise ProgramError(
                f"source {self._name!r}: the position of split {split_id!r} is not plain data: "
                f"{short_repr(position, 80)} ({type(position).__name__}). Give batches positions that JSON can carry: "
                "None, bool, int, float, str, and lists and dicts of these"
            )

    def _not_plain(self, split: Split) -> ProgramError:
        return ProgramError(
            f"source {self._name!r}: split {split.id!r} is not plain data ({short_repr(split.data, 80)} at "
            f"{short_repr(split.position, 40)}): give it what JSON can carry, or the source a get_split_serializer()"
        )


def is_plain(value: Any) -> bool:
    """Whether a value is the same after it was written as JSON and read again."""
    try:
        return bool(json.loads(json.dumps(value, allow_nan=False)) == value)
    except (TypeError, ValueError, RecursionError):
        return False

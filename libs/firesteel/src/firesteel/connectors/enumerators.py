"""Built-in split enumerators, which the JobMaster makes from a name and plain configuration, never from user code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from typing_extensions import override

from firesteel.connectors.file_splits import FileEnumerator
from firesteel.connectors.file_watch import WatchedFilesEnumerator
from firesteel.connectors.hybrid_enumerator import HybridEnumerator
from firesteel.connectors.split_list import SplitListEnumerator
from firesteel.core.errors import GraphError
from firesteel.functions.source import BuiltInEnumerator, Plain, Split


class StaticEnumerator(SplitListEnumerator):
    """Hands out splits that were fixed when the graph was built.

    Configuration: ``splits``, a list of plain splits.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(Split.from_plain(plain) for plain in config["splits"])


class NumberRangeEnumerator(SplitListEnumerator):
    """Splits a range of numbers into as many contiguous ranges as there are subtasks, at the first request.

    Configuration: ``start`` (first number) and ``end`` (number behind the last one).
    A split's data are its ``start`` and ``end``; its position is the next number.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(())
        self._start, self._end = int(config["start"]), int(config["end"])
        self._is_split = False

    @override
    def next_splits(self, subtask: int, parallelism: int) -> list[Split]:
        if not self._is_split:
            self._is_split = True
            self.add_splits_back(self._ranges(parallelism))
        return super().next_splits(subtask, parallelism)

    def _ranges(self, count: int) -> list[Split]:
        total = self._end - self._start
        cuts = [self._start + total * i // count for i in range(count + 1)]
        bounds = [(low, high) for low, high in pairwise(cuts) if high > low]
        return [Split(f"{low}-{high}", {"start": low, "end": high}) for low, high in bounds]

    @property
    def exhausted(self) -> bool:
        """Whether all ranges were handed out."""
        return self._is_split and super().exhausted

    def snapshot(self) -> Plain:
        """Ranges that were not handed out; None before the first request."""
        return super().snapshot() if self._is_split else None

    def restore(self, state: Plain) -> None:
        """Continue from a snapshot."""
        self._is_split = state is not None
        super().restore([] if state is None else state)


class SubtaskEnumerator(BuiltInEnumerator):
    """Hands out one split to each subtask, which no other subtask reads. It needs no configuration.

    A split's data are the number of its ``subtask``.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._served: set[int] = set()
        """Subtasks that have their split."""
        self._parallelism: int | None = None

    def next_splits(self, subtask: int, parallelism: int) -> list[Split]:
        """The split of the subtask, at its first request."""
        self._parallelism = parallelism
        if subtask in self._served:
            return []
        self._served.add(subtask)
        return [Split(f"subtask-{subtask}", {"subtask": subtask})]

    @property
    def exhausted(self) -> bool:
        """Whether all subtasks have their splits."""
        return self._parallelism is not None and len(self._served) >= self._parallelism

    def add_splits_back(self, splits: Sequence[Split]) -> None:
        """Take splits back; their subtasks will request them again."""
        self._served.difference_update(int(split.data["subtask"]) for split in splits)  # type: ignore[arg-type]

    def snapshot(self) -> Plain:
        """Subtasks that have their splits."""
        return list(sorted(self._served))

    def restore(self, state: Plain) -> None:
        """Continue from a snapshot."""
        assert isinstance(state, list)
        self._served = {int(subtask) for subtask in state}


_BUILT_IN: Final[dict[str, Callable[[Mapping[str, Any]], BuiltInEnumerator]]] = {
    "static": StaticEnumerator,
    "subtasks": SubtaskEnumerator,
    "numbers": NumberRangeEnumerator,
    "files": lambda config: FileEnumerator(config, is_apart=True),
    "watched-files": lambda config: WatchedFilesEnumerator(config, is_apart=True),
    "hybrid": lambda config: HybridEnumerator(config, create_enumerator),
}


def create_enumerator(name: str, config: Mapping[str, Any]) -> BuiltInEnumerator:
    """Make the enumerator of a name.

    Raises:
        GraphError: the name is unknown or the configuration does not fit it.
    """
    make = _BUILT_IN.get(name)
    if make is None:
        raise GraphError(f"unknown split enumerator {name!r}; known: {', '.join(sorted(_BUILT_IN))}")
    try:
        return make(config)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise GraphError(f"split enumerator {name!r}: bad configuration ({type(error).__name__}: {error})") from error

"""The enumerator of a hybrid source: it runs the enumerators of its sources one after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from firesteel.core.errors import ProgramError
from firesteel.functions.source import BuiltInEnumerator, Plain, Split

MakeEnumerator = Callable[[str, Mapping[str, Any]], BuiltInEnumerator]


def wrap(source: int, split: Split) -> Split:
    """Make a split of the hybrid source from a split of one of its sources."""
    data: dict[str, Plain] = {"source": source, "split": split.id, "data": dict(split.data)}
    return Split(f"{source}/{split.id}", data, split.position, split.version)


def unwrap(split: Split) -> tuple[int, Split]:
    """Number of the source that a split belongs to, and the split of that source."""
    data: Any = split.data
    return int(data["source"]), Split(data["split"], data["data"], split.position, split.version)


class HybridEnumerator(BuiltInEnumerator):
    """Hands out the splits of one source after the other.

    A source begins when all splits of the source before it were handed out, and each subtask has asked again since: a
    reader asks when it has read all of its splits. The enumerator of a source is made when the source begins, so that
    files are listed then.

    Args:
        config: ``sources``, a list of ``name`` and ``config`` of their enumerators.
        make: makes an enumerator of a name and a configuration.
    """

    def __init__(self, config: Mapping[str, Any], make: MakeEnumerator) -> None:
        self._sources = [(str(source["name"]), dict(source["config"])) for source in config["sources"]]
        self._make = make
        self._number = 0
        self._current: BuiltInEnumerator | None = None
        self._returned_splits: list[Split] = []
        """Splits of sources before the current one that have to be read again."""
        self._idle: set[int] = set()
        """Subtasks that have read everything of the current source."""

    @property
    def _enumerator(self) -> BuiltInEnumerator:
        if self._current is None:
            enumerator = self._make_current()
            try:
                enumerator.start()
            except ProgramError as error:
                raise self._with_source(error) from error
            self._current = enumerator
        return self._current

    def _make_current(self) -> BuiltInEnumerator:
        try:
            return self._make(*self._sources[self._number])
        except ProgramError as error:
            raise self._with_source(error) from error

    def _with_source(self, error: ProgramError) -> ProgramError:
        return ProgramError(f"source {self._number + 1} of {len(self._sources)}: {error}")

    @property
    def _is_last(self) -> bool:
        return self._number == len(self._sources) - 1

    def next_splits(self, subtask: int, parallelism: int) -> list[Split]:
        """The next splits of the current source; none while other subtasks still read the source before it."""
        if self._returned_splits:
            self._idle.discard(subtask)
            return [self._returned_splits.pop(0)]
        while True:
            splits = self._enumerator.next_splits(subtask, parallelism)
            if splits:
                self._idle.discard(subtask)
                return [wrap(self._number, split) for split in splits]
            if self._is_last or not self._enumerator.exhausted:
                return []
            # This subtask has read its part of the source. The next source begins when all subtasks have.
            self._idle.add(subtask)
            if len(self._idle) < parallelism:
                return []
            self._number += 1
            self._current = None
            self._idle.clear()

    @property
    def exhausted(self) -> bool:
        """Whether all splits of the last source were handed out."""
        return self._is_last and not self._returned_splits and self._enumerator.exhausted

    def reader_reset(self, subtask: int) -> None:
        """Note that a subtask has failed, and has to read some splits again."""
        self._idle.discard(subtask)

    def add_splits_back(self, splits: Sequence[Split]) -> None:
        """Give splits back to their sources; those of earlier sources are handed out first."""
        current_splits: list[Split] = []
        for split in splits:
            number, inner = unwrap(split)
            if number == self._number:
                current_splits.append(inner)
            else:
                self._returned_splits.append(split)
        if current_splits:
            self._enumerator.add_splits_back(current_splits)

    def snapshot(self) -> Plain:
        """Number of the current source, state of its enumerator, and splits of earlier sources."""
        return {
            "enumerators": [name for name, _ in self._sources],
            "current": self._number,
            "state": None if self._current is None else self._current.snapshot(),
            "begun": self._current is not None,
            "back": [split.to_plain() for split in self._returned_splits],
        }

    def restore(self, state: Plain) -> None:
        """Continue from a snapshot.

        Raises:
            ProgramError: the snapshot was taken with other sources.
        """
        assert isinstance(state, dict)
        former_names = state["enumerators"]
        assert isinstance(former_names, list)
        names = [name for name, _ in self._sources]
        number = int(state["current"])
        if names[: number + 1] != former_names[: number + 1]:
            raise ProgramError(
                f"the checkpoint was taken with the sources {', '.join(map(str, former_names))}, and there are "
                f"{', '.join(names)} now: those that were begun have to stay where they were"
            )
        self._number = number
        self._idle.clear()
        self._current = None
        if state["begun"]:
            self._current = self._make_current()
            self._current.restore(state["state"])
        self._returned_splits = [Split.from_plain(plain) for plain in state["back"]]

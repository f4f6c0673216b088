"""The enumerator of sources that are read one after the other; made of the enumerators of its sources."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from firesteel.core.errors import ProgramError
from firesteel.functions.source import BuiltInEnumerator, Plain, Split

MakeEnumerator = Callable[[str, Mapping[str, Any]], BuiltInEnumerator]


def wrap(source: int, split: Split) -> Split:
    """A split of one of the sources as a split of all of them."""
    data: dict[str, Plain] = {"source": source, "split": split.id, "data": dict(split.data)}
    return Split(f"{source}/{split.id}", data, split.position, split.version)


def unwrap(split: Split) -> tuple[int, Split]:
    """The number of the source and its own split."""
    data: Any = split.data
    return int(data["source"]), Split(data["split"], data["data"], split.position, split.version)


class HybridEnumerator(BuiltInEnumerator):
    """Hands out the splits of one source after the other.

    Configuration: ``sources``, a list of ``name`` and ``config`` of their enumerators.

    A source begins when all splits of the one before it were handed out, and each subtask has asked again since: a
    reader asks when it has read all it had. The enumerator of a source is made when the source begins, so that files
    are listed then.

    Args:
        config: see above.
        make: an enumerator of a name and a configuration.
    """

    def __init__(self, config: Mapping[str, Any], make: MakeEnumerator) -> None:
        self._sources = [(str(source["name"]), dict(source["config"])) for source in config["sources"]]
        self._make = make
        self._number = 0
        self._current: BuiltInEnumerator | None = None
        self._back: list[Split] = []
        """Of sources before the current one: somebody has to read them again."""
        self._idle: set[int] = set()
        """Subtasks that have read everything of the current source."""

    @property
    def _enumerator(self) -> BuiltInEnumerator:
        if self._current is None:
            made = self._made()
            try:
                made.start()
            except ProgramError as error:
                raise self._named(error) from error
            self._current = made
        return self._current

    def _made(self) -> BuiltInEnumerator:
        try:
            return self._make(*self._sources[self._number])
        except ProgramError as error:
            raise self._named(error) from error

    def _named(self, error: ProgramError) -> ProgramError:
        return ProgramError(f"source {self._number + 1} of {len(self._sources)}: {error}")

    @property
    def _is_last(self) -> bool:
        return self._number == len(self._sources) - 1

    def next_splits(self, subtask: int, parallelism: int) -> list[Split]:
        """The next splits of the current source; none while others still read the one before."""
        if self._back:
            self._idle.discard(subtask)
            return [self._back.pop(0)]
        while True:
            found = self._enumerator.next_splits(subtask, parallelism)
            if found:
                self._idle.discard(subtask)
                return [wrap(self._number, split) for split in found]
            if self._is_last or not self._enumerator.exhausted:
                return []
            self._idle.add(subtask)
            if len(self._idle) < parallelism:
                return []
            self._number += 1
            self._current = None
            self._idle.clear()

    @property
    def exhausted(self) -> bool:
        """Whether all splits of the last source are out."""
        return self._is_last and not self._back and self._enumerator.exhausted

    def reader_reset(self, subtask: int) -> None:
        """It has to read some again."""
        self._idle.discard(subtask)

    def add_splits_back(self, splits: Sequence[Split]) -> None:
        """Each goes back to its source; what belongs to one that is over is handed out first."""
        own: list[Split] = []
        for split in splits:
            number, inner = unwrap(split)
            if number == self._number:
                own.append(inner)
            else:
                self._back.append(split)
        if own:
            self._enumerator.add_splits_back(own)

    def snapshot(self) -> Plain:
        """Which source is current, the state of its enumerator, and splits of earlier sources."""
        return {
            "enumerators": [name for name, _ in self._sources],
            "current": self._number,
            "state": None if self._current is None else self._current.snapshot(),
            "begun": self._current is not None,
            "back": [split.to_plain() for split in self._back],
        }

    def restore(self, state: Plain) -> None:
        """Continue from a snapshot.

        Raises:
            ProgramError: it is of other sources.
        """
        assert isinstance(state, dict)
        written = state["enumerators"]
        assert isinstance(written, list)
        mine = [name for name, _ in self._sources]
        number = int(state["current"])
        if mine[: number + 1] != written[: number + 1]:
            raise ProgramError(
                f"the checkpoint was taken with the sources {', '.join(map(str, written))}, and there are "
                f"{', '.join(mine)} now: those that were begun have to stay where they were"
            )
        self._number = number
        self._idle.clear()
        self._current = None
        if state["begun"]:
            self._current = self._made()
            self._current.restore(state["state"])
        self._back = [Split.from_plain(plain) for plain in state["back"]]

"""Drives enumerators as JobMaster and runtime do, and tests those of users against the contract.

The contract is in ``firesteel.functions.split_enumerator``.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar

from typing_extensions import override

from firesteel.connectors.enumerators import create_enumerator
from firesteel.core.errors import ProgramError
from firesteel.functions.source import (
    BuiltInEnumerator,
    ReaderInfo,
    Source,
    Split,
    SplitEnumerator,
    SplitEnumeratorContext,
)
from firesteel.runtime.operator_base.split_codec import SplitCodec, is_plain
from firesteel.testing.rules import require

T = TypeVar("T")
_MOST_CALLS: Final = 1000
"""Number of asynchronous calls without any split after which an enumerator counts as having none at present."""


class Driven(Protocol):
    """An enumerator that a test drives."""

    def next_splits(self, subtask: int, parallelism: int) -> list[Split]:
        """Request splits for a subtask that has read all it had; returns them as its reader gets them."""

    def exhausted_for(self, subtask: int) -> bool:
        """Whether the subtask was told that no more splits will come."""

    def snapshot(self) -> Any:
        """Return the state of the enumerator, for ``drive``."""


def drive(source: Source[Any], state: Any = None) -> Driven:
    """Make the driver of a source's enumerator.

    Args:
        source: the source.
        state: ``snapshot`` of another driver; None = the enumerator begins without state.
    """
    return DrivenUser(source, state) if source.enumerator() is None else _DrivenBuiltIn(source, state)


class _DrivenBuiltIn:
    def __init__(self, source: Source[Any], state: Any) -> None:
        spec = source.enumerator()
        assert spec is not None
        self._enumerator: BuiltInEnumerator = create_enumerator(spec.name, json.loads(json.dumps(dict(spec.config))))
        if state is None:
            self._enumerator.start()
        else:
            self._enumerator.restore(state[0])

    def next_splits(self, subtask: int, parallelism: int) -> list[Split]:
        return self._enumerator.next_splits(subtask, parallelism)

    def exhausted_for(self, subtask: int) -> bool:
        return self._enumerator.exhausted

    def snapshot(self) -> Any:
        return json.loads(json.dumps([self._enumerator.snapshot()]))


class DrivenUser(SplitEnumeratorContext):
    """Drives an enumerator that a user wrote; the test plays the readers.

    Args:
        source: the source.
        state: ``snapshot`` of another driver; None = the enumerator begins without state.

    Attributes:
        assigned: splits that were assigned and not yet returned by ``next_splits``, by subtask.
        assignments: ids of all splits that were assigned, in order, with their subtasks.
    """

    def __init__(self, source: Source[Any], state: Any = None) -> None:
        self._source, self._codec = source, SplitCodec("source", source)
        self.assigned: dict[int, list[Split]] = {}
        self.assignments: list[tuple[str, int]] = []
        self._parallelism = 1
        self._readers: dict[int, ReaderInfo] = {}
        self._no_more: set[int] = set()
        self._calls: deque[Callable[[], None]] = deque()
        self._state, self._enumerator = state, None  # type: Any, SplitEnumerator | None
        self._gives_state = False

    @property
    def enumerator(self) -> SplitEnumerator:
        """The user's enumerator, created and started at the first access."""
        if self._enumerator is None:
            if self._state is None:
                enumerator = self._source.create_enumerator(self)
            else:
                enumerator = self._source.restore_enumerator(self, self._read(self._state["state"]))
            require(
                isinstance(enumerator, SplitEnumerator),
                f"create_enumerator() gave {enumerator!r}, which is not a SplitEnumerator",
            )
            self._enumerator = enumerator
            enumerator.start()
            for subtask, plain in (self._state or {}).get("back", ()):
                enumerator.add_splits_back([self._codec.from_plain(Split.from_plain(plain))], subtask)
        return self._enumerator

    # -- what the test does

    def next_splits(self, subtask: int, parallelism: int) -> list[Split]:
        """Request splits, and run asynchronous calls of the enumerator until it has answered (``Driven``)."""
        self._parallelism = parallelism
        enumerator = self.enumerator
        for reader in range(parallelism):
            if reader not in self._readers:
                self._readers[reader] = ReaderInfo(reader, "localhost")
                enumerator.add_reader(reader)
        if not self.assigned.get(subtask) and subtask not in self._no_more:
            enumerator.handle_split_request(subtask, "localhost")
        for _ in range(_MOST_CALLS):
            if self.assigned.get(subtask) or subtask in self._no_more or not self._calls:
                break
            self._calls.popleft()()
        return self.assigned.pop(subtask, [])

    def exhausted_for(self, subtask: int) -> bool:
        """Whether ``signal_no_more_splits`` was called for the subtask (``Driven``)."""
        return subtask in self._no_more

    def snapshot(self) -> Any:
        """Return the enumerator's state, and the splits that have not arrived at readers (``Driven``)."""
        self._gives_state = True
        state = self.enumerator.snapshot_state(1)
        self._gives_state = False
        serializer = self._source.get_enumerator_checkpoint_serializer()
        if serializer is not None:
            state = serializer.get_version(), serializer.serialize(state)
            require(isinstance(state[1], bytes), "the serializer of the enumerator's state gave no bytes")
        else:
            require(is_plain(state), f"snapshot_state() gave {state!r:.200}, which JSON does not carry as it is")
            state = json.loads(json.dumps(state))
        back = [(subtask, self._codec.to_plain(split)) for subtask, splits in self.assigned.items() for split in splits]
        return {"state": state, "back": back}

    def with_back(self, state: Any, splits: Sequence[tuple[int, Split]]) -> Any:
        """Return a state with further splits that have not arrived at readers."""
        return {**state, "back": [*state["back"], *((n, self._codec.to_plain(split)) for n, split in splits)]}

    def _read(self, state: Any) -> Any:
        serializer = self._source.get_enumerator_checkpoint_serializer()
        return state if serializer is None else serializer.deserialize(*state)

    # -- what the enumerator does

    def current_parallelism(self) -> int:
        """Return the parallelism of the last ``next_splits``."""
        return self._parallelism

    @override
    def registered_readers(self) -> Mapping[int, ReaderInfo]:
        return dict(self._readers)

    def assign_split(self, split: Split, subtask_id: int) -> None:
        """Keep a split for ``next_splits``, in the form in which it would arrive at the reader."""
        require(subtask_id in self._readers, f"assign_split() to subtask {subtask_id}, which has no reader")
        require(
            subtask_id not in self._no_more, f"assign_split() to subtask {subtask_id} after signal_no_more_splits()"
        )
        require(not self._gives_state, "snapshot_state() assigned a split")
        try:
            plain = json.loads(json.dumps(self._codec.to_plain(split)))
        except ProgramError as error:
            raise AssertionError(str(error)) from error
        arrived = self._codec.from_plain(Split.from_plain(plain))
        require(arrived.id == split.id and arrived.position == split.position, f"{split!r} arrived as {arrived!r}")
        self.assigned.setdefault(subtask_id, []).append(arrived)
        self.assignments.append((split.id, subtask_id))

    @override
    def signal_no_more_splits(self, subtask_id: int) -> None:
        require(subtask_id in self._readers, f"signal_no_more_splits() to subtask {subtask_id}, which has no reader")
        self._no_more.add(subtask_id)

    def call_async(
        self,
        callable: Callable[[], T],
        handler: Callable[[T | None, BaseException | None], None],
        initial_delay_ms: int = 0,
        period_ms: int | None = None,
    ) -> None:
        """Queue a call, which runs when a subtask waits for splits; delays are skipped."""

        def call() -> None:
            try:
                result = callable()
            except Exception as error:  # the handler gets it
                handler(None, error)
            else:
                handler(result, None)
            if period_ms is not None:
                self._calls.append(call)

        self._calls.append(call)

    def run_in_coordinator_thread(self, runnable: Callable[[], None]) -> None:
        """Queue a call, which runs when a subtask waits for splits."""
        self._calls.append(runnable)


def check_enumerator(make_source: Callable[[], Source[Any]]) -> None:
    """Stop the enumerator of a bounded source after each request, with splits on their way, and resume from its state.

    Args:
        make_source: makes the source; called often.

    Raises:
        AssertionError: the message says which rule is broken.
    """
    first = DrivenUser(make_source())
    splits = _rest(first, 2)
    ids = [split.id for split in splits]
    require(len(set(ids)) == len(ids), f"splits have the same id: {sorted(ids)}")
    for requests in range(len(splits) + 1):
        for lost in (0, 1, 2):
            _check_restore(make_source, set(ids), requests, lost)
    serializer = make_source().get_split_serializer()
    if serializer is not None and splits:
        _check_version(serializer, serializer.serialize(splits[0].data), "splits")
    serializer = make_source().get_enumerator_checkpoint_serializer()
    if serializer is not None:
        _check_version(serializer, first.snapshot()["state"][1], "the enumerator's state")


def _check_restore(make_source: Callable[[], Source[Any]], ids: set[str], requests: int, lost: int) -> None:
    """Restart after some requests, where the last ``lost`` splits have not arrived at their readers."""
    stopped = DrivenUser(make_source())
    handed_out: list[tuple[int, Split]] = []
    for request in range(requests):
        handed_out += [(request % 2, split) for split in stopped.next_splits(request % 2, 2)]
    arrived, on_the_way = handed_out[: len(handed_out) - lost], handed_out[len(handed_out) - lost :]
    state = stopped.with_back(stopped.snapshot(), on_the_way)
    stopped.enumerator.notify_checkpoint_complete(1)
    stopped.enumerator.close()
    again = [split.id for split in _rest(DrivenUser(make_source(), state), 3)]
    when = f"after {requests} requests and a restart, {len(on_the_way)} splits being on their way"
    read = [split.id for _, split in arrived] + again
    require(set(read) == ids, f"{when}: splits are lost: {sorted(ids - set(read))}; strange: {sorted(set(read) - ids)}")
    require(len(read) == len(ids), f"{when}: splits are given out twice: {sorted(i for i in ids if read.count(i) > 1)}")


def _rest(driven: DrivenUser, parallelism: int) -> list[Split]:
    """Return all further splits of an enumerator."""
    all_splits: list[Split] = []
    ended: set[int] = set()
    for turn in range(100_000):
        subtask = turn % parallelism
        if subtask in ended:
            continue
        splits = driven.next_splits(subtask, parallelism)
        all_splits += splits
        if not splits and driven.exhausted_for(subtask):
            ended.add(subtask)
            if len(ended) == parallelism:
                return all_splits
    raise AssertionError("readers that ask again and again are never told that there are no more splits")


def _check_version(serializer: Any, data: bytes, owner: str) -> None:
    version = serializer.get_version()
    require(isinstance(version, int) and version >= 0, f"get_version() of the serializer of {owner} gave {version!r}")
    serializer.deserialize(version, data)
    try:
        serializer.deserialize(version + 1000, data)
    except Exception:  # any error will do
        return
    raise AssertionError(f"the serializer of {owner} took an unknown version: deserialize() must raise")

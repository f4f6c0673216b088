"""Drives enumerators by hand, as JobMaster and runtime do, and holds those of users against the contract.

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
"""Asynchronous calls without any split after which an enumerator counts as having none for now."""


class Driven(Protocol):
    """An enumerator that a test asks."""

    def next_splits(self, subtask: int, parallelism: int) -> list[Split]:
        """What a subtask is given that has nothing left, in the form in which its reader gets it."""

    def exhausted_for(self, subtask: int) -> bool:
        """Whether the subtask was told that none will come."""

    def snapshot(self) -> Any:
        """Its state."""


def drive(source: Source[Any], state: Any = None) -> Driven:
    """The enumerator of a source.

    Args:
        source: has it.
        state: ``snapshot`` of another one; None = it begins anew.
    """
    return DrivenUser(source, state) if source.enumerator() is None else _DrivenBuiltIn(source, state)


class _DrivenBuiltIn:
    def __init__(self, source: Source[Any], state: Any) -> None:
        spec = source.enumerator()
        assert spec is not None
        self._made: BuiltInEnumerator = create_enumerator(spec.name, json.loads(json.dumps(dict(spec.config))))
        if state is None:
            self._made.start()
        else:
            self._made.restore(state[0])

    def next_splits(self, subtask: int, parallelism: int) -> list[Split]:
        return self._made.next_splits(subtask, parallelism)

    def exhausted_for(self, subtask: int) -> bool:
        return self._made.exhausted

    def snapshot(self) -> Any:
        return json.loads(json.dumps([self._made.snapshot()]))


class DrivenUser(SplitEnumeratorContext):
    """An enumerator that a user wrote, with readers that a test stands for.

    Args:
        source: has it.
        state: ``snapshot`` of another one; None = it begins anew.

    Attributes:
        given: splits that were assigned and not handed out by ``next_splits`` yet, by subtask.
        told: ids of all splits that were assigned, in order, with their subtasks.
    """

    def __init__(self, source: Source[Any], state: Any = None) -> None:
        self._source, self._codec = source, SplitCodec("source", source)
        self.given: dict[int, list[Split]] = {}
        self.told: list[tuple[str, int]] = []
        self._parallelism = 1
        self._readers: dict[int, ReaderInfo] = {}
        self._no_more: set[int] = set()
        self._calls: deque[Callable[[], None]] = deque()
        self._state, self._made = state, None  # type: Any, SplitEnumerator | None
        self._gives_state = False

    @property
    def enumerator(self) -> SplitEnumerator:
        """The user's."""
        if self._made is None:
            if self._state is None:
                enumerator = self._source.create_enumerator(self)
            else:
                enumerator = self._source.restore_enumerator(self, self._read(self._state["state"]))
            require(
                isinstance(enumerator, SplitEnumerator),
                f"create_enumerator() gave {enumerator!r}, which is no SplitEnumerator",
            )
            self._made = enumerator
            enumerator.start()
            for subtask, plain in (self._state or {}).get("back", ()):
                enumerator.add_splits_back([self._codec.from_plain(Split.from_plain(plain))], subtask)
        return self._made

    # -- what the test does

    def next_splits(self, subtask: int, parallelism: int) -> list[Split]:
        """See ``Driven``: it asks, and waits for what the enumerator has done elsewhere."""
        self._parallelism = parallelism
        enumerator = self.enumerator
        for reader in range(parallelism):
            if reader not in self._readers:
                self._readers[reader] = ReaderInfo(reader, "localhost")
                enumerator.add_reader(reader)
        if not self.given.get(subtask) and subtask not in self._no_more:
            enumerator.handle_split_request(subtask, "localhost")
        for _ in range(_MOST_CALLS):
            if self.given.get(subtask) or subtask in self._no_more or not self._calls:
                break
            self._calls.popleft()()
        return self.given.pop(subtask, [])

    def exhausted_for(self, subtask: int) -> bool:
        """See ``Driven``."""
        return subtask in self._no_more

    def snapshot(self) -> Any:
        """See ``Driven``: the enumerator's state, and the splits that have not arrived."""
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
        back = [(subtask, self._codec.to_plain(split)) for subtask, splits in self.given.items() for split in splits]
        return {"state": state, "back": back}

    def with_back(self, state: Any, splits: Sequence[tuple[int, Split]]) -> Any:
        """The same state, and further splits that have not arrived."""
        return {**state, "back": [*state["back"], *((n, self._codec.to_plain(split)) for n, split in splits)]}

    def _read(self, state: Any) -> Any:
        serializer = self._source.get_enumerator_checkpoint_serializer()
        return state if serializer is None else serializer.deserialize(*state)

    # -- what the enumerator does

    def current_parallelism(self) -> int:
        """As the test says."""
        return self._parallelism

    @override
    def registered_readers(self) -> Mapping[int, ReaderInfo]:
        return dict(self._readers)

    def assign_split(self, split: Split, subtask_id: int) -> None:
        """Keep it for the reader, as it would arrive there."""
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
        self.given.setdefault(subtask_id, []).append(arrived)
        self.told.append((split.id, subtask_id))

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
        """Do it when somebody waits for splits; time passes as fast as wanted."""

        def call() -> None:
            try:
                result = callable()
            except Exception as error:  # the enumerator hears of it
                handler(None, error)
            else:
                handler(result, None)
            if period_ms is not None:
                self._calls.append(call)

        self._calls.append(call)

    def run_in_coordinator_thread(self, runnable: Callable[[], None]) -> None:
        """Do it when somebody waits for splits."""
        self._calls.append(runnable)


def check_enumerator(make_source: Callable[[], Source[Any]]) -> None:
    """Stop the enumerator of a bounded source after each request, with splits on their way, and go on from its state.

    Args:
        make_source: makes the source; called often.

    Raises:
        AssertionError: says which rule is broken.
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
    """The last ones that were given out do not arrive."""
    before = DrivenUser(make_source())
    handed_out: list[tuple[int, Split]] = []
    for request in range(requests):
        handed_out += [(request % 2, split) for split in before.next_splits(request % 2, 2)]
    arrived, on_the_way = handed_out[: len(handed_out) - lost], handed_out[len(handed_out) - lost :]
    state = before.with_back(before.snapshot(), on_the_way)
    before.enumerator.notify_checkpoint_complete(1)
    before.enumerator.close()
    again = [split.id for split in _rest(DrivenUser(make_source(), state), 3)]
    when = f"after {requests} requests and a restart, {len(on_the_way)} splits being on their way"
    read = [split.id for _, split in arrived] + again
    require(set(read) == ids, f"{when}: splits are lost: {sorted(ids - set(read))}; strange: {sorted(set(read) - ids)}")
    require(len(read) == len(ids), f"{when}: splits are given out twice: {sorted(i for i in ids if read.count(i) > 1)}")


def _rest(driven: DrivenUser, parallelism: int) -> list[Split]:
    """All that it gives out from here on."""
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


def _check_version(serializer: Any, data: bytes, what: str) -> None:
    version = serializer.get_version()
    require(isinstance(version, int) and version >= 0, f"get_version() of the serializer of {what} gave {version!r}")
    serializer.deserialize(version, data)
    try:
        serializer.deserialize(version + 1000, data)
    except Exception:  # any error will do
        return
    raise AssertionError(f"the serializer of {what} took an unknown version: deserialize() must raise")

"""Between the readers of a source and its enumerator, where that is a user's and runs in a task of its own. Pure."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from firesteel.checkpoint.metadata import EnumeratorState
from firesteel.core.errors import ProtocolError
from firesteel.functions.source import Split
from firesteel.graph.execution_graph import Execution
from firesteel.graph.execution_states import ExecutionState
from firesteel.graph.job_graph import USER_ENUMERATOR, JobVertex
from firesteel.protocol import operator_events as events
from firesteel.protocol.messages import Splits
from firesteel_jobmaster.split_assignments import Assignments

logger = logging.getLogger(__name__)
_SUBTASK = "subtask"
"""Member of a plain split in a checkpoint: the subtask to which the split was given."""


class EnumeratorLink:
    """Passes on what a user's enumerator and the readers of its source tell each other.

    Both sides run in one pipelined region, so they are always started again together. What is for the enumerator is
    kept until its task runs; then it goes out in order, numbered. What the enumerator decides comes in the same way.

    Args:
        source: vertex of the readers.
    """

    def __init__(self, source: JobVertex) -> None:
        self._source = source
        self._given = Assignments()
        self.restart(())

    def restart(self, returned: Iterable[Mapping[str, Any]]) -> None:
        """The enumerator and all readers begin, perhaps with a checkpoint.

        Args:
            returned: plain splits in it that were given out and are in no reader's state.
        """
        self._given.clear()
        self._enumerator: Execution | None = None
        self._sent = self._received = 0
        self._readers: dict[int, Execution] = {}
        self._serials: Counter[int] = Counter()
        self._requests: Counter[int] = Counter()
        self._asked: set[int] = set()
        self._told_to_finish = False
        splits_back: dict[int, list[Mapping[str, Any]]] = {}
        for split in returned:
            plain = dict(split)
            splits_back.setdefault(int(plain.pop(_SUBTASK)), []).append(plain)
        self._out = [events.add_splits_back(subtask, splits) for subtask, splits in sorted(splits_back.items())]

    # -- checkpoints

    def snapshot(self, serials: Mapping[int, int], number: int) -> EnumeratorState:
        """What a checkpoint has to hold besides the states of readers and enumerator.

        Args:
            serials: subtask -> serial of the last splits that its reader had got at the barrier.
            number: of the enumerator's last message before its snapshot, which was taken after the readers'.

        Raises:
            ProtocolError: some of these messages have not come.
        """
        if self._received < number:
            missing = f"its task has said {number} things before its snapshot, and {self._received} have come"
            raise ProtocolError(f"enumerator of {self._source.name}", missing)
        not_in_state = self._given.not_in_state(serials, number)
        returned = tuple({**split.to_plain(), _SUBTASK: subtask} for subtask, split in not_in_state)
        return EnumeratorState(USER_ENUMERATOR, None, returned)

    def completed(self, serials: Mapping[int, int]) -> None:
        """The checkpoint with these serials is complete."""
        self._given.completed(serials)

    # -- tasks

    def enumerator_runs(self, execution: Execution) -> None:
        """The task of the enumerator is ready to hear."""
        self._enumerator = execution

    def reader_runs(self, execution: Execution) -> None:
        """A reader can be given splits; a repeated call changes nothing."""
        if execution.subtask not in self._readers:
            self._readers[execution.subtask] = execution
            host = "" if execution.slot is None else urlsplit(execution.slot.taskmanager_address).hostname
            self._out.append(events.add_reader(execution.subtask, host or ""))

    def reader_asks(self, execution: Execution, number: int) -> None:
        """A reader has nothing left to read. The enumerator hears of it once until it gives the reader something.

        Args:
            execution: the reader.
            number: of its request; they rise.
        """
        self.reader_runs(execution)
        subtask = execution.subtask
        if number > self._requests[subtask] and subtask not in self._asked:
            self._asked.add(subtask)
            self._out.append(events.request_split(subtask))
        self._requests[subtask] = max(number, self._requests[subtask])

    def readers_ended(self) -> None:
        """All readers have finished, so the enumerator may finish, too."""
        if not self._told_to_finish:
            self._told_to_finish = True
            self._out.append(events.finish())

    # -- what goes out, and what comes

    def take(self) -> tuple[Execution, int, tuple[events.Event, ...]] | None:
        """The next message to the enumerator: its task, the message's number, events; None: there is none."""
        if self._enumerator is None or not self._out:
            return None
        out, self._out = tuple(self._out), []
        self._sent += 1
        return self._enumerator, self._sent, out

    def received(
        self, execution: Execution, number: int, events_received: Sequence[events.Event]
    ) -> list[tuple[Execution, Splits]]:
        """Take a message of the enumerator; returns the splits that readers are given by it.

        Raises:
            ProtocolError: an earlier message did not come, or an event can't be understood.
        """
        place = f"events of {execution.task_name}"
        if number <= self._received:
            return []
        if number > self._received + 1:
            raise ProtocolError(place, f"number {number} came behind {self._received}: what is between is lost")
        self._received = number
        answers = []
        for event in events_received:
            reader = self._readers.get(event.get("subtask", -1))
            if reader is None or event.get("type") not in (events.ASSIGN, events.NO_MORE):
                raise ProtocolError(place, f"{event!r:.200}")
            answers.append((reader, self._give(reader, event, number)))
        return [(reader, splits) for reader, splits in answers if not reader.state.is_terminal]

    def _give(self, reader: Execution, event: events.Event, number: int) -> Splits:
        subtask = reader.subtask
        splits = tuple(event.get("splits", ()))
        self._serials[subtask] += 1
        self._asked.discard(subtask)
        self._given.given(subtask, self._serials[subtask], [Split.from_plain(plain) for plain in splits], number)
        if reader.state is ExecutionState.FINISHED and splits:
            logger.error("%s has finished, and is given splits", reader.task_name)
        return Splits(splits, event["type"] == events.NO_MORE, self._serials[subtask])

"""What a bounded job has for the client: results of collect operators, and what its tasks have printed."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

from firesteel.checkpoint.handles import InlineState
from firesteel.checkpoint.subtask_state import Committables, OperatorSubtaskState
from firesteel.core.text_output import ESCAPED
from firesteel.protocol.stages import COLLECTED, STDERR, STDOUT
from firesteel_jobmaster.stages import CHECKPOINT

_MARKER = 0
"""Kind of a result that says to which stage those that follow belong."""


class ClientResults:
    """Results that are held back until the job has succeeded: nothing may be seen of a run that is repeated."""

    def __init__(self) -> None:
        self.pieces: dict[str, list[tuple[int, bytes]]] = {}
        """Collect operator -> pieces: the number of results in a piece, and the results."""
        self._printed: list[tuple[int, bytes]] = []
        """Stream and text of what tasks have printed."""
        self.are_visible = False
        """The job has succeeded: results may be given to the client."""
        self.are_lost = False
        """A former JobMaster had the results, and they were too many to be stored."""
        self._given: set[str] = set()
        """Operators all of whose results the client has."""

    @property
    def size(self) -> int:
        """Bytes of all results."""
        return sum(len(data) for pieces in self.pieces.values() for _, data in pieces)

    def read(self, results: Sequence[bytes], collects: Sequence[str | None]) -> list[dict[str, Any]]:
        """Take the results and output of the tasks of a run; returns the tasks' reports about themselves.

        Args:
            results: of the run.
            collects: the collect operator of each stage.
        """
        reports: list[dict[str, Any]] = []
        stage = 0
        self.pieces, self._printed = {}, []
        for result in results:
            if result[0] == _MARKER:
                stage = int.from_bytes(result[1:5], "big")
            elif result[0] == COLLECTED:
                pieces = self.pieces.setdefault(collects[stage] or "", [])
                pieces.append((int.from_bytes(result[1:9], "big"), result[9:]))
            elif result[0] in (STDOUT, STDERR):
                self._printed.append((result[0], result[1:]))
            else:
                reports.append(json.loads(result[1:]))
        return reports

    def stored(self, operator_id: str) -> OperatorSubtaskState:
        """Results of an operator as state in a checkpoint."""
        pieces = [count.to_bytes(8, "big") + data for count, data in self.pieces.get(operator_id, [])]
        return OperatorSubtaskState(committables=(Committables(CHECKPOINT, 0, tuple(map(InlineState, pieces))),))

    def take_over(self, states: Mapping[str, OperatorSubtaskState | None]) -> None:
        """Take the results that a former JobMaster has stored, by operator; None: it has stored none."""
        for operator_id, state in states.items():
            if state is None:
                self.are_lost = True
                continue
            items = [item.data for group in state.committables for item in group.items if isinstance(item, InlineState)]
            self.pieces[operator_id] = [(int.from_bytes(item[:8], "big"), item[8:]) for item in items]

    def show(self) -> list[tuple[int, str]]:
        """Make results visible, as the job has succeeded; returns what its tasks have printed, by stream."""
        self.are_visible = True
        printed = [(stream, text.decode(errors=ESCAPED)) for stream, text in self._printed]
        self._printed = []
        return printed

    def give(self, operator_id: str, offset: int) -> tuple[int, bool, str]:
        """Results of an operator from ``offset`` on: how many, whether they are the last, and these in base64."""
        start, pieces = 0, self.pieces.get(operator_id, [])
        for number, (count, data) in enumerate(pieces):
            if start == offset:
                is_last = number == len(pieces) - 1
                if is_last:
                    self._given.add(operator_id)
                return count, is_last, base64.b64encode(data).decode()
            start += count
        self._given.add(operator_id)
        return 0, True, ""

    def has_given_all(self, operator_id: str) -> bool:
        """Whether the client has all results of an operator."""
        return operator_id in self._given

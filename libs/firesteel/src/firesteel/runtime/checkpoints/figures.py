"""Counts how much there is of each state in what a task has written for a checkpoint. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from firesteel.checkpoint.state_figures import StateFigures
from firesteel.state.columnar.snapshots import REMOVED
from firesteel.state.heap_timers import KIND as TIMERS
from firesteel.state.snapshots import StateAmount, StateInfo


def figures_of_part(
    operator_id: str,
    infos: Sequence[StateInfo],
    in_chunks: Sequence[tuple[int, int]],
    amounts: Mapping[int, StateAmount],
    total: int,
) -> list[StateFigures]:
    """Figures of the states in one part of an operator's state in a subtask.

    Args:
        operator_id: of the operator.
        infos: the states.
        in_chunks: entries and bytes of each in the chunks of this snapshot.
        amounts: index of a state that is not whole in these chunks -> how much there is of it.
        total: bytes of the part, with all its files. What the chunks of other states do not take belongs to those in
            ``amounts``, in the ratio of their sizes.
    """
    of_others = sum(size for index, (_, size) in enumerate(in_chunks) if not _is_of(amounts, index, infos))
    all_shares = sum(amount.size for amount in amounts.values())
    figures: list[StateFigures] = []
    for index, info in enumerate(infos):
        entries, size = in_chunks[index]
        amount = amounts.get(index)
        if amount is not None:
            share = amount.size / all_shares if all_shares else 1 / len(amounts)
            size = max(0, round((total - of_others) * share))
            row = StateFigures(
                operator_id, info.name, info.kind, amount.entries, size, amount.counted, len(amounts) == 1
            )
        elif info.kind != REMOVED:
            row = StateFigures(operator_id, info.name, info.kind, entries, size)
        else:
            continue
        if row.entries or info.kind != TIMERS:  # each operator has two queues of timers, used or not
            figures.append(row)
    return figures


def _is_of(amounts: Mapping[int, StateAmount], index: int, infos: Sequence[StateInfo]) -> bool:
    """Whether the chunks of a state count with the states in ``amounts``."""
    return index in amounts or (bool(amounts) and infos[index].kind == REMOVED)

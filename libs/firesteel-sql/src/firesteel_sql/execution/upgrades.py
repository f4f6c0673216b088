"""EXPLAIN UPGRADE: what a statement would make of the state of a savepoint."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from firesteel.client.upgrade import OperatorVerdict, StateVerdict, Upgrade, Verdict
from firesteel_sql.execution.streams import BuiltOperator


def explained_upgrade(upgrade: Upgrade, operators: Sequence[BuiltOperator]) -> str:
    """The text of EXPLAIN UPGRADE.

    Args:
        upgrade: the verdicts on all operators.
        operators: those of the statement that have an identity.
    """
    by_uid = {verdict.uid: verdict for verdict in upgrade.operators if verdict.uid is not None}
    own = {operator.uid for operator in operators}
    lines = [f"== Upgrade From {upgrade.path} =="]
    for operator in operators:
        verdict = by_uid.get(operator.uid)
        if verdict is not None:
            lines += _operator_lines(operator.text, verdict)
    for verdict in upgrade.operators:
        # Operators without state need not be found again.
        if verdict.uid not in own and verdict.verdict in (Verdict.DROPPED, Verdict.INCOMPATIBLE) and verdict.states:
            lines += _operator_lines(f"{verdict.name} ({verdict.uid or verdict.operator_id})", verdict)
    lines.append("")
    lines.append("The job can go on from it." if upgrade.works else "The job can't go on from it.")
    return "\n".join(lines) + "\n"


def _operator_lines(text: str, verdict: OperatorVerdict) -> Iterator[str]:
    how = f": {verdict.how}" if verdict.how else ""
    before, now = verdict.parallelism
    rescaled = f", parallelism {before} -> {now}" if None not in (before, now) and before != now else ""
    is_refused = any(state.verdict is Verdict.INCOMPATIBLE for state in verdict.states)
    word = Verdict.INCOMPATIBLE if is_refused else verdict.verdict
    yield f"{text}: {_WORDS.get(word, word.value)}{rescaled}{how}"
    if verdict.verdict in (Verdict.RESTORED, Verdict.KEPT):
        for state in verdict.states:
            yield from _state_lines(state)


def _state_lines(state: StateVerdict) -> Iterator[str]:
    match state.verdict:
        case Verdict.MIGRATED:
            for change in state.how.split("; "):
                yield f"   {change}"
        case Verdict.NEW:
            yield f"   {state.name}: added, begins empty"
        case Verdict.DROPPED:
            yield f"   {state.name}: removed"
        case Verdict.INCOMPATIBLE:
            yield f"   {state.name}: {state.how}"


_WORDS = {Verdict.RESTORED: "kept", Verdict.UNKNOWN: "kept", Verdict.NEW: "new, begins empty"}

"""Each row meets the version that was valid at its time."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import pyarrow as pa
import pytest

from firesteel.common import Types
from firesteel.expressions import col
from firesteel_sql.operators.plans import TemporalJoinPlan
from firesteel_sql.operators.temporal_joins import VersionJoin
from tests.examples import examples
from tests.unit.sql.operators.changing_tables import OperatorRun, Record

LEFT = pa.schema([("currency", pa.string()), ("time", pa.int64()), ("amount", pa.int64())])
RIGHT = pa.schema([("currency", pa.string()), ("rate", pa.int64()), ("time", pa.int64())])
TYPES = {
    "currency": Types.STRING(), "time": Types.LONG(), "amount": Types.LONG(), "currency0": Types.STRING(),
    "rate": Types.LONG(), "time0": Types.LONG(),
}  # fmt: skip


def run_of(is_outer: bool, has_condition: bool = False) -> OperatorRun:
    condition = col("amount") < col("rate") if has_condition else None
    plan = TemporalJoinPlan((3, 3), (False,), is_outer, 1, 2, condition, TYPES)
    fields = [(f"column{at}", field.type) for at, field in enumerate([*LEFT, *RIGHT])]
    return OperatorRun(lambda: VersionJoin(plan, [LEFT, RIGHT], pa.schema(fields)), [LEFT, RIGHT], [[0], [0]])


def version_at(versions: Sequence[tuple[int, Record]], row: Record) -> Record | None:
    own = [(kind, version) for kind, version in versions if version[0] == row[0] is not None and version[2] <= row[1]]
    if not own:
        return None
    kind, version = max(reversed(list(enumerate(own))), key=lambda pair: (pair[1][1][2], pair[0]))[1]
    return None if kind == 3 else version


@pytest.mark.parametrize("is_outer", [False, True])
@pytest.mark.parametrize("has_condition", [False, True])
def test_rows_meet_the_versions_of_their_time(is_outer: bool, has_condition: bool) -> None:
    for seed in range(examples(8)):
        rng = random.Random(seed)
        run, rows, versions = run_of(is_outer, has_condition), list[tuple[int, Record]](), list[tuple[int, Record]]()
        for step in range(8):
            now = step * 10
            for _ in range(rng.randrange(4)):
                if rng.random() < 0.5:
                    changes = [
                        (0, (rng.choice((None, "EUR", "USD")), now + rng.randrange(1, 25), rng.randrange(6)))
                        for _ in range(rng.randrange(1, 6))
                    ]
                    rows += changes
                    run.push(changes)
                else:
                    changes = [
                        (
                            rng.choice((0, 2, 3)),
                            (rng.choice((None, "EUR", "USD")), rng.randrange(8), now + rng.randrange(1, 25)),
                        )
                        for _ in range(rng.randrange(1, 5))
                    ]
                    versions += changes
                    run.push([*changes, (1, ("EUR", 99, now + 1))], 1)
            run.advance(now + 10)
            if step in (2, 5):
                run.restart(rng.randrange(1, 4))
        run.advance(1000)
        expected: Counter[Record] = Counter()
        for _, row in rows:
            version = version_at(versions, row)
            if version is not None and has_condition and not row[2] < version[1]:
                version = None
            if version is not None or is_outer:
                expected[(*row, *(version or (None, None, None)))] += 1
        assert run.table == expected, seed
        left, right = (
            sum(function._tables[index].size for _, _, function in run._subtasks)  # type: ignore[attr-defined]
            for index in range(2)
        )
        assert left == 0
        assert right <= 2  # the last version of each key


def test_updates_and_deletes_of_the_left_side_keep_their_kind() -> None:
    run = run_of(is_outer=True)
    run.push([(0, ("EUR", 114, 5))], 1)
    run.push([(2, ("EUR", 7, 3)), (0, ("USD", 5, 1))])
    run.push([(1, ("EUR", 7, 3))])
    assert run.results == []
    run.push([(0, ("EUR", 116, 7))], 1)
    run.advance(7)
    assert run.results == [
        (0, ("USD", 5, 1, None, None, None)),
        (2, ("EUR", 7, 3, "EUR", 116, 7)),
        (1, ("EUR", 7, 3, "EUR", 116, 7)),
    ]

"""Joins of rows with those that another system has for their keys at the moment."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from typing_extensions import override

from firesteel.expressions.values import column_of
from firesteel.runtime.operators.changelog import RowExpansion
from firesteel_sql.connectors.lookup import Key, LookedUpRow, LookupCache
from firesteel_sql.operators.changes import Ints
from firesteel_sql.operators.pair_condition import PairCondition
from firesteel_sql.operators.plans import LookupPlan


class CachedRows:
    """Rows by key, for as long as the cache's settings say.

    Args:
        settings: of the cache.
        now: the clock, seconds.
    """

    def __init__(self, settings: LookupCache, now: Callable[[], float] = time.monotonic) -> None:
        self._settings, self._now = settings, now
        self._rows: OrderedDict[Key, tuple[Sequence[LookedUpRow], float, float]] = OrderedDict()
        self._count = 0

    def get(self, key: Key) -> Sequence[LookedUpRow] | None:
        """The rows of a key; None if they are not known any more."""
        entry = self._rows.get(key)
        if entry is None:
            return None
        rows, written, used = entry
        now, settings = self._now(), self._settings
        limits = ((settings.after_write, written), (settings.after_access, used))
        if any(limit is not None and now - since >= limit.total_seconds() for limit, since in limits):
            self._drop(key)
            return None
        self._rows[key] = rows, written, now
        self._rows.move_to_end(key)
        return rows

    def put(self, key: Key, rows: Sequence[LookedUpRow]) -> None:
        """Keep the rows of a key."""
        if not rows and not self._settings.keeps_missing:
            return
        now = self._now()
        self._rows[key] = rows, now, now
        self._count += max(1, len(rows))
        most = self._settings.most_rows
        while most is not None and self._count > most and self._rows:
            self._drop(next(iter(self._rows)))

    def _drop(self, key: Key) -> None:
        rows, _, _ = self._rows.pop(key)
        self._count -= max(1, len(rows))


class LookupRows(RowExpansion):
    """Looks the keys of a batch up together, each different one once.

    Args:
        plan: of the join.
        input_schema: columns of the left input.
        output: columns of the results.
    """

    blocking = True

    def __init__(self, plan: LookupPlan, input_schema: pa.Schema, output: pa.Schema) -> None:
        self._plan, self._output = plan, output
        self._cache = None if plan.cache is None else CachedRows(plan.cache)
        self._condition = None
        if plan.condition is not None:
            assert plan.condition_types is not None
            self._condition = PairCondition(plan.condition, plan.condition_types, plan.width)

    @override
    def open(self) -> None:
        self._plan.lookup.open()

    @override
    def close(self) -> None:
        self._plan.lookup.close()

    @override
    def expand(self, rows: pa.RecordBatch) -> tuple[Ints, pa.RecordBatch]:
        plan = self._plan
        keys = list(zip(*(rows.column(place).to_pylist() for place in plan.keys), strict=True))
        partners = self._partners(dict.fromkeys(key for key in keys if None not in key))
        origins: list[int] = []
        found: list[LookedUpRow] = []
        for position, key in enumerate(keys):
            for row in partners.get(key, ()):
                origins.append(position)
                found.append(row)
        positions, theirs = np.array(origins, np.int64), self._columns(found)
        own = [column.take(pa.array(positions)) for column in rows.columns[: plan.width]]
        if self._condition is not None:
            sides = own, theirs
            holds = self._condition.holds(lambda side, place: sides[side][place], len(positions))
            positions = positions[holds]
            own, theirs = ([column.filter(pa.array(holds)) for column in side] for side in (own, theirs))
        if plan.is_outer:
            alone = np.setdiff1d(np.arange(rows.num_rows), positions)
            positions = np.concatenate([positions, alone])
            order = np.argsort(positions, kind="stable")
            positions = positions[order]
            own = [column.take(pa.array(positions)) for column in rows.columns[: plan.width]]
            padded = [pa.concat_arrays([column, pa.nulls(len(alone), column.type)]) for column in theirs]
            theirs = [column.take(pa.array(order)) for column in padded]
        return positions, pa.RecordBatch.from_arrays([*own, *theirs], schema=self._output)

    def _partners(self, keys: dict[Key, None]) -> dict[Key, Sequence[LookedUpRow]]:
        partners: dict[Key, Sequence[LookedUpRow]] = {}
        unknown: list[Key] = []
        for key in keys:
            known = None if self._cache is None else self._cache.get(key)
            if known is None:
                unknown.append(key)
            else:
                partners[key] = known
        if unknown:
            for key, rows in zip(unknown, self._plan.lookup.rows(unknown), strict=True):
                partners[key] = rows
                if self._cache is not None:
                    self._cache.put(key, rows)
        return partners

    def _columns(self, rows: list[LookedUpRow]) -> list[pa.Array]:
        types = self._plan.table_types
        values: Sequence[Sequence[Any]] = list(zip(*rows, strict=True)) if rows else [()] * len(types)
        return [
            column_of(list(column), name, data_type) for column, (name, data_type) in zip(values, types, strict=True)
        ]

"""Creates the state of a window operation over columns from its specification."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from firesteel.expressions.aggregates import BoundAggregate
from firesteel.runtime.columnar_windows.fixed import FixedWindows
from firesteel.runtime.columnar_windows.keys import index_maker
from firesteel.runtime.columnar_windows.sessions import SessionWindows
from firesteel.runtime.columnar_windows.snapshots import StoredAs
from firesteel.state.columnar.snapshots import COLUMNS, GroupsOf
from firesteel.state.columnar.store import one_group
from firesteel.state.snapshots import StateInfo
from firesteel.windowing.assigners import FixedTimeWindows
from firesteel.windowing.columnar import ColumnWindowSpec
from firesteel.windowing.session_assigners import EventTimeSessionWindows, ProcessingTimeSessionWindows

STATE: Final = "_column_windows"


def make_windows(
    spec: ColumnWindowSpec,
    key_types: Sequence[pa.DataType],
    bound: Sequence[BoundAggregate],
    groups_of: GroupsOf = one_group,
    key_groups: range = range(1),
) -> FixedWindows | SessionWindows:
    """Create the windows of an operator, without rows.

    Args:
        spec: windows and aggregates, as the program declares them.
        key_types: types of the key's columns.
        bound: the aggregates, bound to the columns.
        groups_of: computes the key groups of keys, given as columns.
        key_groups: key groups that the subtask owns.
    """
    assigner, make_index = spec.assigner, index_maker(key_types)
    schema = {
        "windows": repr(assigner),
        "keys": [str(data_type) for data_type in key_types],
        "aggregates": [[each.name, repr(each.aggregate), str(each.input_type)] for each in bound],
    }
    info = StateInfo(STATE, COLUMNS, schema)
    stored = StoredAs(info, max(1, len(key_types)), groups_of if key_types else one_group, key_groups)
    lateness = spec.allowed_lateness if assigner.is_event_time() else 0  # by the clock nothing is late
    if isinstance(assigner, FixedTimeWindows):
        size, slide, offset = assigner.size, assigner.slide, assigner.offset
        return FixedWindows(size, slide, offset, lateness, make_index, bound, stored)
    assert isinstance(assigner, EventTimeSessionWindows | ProcessingTimeSessionWindows)
    return SessionWindows(assigner.session_gap, lateness, make_index, bound, stored)

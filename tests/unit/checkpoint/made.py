"""Makes states of all kinds."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from firesteel.checkpoint.handles import FileState, InlineState, checksum
from firesteel.checkpoint.metadata import CheckpointMetadata, EnumeratorState, OperatorState
from firesteel.checkpoint.subtask_state import (
    Committables,
    KeyedState,
    OperatorListState,
    OperatorSubtaskState,
    TaskState,
)

numbers = st.integers(0, 2**53)
plain: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | numbers | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(st.text(max_size=5), plain, max_size=3)
inline = st.builds(InlineState, st.binary(max_size=40))
files = st.builds(FileState, st.text(min_size=1, max_size=12), numbers, st.binary(max_size=3).map(checksum), numbers)
handles = st.lists(inline | files, max_size=3).map(tuple)
ranges = st.tuples(st.integers(0, 60), st.integers(60, 127))
keyed = st.builds(KeyedState, st.lists(objects, max_size=2).map(tuple), ranges, handles)
listed = st.builds(OperatorListState, st.lists(objects, max_size=2).map(tuple), handles)
committables = st.builds(Committables, numbers, numbers, handles)
subtasks = st.builds(
    OperatorSubtaskState,
    st.dictionaries(st.text(max_size=5), keyed, max_size=2),
    st.none() | listed,
    st.lists(objects, max_size=2).map(tuple),
    st.lists(committables, max_size=2).map(tuple),
)
tasks = st.builds(TaskState, st.dictionaries(st.text(max_size=8), subtasks, max_size=2), st.booleans(), numbers)
enumerators = st.builds(EnumeratorState, st.text(max_size=8), plain, st.lists(objects, max_size=2).map(tuple))
operators = st.builds(
    OperatorState,
    st.text(max_size=8),
    st.text(max_size=8),
    st.none() | st.text(max_size=4),
    st.integers(4, 8),
    st.integers(8, 128),
    st.dictionaries(st.integers(0, 3), subtasks, max_size=3),
    st.booleans(),
    st.none() | enumerators,
)
metadata = st.builds(
    CheckpointMetadata, numbers, st.text(max_size=8), numbers, st.lists(operators, max_size=2).map(tuple), objects
)


def some_metadata(checkpoint_id: int = 7) -> CheckpointMetadata:
    """A checkpoint with state of each kind."""
    subtask = OperatorSubtaskState(
        {"state": KeyedState(({"name": "count", "kind": "value"},), (0, 63), (InlineState(b"abc"),))},
        OperatorListState(({"name": "offsets", "kind": "split"},), (InlineState(b"list"),)),
        ({"id": "a", "data": {}, "position": 3, "version": 1},),
        (Committables(checkpoint_id, 1, (InlineState(b"part-0"),)),),
    )
    operator = OperatorState(
        "ab" * 16, "Count", "count", 2, 128, {0: subtask}, enumerator=EnumeratorState("static", [{"id": "b"}])
    )
    return CheckpointMetadata(checkpoint_id, "0" * 32, 1_700_000_000_000, (operator,), {"job_name": "test"})

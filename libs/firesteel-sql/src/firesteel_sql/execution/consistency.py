"""``table.exec.consistency``: the changes of a query as they come, or those of whole epochs."""

from __future__ import annotations

from collections.abc import Sequence

from firesteel.datastream import CheckpointingMode, DataStream, StreamExecutionEnvironment
from firesteel.datastream.changelogs import changes_of_epochs
from firesteel_sql.plan.changes import keeps_state, unique_keys
from firesteel_sql.plan.relations import Relation
from firesteel_sql.session_options import CONSISTENCY, OptionRefused


def prepare_epochs(environment: StreamExecutionEnvironment) -> None:
    """Let a job have the barriers that end epochs: those of checkpoints, which overtake no row.

    Raises:
        OptionRefused: the job has no checkpoints, or its barriers are not aligned.
    """
    checkpoints = environment.get_checkpoint_config()
    if not checkpoints.is_checkpointing_enabled():
        raise OptionRefused(
            f"'{CONSISTENCY}' = 'epoch' gives the changes of a query with each checkpoint, and the job has none: "
            "SET 'execution.checkpointing.interval' = '1 s'"
        )
    if checkpoints.get_checkpointing_mode() is not CheckpointingMode.EXACTLY_ONCE:
        raise OptionRefused(f"'{CONSISTENCY}' = 'epoch' needs 'execution.checkpointing.mode' = 'EXACTLY_ONCE'")
    checkpoints.disable_unaligned_checkpoints()


def in_epochs(stream: DataStream, relation: Relation, key: Sequence[int]) -> DataStream:
    """The changes of a relation that are left at the end of each epoch.

    Args:
        stream: of the relation.
        relation: what is computed; of one without state each change is a row of the inputs, and is not held back.
        key: places of the sink's primary key; none = a key of the relation tells which changes are updates.
    """
    if not any(map(keeps_state, relation.walk())):
        return stream
    if key:
        return changes_of_epochs(stream, tuple(key))
    keys = unique_keys(relation)
    return changes_of_epochs(stream, tuple(sorted(keys[0])) if keys else None)

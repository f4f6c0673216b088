"""Processing time: the clock is the event time of the operators that wait for it.

A window, a join or a sort by a processing time is computed as one by event time is, over rows that get the time of the
clock as they come, and watermarks that follow the clock. So no row is late however long it travels, and at the end of
a bounded input all windows end.
"""

from __future__ import annotations

from collections.abc import Sequence

from firesteel.common import WatermarkStrategy
from firesteel.common.watermark_strategy import WatermarkGeneratorKind
from firesteel.core.errors import ProgramError, UnsupportedFeatureError
from firesteel.datastream import DataStream, StreamExecutionEnvironment
from firesteel.expressions import Expression, col
from firesteel_sql.execution.computed_streams import BuildInput
from firesteel_sql.execution.stream_columns import names_of
from firesteel_sql.execution.table_modes import table_mode
from firesteel_sql.plan.changes import changelog_mode
from firesteel_sql.plan.relations import Relation
from firesteel_sql.plan.row_expressions import AppliedFunction, to_expression
from firesteel_sql.plan.stateful_relations import Join, SortedRows, WindowTable


def clocked(relation: Relation, build: BuildInput, environment: StreamExecutionEnvironment) -> BuildInput:
    """What builds the inputs of a relation, with the time of the clock where it waits for a processing time.

    Raises:
        UnsupportedFeatureError: rows of an input come and go, and have no time of their own.
        ProgramError: there are no periodic watermarks.
    """
    times = [(part, place) for part, place in _times_of(relation) if part.columns[place].time_attribute == "PROCTIME"]
    for part, place in times:
        if not changelog_mode(part, table_mode).is_append:
            raise UnsupportedFeatureError(
                f"{relation.text().partition('(')[0]}: {part.columns[place].name} is a processing time, and the rows "
                "of its input change: the time at which a row goes is not the one at which it came. Use a column with "
                "WATERMARK FOR"
            )

    if times and not environment.get_config().get_auto_watermark_interval():
        raise ProgramError(
            f"{relation.text().partition('(')[0]}: processing time goes on with the watermarks, and there are none "
            "with 'pipeline.auto-watermark-interval' = '0': set an interval, such as 200 ms"
        )

    def build_with_clock(part: Relation) -> DataStream:
        places = [place for timed, place in times if timed is part]
        return _with_clock(build(part), part, places) if places else build(part)

    return build_with_clock


def _times_of(relation: Relation) -> list[tuple[Relation, int]]:
    """The inputs of a relation that waits for a time, and the places of that time in them."""
    match relation:
        case WindowTable():
            return [(relation.input, relation.time)]
        case Join() if relation.bounds is not None:
            return [(relation.left, relation.bounds.left_time), (relation.right, relation.bounds.right_time)]
        case SortedRows(at_end=False):
            return [(relation.input, relation.order[0].place)]
    return []


def _with_clock(stream: DataStream, relation: Relation, places: Sequence[int]) -> DataStream:
    """A stream with the time of the clock in some of its columns, and watermarks that follow the clock."""
    names = names_of(relation.columns)
    items: list[Expression] = [col(name) for name in names]
    for place in places:
        now = AppliedFunction(relation.columns[place].type, "PROCTIME", "firesteel_sql.kernels.times:now")
        items[place] = to_expression(now, names).alias(names[place])
    # The watermarks are made in front of the times, so that each row behind one has a later time.
    clock = WatermarkStrategy(WatermarkGeneratorKind.PROCESSING_TIME)
    return stream.assign_timestamps_and_watermarks(clock).select(*items)

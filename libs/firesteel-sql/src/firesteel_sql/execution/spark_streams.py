"""Streams with the rows that Spark SQL computes."""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import override

from firesteel.common import WatermarkStrategy
from firesteel.connectors.spark_query import SparkQuerySource
from firesteel.datastream import DataStream, StreamExecutionEnvironment
from firesteel_sql.execution.stream_columns import row_type_of
from firesteel_sql.execution.streams import StreamBuilder
from firesteel_sql.plan.relations import Relation
from firesteel_sql.spark.queries import query_of


@dataclass(frozen=True)
class SparkOptions:
    """Options of a session that matter to queries of Spark SQL.

    Attributes:
        zone: time zone.
        max_iterations: steps of a recursion that has not ended after as many.
    """

    zone: str
    max_iterations: int


class SparkStreamBuilder(StreamBuilder):
    """Builds the streams of one statement whose relations Spark SQL computes as a whole.

    Args:
        environment: of the job.
        options: of the session.
    """

    def __init__(self, environment: StreamExecutionEnvironment, options: SparkOptions) -> None:
        super().__init__(environment)
        self._options = options

    @override
    def build(self, relation: Relation) -> DataStream:
        query = query_of(relation, self._options.zone)
        row_type = row_type_of(relation.columns)
        source = SparkQuerySource(
            query.text, query.settings, query.tables, row_type, query.recursions, self._options.max_iterations
        )
        stream = self._environment.from_source(source, WatermarkStrategy.no_watermarks(), "SparkQuery")
        return stream.set_parallelism(1) if query.is_ordered else stream

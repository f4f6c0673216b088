"""The route of a batch job: Spark SQL if all of its relations have an equal there."""

from __future__ import annotations

from collections.abc import Sequence

from firesteel.core.errors import UnsupportedFeatureError
from firesteel_sql.plan.recursion import Recursion
from firesteel_sql.plan.relations import Relation, Scan
from firesteel_sql.plan.route import Route
from firesteel_sql.spark.queries import query_of
from firesteel_sql.spark.values import NoEqual

STREAMING, STAGES, SPARK = "streaming", "stages", "spark"
"""Names of routes."""


def route_of(relations: Sequence[Relation], *, is_batch: bool, choice: str = "auto", zone: str = "UTC") -> Route:
    """The route of a job. Spark is not asked.

    Args:
        relations: what the job computes.
        is_batch: it runs in batch mode.
        choice: the option ``table.exec.batch.route``: auto, spark or stages.
        zone: time zone of the session.

    Raises:
        UnsupportedFeatureError: Spark SQL is chosen, or WITH RECURSIVE needs it, and something has no equal there.
        TableOptionError: a table names no connector, or an option is wrong.
    """
    if not is_batch:
        return Route(STREAMING)
    parts = [part for relation in relations for part in relation.walk()]
    is_recursive = any(isinstance(part, Recursion) for part in parts)
    if choice == STAGES and is_recursive:
        raise UnsupportedFeatureError("WITH RECURSIVE is computed by Spark SQL: RESET 'table.exec.batch.route'")
    if choice == STAGES:
        return Route(STAGES, ("table.exec.batch.route is stages",))
    reasons = []
    for relation in relations:
        try:
            query_of(relation, zone)
        except NoEqual as missing:
            reasons.append(f"Spark SQL has no equal of {missing}")
    if reasons and choice == SPARK:
        raise UnsupportedFeatureError(f"'table.exec.batch.route' = 'spark': {'; '.join(reasons)}")
    if reasons and is_recursive:
        raise UnsupportedFeatureError(f"WITH RECURSIVE is computed by Spark SQL alone, and {'; '.join(reasons)}")
    reads_tables = any(isinstance(part, Scan) for part in parts)
    if not reads_tables and not is_recursive and choice != SPARK:
        reasons.append("it reads no table")
    return Route(STAGES, tuple(dict.fromkeys(reasons))) if reasons else Route(SPARK)

"""The streams that compute relations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from hashlib import sha256
from typing import NamedTuple

from firesteel.common import WatermarkStrategy
from firesteel.common.typeinfo import Types
from firesteel.core.errors import UnsupportedFeatureError
from firesteel.datastream import DataStream, RuntimeExecutionMode, StreamExecutionEnvironment
from firesteel.datastream.changelogs import identify_changes, identify_sinks, identify_source
from firesteel.expressions import col
from firesteel.expressions.binding import bind
from firesteel_sql.catalog.tables import CatalogTable, Identifier
from firesteel_sql.connectors.connector import connector_of
from firesteel_sql.execution import aggregates_and_windows, joins_and_ranks
from firesteel_sql.execution.consistency import in_epochs
from firesteel_sql.execution.processing_time import clocked
from firesteel_sql.execution.stream_columns import names_of, row_type_of
from firesteel_sql.execution.table_modes import table_mode
from firesteel_sql.execution.watermarks import scanned, strategy_of, strategy_of_source
from firesteel_sql.plan.meanings import OperatorIdentities
from firesteel_sql.plan.plan_files import Identities
from firesteel_sql.plan.relations import (
    Column,
    ConstantRows,
    Filter,
    Projection,
    Relation,
    Scan,
    Union,
    WatermarkAssigner,
)
from firesteel_sql.plan.row_expressions import to_expression
from firesteel_sql.plan.sink_keys import places_of

_NOTHING = "$nothing"
"""Name of the column of rows that have none."""


_BUILDERS = {**joins_and_ranks.BUILDERS, **aggregates_and_windows.BUILDERS}


class BuiltOperator(NamedTuple):
    """An operator with an identity.

    Attributes:
        uid: by which its state is found again.
        text: what it computes, as EXPLAIN shows it.
    """

    uid: str
    text: str


class StreamBuilder:
    """Builds the streams of one statement; a relation that occurs twice is computed once.

    Args:
        environment: of the job.
        idle_timeout: time without rows after which a split of a source holds back no watermark; zero = none.
        identities: of the operators; None = those that follow from what relations mean.

    Attributes:
        operators: those that were built, and have an identity.
    """

    def __init__(
        self,
        environment: StreamExecutionEnvironment,
        idle_timeout: timedelta = timedelta(),
        identities: Identities | None = None,
    ) -> None:
        self._environment, self._idle_timeout = environment, idle_timeout
        self._identities: Identities = identities or OperatorIdentities(table_mode)
        self.operators: list[BuiltOperator] = []
        self._strategies: list[tuple[Scan, WatermarkStrategy]] = []
        self._built: list[tuple[Relation, DataStream]] = []

    def build(self, relation: Relation) -> DataStream:
        """The stream of a relation's rows.

        Raises:
            TableOptionError: a table can't be read.
            UnsupportedFeatureError: a part of it has no stream.
        """
        for known, stream in self._built:
            # A table is read once, however many queries of the job read it; equal queries may not be equal rows.
            if known is relation or (isinstance(relation, Scan) and known == relation):
                return stream
        stream = self._build(relation)
        self._built.append((relation, stream))
        return stream

    def _build(self, relation: Relation) -> DataStream:
        match relation:
            case Scan():
                return self._scan(relation)
            case ConstantRows():
                return self._constants(relation)
            case Filter():
                stream = self.build(relation.input)
                return stream.filter(to_expression(relation.condition, names_of(relation.input.columns)))
            case Projection():
                return self._project(relation)
            case Union():
                first, *others = [self._named(part, relation.columns) for part in relation.parts]
                return first.union(*others)
            case WatermarkAssigner():
                return self._with_watermarks(relation)
        builder = _BUILDERS.get(type(relation))
        if builder is None:
            raise UnsupportedFeatureError(f"no operator computes this yet: {relation.text()}")
        stream = builder(relation, clocked(relation, self.build, self._environment))
        identity = self._identities.of_operator(relation)
        if identity is not None:
            identify_changes(stream, identity.uid, identity.input_names)
            self.operators.append(BuiltOperator(identity.uid, relation.text()))
        return stream

    def write(
        self, relation: Relation, identifier: Identifier, table: CatalogTable, *, has_epochs: bool = False
    ) -> None:
        """Write the rows of a relation into a table.

        Args:
            relation: what is written.
            identifier: full name of the table.
            table: its declaration.
            has_epochs: the changes of whole epochs are written.

        Raises:
            TableOptionError: a table can't be read, or written.
            UnsupportedFeatureError: a part of the relation has no stream.
        """
        connector, context = connector_of(identifier, table, writes=True)
        stream = self.build(relation)
        uid = self._identities.of_sink(identifier).uid
        if has_epochs:
            held_back = in_epochs(stream, relation, places_of(table.primary_key, relation))
            if held_back is not stream:
                # A savepoint may have rows of it, which are those of this projection.
                stream = held_back.uid(f"{uid}: epochs of {sha256(relation.text().encode()).hexdigest()[:20]}")
        connector.write(stream, context)
        identify_sinks(stream, uid)
        self.operators.append(BuiltOperator(uid, f"Sink(table=[{'.'.join(identifier)}])"))

    def _scan(self, relation: Scan) -> DataStream:
        connector, context = connector_of(relation.identifier, relation.table)
        strategy = next((strategy for scan, strategy in self._strategies if scan == relation), None)
        mode = connector.source_mode(context)
        if not mode.is_append and self._environment.get_runtime_mode() is RuntimeExecutionMode.BATCH:
            raise UnsupportedFeatureError(
                f"table {context.options.table} gives changes ({mode}), and in batch mode tables have rows only: SET "
                "'execution.runtime-mode' = 'STREAMING'"
            )
        return self._identified(relation, connector.read(self._environment, replace(context, watermarks=strategy)))

    def _identified(self, relation: Scan | ConstantRows, stream: DataStream) -> DataStream:
        """A stream that is read, by whose identity what was read of it is found again."""
        identity = self._identities.of_operator(relation)
        assert identity is not None
        identify_source(stream, identity.uid)
        self.operators.append(BuiltOperator(identity.uid, relation.text()))
        return stream

    def _constants(self, relation: ConstantRows) -> DataStream:
        if not relation.columns:
            nothing = self._environment.from_collection([(0,)], Types.ROW_NAMED([_NOTHING], [Types.INT()]))
            return self._identified(relation, nothing)
        rows = []
        for row in relation.rows:
            values = [bind(to_expression(item, []), {}).evaluate({}, 1) for item in row]
            rows.append(tuple(array[0].as_py() for array in values))
        return self._identified(relation, self._environment.from_collection(rows, row_type_of(relation.columns)))

    def _project(self, relation: Projection) -> DataStream:
        stream = self.build(relation.input)
        before = names_of(relation.input.columns)
        items = [
            to_expression(expression, before).alias(name)
            for expression, name in zip(relation.expressions, names_of(relation.columns), strict=True)
        ]
        return stream.select(*items)

    def _named(self, relation: Relation, columns: Sequence[Column]) -> DataStream:
        """The stream of a part of a union, under the names and types of the union's columns."""
        stream = self.build(relation)
        before, after = names_of(relation.columns), names_of(columns)
        if before == after:
            return stream
        return stream.select(*[col(old).alias(new) for old, new in zip(before, after, strict=True)])

    def _with_watermarks(self, relation: WatermarkAssigner) -> DataStream:
        parts = scanned(relation)
        if parts is not None:
            scan = parts[0]
            connector, context = connector_of(scan.identifier, scan.table)
            strategy = strategy_of_source(relation, connector, context, self._idle_timeout)
            if strategy is not None:
                self._strategies.append((scan, strategy))
                return self.build(relation.input)
        stream = self.build(relation.input)
        return stream.assign_timestamps_and_watermarks(strategy_of(relation, names_of(relation.input.columns)))

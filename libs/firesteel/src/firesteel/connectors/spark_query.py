"""The rows of a query of Spark SQL, for libraries that make such queries (SQL)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any, Final, NoReturn

from typing_extensions import override

from firesteel.common.typeinfo import RowTypeInfo
from firesteel.core.errors import ProgramError
from firesteel.functions.source import Boundedness, EnumeratorSpec, Plain, ReaderContext, Source

SPARK_QUERY: Final = "spark-query"
"""Name in the JobGraph of what gives such a source its input; there is no enumerator of this name."""


@dataclass(frozen=True)
class QueriedTable:
    """A table that Spark SQL reads itself.

    Attributes:
        name: in the text of the query.
        format: Spark's name of the files' format.
        columns: names and types, as in Spark's DDL.
        options: of Spark's reader.
        enumerator: finds the files, as it does for a source of this table.
    """

    name: str
    format: str
    columns: str
    options: Mapping[str, str]
    enumerator: EnumeratorSpec


@dataclass(frozen=True)
class QueriedRecursion:
    """A table that Spark SQL computes step by step before the query.

    Attributes:
        name: of all of its rows, in the text of the query.
        working: name of the rows that are new since the last step, in ``step``.
        first: the query of the first rows.
        step: the query of more rows, which is computed until it has none that are new.
        keeps_duplicates: a row that is there already is new as well.
    """

    name: str
    working: str
    first: str
    step: str
    keeps_duplicates: bool


class SparkQuerySource(Source[Any]):
    """The rows of a query of Spark SQL. Batch mode only: a stage of Spark reads them.

    Args:
        text: the query; it has the columns of ``row_type``, in their order.
        settings: of Spark's session, each of them ``spark.sql.…``.
        tables: what it reads.
        row_type: type of the rows.
        recursions: tables that are computed first, one after the other.
        max_iterations: steps of a recursion after which the job fails.
    """

    def __init__(
        self,
        text: str,
        settings: Mapping[str, str],
        tables: Sequence[QueriedTable],
        row_type: RowTypeInfo,
        recursions: Sequence[QueriedRecursion] = (),
        max_iterations: int = 1000,
    ) -> None:
        self._text, self._settings, self._tables, self._type = text, dict(settings), list(tables), row_type
        self._recursions, self._max_iterations = list(recursions), max_iterations

    @property
    @override
    def boundedness(self) -> Boundedness:
        return Boundedness.BOUNDED

    @override
    def enumerator(self) -> EnumeratorSpec:
        """The query, which the JobMaster completes with the files that there are."""
        tables = [
            {
                "name": table.name,
                "format": table.format,
                "columns": table.columns,
                "options": dict(table.options),
                "enumerator": table.enumerator.name,
                "config": dict(table.enumerator.config),
            }
            for table in self._tables
        ]
        config: dict[str, Plain] = {
            "text": self._text,
            "settings": self._settings,
            "tables": tables,
            "recursions": [list(astuple(recursion)) for recursion in self._recursions],
            "max_iterations": self._max_iterations,
        }
        return EnumeratorSpec(SPARK_QUERY, config)

    @override
    def create_reader(self, context: ReaderContext) -> NoReturn:
        """Refuse: only Spark's stages get the rows of a query.

        Raises:
            ProgramError: always.
        """
        raise ProgramError("the rows of a query of Spark SQL are read in runtime mode BATCH only")

    @override
    def produced_type(self) -> RowTypeInfo:
        return self._type

    @property
    @override
    def makes_columns(self) -> bool:
        return True

"""Syntax trees of statements, as they were written."""

from __future__ import annotations

from dataclasses import dataclass, field

from firesteel_sql.parse.nodes import Hint, Node, Path, Query, TypeSpec, ValueExpression

Options = tuple[tuple[str, str], ...]
"""Keys and values of ``WITH (...)``, in their order."""


@dataclass(frozen=True, slots=True)
class Statement(Node):
    """What is run at once. ``end`` is the index behind its last character."""

    end: int = field(default=0, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class QueryStatement(Statement):
    """A query whose rows are collected."""

    query: Query


@dataclass(frozen=True, slots=True)
class Insert(Statement):
    """``INSERT INTO table (columns) query``.

    Attributes:
        table: where the rows go.
        query: gives the rows.
        columns: those that the query gives; empty: all, in their order.
        partition: static values of ``PARTITION (day='2026-01-31')``.
        is_overwrite: INSERT OVERWRITE.
        on_conflict: DEDUPLICATE, ERROR or NOTHING of ``ON CONFLICT DO ...``.
        hints: options of the table.
    """

    table: Path
    query: Query
    columns: tuple[str, ...] = ()
    partition: tuple[tuple[str, ValueExpression], ...] = ()
    is_overwrite: bool = False
    on_conflict: str | None = None
    hints: tuple[Hint, ...] = ()


@dataclass(frozen=True, slots=True)
class StatementSet(Statement):
    """Several INSERTs as one job: ``EXECUTE STATEMENT SET BEGIN ...; END``."""

    inserts: tuple[Insert, ...]


@dataclass(frozen=True, slots=True)
class BeginStatementSet(Statement):
    """``BEGIN STATEMENT SET``: the INSERTs up to ``END`` are one job."""


@dataclass(frozen=True, slots=True)
class EndStatementSet(Statement):
    """``END`` of a statement set."""


@dataclass(frozen=True, slots=True)
class Explain(Statement):
    """``EXPLAIN [details] statement``.

    Attributes:
        statement: what is explained.
        details: ESTIMATED_COST, CHANGELOG_MODE, JSON_EXECUTION_PLAN, PLAN_ADVICE, STATE, ROUTE.
        savepoint: of ``EXPLAIN UPGRADE FROM 'savepoint' statement``.
    """

    statement: QueryStatement | Insert | StatementSet
    details: tuple[str, ...] = ()
    savepoint: str | None = None


# -- tables


@dataclass(frozen=True, slots=True)
class ColumnDefinition(Node):
    """A column of CREATE TABLE.

    Attributes:
        name: its name.
        type: None if it is computed.
        computed: ``name AS expression``.
        written: that expression as it was written.
        metadata_key: of ``METADATA FROM 'key'``; equal to the name if nothing was written behind METADATA.
        is_virtual: metadata that is read only.
        is_primary_key: ``PRIMARY KEY NOT ENFORCED`` behind the type.
        comment: behind COMMENT.
    """

    name: str
    type: TypeSpec | None
    computed: ValueExpression | None = None
    metadata_key: str | None = None
    is_virtual: bool = False
    is_primary_key: bool = False
    comment: str | None = None
    written: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class WatermarkSpec(Node):
    """``WATERMARK FOR ts AS ts - INTERVAL '5' SECOND``; ``written`` is the expression as it was written."""

    column: Path
    expression: ValueExpression
    written: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class PrimaryKey(Node):
    """``PRIMARY KEY (a, b) NOT ENFORCED``."""

    columns: tuple[str, ...]
    constraint: str | None = None


@dataclass(frozen=True, slots=True)
class LikeClause(Node):
    """``LIKE table (INCLUDING ALL EXCLUDING OPTIONS)``: choices are pairs of verb and feature."""

    table: Path
    choices: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class CreateTable(Statement):
    """``CREATE TABLE``, with ``AS query`` as well.

    Attributes:
        table: its name.
        columns: in their order; those of ``CREATE TABLE t (a, b) AS ...`` have no type.
        watermark: at most one.
        primary_key: at most one.
        options: behind WITH.
        partitioned_by: names of columns.
        comment: behind COMMENT.
        like: the table from which this one is made.
        query: behind AS.
        is_temporary: CREATE TEMPORARY TABLE.
        if_not_exists: IF NOT EXISTS.
        is_replacing: CREATE OR REPLACE TABLE.
    """

    table: Path
    columns: tuple[ColumnDefinition, ...] = ()
    watermark: WatermarkSpec | None = None
    primary_key: PrimaryKey | None = None
    options: Options = ()
    partitioned_by: tuple[str, ...] = ()
    comment: str | None = None
    like: LikeClause | None = None
    query: Query | None = None
    is_temporary: bool = False
    if_not_exists: bool = False
    is_replacing: bool = False


@dataclass(frozen=True, slots=True)
class CreateView(Statement):
    """``CREATE VIEW name (columns) AS query``.

    Attributes:
        view: its name.
        query: what it stands for.
        text: the query's text.
        columns: names of its columns; empty: those of the query.
    """

    view: Path
    query: Query
    text: str
    columns: tuple[str, ...] = ()
    comment: str | None = None
    is_temporary: bool = False
    if_not_exists: bool = False
    is_replacing: bool = False


@dataclass(frozen=True, slots=True)
class CreateFunction(Statement):
    """``CREATE FUNCTION name AS 'module.function' LANGUAGE PYTHON``."""

    function: Path
    target: str
    language: str = "JAVA"
    is_temporary: bool = False
    is_system: bool = False
    if_not_exists: bool = False
    is_replacing: bool = False


@dataclass(frozen=True, slots=True)
class AlterFunction(Statement):
    """``ALTER FUNCTION name AS 'module.function' LANGUAGE PYTHON``."""

    function: Path
    target: str
    language: str = "JAVA"
    is_temporary: bool = False
    is_system: bool = False
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class CreateCatalog(Statement):
    """``CREATE CATALOG name COMMENT 'text' WITH (...)``."""

    name: str
    options: Options = ()
    if_not_exists: bool = False
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class AlterCatalog(Statement):
    """``ALTER CATALOG name SET (...)``, ``RESET (...)``, ``COMMENT 'text'``.

    Attributes:
        name: of the catalog.
        options: to set.
        reset: keys of those to forget.
        comment: the new one; None = it stays.
    """

    name: str
    options: Options = ()
    reset: tuple[str, ...] = ()
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class CreateDatabase(Statement):
    """``CREATE DATABASE catalog.name``."""

    database: Path
    options: Options = ()
    comment: str | None = None
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class AlterTable(Statement):
    """``ALTER TABLE``.

    Attributes:
        table: its name.
        action: what is done.
    """

    table: Path
    action: AlterAction
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class AlterAction(Node):
    """What ALTER TABLE does."""


@dataclass(frozen=True, slots=True)
class RenameTable(AlterAction):
    """``RENAME TO name``."""

    name: Path


@dataclass(frozen=True, slots=True)
class RenameColumn(AlterAction):
    """``RENAME old TO new``."""

    old: str
    new: str


@dataclass(frozen=True, slots=True)
class SetTableOptions(AlterAction):
    """``SET ('key'='value')``."""

    options: Options


@dataclass(frozen=True, slots=True)
class ResetTableOptions(AlterAction):
    """``RESET ('key')``."""

    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PlacedColumn(Node):
    """A column of ADD or MODIFY, ``FIRST`` (its place is ``""``) or ``AFTER name``; None: the end, or where it is."""

    column: ColumnDefinition
    place: str | None = None


@dataclass(frozen=True, slots=True)
class AddOrModify(AlterAction):
    """``ADD (...)``, ``MODIFY (...)``."""

    is_modify: bool
    columns: tuple[PlacedColumn, ...] = ()
    watermark: WatermarkSpec | None = None
    primary_key: PrimaryKey | None = None


@dataclass(frozen=True, slots=True)
class DropParts(AlterAction):
    """``DROP (a, b)``, ``DROP WATERMARK``, ``DROP PRIMARY KEY``, ``DROP CONSTRAINT name``."""

    columns: tuple[str, ...] = ()
    drops_watermark: bool = False
    drops_primary_key: bool = False
    constraint: str | None = None


@dataclass(frozen=True, slots=True)
class AlterView(Statement):
    """``ALTER VIEW name RENAME TO other``, ``ALTER VIEW name AS query``."""

    view: Path
    new_name: Path | None = None
    query: Query | None = None
    text: str = ""
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class AlterDatabase(Statement):
    """``ALTER DATABASE name SET (...)``."""

    database: Path
    options: Options


@dataclass(frozen=True, slots=True)
class Truncate(Statement):
    """``TRUNCATE TABLE name``."""

    table: Path


@dataclass(frozen=True, slots=True)
class Drop(Statement):
    """``DROP TABLE name`` and the like.

    Attributes:
        kind: TABLE, VIEW, FUNCTION, CATALOG or DATABASE.
        path: its name.
        cascades: of a database: with all that is in it.
    """

    kind: str
    path: Path
    if_exists: bool = False
    is_temporary: bool = False
    is_system: bool = False
    cascades: bool = False


# -- the session


@dataclass(frozen=True, slots=True)
class Use(Statement):
    """``USE CATALOG name``, ``USE database``."""

    path: Path
    is_catalog: bool = False


@dataclass(frozen=True, slots=True)
class Show(Statement):
    """``SHOW TABLES IN db LIKE 'a%'`` and the like.

    Attributes:
        what: CATALOGS, DATABASES, TABLES, VIEWS, FUNCTIONS, USER FUNCTIONS, JOBS, CURRENT CATALOG, CURRENT DATABASE,
            CREATE TABLE, CREATE VIEW, COLUMNS, PARTITIONS and others of Flink.
        path: of what: a database, or the table.
        partition: of SHOW PARTITIONS: values that partitions must have.
        pattern: behind LIKE or ILIKE.
        is_negated: NOT LIKE.
        ignores_case: ILIKE.
    """

    what: str
    path: Path = ()
    pattern: str | None = None
    is_negated: bool = False
    ignores_case: bool = False
    partition: tuple[tuple[str, ValueExpression], ...] = ()


@dataclass(frozen=True, slots=True)
class Describe(Statement):
    """``DESCRIBE name``.

    Attributes:
        kind: TABLE, FUNCTION, CATALOG, DATABASE or JOB.
        path: its name; a job's id.
        is_extended: EXTENDED.
    """

    kind: str
    path: Path
    is_extended: bool = False


@dataclass(frozen=True, slots=True)
class SetOption(Statement):
    """``SET 'key' = 'value'``; ``SET`` alone lists what is set."""

    key: str | None = None
    value: str | None = None


@dataclass(frozen=True, slots=True)
class ResetOption(Statement):
    """``RESET 'key'``; ``RESET`` alone resets everything."""

    key: str | None = None


@dataclass(frozen=True, slots=True)
class CompilePlan(Statement):
    """``COMPILE [AND EXECUTE] PLAN 'file' [IF NOT EXISTS] FOR statement``."""

    file: str
    statement: Insert | StatementSet
    if_not_exists: bool = False
    is_executed: bool = False


@dataclass(frozen=True, slots=True)
class ExecutePlan(Statement):
    """``EXECUTE PLAN 'file'``."""

    file: str


@dataclass(frozen=True, slots=True)
class StopJob(Statement):
    """``STOP JOB 'id' [WITH SAVEPOINT] [WITH DRAIN]``."""

    job: str
    with_savepoint: bool = False
    with_drain: bool = False


@dataclass(frozen=True, slots=True)
class LoadModule(Statement):
    """``LOAD MODULE name [WITH (...)]``."""

    name: str


@dataclass(frozen=True, slots=True)
class UnloadModule(Statement):
    """``UNLOAD MODULE name``."""

    name: str


@dataclass(frozen=True, slots=True)
class UseModules(Statement):
    """``USE MODULES name, ...``."""

    names: tuple[str, ...]

"""COMPILE PLAN and EXECUTE PLAN: plans in files of this host."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from firesteel import __version__
from firesteel.core.errors import ProgramError
from firesteel.core.files import replace_file
from firesteel.core.sensitive import MASK
from firesteel.table.types import DataType
from firesteel_sql.catalog.catalog import CatalogError
from firesteel_sql.catalog.catalogs import Catalogs
from firesteel_sql.catalog.ddl import create_text
from firesteel_sql.catalog.tables import CatalogTable, Identifier
from firesteel_sql.execution.declarations import Declarations
from firesteel_sql.execution.table_modes import table_mode
from firesteel_sql.functions.signature import Session
from firesteel_sql.parse import statement_nodes as s
from firesteel_sql.parse.errors import SqlError
from firesteel_sql.parse.statements import parse_statement, parse_type
from firesteel_sql.plan.meanings import OperatorIdentities
from firesteel_sql.plan.plan_files import CompiledPlan, PlanFileError, PlannedInsert, plan_text, read_plan
from firesteel_sql.types.written import data_type_of

_PLAIN_TYPE: Final = re.compile(r"(NULL|CHAR|BINARY|INTERVAL_[A-Z_]+)(?:\((\d+)\))?( NOT NULL)?")
"""Types that expressions have, and that no statement can write."""


class PlanFile:
    """A file with a compiled plan.

    Args:
        name: its path, or a ``file:`` URI.
    """

    def __init__(self, name: str) -> None:
        scheme, colon, rest = name.partition("://")
        if colon and scheme != "file":
            raise PlanFileError(f"{name}: plans are files of this host, not of {scheme}")
        self._path = Path(rest if colon else name)

    def exists(self) -> bool:
        """Whether there is such a file."""
        return self._path.exists()

    def write(self, inserts: Sequence[PlannedInsert]) -> None:
        """Write a plan.

        Raises:
            PlanFileError: a part of it can't be written, or the file can't.
        """
        text = text_of_plan(inserts)
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(self._path, text.encode(), mode=0o644)
        except OSError as error:
            raise PlanFileError(f"the plan can't be written to {self._path}: {error}") from None

    def read(self, catalogs: Catalogs) -> CompiledPlan:
        """The plan that the file has.

        Args:
            catalogs: with the secrets of its tables.

        Raises:
            PlanFileError: it is damaged, or no plan, or one of another version.
        """
        try:
            text = self._path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise PlanFileError(f"the plan {self._path} can't be read: {error}") from None
        return plan_of_text(text, str(self._path), catalogs)


def text_of_plan(inserts: Sequence[PlannedInsert]) -> str:
    """The text of a plan, which can be read again.

    Raises:
        PlanFileError: a part of it can't be written.
    """

    def declaration_of(identifier: Identifier, table: CatalogTable) -> str:
        return create_text(identifier, table, masks_secrets=True)

    text = plan_text(inserts, OperatorIdentities(table_mode), declaration_of, str, __version__)
    written = read_plan(text, "the plan", _declared, _data_type)
    for before, after in zip(inserts, written.inserts, strict=True):
        if before.relation.columns != after.relation.columns:
            raise PlanFileError(f"the rows for {'.'.join(before.identifier)} can't be written into a plan")
    return text


def plan_of_text(text: str, file: str, catalogs: Catalogs) -> CompiledPlan:
    """The plan of a text.

    Args:
        text: of the file.
        file: its name, for errors.
        catalogs: with the secrets of its tables.

    Raises:
        PlanFileError: it is damaged, or no plan, or one of another version.
    """

    def declared(identifier: Identifier, declaration: str) -> CatalogTable:
        return _with_secrets(identifier, _declared(identifier, declaration), catalogs)

    return read_plan(text, file, declared, _data_type)


def _declared(identifier: Identifier, declaration: str) -> CatalogTable:
    statement = parse_statement(declaration)
    if not isinstance(statement, s.CreateTable):
        raise PlanFileError(f"CREATE TABLE {'.'.join(identifier)} is expected")
    return Declarations(Catalogs(), Session(), declaration).table(statement, None)


def _with_secrets(identifier: Identifier, table: CatalogTable, catalogs: Catalogs) -> CatalogTable:
    """A table whose secrets are those of the catalog: a plan has stars for them.

    Raises:
        PlanFileError: the catalog does not have them.
    """
    masked = [key for key, value in table.options.items() if value == MASK]
    if not masked:
        return table
    name = ".".join(identifier)
    try:
        _, present = catalogs.find(identifier)
    except CatalogError:
        present = None
    if not isinstance(present, CatalogTable):
        raise PlanFileError(f"'{masked[0]}' of {name} is a secret, which plans do not have: CREATE TABLE {name} first")
    missing = [key for key in masked if key not in present.options]
    if missing:
        raise PlanFileError(f"'{missing[0]}' of {name} is a secret, which the table of the catalog does not have")
    return replace(table, options={**table.options, **{key: present.options[key] for key in masked}})


def _data_type(text: str) -> DataType:
    """The type of a text.

    Raises:
        ProgramError: there is none.
    """
    plain = _PLAIN_TYPE.fullmatch(text)
    if plain is not None:
        name, length, not_null = plain.groups()
        return DataType(name, () if length is None else (int(length),), not_null is None)

    def refuse(at: int, what: str) -> ProgramError:
        return SqlError(what, text, at, at + 1)

    return data_type_of(parse_type(text), refuse)

"""What connectors say of tables while a query is planned."""

from __future__ import annotations

from firesteel_sql.connectors.changelog import ChangelogMode
from firesteel_sql.connectors.connector import connector_of
from firesteel_sql.plan.relations import Scan


def table_mode(scan: Scan) -> ChangelogMode:
    """The changes that the connector of a table gives.

    Raises:
        TableOptionError: the table names no connector, or an option is wrong.
    """
    connector, context = connector_of(scan.identifier, scan.table)
    return connector.source_mode(context)


def table_takes_fields(scan: Scan) -> bool:
    """Whether the connector of a table can leave out fields of rows.

    Raises:
        TableOptionError: the table names no connector, or an option is wrong.
    """
    connector, context = connector_of(scan.identifier, scan.table)
    return connector.takes_fields(context)

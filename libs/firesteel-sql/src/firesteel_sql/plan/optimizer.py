"""From the relations that queries mean to those that are computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from firesteel_sql.plan.changes import SourceMode, insert_only, with_normalized_tables
from firesteel_sql.plan.first_rows import with_first_rows
from firesteel_sql.plan.folding import with_constants
from firesteel_sql.plan.join_order import without_products
from firesteel_sql.plan.nested_fields import with_fields_as_columns, with_narrow_tables
from firesteel_sql.plan.pruning import pruned
from firesteel_sql.plan.relations import Relation, Scan
from firesteel_sql.plan.sharing import with_shared_parts
from firesteel_sql.plan.versions import with_all_versions


def optimised(
    relations: Sequence[Relation],
    source_mode: SourceMode = insert_only,
    takes_fields: Callable[[Scan], bool] = lambda scan: False,
) -> list[Relation]:
    """Relations with the same rows that cost less; equal parts of all of them are the same object.

    Conditions stand where they belong already (``pushdown``). Here constants are computed, tables are joined by keys,
    parts that several queries of a statement have are computed once, and columns that nobody reads are dropped, also
    fields of rows.

    Args:
        relations: the queries of a statement.
        source_mode: the changes that tables give; those that come as upserts get a ChangelogNormalize.
        takes_fields: whether a table can be read without some fields of rows.
    """
    complete = [
        with_first_rows(
            with_all_versions(
                with_normalized_tables(without_products(with_constants(relation)), source_mode), source_mode
            )
        )
        for relation in relations
    ]
    read = with_fields_as_columns(pruned(with_shared_parts(complete)))
    return with_shared_parts(with_narrow_tables(pruned(read), takes_fields))

"""What people write who come from other databases, and what Flink's SQL has in its place."""

from __future__ import annotations

from typing import Final

TYPES: Final = {
    "BLOB": "BYTES", "BOOL": "BOOLEAN", "DATETIME": "TIMESTAMP", "ENUM": "STRING", "FLOAT32": "FLOAT",
    "FLOAT64": "DOUBLE", "INT32": "INT", "INT64": "BIGINT", "JSON": "STRING", "LIST": "ARRAY", "LONG": "BIGINT",
    "MONEY": "DECIMAL(p, s)", "NUMBER": "DECIMAL", "NVARCHAR": "VARCHAR", "SERIAL": "BIGINT", "STR": "STRING",
    "STRUCT": "ROW", "TEXT": "STRING", "TIMESTAMPTZ": "TIMESTAMP_LTZ", "UNSIGNED": "BIGINT", "UUID": "STRING",
    "VARCHAR2": "VARCHAR",
}  # fmt: skip
"""Names of types in other databases and languages, and what Flink calls them."""

OPERATORS: Final = {
    "ILIKE": "LOWER(x) LIKE 'a%'",
    "REGEXP": "REGEXP(x, 'pattern')",
    "GLOB": "x LIKE 'a%'",
    "CONTAINS": "x LIKE '%a%'",
    "DIV": "a / b, which is a whole number for whole numbers",
    "XOR": "a <> b",
}
"""Words between two operands in other databases, and what means the same."""

SIGNS: Final = {
    "&&": "AND",
    "&": "AND (there are no functions of bits)",
    "|": "OR",
    "!": "NOT",
    "~": "REGEXP(x, 'pattern')",
    "^": "POWER(x, y)",
    "#": "--, which begins a comment",
    "\\": "the character itself: a backslash does not escape",
}
"""Signs that have no meaning in Flink's SQL, and what is written in their place; longer ones first."""

STATEMENTS: Final = {
    "COMMIT": "there are no transactions: each statement is done when it returns",
    "ROLLBACK": "there are no transactions: each statement is done when it returns",
    "START": "there are no transactions: each statement is done when it returns",
    "GRANT": "there are no rights in SQL: they belong to the systems that have the tables",
    "REVOKE": "there are no rights in SQL: they belong to the systems that have the tables",
    "MERGE": "write INSERT INTO: a table with a primary key has its rows replaced by those of the same key",
    "REPLACE": "write INSERT INTO: a table with a primary key has its rows replaced by those of the same key",
    "UPSERT": "write INSERT INTO: a table with a primary key has its rows replaced by those of the same key",
    "COPY": "declare a table over the files, and write INSERT INTO",
    "REFRESH": "there is nothing to refresh: catalogs are read by each statement",
    "FROM": "a query begins with SELECT: SELECT ... FROM ...",
    "WHERE": "a query begins with SELECT: SELECT ... FROM ... WHERE ...",
}
"""First words of statements of other databases, and what to do instead."""

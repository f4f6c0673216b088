"""Functions that are looked for and not there: those of Flink that are missing, and those of other databases."""

from __future__ import annotations

from typing import Final

_BITMAPS: Final = "the type BITMAP is not there; ARRAY_DISTINCT and CARDINALITY count what an array has"
_VARIANT: Final = "the type VARIANT is not there; JSON_VALUE and JSON_QUERY take parts of a JSON text"
_STRUCTURED: Final = "structured types are not there; ROW(...) makes a row"
_CLOCK: Final = "a watermark is no value of a row here; late rows are counted by the operators that drop them"

ABSENT: Final[dict[str, str]] = {
    **dict.fromkeys(
        ("BITMAP_AND", "BITMAP_ANDNOT", "BITMAP_BUILD", "BITMAP_CARDINALITY", "BITMAP_FROM_BYTES", "BITMAP_OR",
         "BITMAP_TO_ARRAY", "BITMAP_TO_BYTES", "BITMAP_TO_STRING", "BITMAP_XOR"), _BITMAPS,
    ),
    **dict.fromkeys(("PARSE_JSON", "TRY_PARSE_JSON"), _VARIANT),
    **dict.fromkeys(("OBJECT_OF", "OBJECT_UPDATE"), _STRUCTURED),
    **dict.fromkeys(("CURRENT_WATERMARK", "SOURCE_WATERMARK"), _CLOCK),
    "HASH_CODE": "Java's hash codes are not there; MD5 or SHA2 give a hash of a text",
    **dict.fromkeys(("BITAND", "BIT_AND", "BITOR", "BIT_OR", "BITXOR", "BIT_XOR", "BITNOT", "SHIFTLEFT", "SHIFTRIGHT"),
                    "Flink has no functions of bits"),
    "ADD_MONTHS": "use date + INTERVAL '1' MONTH",
    "ARRAY_SIZE": "use CARDINALITY(array)",
    "CBRT": "use POWER(x, 1e0 / 3)",
    "CHARINDEX": "use LOCATE(part, text)",
    "CONTAINS": "use POSITION(part IN text) > 0",
    "CONV": "use BIN(x) or HEX(x)",
    "CONVERT": "use CAST(x AS type)",
    **dict.fromkeys(("DATEADD", "DATE_ADD", "DATE_SUB"), "use TIMESTAMPADD(DAY, 1, date) or date + INTERVAL '1' DAY"),
    **dict.fromkeys(("DATEDIFF", "DATE_DIFF"), "use TIMESTAMPDIFF(DAY, start, end)"),
    "DATE_PART": "use EXTRACT(unit FROM x)",
    "DATE_TRUNC": "use FLOOR(x TO unit)",
    "DAYNAME": "use DATE_FORMAT(x, 'EEEE')",
    "DECODE_BASE64": "use FROM_BASE64(text)",
    "FORMAT": "use PRINTF(format, x)",
    "GETDATE": "use CURRENT_TIMESTAMP",
    "GET_JSON_OBJECT": "use JSON_VALUE(text, path)",
    "GROUP_CONCAT": "use LISTAGG(text, ',')",
    "IIF": "use IF(condition, x, y)",
    "ISNULL": "use x IS NULL, or IFNULL(x, y)",
    "LAST_DAY": "use FLOOR(date + INTERVAL '1' MONTH TO MONTH) - INTERVAL '1' DAY",
    "LEN": "use CHAR_LENGTH(text)",
    "LENGTH": "use CHAR_LENGTH(text)",
    "LEVENSHTEIN": "a Python function can compute it",
    "MAP_CONTAINS_KEY": "use ARRAY_CONTAINS(MAP_KEYS(map), key)",
    "MID": "use SUBSTRING(text, start, length)",
    "MONTHNAME": "use DATE_FORMAT(x, 'MMMM')",
    "NVL": "use IFNULL(x, y) or COALESCE(x, y)",
    "OCTET_LENGTH": "use CHAR_LENGTH(HEX(text)) / 2",
    "REGEXP_LIKE": "use REGEXP(text, pattern)",
    "REGEXP_MATCHES": "use REGEXP(text, pattern)",
    "SAFE_CAST": "use TRY_CAST(x AS type)",
    "SOUNDEX": "a Python function can compute it",
    "SPACE": "use REPEAT(' ', n)",
    "SPLIT_PART": "use SPLIT_INDEX(text, separator, index), which counts from 0",
    "STRPOS": "use POSITION(part IN text)",
    "STR_TO_DATE": "use TO_DATE(text, format)",
    "SUBSTRING_INDEX": "use SPLIT_INDEX(text, separator, index)",
    "SYSDATE": "use CURRENT_TIMESTAMP",
    "TO_CHAR": "use DATE_FORMAT(x, 'yyyy-MM-dd') or CAST(x AS STRING)",
    "TO_JSON": "use JSON_STRING(x)",
    "TO_NUMBER": "use CAST(text AS DECIMAL(p, s))",
    "TO_UNIX_TIMESTAMP": "use UNIX_TIMESTAMP(text)",
    "TRUNC": "use TRUNCATE(x, n), or FLOOR(x TO unit) for times",
    "TRY_TO_TIMESTAMP": "use TO_TIMESTAMP(text), which gives NULL for a text that is none",
    "UCASE": "use UPPER(text)",
    "LCASE": "use LOWER(text)",
    "WEEKOFYEAR": "use WEEK(date)",
}  # fmt: skip
"""By name: what to do instead."""

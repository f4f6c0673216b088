"""Types as statements write them: ``DECIMAL(10, 2) NOT NULL``, ``ROW<id BIGINT, tags ARRAY<STRING>>``."""

from __future__ import annotations

from typing import Final

from firesteel_sql.parse import foreign_words
from firesteel_sql.parse.nodes import Field, IntervalUnit, TypeSpec
from firesteel_sql.parse.token_stream import TokenStream

UNITS: Final = (
    "NANOSECOND", "MICROSECOND", "MILLISECOND", "SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "MONTH", "QUARTER", "YEAR",
    "DECADE", "CENTURY", "MILLENNIUM", "EPOCH", "DOW", "DOY", "ISODOW", "ISOYEAR",
)  # fmt: skip
"""Units of time. An interval has one from SECOND to YEAR."""

_INTERVAL_UNITS: Final = ("SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "MONTH", "QUARTER", "YEAR")

_PLAIN: Final = {
    "BOOLEAN": "BOOLEAN", "TINYINT": "TINYINT", "SMALLINT": "SMALLINT", "INT": "INT", "INTEGER": "INT",
    "BIGINT": "BIGINT", "FLOAT": "FLOAT", "REAL": "FLOAT", "DATE": "DATE", "NULL": "NULL", "VARIANT": "VARIANT",
    "STRING": "STRING", "BYTES": "BYTES", "DOUBLE": "DOUBLE",
}  # fmt: skip
"""Types without parameters, by the words that stand for them."""

_SIZED: Final = {
    "CHAR": "CHAR", "CHARACTER": "CHAR", "VARCHAR": "VARCHAR", "BINARY": "BINARY", "VARBINARY": "VARBINARY",
    "TIMESTAMP_LTZ": "TIMESTAMP_LTZ",
}  # fmt: skip
"""Types with a length or a precision."""

_DECIMAL: Final = ("DECIMAL", "DEC", "NUMERIC")


def type_spec(tokens: TokenStream) -> TypeSpec:
    """Read a type, with ``NULL`` or ``NOT NULL`` behind it.

    Raises:
        SqlError: there is none.
    """
    spec = _nullable(tokens, _bare_type(tokens))
    if tokens.is_sign("[") and tokens.after(1).value == "]":
        tokens.fail_at(tokens.next, f"the type of an array is ARRAY<{spec.name}>")
    while tokens.is_word("ARRAY") or tokens.is_word("MULTISET"):  # `INT ARRAY`, as in the SQL standard
        spec = _nullable(tokens, TypeSpec(tokens.take().value, elements=(spec,), at=spec.at))
    return spec


def _nullable(tokens: TokenStream, spec: TypeSpec) -> TypeSpec:
    if tokens.take_word("NOT", "NULL"):
        return _changed(spec, False)
    if tokens.is_word("NULL", "ON"):  # RETURNING INT NULL ON EMPTY
        return spec
    return _changed(spec, True) if tokens.take_word("NULL") else spec


def _changed(spec: TypeSpec, is_nullable: bool) -> TypeSpec:
    return TypeSpec(
        spec.name, spec.parameters, spec.elements, spec.fields, spec.unit, is_nullable, spec.texts, at=spec.at
    )


def _bare_type(tokens: TokenStream) -> TypeSpec:
    token = tokens.next
    at, word = token.start, token.value
    if tokens.is_one_of(_PLAIN):
        tokens.take()
        if word == "DOUBLE":
            tokens.take_word("PRECISION")
        if tokens.is_sign("("):
            instead = "VARCHAR(10)" if word == "STRING" else "VARBINARY(10)" if word == "BYTES" else "DECIMAL(10, 0)"
            tokens.fail_at(tokens.next, f"{token.text} has no length; {instead} has one")
        return TypeSpec(_PLAIN[word], at=at)
    if tokens.is_one_of(_SIZED):
        tokens.take()
        name = _SIZED[word]
        if name == "CHAR" and tokens.take_word("VARYING"):
            name = "VARCHAR"
        return TypeSpec(name, _parameters(tokens, 1), at=at)
    if tokens.is_one_of(_DECIMAL):
        tokens.take()
        return TypeSpec("DECIMAL", _parameters(tokens, 2), at=at)
    if tokens.is_one_of(("TIME", "TIMESTAMP")):
        return _time_type(tokens)
    if tokens.take_word("INTERVAL"):
        return TypeSpec("INTERVAL", unit=interval_unit(tokens), at=at)
    if tokens.is_one_of(("ARRAY", "MULTISET", "MAP")):
        tokens.take()
        count = 2 if word == "MAP" else 1
        return TypeSpec(word, elements=_elements(tokens, count), at=at)
    if tokens.take_word("ROW"):
        closing = "<>" if tokens.is_sign("<>") else ">" if tokens.is_sign("<") else ")"
        if closing == "<>":
            tokens.take()
            return TypeSpec("ROW", at=at)
        tokens.expect_sign("<" if closing == ">" else "(")
        fields = () if tokens.is_sign(closing) else tokens.list_of(_field)
        tokens.expect_sign(closing)
        return TypeSpec("ROW", fields=fields, at=at)
    if tokens.take_word("RAW"):
        tokens.expect_sign("(")
        texts = tokens.expect_string()
        tokens.expect_sign(",")
        texts_of_raw = (texts, tokens.expect_string())
        tokens.expect_sign(")")
        return TypeSpec("RAW", texts=texts_of_raw, at=at)
    if word in foreign_words.TYPES:
        tokens.fail_at(token, f"there is no type {token.text}: in Flink's SQL it is called {foreign_words.TYPES[word]}")
    return tokens.fail(otherwise="a type has to stand here, such as INT, STRING, DECIMAL(10, 2) or TIMESTAMP(3)")


def _parameters(tokens: TokenStream, most: int) -> tuple[int, ...]:
    if not tokens.take_sign("("):
        return ()
    if tokens.is_word("MAX"):
        tokens.fail_at(tokens.next, "a length is a number; a text of any length is STRING")
    parameters = [tokens.expect_integer()]
    if most == 2 and tokens.take_sign(","):
        parameters.append(tokens.expect_integer())
    tokens.expect_sign(")")
    return tuple(parameters)


def _time_type(tokens: TokenStream) -> TypeSpec:
    token = tokens.take()
    parameters = _parameters(tokens, 1)
    name = token.value
    if tokens.take_word("WITHOUT", "TIME", "ZONE"):
        return TypeSpec(name, parameters, at=token.start)
    if tokens.take_word("WITH", "LOCAL", "TIME", "ZONE"):
        return TypeSpec("TIMESTAMP_LTZ", parameters, at=token.start)
    if tokens.is_word("WITH", "TIME", "ZONE"):
        tokens.fail_at(
            tokens.next,
            f"{name} WITH TIME ZONE is not supported: TIMESTAMP_LTZ holds moments, TIMESTAMP dates and times of day "
            "without a zone",
        )
    return TypeSpec(name, parameters, at=token.start)


def _elements(tokens: TokenStream, count: int) -> tuple[TypeSpec, ...]:
    if not tokens.take_sign("<"):
        tokens.fail("the type of what is in it is missing: " + ("ARRAY<INT>" if count == 1 else "MAP<STRING, INT>"))
    elements = [type_spec(tokens)]
    while len(elements) < count:
        if not tokens.take_sign(","):
            tokens.fail("a map has the type of its keys and the type of its values: MAP<STRING, INT>")
        elements.append(type_spec(tokens))
    tokens.expect_sign(">")
    return tuple(elements)


def _field(tokens: TokenStream) -> Field:
    at = tokens.next.start
    name, spec = tokens.name(), type_spec(tokens)
    comment = tokens.expect_string() if tokens.take_word("COMMENT") else _bare_comment(tokens)
    return Field(name, spec, comment, at=at)


def _bare_comment(tokens: TokenStream) -> str | None:
    """Fields of rows may have their comment without the word COMMENT."""
    return tokens.take().value if tokens.next.text.startswith("'") else None


def unit(tokens: TokenStream) -> str:
    """Read a unit of time; the plural is taken for the singular.

    Raises:
        SqlError: there is none.
    """
    token = tokens.next
    singular = token.value.removesuffix("S")
    if token.text.isalpha() and singular in UNITS:
        tokens.take()
        return singular
    if token.value == "CENTURIES" or token.value == "MILLENNIA":
        tokens.take()
        return "CENTURY" if token.value == "CENTURIES" else "MILLENNIUM"
    tokens.is_one_of(UNITS)
    return tokens.fail(otherwise="a unit of time has to stand here, without quotes: SECOND, MINUTE, HOUR, DAY, ...")


def interval_unit(tokens: TokenStream) -> IntervalUnit:
    """Read the unit of an interval, ``DAY(3) TO SECOND(6)``.

    Raises:
        SqlError: there is none, or the second one is not smaller than the first.
    """
    token = tokens.next
    first = unit(tokens)
    if first not in _INTERVAL_UNITS:
        tokens.fail_at(token, f"an interval has a unit from SECOND to YEAR, not {first}")
    numbers = _parameters(tokens, 2)
    precision = numbers[0] if numbers else None
    fraction = numbers[1] if len(numbers) == 2 else None
    last = None
    if tokens.take_word("TO"):
        smaller = tokens.next
        last = unit(tokens)
        allowed = ("MONTH",) if first == "YEAR" else ("SECOND", "MINUTE", "HOUR")
        if last not in allowed or _INTERVAL_UNITS.index(last) >= _INTERVAL_UNITS.index(first):
            tokens.fail_at(smaller, f"an interval can't go from {first} to {last}")
        if last == "SECOND" and (digits := _parameters(tokens, 1)):
            fraction = digits[0]
    return IntervalUnit(first, last, precision, fraction, at=token.start)

"""Functions of texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from firesteel.common.type_table import LONGEST
from firesteel.table.types import DataType, DataTypes, ElementsType, MapType
from firesteel_sql.functions.signature import (
    OperandsRefused,
    Session,
    binary,
    cast,
    declare,
    declare_simple,
    operation,
    text,
    text_or_binary,
    unified,
    whole,
)
from firesteel_sql.kernels.java_regex import RegexRefused, RegexUnsupported, java_regex
from firesteel_sql.plan.row_expressions import Constant, RowExpression
from firesteel_sql.types import rules

_STRING, _INT, _BOOLEAN = rules.STRING, rules.INT, rules.BOOLEAN
_STRINGS = ElementsType("ARRAY", element_type=_STRING)


def _same_text(name: str, kernel: str) -> None:
    declare_simple(name, kernel, [text], lambda operands: operands[0].type)


_same_text("UPPER", "texts:upper")
_same_text("LOWER", "texts:lower")
_same_text("INITCAP", "texts:initcap")
declare_simple("REVERSE", "texts:reverse", [text], _STRING, nullable=True)
declare_simple("CHAR_LENGTH CHARACTER_LENGTH", "texts:char_length", [text], _INT)


def _printed(operand: RowExpression, session: Session) -> RowExpression:
    return operand if rules.is_text(operand.type) else cast(operand, _STRING, session)


@declare("CONCAT", operands=(1, None))
def _concat(operands: Sequence[RowExpression], session: Session) -> RowExpression:
    return operation("CONCAT", "texts:concat", [_printed(operand, session) for operand in operands], _STRING)


@declare("CONCAT_WS", operands=(1, None))
def _concat_ws(operands: Sequence[RowExpression], session: Session) -> RowExpression:
    return operation("CONCAT_WS", "texts:concat_ws", [_printed(operand, session) for operand in operands], _STRING)


def _shorter(place: int = 0) -> Callable[[Sequence[RowExpression]], DataType]:
    """The type of a part of a text: its length at most."""

    def result(operands: Sequence[RowExpression]) -> DataType:
        return DataType("VARCHAR", (max(operands[place].type.parameters[0], 1),))

    return result


def _overlaid(operands: Sequence[RowExpression]) -> DataType:
    length = operands[0].type.parameters[0] + operands[1].type.parameters[0]
    return DataType("VARCHAR", (max(1, min(length, LONGEST)),))


declare_simple("SUBSTRING SUBSTR", "texts:substring", [text, whole, whole], _shorter(), optional=1, nullable=True)
declare_simple("LTRIM", "texts:ltrim", [text, text], _shorter(), optional=1)
declare_simple("RTRIM", "texts:rtrim", [text, text], _shorter(), optional=1)
declare_simple("BTRIM", "texts:btrim", [text, text], _STRING, optional=1)
declare_simple("TRIM", "texts:trim", [text, text, text], _shorter(2))
declare_simple("LEFT", "texts:left", [text, whole], _shorter(), nullable=True)
declare_simple("RIGHT", "texts:right", [text, whole], _shorter(), nullable=True)
declare_simple("OVERLAY", "texts:overlay", [text, text, whole, whole], _overlaid, optional=1)
declare_simple("REPLACE", "texts:replace", [text, text, text], _STRING)
declare_simple("REPEAT", "texts:repeat", [text, whole], _STRING)
# Flink says that the result is not NULL, and fails where the length is negative or there is nothing to fill with.
declare_simple("LPAD", "texts:lpad", [text, whole, text], _STRING, optional=1, nullable=True)
declare_simple("RPAD", "texts:rpad", [text, whole, text], _STRING, optional=1, nullable=True)


@declare("TRANSLATE", "TRANSLATE3", operands=3)
def _translate(operands: Sequence[RowExpression], session: Session) -> RowExpression:
    parts = [text(operand, session) for operand in operands]
    return operation("TRANSLATE", "texts:translate", parts, _STRING, nullable=parts[0].type.nullable)


# -- positions and parts

declare_simple("POSITION LOCATE", "texts:position", [text, text, whole], _INT, optional=1)
declare_simple("INSTR", "texts:instr", [text, text, whole, whole], _INT, optional=2)
declare_simple("STARTSWITH", "texts:starts_with", [text_or_binary, text_or_binary], _BOOLEAN)
declare_simple("ENDSWITH", "texts:ends_with", [text_or_binary, text_or_binary], _BOOLEAN)


def _separator(operand: RowExpression, session: Session) -> RowExpression:
    return whole(operand, session) if rules.is_integer(operand.type) else text(operand, session)


declare_simple("SPLIT_INDEX", "texts:split_index", [text, _separator, whole], _STRING, nullable=True)
declare_simple("SPLIT", "texts:split", [text, text], _STRINGS)
declare_simple(
    "STR_TO_MAP",
    "encodings:str_to_map",
    [text, text, text],
    MapType("MAP", key_type=_STRING, value_type=_STRING),
    optional=2,
    nullable=True,
)


@declare("ELT", operands=(2, None))
def _elt(operands: Sequence[RowExpression], session: Session) -> RowExpression:
    index = whole(operands[0], session)
    if isinstance(index, Constant) and index.value is not None and index.value < 0:
        raise OperandsRefused(f"the index is 0 or more, not {index.value}")
    values = unified([text_or_binary(operand, session) for operand in operands[1:]], session)
    return operation("ELT", "texts:elt", (index, *values), values[0].type, nullable=True)


@declare("PRINTF", operands=(1, None))
def _printf(operands: Sequence[RowExpression], session: Session) -> RowExpression:
    pattern, *values = operands
    values = [Constant(_STRING, None) if value.type.name == "NULL" else value for value in values]
    return operation("PRINTF", "texts:printf", (text(pattern, session), *values), _STRING, nullable=True)


# -- characters and codes

declare_simple("ASCII", "texts:ascii_", [text], _INT)
declare_simple("CHR", "texts:chr_", [whole], _STRING, nullable=True)
declare_simple("FROM_BASE64", "encodings:from_base64", [text], _STRING)
declare_simple("TO_BASE64", "encodings:to_base64", [text_or_binary], _STRING)
declare_simple("ENCODE", "encodings:encode", [text, text], DataTypes.BYTES())
declare_simple("DECODE", "encodings:decode", [binary, text], _STRING)
declare_simple("URL_ENCODE", "encodings:url_encode", [text], _STRING, nullable=True)
declare_simple("URL_DECODE", "encodings:url_decode", [text], _STRING, nullable=True)
declare_simple("PARSE_URL", "encodings:parse_url", [text, text, text], _STRING, optional=1, nullable=True)
for _name, _length in (("MD5", 32), ("SHA1", 40), ("SHA224", 56), ("SHA256", 64), ("SHA384", 96), ("SHA512", 128)):
    declare_simple(_name, f"encodings:{_name.lower()}", [text], DataTypes.CHAR(_length))
declare_simple("SHA2", "encodings:sha2", [text, whole], DataTypes.VARCHAR(128))


# -- what a text is


def _tests_characters(name: str, kernel: str, of_numbers: bool | None) -> None:
    """Declare IS_ALPHA and its relatives, which are FALSE for NULL; ``of_numbers``: the value for every number."""

    @declare(name, operands=1)
    def build(operands: Sequence[RowExpression], session: Session) -> RowExpression:
        (operand,) = operands
        if rules.is_number(operand.type):
            if of_numbers is None or operand.type.nullable:
                operand = cast(operand, _STRING, session)
            else:
                return Constant(DataTypes.BOOLEAN(False), of_numbers)
        return operation(name, kernel, [text(operand, session)], _BOOLEAN, nullable=False)


_tests_characters("IS_ALPHA", "texts:is_alpha", False)
_tests_characters("IS_DIGIT", "texts:is_digit", None)
_tests_characters("IS_DECIMAL", "texts:is_decimal", True)


# -- patterns


def _pattern(operand: RowExpression, session: Session) -> RowExpression:
    """A regular expression; a constant that is none is refused here, as Flink would give NULL for every row."""
    pattern = text(operand, session)
    if isinstance(pattern, Constant) and pattern.value is not None:
        try:
            java_regex(pattern.value)
        except (RegexRefused, RegexUnsupported) as refused:
            raise OperandsRefused(str(refused)) from None
    return pattern


declare_simple("REGEXP RLIKE", "patterns:regexp", [text, _pattern], _BOOLEAN)
declare_simple("REGEXP_EXTRACT", "patterns:regexp_extract", [text, _pattern, whole], _STRING, optional=1, nullable=True)
declare_simple(
    "REGEXP_EXTRACT_ALL", "patterns:regexp_extract_all", [text, _pattern, whole], _STRINGS, optional=1, nullable=True
)
declare_simple("REGEXP_REPLACE", "patterns:regexp_replace", [text, _pattern, text], _STRING)
declare_simple("REGEXP_COUNT", "patterns:regexp_count", [text, _pattern], _INT, nullable=True)
declare_simple("REGEXP_INSTR", "patterns:regexp_instr", [text, _pattern], _INT, nullable=True)
declare_simple("REGEXP_SUBSTR", "patterns:regexp_substr", [text, _pattern], _STRING, nullable=True)


@declare("LIKE", operands=(2, 3))
def _like(operands: Sequence[RowExpression], session: Session) -> RowExpression:
    return operation("LIKE", "patterns:like", [text(operand, session) for operand in operands], _BOOLEAN)


@declare("SIMILAR TO", operands=(2, 3))
def _similar(operands: Sequence[RowExpression], session: Session) -> RowExpression:
    return operation("SIMILAR TO", "patterns:similar", [text(operand, session) for operand in operands], _BOOLEAN)


@declare("CURRENT_DATABASE", operands=0)
def _current_database(operands: Sequence[RowExpression], session: Session) -> RowExpression:
    return Constant(DataTypes.STRING(False), session.database)

"""The words, names, literals and signs of a statement."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from enum import Enum
from typing import Final

from firesteel_sql.parse import foreign_words
from firesteel_sql.parse.errors import SqlError


class TokenKind(Enum):
    """What a token is."""

    WORD = "a word"
    QUOTED_NAME = "a name in backquotes"
    STRING = "a text"
    BINARY = "a binary literal"
    NUMBER = "a number"
    SIGN = "a sign"
    END = "the end of the statement"


@dataclass(frozen=True, slots=True)
class SqlToken:
    """A part of a statement's text.

    Attributes:
        kind: what it is.
        text: as it stands in the statement.
        value: a word in upper case, a name without backquotes, a text without quotes, a number, a sign.
        start: its index in the statement.
    """

    kind: TokenKind
    text: str
    value: str
    start: int

    @property
    def end(self) -> int:
        """The first index behind it."""
        return self.start + len(self.text)

    def shown(self) -> str:
        """The token in an error message."""
        if self.kind is TokenKind.END:
            return "the end"
        text = self.text if len(self.text) <= 40 else f"{self.text[:37]}..."
        return text if text.startswith("'") else f"'{text}'"


_PATTERN: Final = re.compile(
    r"""
    (?P<blank> \s+ | --[^\n]* | /\*(?!\+) (?:[^*]|\*(?!/))* \*/ )
    | (?P<binary> [xX]' [^']* ' )
    | (?P<unicode> [uU]&' (?:[^']|'')* ' )
    | (?P<string> ' (?:[^']|'')* ' )
    | (?P<name> ` (?:[^`]|``)* ` )
    | (?P<number> (?: \d+ (?:\.\d*)? | \.\d+ ) (?:[eE][+-]?\d+)? )
    | (?P<word> [^\W\d] [\w$]* )
    | (?P<sign> /\*\+ | \*/ | /(?!\*) | <= | >= | <> | != | => | \|\| | [-+*%=<>()\[\]{},.;:?] )
    """,
    re.VERBOSE,
)

_OPEN: Final = {
    "'": "the text that begins here has no closing quote (a quote inside a text is written twice: '')",
    "`": "the name that begins here has no closing backquote",
    "/*": "the comment that begins here does not end: */ is missing",
}
"""Beginnings of what has no end, and what to say."""


def tokens_of(sql: str) -> list[SqlToken]:
    """The tokens of a text, and one for its end.

    Raises:
        SqlError: a literal, a name or a comment does not end, or a character has no meaning in SQL.
    """
    tokens: list[SqlToken] = []
    index = 0
    while index < len(sql):
        match = _PATTERN.match(sql, index)
        if match is None:
            problem = next((text for begin, text in _OPEN.items() if sql.startswith(begin, index)), None)
            if problem is not None and sql[index] == "'" and "\\'" in sql:
                problem += "; a backslash does not escape it"
            raise SqlError(problem or _stray(sql, index), sql, index, index + 1)
        if match.lastgroup != "blank":
            tokens.append(_token(match, sql))
        index = match.end()
    tokens.append(SqlToken(TokenKind.END, "", "", len(sql)))
    return tokens


def _stray(sql: str, index: int) -> str:
    char = sql[index]
    if char in '"“”„«»':
        return "names are quoted with `backquotes`, texts with 'single quotes'"
    if char in "\u2018\u2019\u00b4":
        return "texts are quoted with straight quotes: 'text'"
    if char in "$@":
        return f"there are no parameters or variables ({char}): write the value"
    for sign, instead in foreign_words.SIGNS.items():
        if sql.startswith(sign, index):
            return f"{sign} has no meaning in Flink's SQL: write {instead}"
    alike = "-" if unicodedata.category(char) == "Pd" or char == "\u2212" else unicodedata.normalize("NFKC", char)
    if len(alike) == 1 and alike.isascii() and alike.isprintable() and not char.isascii():
        return f"this is {unicodedata.name(char)}, which only looks like {alike!r}: write {alike!r}"
    name = "" if char.isascii() else f" ({unicodedata.name(char, 'without a name')})"
    shown = repr(char) if char.isprintable() else f"U+{ord(char):04X}"
    return f"the character {shown}{name} has no meaning here"


def _token(match: re.Match[str], sql: str) -> SqlToken:
    text, start = match.group(), match.start()
    match match.lastgroup:
        case "word":
            return SqlToken(TokenKind.WORD, text, text.upper(), start)
        case "name":
            value = text[1:-1].replace("``", "`")
            if not value:
                raise SqlError("a name in backquotes can't be empty", sql, start, match.end())
            return SqlToken(TokenKind.QUOTED_NAME, text, value, start)
        case "string":
            return SqlToken(TokenKind.STRING, text, text[1:-1].replace("''", "'"), start)
        case "unicode":
            return SqlToken(TokenKind.STRING, text, _unescaped(text[3:-1].replace("''", "'"), sql, start), start)
        case "binary":
            digits = text[2:-1]
            if len(digits) % 2 or re.fullmatch("[0-9a-fA-F]*", digits) is None:
                raise SqlError(
                    "a binary literal has two hexadecimal digits for each byte: x'0aff'", sql, start, match.end()
                )
            return SqlToken(TokenKind.BINARY, text, digits, start)
        case "number":
            if sql[match.end() : match.end() + 1].isalpha() or sql[match.end() : match.end() + 1] == "_":
                if text == "0" and sql[match.end()] in "xX":
                    raise SqlError("bytes in hexadecimal digits are written x'ff'", sql, start, match.end() + 1)
                raise SqlError(
                    "a name that begins with a digit has to stand in `backquotes`", sql, start, match.end() + 1
                )
            return SqlToken(TokenKind.NUMBER, text, text, start)
        case _:
            return SqlToken(TokenKind.SIGN, text, "<>" if text == "!=" else text, start)


def _unescaped(text: str, sql: str, start: int) -> str:
    """The text of a literal ``U&'...'``, in which ``\\\\00e9`` and ``\\\\+01f600`` stand for characters."""

    def char(match: re.Match[str]) -> str:
        code = match.group(1) or match.group(2)
        if code is None:
            if match.group() == "\\\\":
                return "\\"
            raise SqlError(
                "a backslash in U&'...' begins four hexadecimal digits (\\00e9), or + and six; write it twice to mean "
                "itself", sql, start, start + len(text) + 4,
            )  # fmt: skip
        number = int(code, 16)
        if number > 0x10FFFF:
            raise SqlError(f"there is no character {code}", sql, start, start + len(text) + 4)
        return chr(number)

    return re.sub(r"\\(?:\\|([0-9a-fA-F]{4})|\+([0-9a-fA-F]{6})|)", char, text)

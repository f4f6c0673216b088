"""Reading of tokens one after another: what comes next, what must come next, and errors that say what was expected."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Final, NoReturn, TypeVar

from firesteel_sql.parse.errors import SqlError
from firesteel_sql.parse.foreign_words import OPERATORS
from firesteel_sql.parse.nodes import Path, Query
from firesteel_sql.parse.reserved_words import RESERVED
from firesteel_sql.parse.tokens import SqlToken, TokenKind, tokens_of

T = TypeVar("T")

_DEEPEST: Final = 50
"""Levels of expressions and queries within each other; Python's stack has room for them."""


class TokenStream:
    """The tokens of a text, read from left to right.

    Keywords are not told from names by the tokens themselves: a word is a keyword where the grammar asks for it, so
    words like ``type`` can name columns. What the reader asked for in vain at a place is kept for the error message.

    Args:
        sql: the text.
        read_query: reads a query: expressions have queries within them, and queries expressions.

    Attributes:
        sql: as given.
    """

    def __init__(self, sql: str, read_query: Callable[[TokenStream], Query]) -> None:
        self.sql = sql
        self._read_query = read_query
        self._tokens = tokens_of(sql)
        self._index = 0
        self._expected: dict[str, None] = {}
        self._depth = 0

    # -- looking

    @property
    def next(self) -> SqlToken:
        """The token that is read next; the end of the text is one, too."""
        return self._tokens[self._index]

    @property
    def last(self) -> SqlToken:
        """The token that was read last; the first one if none was."""
        return self._tokens[max(self._index - 1, 0)]

    @property
    def last_end(self) -> int:
        """The index behind the token that was read last."""
        return self.last.end if self._index else 0

    def after(self, count: int) -> SqlToken:
        """The token so many places behind the next one."""
        return self._tokens[min(self._index + count, len(self._tokens) - 1)]

    def is_word(self, *words: str) -> bool:
        """Whether these words come next."""
        for place, word in enumerate(words):
            token = self.after(place)
            if token.kind is not TokenKind.WORD or token.value != word:
                self._expected[" ".join(words)] = None
                return False
        return True

    def is_at_end(self) -> bool:
        """Whether nothing comes next."""
        return self.next.kind is TokenKind.END

    def is_one_of(self, words: Iterable[str]) -> bool:
        """Whether one of these words comes next."""
        return any([self.is_word(word) for word in words])

    def is_sign(self, sign: str) -> bool:
        """Whether this sign comes next."""
        if self.next.kind is TokenKind.SIGN and self.next.value == sign:
            return True
        self._expected[f"'{sign}'"] = None
        return False

    def is_kind(self, kind: TokenKind) -> bool:
        """Whether a token of this kind comes next."""
        if self.next.kind is kind:
            return True
        self._expected[kind.value] = None
        return False

    # -- reading

    def take(self) -> SqlToken:
        """Read the next token."""
        token = self.next
        if token.kind is not TokenKind.END:
            self._index += 1
            self._expected.clear()
        return token

    def take_word(self, *words: str) -> bool:
        """Read these words if they come next."""
        if not self.is_word(*words):
            return False
        for _ in words:
            self.take()
        return True

    def take_one_of(self, *words: str) -> str | None:
        """Read one of these words if it comes next; returns it."""
        found = next((word for word in words if self.is_word(word)), None)
        if found is not None:
            self.take()
        return found

    def take_sign(self, sign: str) -> bool:
        """Read this sign if it comes next."""
        if not self.is_sign(sign):
            return False
        self.take()
        return True

    def take_if_exists(self) -> bool:
        """Read IF EXISTS if it comes next.

        Raises:
            SqlError: it is mistyped.
        """
        return self._take_if("EXISTS")

    def take_if_not_exists(self) -> bool:
        """Read IF NOT EXISTS if it comes next.

        Raises:
            SqlError: it is mistyped.
        """
        return self._take_if("NOT", "EXISTS")

    def _take_if(self, *words: str) -> bool:
        if self.take_word("IF", *words):
            return True
        second = self.after(1)
        if self.is_word("IF") and get_close_matches(second.value, ("NOT", "EXISTS"), 1, 0.6):
            self.fail_at(second, f"did you mean IF {' '.join(words)}?")
        return False

    def expect_word(self, *words: str) -> None:
        """Read these words.

        Raises:
            SqlError: something else comes next.
        """
        if not self.take_word(*words):
            self.fail()

    def expect_one_of(self, *words: str) -> str:
        """Read one of these words, and return it.

        Raises:
            SqlError: something else comes next.
        """
        return self.take_one_of(*words) or self.fail()

    def expect_sign(self, sign: str) -> None:
        """Read this sign.

        Raises:
            SqlError: something else comes next.
        """
        if not self.take_sign(sign):
            self.fail()

    def expect_string(self) -> str:
        """Read a text in quotes, and return it without them.

        Raises:
            SqlError: something else comes next.
        """
        if not self.is_kind(TokenKind.STRING):
            self.fail(otherwise="a text in quotes is needed")
        return self.take().value

    def expect_integer(self) -> int:
        """Read a whole number.

        Raises:
            SqlError: something else comes next.
        """
        if not self.is_kind(TokenKind.NUMBER):
            self.fail()
        if not self.next.value.isdigit():
            self.fail_at(self.next, f"a whole number has to stand here, not {self.next.text}")
        return int(self.take().value)

    def name(self) -> str:
        """Read a name.

        Raises:
            SqlError: something else comes next, or a reserved word without backquotes.
        """
        token = self.next
        if token.kind is TokenKind.QUOTED_NAME:
            return self.take().value
        if token.kind is not TokenKind.WORD:
            self._expected["a name"] = None
            self.fail()
        if token.value in RESERVED:
            if token.value in NEVER_NAMES:
                self.fail_at(token, f"a name is missing before {token.text} (a comma too many?)")
            self.fail_at(
                token, f"{token.text} is a reserved word: as a name it has to stand in backquotes, `{token.text}`"
            )
        self.take()
        return token.text

    def is_name(self) -> bool:
        """Whether a name comes next."""
        token = self.next
        is_there = token.kind is TokenKind.QUOTED_NAME or (token.kind is TokenKind.WORD and token.value not in RESERVED)
        if not is_there:
            self._expected["a name"] = None
        return is_there

    def path(self) -> Path:
        """Read a name of one part or more, with dots between them.

        Raises:
            SqlError: something else comes next.
        """
        parts = [self.name()]
        while self.take_sign("."):
            parts.append(self.name())
        return tuple(parts)

    def begins_query(self) -> bool:
        """Whether a query comes next, and not an expression: in parentheses it may be either."""
        place = 0
        while self.after(place).value == "(" and self.after(place).kind is TokenKind.SIGN:
            place += 1
        token = self.after(place)
        return token.kind is TokenKind.WORD and token.value in ("SELECT", "WITH", "VALUES", "TABLE")

    def query(self) -> Query:
        """Read a query.

        Raises:
            SqlError: there is none, or it is wrong.
        """
        return self._read_query(self)

    @contextmanager
    def level(self) -> Iterator[None]:
        """A level of what stands within each other.

        Raises:
            SqlError: there are too many.
        """
        self._depth += 1
        if self._depth > _DEEPEST:
            self.fail_at(self.next, f"expressions and queries can stand within each other {_DEEPEST} levels deep")
        try:
            yield
        finally:
            self._depth -= 1

    def list_of(self, part: Callable[[TokenStream], T]) -> tuple[T, ...]:
        """Read one part or more, with commas between them."""
        parts = [part(self)]
        while self.take_sign(","):
            parts.append(part(self))
        return tuple(parts)

    def in_parentheses(self, part: Callable[[TokenStream], T]) -> T:
        """Read a part in parentheses.

        Raises:
            SqlError: a parenthesis is missing.
        """
        self.expect_sign("(")
        value = part(self)
        self.expect_sign(")")
        return value

    # -- errors

    def fail(self, hint: str = "", *, otherwise: str = "") -> NoReturn:
        """Say what was expected in place of the next token.

        Args:
            hint: what the user may have meant; found by the words that were expected if empty.
            otherwise: what to say if no word that was expected is near.

        Raises:
            SqlError: always.
        """
        token = self.next
        is_begun = any(text.partition(" ")[0] == token.value and " " in text for text in self._expected)
        typo = None if is_begun else self._near_keyword()
        if typo is not None and not hint:
            self.fail_at(self._tokens[self._index - 1], typo)
        problem = f"{token.shown()} can't stand here"
        if token.kind is TokenKind.END:
            problem = "the statement ends too early"
        expected = [text for text in self._expected if text not in _DULL] or list(self._expected)
        hint = hint or self._foreign()
        if not hint and token.kind is TokenKind.WORD:
            near = get_close_matches(token.value, [text.split()[0] for text in expected if text.isupper()], 1, 0.7)
            hint = f"did you mean {next(text for text in expected if text.split()[0] == near[0])}?" if near else ""
        hint = hint or otherwise or self._missing()
        if not hint and expected:
            hint = f"expected {_one_of(expected)}"
        self.fail_at(token, f"{problem}: {hint}" if hint else problem)

    def _foreign(self) -> str:
        """What to write in place of the next tokens, if other databases have them."""
        token, last = self.next, self.last
        if token.value == ":" and self.after(1).value == ":":
            return "a cast is written CAST(x AS type)"
        if token.value == ":" and self.after(1).kind is TokenKind.WORD:
            return "there are no parameters: write the value"
        if token.value == "?":
            return "there are no parameters: write the value"
        if token.kind is TokenKind.STRING and last.kind is TokenKind.WORD and last.end == token.start:
            return f"there are no texts with {last.text} before the quote: write '...'"
        if token.kind is TokenKind.WORD and token.value in OPERATORS and "AND" in self._expected:
            return f"there is no operator {token.text}: write {OPERATORS[token.value]}"
        return ""

    def _missing(self) -> str:
        """What is perhaps missing before the next token."""
        token = self.next
        signs = [other.value for other in self._tokens[: self._index] if other.kind is TokenKind.SIGN]
        for closing, opening in ((")", "("), ("]", "[")):
            unclosed = signs.count(opening) - signs.count(closing)
            if token.kind is TokenKind.END and unclosed > 0:
                return f"'{closing}' is missing"
            if token.kind is TokenKind.SIGN and token.value == closing and unclosed <= 0:
                return f"there is no '{opening}' before it that it closes"
        begins_part = token.kind in _PARTS and token.value not in RESERVED
        if begins_part and "','" in self._expected:
            return "is a comma missing before it?"
        if begins_part and "AND" in self._expected:
            return "is AND or OR missing before it?"
        return ""

    def _near_keyword(self) -> str | None:
        """What to say if the last word was taken for a name, and looks like a keyword that was possible there."""
        if self._index == 0:
            return None
        last = self._tokens[self._index - 1]
        if last.kind is not TokenKind.WORD or last.value in RESERVED or len(last.value) < 3:
            return None
        words = {clause: clause for clause in _CLAUSES}
        words.update({clause.split()[0]: clause for clause in _CLAUSES if clause.endswith(f" {self.next.value}")})
        near = get_close_matches(last.value, words, 1, 0.74)
        if not near:
            return None
        return f"did you mean {words[near[0]]} instead of {last.text}?"

    def fail_at(self, token: SqlToken, problem: str) -> NoReturn:
        """Say what is wrong with this token.

        Raises:
            SqlError: always.
        """
        start = self.last_end if token.kind is TokenKind.END else token.start  # blanks at the end say nothing
        raise SqlError(problem, self.sql, start, max(token.end, start + 1))


_CLAUSES: Final = (
    "FROM",
    "WHERE",
    "GROUP BY",
    "HAVING",
    "ORDER BY",
    "LIMIT",
    "JOIN",
    "UNION",
    "SELECT",
    "INSERT",
    "VALUES",
)
"""Keywords that are taken for the name of a column or table if they are mistyped."""

_PARTS: Final = (TokenKind.WORD, TokenKind.QUOTED_NAME, TokenKind.STRING, TokenKind.NUMBER, TokenKind.BINARY)
NEVER_NAMES: Final = frozenset(
    [
        "FROM",
        "WHERE",
        "SELECT",
        "ON",
        "JOIN",
        "HAVING",
        "UNION",
        "AS",
        "AND",
        "OR",
        "NOT",
        "INTO",
        "WITH",
        "USING",
        "IS",
        "IN",
        "LIKE",
        "BETWEEN",
        "THEN",
        "ELSE",
        "WHEN",
        "END",
    ]
)
"""Reserved words that nobody takes for a name, so that a name is missing where they stand."""

_DULL: Final = frozenset(
    ("'.'", "'['", "'('", "AT TIME ZONE", "'*'", "'/'", "'%'", "'+'", "'-'", "'||'", "IS", "BETWEEN", "IN", "LIKE",
     "SIMILAR", "RLIKE", "NOT", "OR", "AND", "OVER", "FILTER", "WITHIN GROUP", "IGNORE NULLS", "RESPECT NULLS", "'/*+'",
     "MATCH_RECOGNIZE", "FOR", *(f"'{sign}'" for sign in ("=", "<>", "<=", ">=", "<", ">"))),
)  # fmt: skip
"""What may follow any expression or table: not named where something else may come."""

_SHOWN = 6
"""Alternatives named by an error at most."""


def _one_of(texts: list[str]) -> str:
    shown = texts[:_SHOWN] if len(texts) <= _SHOWN + 1 else [*texts[:_SHOWN], "..."]
    if len(shown) == 1:
        return shown[0]
    return f"{', '.join(shown[:-1])} or {shown[-1]}" if shown[-1] != "..." else ", ".join(shown)

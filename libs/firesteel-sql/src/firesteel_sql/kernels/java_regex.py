"""Regular expressions of Java's, translated into those of Python.

Both are nearly the same language. The translation walks once over the pattern and rewrites what differs: classes are
those of ASCII (``\\d``, ``\\w``, ``\\p{Alpha}``), ``.`` and ``$`` know more ends of lines, classes have unions and
intersections (``[a-z&&[^b]]``), flags may stand within a pattern (``a(?i)b``), and texts are quoted by ``\\Q...\\E``.
Python's have possessive quantifiers and atomic groups since 3.11. What is not there is refused by its name.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NoReturn

_LINE_ENDS: Final = "\n\r\x85\u2028\u2029"
_WORD: Final = "A-Za-z0-9_"
_SPACE: Final = " \\t\\n\\x0b\\f\\r"
_HORIZONTAL: Final = " \\t\xa0\u1680\u180e\u2000-\u200a\u202f\u205f\u3000"
_VERTICAL: Final = "\\n\\x0b\\f\\r\x85\u2028\u2029"
_CLASSES: Final = {"d": "0-9", "w": _WORD, "s": _SPACE, "h": _HORIZONTAL, "v": _VERTICAL}
"""What stands between the brackets for ``\\d`` and the like; the capital letter means all else."""
_POSIX: Final = {
    "Lower": "a-z", "Upper": "A-Z", "ASCII": "\\x00-\\x7f", "Alpha": "A-Za-z", "Digit": "0-9", "Alnum": "A-Za-z0-9",
    "Punct": "!-/:-@\\[-`{-~", "Graph": "!-~", "Print": " -~", "Blank": " \\t", "Cntrl": "\\x00-\\x1f\\x7f",
    "XDigit": "0-9A-Fa-f", "Space": _SPACE,
}  # fmt: skip
_BINARY: Final[dict[str, Callable[[str], bool]]] = {
    "alphabetic": str.isalpha, "letter": str.isalpha, "digit": lambda char: unicodedata.category(char) == "Nd",
    "uppercase": str.isupper, "lowercase": str.islower, "titlecase": lambda char: unicodedata.category(char) == "Lt",
    "white_space": str.isspace, "punctuation": lambda char: unicodedata.category(char).startswith("P"),
    "javaLowerCase": str.islower, "javaUpperCase": str.isupper, "javaWhitespace": str.isspace,
    "javaLetter": str.isalpha, "javaDigit": lambda char: unicodedata.category(char) == "Nd",
    "javaLetterOrDigit": lambda char: str.isalpha(char) or unicodedata.category(char) == "Nd",
}  # fmt: skip
_LITERAL_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
_BEYOND_RE2: Final = frozenset("bBAGZz")


class RegexRefused(ValueError):
    """A regular expression that is none."""


class RegexUnsupported(ValueError):
    """A regular expression with a part that Python's have no equal of."""


@dataclass(frozen=True)
class JavaRegex:
    """A regular expression, ready for use.

    Attributes:
        python: as Python's.
        for_arrow: the same for Arrow's kernels (RE2), which never match the empty text; None if those have no equal.
    """

    python: re.Pattern[str]
    for_arrow: str | None


@lru_cache(1024)
def java_regex(pattern: str) -> JavaRegex:
    """Translate a regular expression of Java's.

    Raises:
        RegexRefused: it is none.
        RegexUnsupported: it has a part that Python's have no equal of.
    """
    translation = _Translation(pattern)
    text = translation.translated()
    try:
        compiled = re.compile(text, re.ASCII)
    except (re.error, OverflowError) as error:
        if "look-behind" in str(error):
            raise RegexUnsupported(f"'{pattern}': a look-behind needs a fixed length here") from None
        raise RegexRefused(f"'{pattern}' is no regular expression: {error}") from None
    is_plain = translation.is_plain and compiled.search("") is None
    return JavaRegex(compiled, text if is_plain else None)


@dataclass
class _Translation:
    """One walk over a pattern.

    Attributes:
        pattern: of Java's.
        place: of the next character.
        is_plain: whether nothing occurred so far that RE2 does not have, or means otherwise.
        parts: of Python's pattern.
        flag_groups: for each open group, the flags that were set within it: each is a group of its own in Python.
        dot_all: for each open group, whether ``.`` means every character.
        multi_line: for each open group, whether ``$`` means the end of each line.
    """

    pattern: str
    place: int = 0
    is_plain: bool = True
    parts: list[str] = field(default_factory=list)
    flag_groups: list[list[str]] = field(default_factory=lambda: [[]])
    dot_all: list[bool] = field(default_factory=lambda: [False])
    multi_line: list[bool] = field(default_factory=lambda: [False])

    def translated(self) -> str:
        while self.place < len(self.pattern):
            char = self._take()
            match char:
                case "\\":
                    self.parts.append(self._escape())
                case "[":
                    self.parts.append(self._class())
                case "(":
                    self._group()
                case ")":
                    self._close_group()
                case "|":
                    opened = self.flag_groups[-1]
                    self.parts.append(")" * len(opened) + "|" + "".join(f"(?{flags}:" for flags in opened))
                case ".":
                    self.parts.append("." if self.dot_all[-1] else f"[^{_LINE_ENDS}]")
                    self.is_plain = self.is_plain and not self.dot_all[-1]
                case "$":
                    self.is_plain = False
                    end = "(?=\\r\\n|[\n\r\x85\u2028\u2029]|\\Z)"
                    self.parts.append(end if self.multi_line[-1] else f"(?=(?:\\r\\n|[{_LINE_ENDS}])?\\Z)")
                case "^":
                    self.is_plain = False
                    self.parts.append(char)
                case "*" | "+" | "?" | "}":
                    self.parts.append(char)
                    if self._peek("+"):  # possessive
                        self.is_plain = False
                case "{":
                    self.is_plain = False
                    self.parts.append(char)
                case _:
                    self.parts.append(char)
        self.parts.append(")" * len(self.flag_groups[0]))
        if len(self.flag_groups) > 1:
            self._refuse("a group is not closed")
        return "".join(self.parts)

    # -- the text

    def _refuse(self, problem: str) -> NoReturn:
        raise RegexRefused(f"'{self.pattern}' is no regular expression: {problem}")

    def _take(self) -> str:
        if self.place >= len(self.pattern):
            self._refuse("it ends too early")
        char = self.pattern[self.place]
        self.place += 1
        return char

    def _peek(self, text: str) -> bool:
        return self.pattern.startswith(text, self.place)

    def _until(self, end: str) -> str:
        end_at = self.pattern.find(end, self.place)
        if end_at < 0:
            self._refuse(f"{end} is missing")
        text = self.pattern[self.place : end_at]
        self.place = end_at + len(end)
        return text

    # -- groups and flags

    def _group(self) -> None:
        if not self._peek("?"):
            self._open_group("(")
            return
        self.place += 1
        if self._peek("<") and not self._peek("<=") and not self._peek("<!"):
            self.place += 1
            self._open_group(f"(?P<{self._until('>')}>")
            self.is_plain = False
            return
        for begin in (":", "=", "!", "<=", "<!", ">"):
            if self._peek(begin):
                self.place += len(begin)
                self._open_group("(?" + begin)
                self.is_plain = self.is_plain and begin == ":"
                return
        flags = re.compile(r"([a-zA-Z]*)(?:-([a-zA-Z]+))?([:)])").match(self.pattern, self.place)
        if flags is None:
            self._refuse("(? is followed by what is no group")
        self.is_plain = False
        self.place = flags.end()
        self._flags(*flags.groups())

    def _flags(self, added: str, removed: str | None, end: str) -> None:
        """``(?i)`` sets a flag until the group ends, ``(?i:`` opens a group."""
        removed = removed or ""
        unknown = set(added + removed) - set("imsxdUu")
        if unknown:
            self._refuse(f"there is no flag {min(unknown)}")
        dot_all = self.dot_all[-1] or "s" in added
        multi_line = self.multi_line[-1] or "m" in added
        if "s" in removed:
            dot_all = False
        if "m" in removed:
            multi_line = False
        on = "".join(flag for flag in "imsx" if flag in added) + ("u" if set("uU") & set(added) else "")
        off = "".join(flag for flag in "imsx" if flag in removed)
        text = on + (f"-{off}" if off else "")
        if end == ":":
            self._open_group(f"(?{text}:")
        elif text:
            self.flag_groups[-1].append(text)
            self.parts.append(f"(?{text}:")
        self.dot_all[-1], self.multi_line[-1] = dot_all, multi_line

    def _open_group(self, begin: str) -> None:
        self.parts.append(begin)
        self.flag_groups.append([])
        self.dot_all.append(self.dot_all[-1])
        self.multi_line.append(self.multi_line[-1])

    def _close_group(self) -> None:
        if len(self.flag_groups) == 1:
            self._refuse("a ) has no (")
        self.dot_all.pop()
        self.multi_line.pop()
        self.parts.append(")" * len(self.flag_groups.pop()) + ")")

    # -- escapes

    def _escape(self) -> str:
        char = self._take()
        if char == "Q":
            return re.escape(self._quoted())
        if char in "pP":
            return f"[{'^' if char == 'P' else ''}{self._property()}]"
        if char.lower() in _CLASSES and char != "V":
            return f"[{'^' if char.isupper() else ''}{_CLASSES[char.lower()]}]"
        if char == "R":
            self.is_plain = False
            return f"(?:\\r\\n|[{_VERTICAL}])"
        if char in _BEYOND_RE2 or (char.isdigit() and char != "0"):
            self.is_plain = False
            return {"z": "\\Z", "Z": f"(?=(?:\\r\\n|[{_LINE_ENDS}])?\\Z)"}.get(char, "\\" + char)
        if char == "k" and self._peek("<"):
            self.place += 1
            self.is_plain = False
            return f"(?P={self._until('>')})"
        if char in "GXN":
            raise RegexUnsupported(f"'{self.pattern}': \\{char} is not supported")
        return re.escape(self._character(char))

    def _quoted(self) -> str:
        return self._until("\\E") if "\\E" in self.pattern[self.place :] else self._rest()

    def _rest(self) -> str:
        text, self.place = self.pattern[self.place :], len(self.pattern)
        return text

    def _character(self, char: str) -> str:
        """The character that an escape means."""
        if char in _LITERAL_ESCAPES:
            return _LITERAL_ESCAPES[char]
        if char == "c":
            return chr(ord(self._take()) ^ 64)
        digits = None
        if char == "x" and self._peek("{"):
            self.place += 1
            digits = self._until("}")
        elif char in "xu":
            length = 2 if char == "x" else 4
            digits = self.pattern[self.place : self.place + length]
            self.place += length
        if digits is not None:
            if not re.fullmatch(r"[0-9a-fA-F]+", digits):
                self._refuse(f"\\{char} needs hexadecimal digits")
            return chr(int(digits, 16))
        if char == "0":
            octal = re.compile(r"[0-3]?[0-7]{1,2}").match(self.pattern, self.place)
            if octal is None:
                self._refuse("\\0 needs octal digits")
            self.place = octal.end()
            return chr(int(octal.group(), 8))
        if char.isascii() and char.isalpha():
            self._refuse(f"there is no escape \\{char}")
        return char

    def _property(self) -> str:
        """What stands between brackets for ``\\p{...}``."""
        name = self._take()
        if name == "{":
            name = self._until("}")
        known = _POSIX.get(name)
        if known is not None:
            return known
        self.is_plain = False
        try:
            return _characters_of(name)
        except KeyError:
            raise RegexUnsupported(f"'{self.pattern}': the class \\p{{{name}}} is not supported") from None

    # -- classes

    def _class(self) -> str:
        """A class behind its opening bracket, as a class of Python's or, where it has parts, as a choice of such."""
        is_negated = self._peek("^")
        if is_negated:
            self.place += 1
        operands: list[list[str]] = [[]]  # of &&; each has the classes of a union
        single: list[str] = []
        first = True
        while True:
            if self.place >= len(self.pattern):
                self._refuse("a [ is not closed")
            if self._peek("&&"):
                self.place += 2
                self._end_of_union(operands[-1], single)
                operands.append([])
                continue
            char = self._take()
            if char == "]" and not first:
                break
            first = False
            if char == "[":
                operands[-1].append(self._class())
            elif char == "\\":
                single.append(self._in_class())
            else:
                single.append("\\" + char if char in "]^&~|" else char)
        self._end_of_union(operands[-1], single)
        unions = [union for union in operands if union]
        if not unions:
            self._refuse("a class is empty")
        if len(unions) == 1 and len(unions[0]) == 1 and unions[0][0].startswith("["):
            (simple,) = unions[0]
            if not is_negated:
                return simple
            return f"[{simple[2:]}" if simple.startswith("[^") else f"[^{simple[1:]}"
        self.is_plain = False
        *tests, last = [union[0] if len(union) == 1 else f"(?:{'|'.join(union)})" for union in unions]
        positive = "".join(f"(?={test})" for test in tests) + last
        return f"(?:(?!{positive})(?s:.))" if is_negated else f"(?:{positive})"

    @staticmethod
    def _end_of_union(union: list[str], single: list[str]) -> None:
        if single:
            union.insert(0, f"[{''.join(single)}]")
            single.clear()

    def _in_class(self) -> str:
        """An escape within a class."""
        char = self._take()
        if char == "Q":
            return "".join(map(re.escape, self._quoted()))
        if char == "p":
            return self._property()
        if char in _CLASSES:
            return _CLASSES[char]
        if char == "P":
            self.is_plain = False
            return _complement(self._property())
        if char.lower() in _CLASSES and char != "V":
            self.is_plain = False
            return _complement(_CLASSES[char.lower()])
        return re.escape(self._character(char))


@lru_cache(64)
def _characters_of(name: str) -> str:
    """The characters of a general category or a binary property of Unicode's, as ranges.

    Raises:
        KeyError: there is none of this name.
    """
    bare = name.removeprefix("Is") if name.startswith("Is") else name.partition("=")[2] or name
    if bare.upper() in ("L", "M", "N", "P", "S", "Z", "C") or (len(bare) == 2 and bare.isalpha()):
        category = bare.capitalize()
        return _ranges(lambda char: unicodedata.category(char).startswith(category))
    return _ranges(_BINARY[bare if bare.startswith("java") else bare.lower()])


@lru_cache(64)
def _complement(characters: str) -> str:
    """All characters but these, as ranges."""
    inner = re.compile(f"[{characters}]")
    return _ranges(lambda char: inner.match(char) is None)


def _ranges(contains: Callable[[str], bool]) -> str:
    ranges: list[str] = []
    start = None
    for code in range(sys.maxunicode + 2):
        inside = code <= sys.maxunicode and contains(chr(code))
        if inside and start is None:
            start = code
        elif not inside and start is not None:
            ranges.append(_range(start, code - 1))
            start = None
    return "".join(ranges)


def _range(first: int, last: int) -> str:
    begin = _class_character(first)
    return begin if first == last else f"{begin}-{_class_character(last)}"


def _class_character(code: int) -> str:
    return f"\\U{code:08x}"

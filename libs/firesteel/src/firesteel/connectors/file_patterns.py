"""Paths with wildcards: ``/data/2026-*/**/*.csv``."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

_MAGIC: Final = re.compile(r"[*?\[]")
_TREE: Final = "**"


def has_wildcard(text: str) -> bool:
    """Whether there is a wildcard in a path."""
    return _MAGIC.search(text) is not None


def is_shown(names: Sequence[str]) -> bool:
    """Whether none of these names of folders and a file is hidden; an empty last name stands for a folder."""
    return bool(names[-1]) and not any(name.startswith((".", "_")) for name in names)


def key_matches(names: Sequence[str], parts: Sequence[str]) -> bool:
    """Whether a pattern matches a file, or a folder above it; ``matches`` does the same for local paths.

    Args:
        names: names of the folders and of the file.
        parts: parts of the pattern; each stands for one name, or is ``**``.
    """
    if not parts:
        return not names or is_shown(names)
    if not names:
        return False
    part, rest = parts[0], parts[1:]
    if part == _TREE:
        if not rest:
            return is_shown(names)
        return key_matches(names, rest) or (_shown(names[0], part) and key_matches(names[1:], parts))
    if not has_wildcard(part):
        return names[0] == part and key_matches(names[1:], rest)
    return _shown(names[0], part) and fnmatchcase(names[0], part) and key_matches(names[1:], rest)


def is_pattern(path: str) -> bool:
    """Whether a path is a pattern: it has a wildcard, and there is no file or folder of exactly this name."""
    return _MAGIC.search(path) is not None and not os.path.lexists(path)


def root_of(pattern: str) -> str:
    """The folder before the first wildcard, below which all matches are."""
    parts = Path(pattern).parts
    first = next(place for place, part in enumerate(parts) if _MAGIC.search(part))
    return str(Path(*parts[:first]))


def matches(pattern: str, refused: Callable[[OSError], None]) -> Iterator[str]:
    """Files and folders that match a pattern, in a fixed order; each may come more than once.

    ``*`` and ``?`` stand for any characters and one character of a name, ``[...]`` for one of some, a name ``**`` for
    any number of folders, links left out. Wildcards match no name that begins with a dot or underscore, unless the
    pattern's does.

    Args:
        pattern: an absolute path.
        refused: called when a folder can't be listed; then it is left out, unless this raises.
    """
    first, *rest = Path(pattern).parts
    yield from _below(first, rest, refused)


def _below(folder: str, parts: list[str], refused: Callable[[OSError], None]) -> Iterator[str]:
    if not parts:
        yield folder
        return
    part, *rest = parts
    if part == _TREE:
        yield from _below(folder, rest, refused)
        if rest:  # otherwise the folder is listed with all that is below
            for name in _names(folder, refused):
                inner = os.path.join(folder, name)
                if _shown(name, part) and os.path.isdir(inner) and not os.path.islink(inner):
                    yield from _below(inner, parts, refused)
    elif _MAGIC.search(part) is None:
        inner = os.path.join(folder, part)
        if os.path.lexists(inner):
            yield from _below(inner, rest, refused)
    else:
        for name in _names(folder, refused):
            if _shown(name, part) and fnmatchcase(name, part):
                yield from _below(os.path.join(folder, name), rest, refused)


def _names(folder: str, refused: Callable[[OSError], None]) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in entries)
    except NotADirectoryError:
        return []
    except OSError as error:
        refused(error)
        return []


def _shown(name: str, part: str) -> bool:
    return bool(name) and (not name.startswith((".", "_")) or name[0] == part[0])

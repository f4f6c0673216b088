"""CHANGELOG.md is a list of what users get, short enough to be read."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

TEXT = (Path(__file__).resolve().parents[2] / "CHANGELOG.md").read_text(encoding="utf-8")
MOST_WORDS = 4000


def entries() -> list[str]:
    """Items of the lists, each in one line."""
    return [" ".join(item.split()) for item in re.findall(r"^- (.+?)(?=^- |^#|^$)", TEXT, re.MULTILINE | re.DOTALL)]


def test_there_is_a_place_for_what_is_new_in_front_of_all_versions() -> None:
    headings = re.findall(r"^## (.+)$", TEXT, re.MULTILINE)
    assert headings[0] == "[Unreleased]"
    assert headings.count("[Unreleased]") == 1


def test_the_changelog_is_short_and_says_nothing_twice() -> None:
    assert entries()
    words = len(TEXT.split())
    assert words <= MOST_WORDS, (
        f"{words} words: an entry is a sentence. If a merge has brought back lines that were removed, take them out"
    )
    assert not [entry for entry, count in Counter(entries()).items() if count > 1]

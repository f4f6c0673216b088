"""States are coloured where standard output is a terminal, unless its user wants none."""

from __future__ import annotations

import io

import pytest

from firesteel.client.console import Console

GREEN, RED, PLAIN = "\x1b[32m", "\x1b[31m", "\x1b[0m"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)


def written_text(text: str, out: io.StringIO) -> str:
    Console(out).say_states(text)
    return out.getvalue()


@pytest.mark.parametrize(
    ("text", "coloured"),
    [
        ("28.11.2026 : ab : words (RUNNING)", f"28.11.2026 : ab : words ({GREEN}RUNNING{PLAIN})"),
        ("Map     FAILED   0/2", f"Map     {RED}FAILED{PLAIN}   0/2"),
        ("ok       java: Java 17", f"{GREEN}ok{PLAIN}       java: Java 17"),
        ("ERROR   disk: full", f"{RED}ERROR{PLAIN}   disk: full"),
        ("ab : a RUNNING man (x)", "ab : a RUNNING man (x)"),
    ],
)
def test_a_state_has_its_colour_and_a_name_has_none(text: str, coloured: str) -> None:
    assert written_text(text, Terminal()) == f"{coloured}\n"


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_users_who_want_no_colours_get_none(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    assert written_text("words (RUNNING)", Terminal()) == "words (RUNNING)\n"


def test_a_name_does_not_command_the_terminal() -> None:
    assert written_text("a\x1b[31m\tred\r (x)\nb", Terminal()) == "a\\x1b[31m\tred\\x0d (x)\nb\n"
    assert written_text("a\x1b[31m", io.StringIO()) == "a\x1b[31m\n", "it is as it is for programs"


def test_programs_that_read_the_output_get_none() -> None:
    assert written_text("words (RUNNING)", io.StringIO()) == "words (RUNNING)\n"

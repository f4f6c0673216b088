"""Tables and boxes that notebooks show: escaped and bounded, whatever is in them."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import pytest

from firesteel.common import JobExecutionResult, JobID, Row
from firesteel.common.record_tables import records_table
from firesteel.core import html_cards


class Order(NamedTuple):
    customer: str
    amount: int


@dataclasses.dataclass
class Flight:
    carrier: str
    delay: int


class Hostile:
    def __repr__(self) -> str:
        raise RuntimeError("<b>")


@pytest.mark.parametrize(
    ("records", "header", "cells"),
    [
        ([(1, "<b>")], ["f0", "f1"], ["1", "&#x27;&lt;b&gt;&#x27;"]),
        ([Order("Ann", 3), Order("Bob", 4)], ["customer", "amount"], ["&#x27;Ann&#x27;", "4"]),
        ([Row(id=1, name="x")], ["id", "name"], ["1", "&#x27;x&#x27;"]),
        ([Row(1, "x")], ["f0", "f1"], ["1", "&#x27;x&#x27;"]),
        ([Flight("UA", 7)], ["carrier", "delay"], ["&#x27;UA&#x27;", "7"]),
        ([1, "<script>"], [], ["1", "&#x27;&lt;script&gt;&#x27;"]),
        ([(1, 2), (1,)], [], ["(1, 2)", "(1,)"]),
        ([Order("Ann", 3), (1, 2)], [], ["(1, 2)"]),
        ([(), ()], [], ["()"]),
        ([Hostile(), 1], [], ["1"]),
        ([Row(**{"<i>": 1})], ["&lt;i&gt;"], ["1"]),
    ],
)
def test_records_have_columns_where_all_have_the_same_fields(
    records: list[Any], header: list[str], cells: list[str]
) -> None:
    text = records_table(records)
    assert text.count("<th") == len(header)
    for name in header:
        assert f">{name}</th>" in text
    for cell in cells:
        assert f">{cell}</td>" in text
    assert "<script" not in text


def test_a_table_is_bounded() -> None:
    text = records_table([tuple("x" * 10_000 for _ in range(500)) for _ in range(500)])
    assert text.count("<tr>") == html_cards.MAX_ROWS + 1
    assert text.count("<td") == html_cards.MAX_ROWS * html_cards.MAX_COLUMNS
    assert "and 480 more columns" in text
    assert len(text) < 200_000


def test_names_and_addresses_are_escaped() -> None:
    card = html_cards.card("<script>", [("<i>", html_cards.text("a & b"))])
    assert "<script>" not in card
    assert "<i>" not in card
    assert "a &amp; b" in card
    assert html_cards.text("\ud800") == "\\ud800", "what can't be sent to a browser"
    assert html_cards.text("x" * 500) == "x" * 119 + "…"
    assert html_cards.link("javascript:alert(1)", "<b>") == "&lt;b&gt;"
    assert 'href="http://h/?a&amp;b&quot;"' in html_cards.link('http://h/?a&b"', "page")


def test_a_result_shows_its_accumulators() -> None:
    result = JobExecutionResult(JobID("ab" * 16), 1_234, {f"Map.<{number}>": number for number in range(30)})
    text = result._repr_html_()
    assert "ab" * 16 in text
    assert "1.234 s" in text
    assert "Map.&lt;0&gt;" in text
    assert "and 10 more accumulators" in text

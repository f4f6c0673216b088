"""The queries of Nexmark over a small stream of events, out of order within the watermark: results equal DuckDB's.

The operators are written out and restored with another parallelism in the middle.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from datetime import datetime, timedelta
from typing import Any, Final

import duckdb
import pytest

from firesteel_sql import TableEnvironment
from tests.unit.sql.query_rig import QueryRig, Table, use_changes_connector
from tests.unit.sql.test_nexmark_plans import read_queries

pytestmark = pytest.mark.usefixtures("no_pandas")

QUERIES: Final = read_queries()
TABLES: Final = {
    "person": (
        "id BIGINT, name STRING, email STRING, card STRING, city STRING, state STRING, at TIMESTAMP(3), extra STRING"
    ),
    "auction": (
        "id BIGINT, item STRING, description STRING, first_bid BIGINT, reserve BIGINT, at TIMESTAMP(3), "
        "expires TIMESTAMP(3), seller BIGINT, category BIGINT, extra STRING"
    ),
    "bid": ("auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, at TIMESTAMP(3), extra STRING"),
}
START: Final = datetime(2026, 11, 28, 23, 59, 30)
"""The events cross midnight."""
OUT_OF_ORDER: Final = 4.0

_BEST = """SELECT a.id, a.item, a.seller, a.category, b.auction, b.bidder, b.price, b.at AS bid_at,
    ROW_NUMBER() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.at ASC) AS place
  FROM auction a JOIN bid b ON a.id = b.auction AND b.at BETWEEN a.at AND a.expires"""
_COUNTS = """SELECT auction, COUNT(*) AS n, ws FROM (
    SELECT auction, UNNEST(range(5)) AS k,
      time_bucket(INTERVAL '2' SECOND, at) - k * INTERVAL '2' SECOND AS ws FROM bid)
  GROUP BY auction, ws"""
_DAY = "strftime(at, '%Y-%m-%d')"
EXPECTED: Final = {
    "q3": """SELECT p.name, p.city, p.state, a.id FROM auction a JOIN person p ON a.seller = p.id
        WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')""",
    "q4": f"""SELECT category, CAST(SUM(price) // COUNT(*) AS BIGINT) FROM ({_BEST})
        WHERE place = 1 GROUP BY category""",
    "q5": f"""SELECT auction, n FROM (SELECT *, MAX(n) OVER (PARTITION BY ws) AS most FROM ({_COUNTS}))
        WHERE n = most""",
    "q6": f"""SELECT seller, CAST(SUM(price) OVER w // COUNT(*) OVER w AS BIGINT) FROM ({_BEST}) WHERE place = 1
        WINDOW w AS (PARTITION BY seller ORDER BY bid_at ROWS BETWEEN 10 PRECEDING AND CURRENT ROW)""",
    "q7": """SELECT b.auction, b.price, b.bidder, b.at, b.extra FROM bid b JOIN (
          SELECT MAX(price) AS best, time_bucket(INTERVAL '10' SECOND, at) AS ws FROM bid GROUP BY ws) m
        ON b.price = m.best AND b.at BETWEEN m.ws AND m.ws + INTERVAL '10' SECOND""",
    "q8": """SELECT DISTINCT p.id, p.name, time_bucket(INTERVAL '10' SECOND, p.at) FROM person p JOIN auction a
        ON p.id = a.seller AND time_bucket(INTERVAL '10' SECOND, p.at) = time_bucket(INTERVAL '10' SECOND, a.at)""",
    "q9": f"""SELECT id, item, seller, auction, bidder, price, bid_at FROM ({_BEST}) WHERE place = 1""",
    "q11": """SELECT bidder, COUNT(*), MIN(at), MAX(at) + INTERVAL '10' SECOND FROM (
          SELECT bidder, at, SUM(begins) OVER (PARTITION BY bidder ORDER BY at ROWS UNBOUNDED PRECEDING) AS s
          FROM (SELECT bidder, at, CASE WHEN at - LAG(at) OVER (PARTITION BY bidder ORDER BY at) <= INTERVAL '10' SECOND
            THEN 0 ELSE 1 END AS begins FROM bid))
        GROUP BY bidder, s""",
    "q15": f"""SELECT {_DAY}, COUNT(*), COUNT(*) FILTER (price < 10000),
          COUNT(*) FILTER (price >= 10000 AND price < 1000000), COUNT(*) FILTER (price >= 1000000),
          COUNT(DISTINCT bidder), COUNT(DISTINCT bidder) FILTER (price < 10000),
          COUNT(DISTINCT auction), COUNT(DISTINCT auction) FILTER (price >= 1000000)
        FROM bid GROUP BY {_DAY}""",
    "q16": f"""SELECT channel, {_DAY}, MAX(strftime(at, '%H:%M')), COUNT(*), COUNT(*) FILTER (price < 10000),
          COUNT(DISTINCT bidder), COUNT(DISTINCT bidder) FILTER (price >= 10000 AND price < 1000000),
          COUNT(DISTINCT auction) FROM bid GROUP BY channel, {_DAY}""",
    "q17": f"""SELECT auction, {_DAY}, COUNT(*), COUNT(*) FILTER (price < 10000), MIN(price), MAX(price),
          CAST(SUM(price) // COUNT(*) AS BIGINT), CAST(SUM(price) AS BIGINT) FROM bid GROUP BY auction, {_DAY}""",
    "q18": """SELECT auction, bidder, price, channel, url, at, extra FROM (
          SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY at DESC) AS place FROM bid)
        WHERE place = 1""",
    "q19": """SELECT * FROM (
          SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC) AS place FROM bid)
        WHERE place <= 10""",
    "q20": """SELECT auction, bidder, price, channel, url, b.at, b.extra, item, description, first_bid, reserve, a.at,
          expires, seller, category, a.extra FROM bid b JOIN auction a ON b.auction = a.id WHERE category = 10""",
}
"""The same queries in DuckDB's words."""


def _events(random_numbers: random.Random, count: int) -> list[tuple[str, tuple[Any, ...]]]:
    """Tables and rows, by time; no two have one time, and no two bids one price."""
    pick = random_numbers.choice
    prices = random_numbers.sample(range(100, 5_000_000), count)
    events: list[tuple[str, tuple[Any, ...]]] = []
    people = auctions = 0
    for number in range(count):
        at = START + timedelta(milliseconds=150 * number)
        roll = random_numbers.random()
        if roll < 0.1 or not people:
            people += 1
            state = pick(("OR", "ID", "CA", "WA"))
            row: tuple[Any, ...] = (people, f"p{people}", "m", "c", pick(("Bend", "Reno")), state, at, None)
            events.append(("person", row))
        elif roll < 0.25 or not auctions:
            auctions += 1
            expires = at + timedelta(seconds=random_numbers.randint(2, 30))
            seller = random_numbers.randint(1, people)
            item = (auctions, f"item{auctions}", "d", 1, 2, at, expires, seller, pick((10, 11)), "x" * 40)
            events.append(("auction", item))
        else:
            auction = random_numbers.randint(max(1, auctions - 5), auctions + 1)
            channel = pick(("apple", "google", "etsy"))
            bidder = random_numbers.randint(1, people)
            events.append(("bid", (auction, bidder, prices[number], channel, "https://x/y", at, None)))
    return events


def _quoted(sql: str) -> str:
    """A statement for DuckDB, where ``at`` is a keyword."""
    return re.sub(r"\bat\b", '"at"', sql)


def _time_of(event: tuple[str, tuple[Any, ...]]) -> datetime:
    at: datetime = event[1][{"person": 6, "auction": 5, "bid": 5}[event[0]]]
    return at


@pytest.mark.parametrize("name", EXPECTED)
def test_results_equal_those_of_duckdb(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    random_numbers = random.Random(int(name[1:]))
    use_changes_connector(monkeypatch)
    environment = TableEnvironment.create()
    oracle = duckdb.connect()
    for table, columns in TABLES.items():
        environment.execute_sql(
            f"CREATE TABLE {table} ({columns}, WATERMARK FOR at AS at - INTERVAL '4' SECOND) "
            "WITH ('connector' = 'changes', 'changes' = 'inserts')"
        )
        oracle.execute(_quoted(f"CREATE TABLE {table} ({columns.replace('TIMESTAMP(3)', 'TIMESTAMP')})"))
    rig = QueryRig(environment, QUERIES[name], 2)
    events = _events(random_numbers, 320)
    for table in TABLES:
        rows = [row for name_, row in events if name_ == table]
        oracle.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})", [list(row) for row in rows])
    events.sort(key=lambda event: (_time_of(event) - START).total_seconds() + random_numbers.random() * OUT_OF_ORDER)
    latest = START
    for number, start in enumerate(range(0, len(events), 40)):
        batch = events[start : start + 40]
        for table in TABLES:
            rig.change(table, [(1, row) for name_, row in batch if name_ == table])
        latest = max(latest, *map(_time_of, batch))
        epoch = (latest - datetime(1970, 1, 1)).total_seconds() - OUT_OF_ORDER
        rig.watermark(int(epoch * 1000) - 1)
        if number == 3:
            rig.restart(3)
    result = rig.watermark((1 << 63) - 1)
    answer: Table = Counter(tuple(row) for row in oracle.execute(_quoted(EXPECTED[name])).fetchall())
    assert answer
    assert result == answer


@pytest.mark.parametrize("name", ["q0", "q1", "q2", "q10", "q14", "q21", "q22"])
def test_queries_without_state_give_a_row_for_each_bid_that_they_choose(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_changes_connector(monkeypatch)
    environment = TableEnvironment.create()
    environment.execute_sql(f"CREATE TABLE bid ({TABLES['bid']}) WITH ('connector' = 'changes')")
    rig = QueryRig(environment, QUERIES[name])
    at = datetime(2026, 11, 28, 9, 30, 1)
    rows = [
        (123, 1, 2_000_000, "Apple", "https://www.shop.com/a/b/c/item.htm?query=1&channel_id=77", at, "cacao"),
        (124, 2, 10, "other", "https://www.shop.com/d/e/f/item.htm?query=1&channel_id=42", at, None),
        (246, 3, 5, "none", "https://www.shop.com/g/h", at, ""),
    ]
    rig.change("bid", [(1, row) for row in rows])
    chosen = {"q2": [0, 2], "q14": [0], "q21": [0, 1]}.get(name, [0, 1, 2])
    shown = sorted(rig.table, key=lambda row: row[0])
    assert [row[0] for row in shown] == [rows[place][0] for place in chosen]
    tails: dict[str, list[tuple[Any, ...]]] = {
        "q10": [("2026-11-28", "09:30")] * 3,
        "q14": [("day", at, "cacao", 2)],
        "q21": [("0",), ("42",)],
        "q22": [("a", "b", "c"), ("d", "e", "f"), ("g", "h", None)],
    }
    if name in tails:
        width = len(tails[name][0])
        assert [row[-width:] for row in shown] == tails[name]

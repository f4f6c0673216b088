"""The queries of TPC-H over tables in which rows are inserted, updated and deleted: the results equal DuckDB's.

The operators are written out and restored with another parallelism in the middle.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from datetime import date, timedelta
from decimal import Decimal
from typing import Any, Final

import duckdb
import pyarrow as pa
import pytest

from firesteel_sql import TableEnvironment
from tests.examples import examples
from tests.unit.sql.query_rig import Change, QueryRig, use_changes_connector
from tests.unit.sql.test_tpch_plans import read_queries

QUERIES: Final = read_queries()
DECLARATIONS: Final = [text.strip() for text in QUERIES.pop("tables").split(";")]
NATIONS: Final = (
    ("FRANCE", "EUROPE"), ("GERMANY", "EUROPE"), ("BRAZIL", "AMERICA"), ("CANADA", "AMERICA"), ("CHINA", "ASIA"),
    ("INDIA", "ASIA"), ("SAUDI ARABIA", "MIDDLE EAST"),
)  # fmt: skip
REGIONS: Final = tuple(dict.fromkeys(region for _, region in NATIONS))
Record = tuple[Any, ...]


class Business:
    """The rows of the tables, by key, and what happens to them."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.tables: dict[str, dict[Any, Record]] = {name: {} for name in TABLES}
        self._lines = 0

    def opening(self) -> dict[str, list[Change]]:
        """The first rows of all tables."""
        pick = self._random
        for number, region in enumerate(REGIONS):
            self.tables["region"][number] = (number, region)
        for number, (nation, region) in enumerate(NATIONS):
            self.tables["nation"][number] = (number, nation, REGIONS.index(region))
        for number in range(12):
            self.tables["part"][number] = self._part(number)
            self.tables["supplier"][number] = self._supplier(number)
            self.tables["customer"][number] = self._customer(number)
        for number in range(12):
            for supplier in pick.sample(range(12), 3):
                self.tables["partsupp"][number, supplier] = self._offer(number, supplier)
        for number in range(25):
            self.tables["orders"][number] = self._order(number)
        for _ in range(80):
            self._add_line()
        return {name: [(1, row) for row in rows.values()] for name, rows in self.tables.items()}

    def day(self) -> dict[str, list[Change]]:
        """Changes of some rows: an update deletes the row and inserts the new one."""
        pick = self._random
        before = {name: dict(rows) for name, rows in self.tables.items()}
        orders, lines = self.tables["orders"], self.tables["lineitem"]
        for number in pick.sample(sorted(orders), 5):
            del orders[number]
        for number in [*pick.sample(sorted(orders), 5), *range(100, 103)]:
            orders[number] = self._order(number)
        for number in pick.sample(sorted(lines), 15):
            del lines[number]
        for _ in range(15):
            self._add_line()
        for table, make in (("part", self._part), ("supplier", self._supplier), ("customer", self._customer)):
            for number in pick.sample(range(12), 2):
                self.tables[table][number] = make(number)
        for part, supplier in pick.sample(sorted(self.tables["partsupp"]), 4):
            self.tables["partsupp"][part, supplier] = self._offer(part, supplier)
        changes: dict[str, list[Change]] = {}
        for name, rows in self.tables.items():
            old = [(-1, row) for key, row in before[name].items() if rows.get(key) != row]
            new = [(1, row) for key, row in rows.items() if before[name].get(key) != row]
            changes[name] = [*old, *new]
        return changes

    def _money(self, low: int, high: int) -> Decimal:
        return Decimal(self._random.randint(low * 100, high * 100)) / 100

    def _day(self) -> date:
        starts = (date(1993, 7, 1), date(1994, 1, 1), date(1995, 3, 1), date(1996, 12, 20), date(1998, 11, 20))
        return self._random.choice(starts) + timedelta(days=self._random.randint(0, 60))

    def _part(self, number: int) -> Record:
        pick = self._random.choice
        return (
            number, pick(("forest green tin", "forest", "dark green", "red")), "m",
            pick(("Brand#12", "Brand#23", "Brand#45")), pick(("STEEL", "LARGE BRASS", "PROMO TIN")),
            pick((15, 49, 14, 23)), "JAR", self._money(1, 900),
        )  # fmt: skip

    def _supplier(self, number: int) -> Record:
        comment = self._random.choice(("nice", "Customer had Complaints", None))
        nation = self._random.randrange(len(NATIONS))
        return number, f"supplier {number}", "street", nation, "11", self._money(-99, 999), comment

    def _customer(self, number: int) -> Record:
        pick = self._random.choice
        nation, phone = self._random.randrange(len(NATIONS)), f"{pick((13, 31, 20))}-555"
        segment = pick(("BUILDING", "AUTOMOBILE"))
        return number, f"customer {number}", "street", nation, phone, self._money(-99, 999), segment, ""

    def _offer(self, part: int, supplier: int) -> Record:
        return part, supplier, self._random.randint(1, 99), self._money(1, 99)

    def _order(self, number: int) -> Record:
        pick = self._random.choice
        return (
            number, self._random.randrange(14), pick(("F", "O")), self._money(100, 999_999), self._day(),
            pick(("1-URGENT", "2-HIGH", "5-LOW")), 0, pick(("special or so requests", "nothing")),
        )  # fmt: skip

    def _add_line(self) -> None:
        pick = self._random
        self._lines += 1
        part, supplier = pick.choice(sorted(self.tables["partsupp"]))
        quantity, discount = Decimal(pick.choice((1, 5, 20, 45, 180))), Decimal(pick.randint(4, 8)) / 100
        row = (
            pick.randrange(25), part, supplier, quantity, self._money(1, 9999), discount, Decimal("0.1"),
            pick.choice("RNA"), pick.choice(("F", "O")), self._day(), self._day(), self._day(),
            pick.choice(("DELIVER IN PERSON", "NONE")), pick.choice(("MAIL", "SHIP", "AIR")),
        )  # fmt: skip
        self.tables["lineitem"][self._lines] = row


TABLES: Final = [re.split(r"[ (]+", text)[2] for text in DECLARATIONS]


def rounded(row: Record) -> Record:
    """Numbers without the digits that are DuckDB's own: its averages and quotients are floats."""
    return tuple(round(float(value), 3) if isinstance(value, (float, Decimal)) else value for value in row)


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> TableEnvironment:
    use_changes_connector(monkeypatch)
    environment = TableEnvironment.create()
    for text in DECLARATIONS:
        environment.execute_sql(text.replace("'x'", "'changes'"))
    return environment


@pytest.mark.parametrize("seed", range(examples(3)))
@pytest.mark.parametrize("name", QUERIES)
def test_a_query_equals_that_of_duckdb_after_each_day(name: str, seed: int, environment: TableEnvironment) -> None:
    business = Business(seed)
    database = duckdb.connect(config={"threads": 1})
    for text in DECLARATIONS:
        database.execute(re.sub(r"(, PRIMARY KEY .*)?\) WITH .*", ")", text))
    rig = QueryRig(environment, QUERIES[name], parallelism=2)
    for day in range(3):
        changes = business.day() if day else business.opening()
        order = sorted(changes)
        random.Random(f"{seed} {day}").shuffle(order)
        for table in order:
            if changes[table]:
                rig.change(table, changes[table])
            rows = list(zip(*business.tables[table].values(), strict=True))
            database.register("rows_now", pa.table(list(map(pa.array, rows)), list(map(str, range(len(rows))))))
            database.execute(f"DELETE FROM {table}")
            database.execute(f"INSERT INTO {table} SELECT * FROM rows_now")
        expected = Counter(map(rounded, database.execute(QUERIES[name]).fetchall()))
        result: Counter[Record] = Counter()
        for row, count in rig.table.items():
            result[rounded(row)] += count
        assert result == expected, f"day {day}"
        if day == 1:
            rig.restart(3)

"""Queries in the manner of TPC-H over generated tables: as DataStream programs, and as SQL for comparison.

Amounts are whole numbers (cents, percent), dates are days.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from firesteel.common import Types, WatermarkStrategy
from firesteel.datastream import DataStream, KeyedCoProcessFunction, RuntimeContext, StreamExecutionEnvironment
from firesteel.datastream.connectors.file_system import FileSource
from firesteel.datastream.formats.parquet import ParquetColumnarRowInputFormat
from firesteel.datastream.state import ListStateDescriptor
from firesteel.expressions import col, concat, count, lit, sum_

_LONG, _TEXT = Types.LONG(), Types.STRING()
CUSTOMERS: Final = Types.ROW_NAMED(["custkey", "segment"], [_LONG, _TEXT])
ORDERS: Final = Types.ROW_NAMED(["orderkey", "custkey", "orderdate", "priority"], [_LONG, _LONG, _LONG, _TEXT])
LINES: Final = Types.ROW_NAMED(
    ["orderkey", "quantity", "price", "discount", "flag", "status", "shipmode", "shipdate"],
    [_LONG, _LONG, _LONG, _LONG, _TEXT, _TEXT, _TEXT, _LONG],
)
PAIR: Final = Types.TUPLE([_LONG, _LONG])
DAYS, DAY = 2500, 1200
_SEGMENTS = ["AUTOMOBILE", "BUILDING", "FURNITURE", "HOUSEHOLD", "MACHINERY"]
_PRIORITIES = ["1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW"]
_MODES = ["AIR", "FOB", "MAIL", "RAIL", "SHIP", "TRUCK"]
_AT_ONCE = 500_000


def generate(folder: Path, orders: int, seed: int = 1) -> None:
    """Write tables of so many orders, a tenth as many customers, and about four lines for each order, as Parquet."""
    rng = np.random.default_rng(seed)
    customers = max(1, orders // 10)

    def chosen(values: list[str], count: int) -> pa.Array:
        return pa.array(values).take(pa.array(rng.integers(0, len(values), count)))

    table = pa.table({"custkey": np.arange(customers), "segment": chosen(_SEGMENTS, customers)})
    pq.write_table(table, folder / "customer.parquet")
    for part, start in enumerate(range(0, orders, _AT_ONCE)):
        keys = np.arange(start, min(orders, start + _AT_ONCE))
        dates = rng.integers(0, DAYS, len(keys))
        table = pa.table(
            {
                "orderkey": keys,
                "custkey": rng.integers(0, customers, len(keys)),
                "orderdate": dates,
                "priority": chosen(_PRIORITIES, len(keys)),
            }
        )
        pq.write_table(table, folder / f"orders-{part}.parquet")
        places = np.repeat(np.arange(len(keys)), rng.integers(1, 8, len(keys)))
        lines = len(places)
        table = pa.table(
            {
                "orderkey": keys[places],
                "quantity": rng.integers(1, 51, lines),
                "price": rng.integers(90_000, 10_000_000, lines),
                "discount": rng.integers(0, 11, lines),
                "flag": chosen(["A", "N", "R"], lines),
                "status": chosen(["F", "O"], lines),
                "shipmode": chosen(_MODES, lines),
                "shipdate": dates[places] + rng.integers(1, 122, lines),
            }
        )
        pq.write_table(table, folder / f"lineitem-{part}.parquet", row_group_size=100_000)


def read(env: StreamExecutionEnvironment, folder: Path, table: str, row: Any) -> DataStream:
    paths = sorted(folder.glob(f"{table}*.parquet"))
    source = FileSource.for_bulk_file_format(ParquetColumnarRowInputFormat(row), *paths).build()
    return env.from_source(source, WatermarkStrategy.no_watermarks(), table)


class Join(KeyedCoProcessFunction[Any, Any, Any, Any]):
    """All pairs of a key: the second field of both sides."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.left = runtime_context.get_list_state(ListStateDescriptor("left", _LONG))
        self.right = runtime_context.get_list_state(ListStateDescriptor("right", _LONG))

    def process_element1(self, value: Any, ctx: Any) -> Iterator[Any]:
        self.left.add(value[1])
        for other in self.right.get():
            yield value[1], other

    def process_element2(self, value: Any, ctx: Any) -> Iterator[Any]:
        self.right.add(value[1])
        for other in self.left.get():
            yield other, value[1]


def joined(left: DataStream, right: DataStream) -> DataStream:
    return left.key_by(lambda p: p[0]).connect(right.key_by(lambda p: p[0])).process(Join(), PAIR)


def added(pairs: DataStream) -> DataStream:
    """The sum for each key."""
    return pairs.key_by(lambda p: p[0]).reduce(lambda a, b: (a[0], a[1] + b[1]))


def pricing_by_columns(env: StreamExecutionEnvironment, folder: Path) -> DataStream:
    lines = read(env, folder, "lineitem", LINES).filter(col("shipdate") <= DAY)
    net = (col("price") * (lit(100) - col("discount"))).alias("net")
    keyed = lines.with_columns(net, concat(col("flag"), col("status")).alias("kind")).key_by("kind")
    return keyed.aggregate(sum_("quantity"), sum_("price"), sum_("net"), count())


def pricing_by_functions(env: StreamExecutionEnvironment, folder: Path) -> DataStream:
    lines = read(env, folder, "lineitem", LINES).filter(lambda line: line.shipdate <= DAY)
    form = Types.TUPLE([_TEXT, _LONG, _LONG, _LONG, _LONG])
    parts = lines.map(
        lambda line: (
            line.flag + line.status, line.quantity, line.price, line.price * (100 - line.discount), 1
        ),
        form,
    )  # fmt: skip
    return parts.key_by(lambda p: p[0]).reduce(lambda a, b: (a[0], *(x + y for x, y in zip(a[1:], b[1:], strict=True))))


def revenue_by_columns(env: StreamExecutionEnvironment, folder: Path) -> DataStream:
    lines = read(env, folder, "lineitem", LINES)
    filtered = lines.filter((col("shipdate") >= DAY) & (col("shipdate") < DAY + 365) & (col("quantity") < 24))
    filtered = filtered.filter((col("discount") >= 5) & (col("discount") <= 7))
    keyed = filtered.with_columns((col("price") * col("discount")).alias("saved"), lit(1).alias("all")).key_by("all")
    return keyed.aggregate(sum_("saved"))


def shipping(env: StreamExecutionEnvironment, folder: Path) -> DataStream:
    """Revenue of orders of one segment that were not shipped on a day; joins of three tables."""
    customers = read(env, folder, "customer", CUSTOMERS).filter(col("segment") == "BUILDING")
    orders = read(env, folder, "orders", ORDERS).filter(col("orderdate") < DAY)
    lines = read(env, folder, "lineitem", LINES).filter(col("shipdate") > DAY)
    of_segment = joined(
        customers.map(lambda c: (c.custkey, 0), PAIR), orders.map(lambda o: (o.custkey, o.orderkey), PAIR)
    )
    net = lines.map(lambda line: (line.orderkey, line.price * (100 - line.discount)), PAIR)
    keyed_orders = of_segment.map(lambda p: (p[1], p[1]), PAIR)
    return added(joined(keyed_orders, net))


def modes(env: StreamExecutionEnvironment, folder: Path) -> DataStream:
    """How many lines of urgent orders each of two ways of shipping has."""
    orders = read(env, folder, "orders", ORDERS)
    lines = read(env, folder, "lineitem", LINES).filter((col("shipmode") == "MAIL") | (col("shipmode") == "SHIP"))
    urgent = orders.map(lambda o: (o.orderkey, int(o.priority < "3")), PAIR)
    shipped = lines.map(lambda line: (line.orderkey, int(line.shipmode == "MAIL")), PAIR)
    return added(joined(urgent, shipped).map(lambda p: (2 * p[0] + p[1], 1), PAIR))


@dataclass(frozen=True)
class Query:
    """A program, and what gives the same; ``{lines}`` and so on stand for the tables."""

    program: Callable[[StreamExecutionEnvironment, Path], DataStream]
    sql: str

    def expected(self, folder: Path) -> list[tuple[Any, ...]]:
        """As DuckDB has it."""
        import duckdb

        tables = {
            "customers": f"'{folder}/customer.parquet'",
            "orders": f"'{folder}/orders-*.parquet'",
            "lines": f"'{folder}/lineitem-*.parquet'",
        }
        with duckdb.connect() as database:
            return sorted(database.execute(self.sql.format(**tables)).fetchall())


_PRICING = (
    "select flag || status, sum(quantity)::bigint, sum(price)::bigint, sum(price * (100 - discount))::bigint, count(*) "
    f"from {{lines}} where shipdate <= {DAY} group by all"
)
QUERIES: Final = {
    "pricing-columns": Query(pricing_by_columns, _PRICING),
    "pricing-functions": Query(pricing_by_functions, _PRICING),
    "revenue-columns": Query(
        revenue_by_columns,
        f"select 1, sum(price * discount)::bigint from {{lines}} where shipdate >= {DAY} and shipdate < {DAY + 365} "
        "and quantity < 24 and discount between 5 and 7",
    ),
    "shipping-functions": Query(
        shipping,
        "select l.orderkey, sum(price * (100 - discount))::bigint from {customers} c join {orders} o using (custkey) "
        f"join {{lines}} l using (orderkey) where segment = 'BUILDING' and orderdate < {DAY} and shipdate > {DAY} "
        "group by all",
    ),
    "modes-functions": Query(
        modes,
        "select 2 * (priority < '3')::int + (shipmode = 'MAIL')::int, count(*) from {orders} join {lines} "
        "using (orderkey) where shipmode in ('MAIL', 'SHIP') group by all",
    ),
}

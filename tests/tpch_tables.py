"""The tables of TPC-H with generated rows: keys, texts and distributions are such that each of its queries has rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

_NATIONS: Final = (
    ("ALGERIA", 0), ("ARGENTINA", 1), ("BRAZIL", 1), ("CANADA", 1), ("EGYPT", 4), ("ETHIOPIA", 0), ("FRANCE", 3),
    ("GERMANY", 3), ("INDIA", 2), ("INDONESIA", 2), ("IRAN", 4), ("IRAQ", 4), ("JAPAN", 2), ("JORDAN", 4),
    ("KENYA", 0), ("MOROCCO", 0), ("MOZAMBIQUE", 0), ("PERU", 1), ("CHINA", 2), ("ROMANIA", 3), ("SAUDI ARABIA", 4),
    ("VIETNAM", 2), ("RUSSIA", 3), ("UNITED KINGDOM", 3), ("UNITED STATES", 1),
)  # fmt: skip
_REGIONS: Final = ("AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST")
_TYPES: Final = (
    "STEEL",
    "PROMO BURNISHED COPPER",
    "STANDARD ANODIZED BRASS",
    "SMALL PLATED TIN",
    "PROMO BRUSHED BRASS",
)
_WORDS: Final = ("forest", "green", "almond", "azure", "blush", "chocolate", "ivory", "lace", "maroon", "navy")
_CONTAINERS: Final = ("SM CASE", "LG BOX", "MED BAG", "JUMBO PKG", "WRAP CAN")
_SEGMENTS: Final = ("AUTOMOBILE", "BUILDING", "FURNITURE", "HOUSEHOLD", "MACHINERY")
_PRIORITIES: Final = ("1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW")
_MODES: Final = ("AIR", "FOB", "MAIL", "RAIL", "REG AIR", "SHIP", "TRUCK")
_INSTRUCTIONS: Final = ("COLLECT COD", "DELIVER IN PERSON", "NONE", "TAKE BACK RETURN")
_COMMENTS: Final = (
    "quick deposits sleep",
    "final special packages requests",
    "Customer dear Complaints",
    "ironic ideas",
)
_FIRST_DAY: Final = 8035  # 1992-01-01
_ORDER_DAYS: Final = 2406
_CURRENT_DAY: Final = 9298  # 1995-06-17
_ROW_GROUP: Final = 250_000
Numbers = npt.NDArray[np.int64]


def generated(scale: float, seed: int = 1) -> dict[str, pa.Table]:
    """The tables, by name.

    Args:
        scale: 1 has six million lines of orders, and about a gigabyte of text.
        seed: of the generator; the same one gives the same rows.
    """
    rng = np.random.default_rng(seed)
    suppliers, parts, customers = (max(10, int(count * scale)) for count in (10_000, 200_000, 150_000))
    orders = 10 * customers

    def chosen(values: Sequence[str], count: int) -> pa.Array:
        return pa.array(values).take(pa.array(rng.integers(0, len(values), count)))

    def named(name: str, keys: Numbers) -> pa.Array:
        return pa.array([f"{name}#{key:09d}" for key in keys.tolist()])

    def phones(nations: Numbers) -> pa.Array:
        return pa.array([f"{10 + nation}-{number}" for nation, number in zip(
            nations.tolist(), rng.integers(1_000_000, 9_999_999, len(nations)).tolist(), strict=True)])  # fmt: skip

    supplier_keys, part_keys, customer_keys = (np.arange(1, count + 1) for count in (suppliers, parts, customers))
    supplier_nations, customer_nations = (rng.integers(0, 25, count) for count in (suppliers, customers))
    prices = 90_000 + (part_keys * 97) % 110_000
    names = [_WORDS[a] + " " + _WORDS[b] for a, b in rng.integers(0, len(_WORDS), (parts, 2)).tolist()]
    brands = [f"Brand#{m}{n}" for m in range(1, 6) for n in range(1, 6)]
    tables: dict[str, Mapping[str, Any]] = {
        "region": {"r_regionkey": np.arange(5), "r_name": _REGIONS},
        "nation": {
            "n_nationkey": np.arange(25),
            "n_name": [name for name, _ in _NATIONS],
            "n_regionkey": np.array([region for _, region in _NATIONS]),
        },
        "supplier": {
            "s_suppkey": supplier_keys,
            "s_name": named("Supplier", supplier_keys),
            "s_address": chosen(_WORDS, suppliers),
            "s_nationkey": supplier_nations,
            "s_phone": phones(supplier_nations),
            "s_acctbal": _amounts(rng.integers(-99_999, 999_999, suppliers)),
            "s_comment": chosen(_COMMENTS, suppliers),
        },
        "part": {
            "p_partkey": part_keys,
            "p_name": names,
            "p_mfgr": chosen([f"Manufacturer#{n}" for n in range(1, 6)], parts),
            "p_brand": chosen(brands, parts),
            "p_type": chosen(_TYPES, parts),
            "p_size": rng.integers(1, 51, parts).astype(np.int32),
            "p_container": chosen(_CONTAINERS, parts),
            "p_retailprice": _amounts(prices),
        },
        "customer": {
            "c_custkey": customer_keys,
            "c_name": named("Customer", customer_keys),
            "c_address": chosen(_WORDS, customers),
            "c_nationkey": customer_nations,
            "c_phone": phones(customer_nations),
            "c_acctbal": _amounts(rng.integers(-99_999, 999_999, customers)),
            "c_mktsegment": chosen(_SEGMENTS, customers),
            "c_comment": chosen(_COMMENTS, customers),
        },
    }
    # Each part has four suppliers, from whom its lines come.
    offsets = np.tile(np.arange(4), parts)
    supplied = np.repeat(part_keys, 4)
    tables["partsupp"] = {
        "ps_partkey": supplied,
        "ps_suppkey": _supplier_of(supplied, offsets, suppliers),
        "ps_availqty": rng.integers(1, 10_000, len(supplied)).astype(np.int32),
        "ps_supplycost": _amounts(rng.integers(100, 100_001, len(supplied))),
    }
    order_keys = np.arange(1, orders + 1) * 4
    order_days = rng.integers(_FIRST_DAY, _FIRST_DAY + _ORDER_DAYS, orders)
    buyers = rng.integers(1, customers + 1, orders)
    tables["orders"] = {
        "o_orderkey": order_keys,
        "o_custkey": np.where(buyers % 3 == 0, np.maximum(buyers - 1, 1), buyers),  # a third of all buys nothing
        "o_orderstatus": chosen("FOP", orders),
        "o_totalprice": _amounts(rng.integers(100_000, 50_000_000, orders)),
        "o_orderdate": _dates(order_days),
        "o_orderpriority": chosen(_PRIORITIES, orders),
        "o_shippriority": np.zeros(orders, np.int32),
        "o_comment": chosen(_COMMENTS, orders),
    }
    places = np.repeat(np.arange(orders), rng.integers(1, 8, orders))
    lines = len(places)
    quantities, line_parts = rng.integers(1, 51, lines), rng.integers(1, parts + 1, lines)
    shipped = order_days[places] + rng.integers(1, 122, lines)
    received = shipped + rng.integers(1, 31, lines)
    returned = pa.array(np.where(received > _CURRENT_DAY, 0, rng.integers(1, 3, lines)))
    tables["lineitem"] = {
        "l_orderkey": order_keys[places],
        "l_partkey": line_parts,
        "l_suppkey": _supplier_of(line_parts, rng.integers(0, 4, lines), suppliers),
        "l_quantity": _amounts(100 * quantities),
        "l_extendedprice": _amounts(quantities * prices[line_parts - 1]),
        "l_discount": _amounts(rng.integers(0, 11, lines)),
        "l_tax": _amounts(rng.integers(0, 9, lines)),
        "l_returnflag": pa.array(["N", "A", "R"]).take(returned),
        "l_linestatus": pa.array(["F", "O"]).take(pa.array((shipped > _CURRENT_DAY).astype(np.int64))),
        "l_shipdate": _dates(shipped),
        "l_commitdate": _dates(order_days[places] + rng.integers(30, 91, lines)),
        "l_receiptdate": _dates(received),
        "l_shipinstruct": chosen(_INSTRUCTIONS, lines),
        "l_shipmode": chosen(_MODES, lines),
    }
    return {name: pa.table(dict(columns)) for name, columns in tables.items()}


def _supplier_of(parts: Numbers, offsets: Numbers, suppliers: int) -> Numbers:
    """One of the four suppliers of a part."""
    return (parts + offsets * (suppliers // 4)) % suppliers + 1


def _amounts(hundredths: Numbers) -> pa.Array:
    """Hundredths as DECIMAL(12, 2)."""
    words = np.empty((len(hundredths), 2), np.int64)
    words[:, 0], words[:, 1] = hundredths, hundredths >> 63
    return pa.Array.from_buffers(pa.decimal128(12, 2), len(hundredths), [None, pa.py_buffer(words.tobytes())])


def _dates(days: Numbers) -> pa.Array:
    return pa.array(days.astype(np.int32)).cast(pa.date32())


def write_files(tables: Mapping[str, pa.Table], folder: Path, files: int = 2) -> None:
    """Write each table as so many Parquet files into a folder of its name."""
    for name, table in tables.items():
        (folder / name).mkdir(parents=True)
        rows = -(-table.num_rows // files)
        for number in range(files):
            part = table.slice(number * rows, rows)
            pq.write_table(part, folder / name / f"part-{number}.parquet", row_group_size=_ROW_GROUP)

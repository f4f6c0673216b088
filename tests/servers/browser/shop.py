"""A job to look at: it has a slow operator that logs, fails once, takes checkpoints, and has event time."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

from firesteel.common import Duration, WatermarkStrategy
from firesteel.common.watermark_strategy import TimestampAssigner
from firesteel.datastream import RuntimeExecutionMode
from firesteel.datastream.connectors.data_generator import DataGeneratorSource, RateLimiterStrategy
from tests.integration.embedded.programs import new_environment

PARALLELISM = 2
NAME = "Orders by customer"
SETTINGS = {
    "firesteel__metrics__history__interval": "250 ms",
    "execution__checkpointing__interval": "500 ms",
    "metrics__latency__interval": "1 s",
    "restart_strategy__type": "fixed-delay",
    "restart_strategy__fixed_delay__delay": "100 ms",
    "taskmanager__numberOfTaskSlots": "8",
}


class _OrderTime(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(time.time() * 1000)


def shop(folder: Path, **options: str) -> Any:
    """Start it; its checkpoints and marks go to this folder."""
    failed = folder / "failed"
    settings = {**SETTINGS, "execution__checkpointing__dir": f"file://{folder}/checkpoints", **options}
    env = new_environment(PARALLELISM, **settings)

    def order(number: int) -> dict[str, Any]:
        return {"order": number, "customer": f"c{number % 7}"}

    def price(order: dict[str, Any]) -> dict[str, Any]:
        time.sleep(0.001)
        if order["order"] % 10 == 0:
            logging.getLogger("shop").info("order %s has a price", order["order"])
        if order["order"] == 100 and not failed.exists():
            failed.touch()
            raise LookupError(f"no price for customer {order['customer']}")
        return order

    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(100))
    source = DataGeneratorSource(order, None, RateLimiterStrategy(100.0))
    orders = env.from_source(source, strategy.with_timestamp_assigner(_OrderTime()), "orders")
    priced = orders.key_by(lambda order: order["customer"]).map(price).name("price")
    priced.rebalance().filter(lambda order: order["order"] < 0).name("odd ones").print()
    return env.execute_async(NAME)


def examples(folder: Path) -> dict[str, Any]:
    """Start jobs beside the shop: one that fails again and again, a batch job whose last stage waits, one that ends.

    Returns:
        ``failing``, ``batch`` and ``ended`` -> the job.
    """

    def no(number: int) -> int:
        raise ValueError(f"number {number} is not to be had")

    def wait(pair: tuple[int, int]) -> tuple[int, int]:
        while folder.exists():
            time.sleep(0.05)
        return pair

    delays = {"restart_strategy__type": "fixed-delay", "restart_strategy__fixed_delay__delay": "10 s"}
    env = new_environment(1, restart_strategy__fixed_delay__attempts="1000000", **delays)
    source = DataGeneratorSource(lambda number: number, None, RateLimiterStrategy.per_second(1))
    env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").map(no).name("broken").print()
    jobs = {"failing": env.execute_async("Fails again and again")}
    env = new_environment(1)
    env.from_collection([1, 2, 3]).map(lambda number: number).name("same").print()
    jobs["ended"] = env.execute_async("Three numbers")
    env = new_environment(2)
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    pairs = env.from_collection([(number % 3, number) for number in range(1000)])
    pairs.key_by(lambda pair: pair[0]).map(wait).name("waits").print()
    jobs["batch"] = env.execute_async("Numbers as a batch")
    return jobs

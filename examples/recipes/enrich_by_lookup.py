"""Enrich: each click gets its customer from a web service, many questions at a time, each answer kept for a while.

python -m http.server 8000 --directory examples/data/customers &       # stands for the service
python examples/recipes/enrich_by_lookup.py --service http://127.0.0.1:8000 --output /tmp/enriched
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp

from firesteel.common import Duration, Encoder, Time, Types, WatermarkStrategy
from firesteel.datastream import (
    AsyncDataStream,
    AsyncFunction,
    AsyncRetryStrategy,
    OutputTag,
    ProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from firesteel.datastream.async_retry_predicates import has_exception_predicate
from firesteel.datastream.connectors.file_system import (
    BucketAssigner,
    FileSink,
    FileSource,
    MalformedPolicy,
    MalformedRecord,
    RollingPolicy,
)
from firesteel.datastream.formats.json import JsonLinesFormat

AT_ONCE = 100  # questions that a subtask waits for; further records wait in front
PATIENCE = Time.seconds(30)  # for an answer, with all attempts
FRESH_SECONDS, ENTRIES = 300.0, 100_000  # how long an answer is used again, and how many are kept in a subtask
AGAIN: AsyncRetryStrategy[Any] = AsyncRetryStrategy.exponential_backoff(
    1000, 100, 5000, 2.0, None, has_exception_predicate
)
AS_JSON = functools.partial(json.dumps, ensure_ascii=False)
BAD = OutputTag("bad", Types.STRING())


class Check(ProcessFunction[Any, Any]):
    """Sends what is no click of a user aside: one bad line must not stop the job, and must not vanish either."""

    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterator[Any]:
        if isinstance(value, MalformedRecord):
            yield BAD, f"{value.path}, byte {value.offset}: {value.reason}"
        elif not isinstance(value, dict) or not isinstance(value.get("user"), str):
            yield BAD, f"no user: {value!r}"
        else:
            yield value


class LookUp(AsyncFunction[Any, Any]):
    """Adds its customer to a click, or None and why there is none."""

    def __init__(self, service: str) -> None:
        self.service = service

    async def open(self, runtime_context: RuntimeContext) -> None:  # type: ignore[override] # may be a coroutine
        self.session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10))
        self.cache: dict[str, tuple[float, asyncio.Future[Any]]] = {}

    async def close(self) -> None:  # type: ignore[override] # likewise
        await self.session.close()

    async def async_invoke(self, value: Any) -> list[Any]:
        customer = await self.customer(value["user"])
        return [{**value, "customer": customer} | ({} if customer else {"problem": "unknown customer"})]

    def timeout(self, value: Any) -> list[Any]:
        return [{**value, "customer": None, "problem": "no answer"}]  # to raise would restart the job

    async def customer(self, user: str) -> Any:
        """The cached answer, or a new one; who wants the same customer meanwhile awaits the same answer."""
        until, answer = self.cache.pop(user, (0.0, None))
        if answer is None or until < time.monotonic():
            until, answer = time.monotonic() + FRESH_SECONDS, asyncio.ensure_future(self.ask(user))
        self.cache[user] = until, answer  # the last ones were used last
        if len(self.cache) > ENTRIES:
            del self.cache[next(iter(self.cache))]
        try:
            return await asyncio.shield(answer)  # one record that runs out of patience must not end it for others
        except Exception:
            if self.cache.get(user, (0.0, None))[1] is answer:
                del self.cache[user]  # the next attempt asks again
            raise

    async def ask(self, user: str) -> Any:
        async with self.session.get(f"{self.service}/{quote(user, safe='')}.json") as answer:
            if answer.status == 404:
                return None
            answer.raise_for_status()
            return await answer.json(content_type=None)


def build(env: StreamExecutionEnvironment, source: str, service: str, output: Path, *, follow: bool = False) -> None:
    """The program."""
    files = FileSource.for_record_stream_format(JsonLinesFormat(), source).on_malformed(MalformedPolicy.EMIT)
    if follow:
        files.monitor_continuously(Duration.of_seconds(1))
    read = env.from_source(files.build(), WatermarkStrategy.no_watermarks(), "clicks").uid("clicks")
    clicks = read.process(Check())
    # by user, so that each customer is in the cache of one subtask
    by_user = clicks.key_by(lambda click: click["user"], Types.STRING())
    looked_up = AsyncDataStream.unordered_wait_with_retry(by_user, LookUp(service), PATIENCE, AGAIN, AT_ONCE)
    looked_up.uid("look up")
    results = {
        "enriched": looked_up.filter(lambda click: click["customer"]).map(AS_JSON, Types.STRING()),
        "unresolved": looked_up.filter(lambda click: not click["customer"]).map(AS_JSON, Types.STRING()),
        "bad": clicks.get_side_output(BAD),
    }
    for name, lines in results.items():  # each line is there once, whatever dies meanwhile
        sink = FileSink.for_row_format(str(output / name), Encoder.simple_string_encoder())
        sink.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        sink.with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy())  # a file is visible at each
        lines.sink_to(sink.build()).uid(f"{name} files")


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--input", default=str(Path(__file__).parents[1] / "data" / "clicks.jsonl"), help="file or folder"
    )
    parser.add_argument("--service", default="http://127.0.0.1:8000", help="address of the service")
    parser.add_argument("--output", type=Path, required=True, help="folder")
    parser.add_argument("--follow", action="store_true", help="without an end: read each file that comes")
    options = parser.parse_args()
    env = StreamExecutionEnvironment.get_execution_environment()
    env.enable_checkpointing(10_000)
    build(env, options.input, options.service, options.output, follow=options.follow)
    env.execute("enrich")


if __name__ == "__main__":
    main()

"""Renders docs/pyflink-names.md: each public name of PyFlink's DataStream API, and what Firesteel does with it.

``python tools/pyflink_names.py > docs/pyflink-names.md``; with ``--table`` it renders what an import of a name says
that is not there (libs/firesteel/src/firesteel/core/pyflink_names.tsv). The names and parameters are facts about
PyFlink 2.3 (pyflink_names.tsv beside this file). What Firesteel does is read from its classes: whether the name is
there, whether it can be called as PyFlink's can, whether it refuses (its return type is NoReturn) or does nothing (the
first word of its docstring says so). Settings are tried: a program that makes them is submitted to nobody, and what is
raised or warned of then is what the page says.
"""

from __future__ import annotations

import csv
import importlib
import inspect
import logging
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

DATA: Final = Path(__file__).with_suffix(".tsv")
TABLE: Final = Path(__file__).parents[1] / "libs/firesteel/src/firesteel/core/pyflink_names.tsv"
PAGE: Final = Path(__file__).parents[1] / "docs" / "pyflink-names.md"

SAME, DIFFERS, NO_EFFECT, REFUSED, LATER = "same", "differs", "no effect", "refused", "later"

ABSENT: Final[tuple[tuple[str, str, str, str], ...]] = (
    # module, class (empty: all), status, why
    ("pyflink.datastream.connectors.kafka", "KafkaSink", REFUSED, "wraps a Java object"),
    ("pyflink.datastream.connectors.kafka", "", LATER, "Kafka comes with exactly-once sinks"),
    ("pyflink.datastream.connectors.dynamic_kafka", "", REFUSED, "a Java connector without counterpart"),
    ("pyflink.datastream.connectors.elasticsearch", "", REFUSED, "a Java connector without counterpart"),
    ("pyflink.datastream.connectors.pulsar", "", REFUSED, "a Java connector without counterpart"),
    ("pyflink.datastream.connectors.rabbitmq", "", REFUSED, "a Java connector without counterpart"),
    ("pyflink.datastream.connectors.kinesis", "", REFUSED, "a Java connector without counterpart"),
    ("pyflink.datastream.connectors.cassandra", "", REFUSED, "a Java connector without counterpart"),
    ("pyflink.datastream.connectors.file_system", "StreamingFileSink", REFUSED, "the builders are those of FileSink"),
    ("pyflink.datastream.formats.orc", "", REFUSED, "no writer of ORC rows; use Parquet"),
    ("pyflink.common.io", "InputFormat", REFUSED, "a Java class"),
    ("pyflink.common.input_dependency_constraint", "", REFUSED, "nothing in PyFlink takes it any more"),
    ("pyflink.common.watermark_strategy", "AssignerWithPeriodic", REFUSED, "wraps a Java object"),
    ("", "", LATER, ""),
)
_TABLE_API = (
    "the Table API and SQL are not in this version: use the DataStream API, with firesteel.expressions for columns"
)
_MEMORY = "removed in Flink 2: use HashMapStateBackend(), and say where checkpoints go with execution.checkpointing.dir"
_ROCKSDB = "removed in Flink 2: use EmbeddedRocksDBStateBackend()"
_LEGACY_SOURCE = (
    "it wraps a Java class: derive from firesteel.datastream.connectors.base.Source, or from SourceFunction"
)
OLDER: Final[tuple[tuple[str, str, str], ...]] = (
    # module, name, what to do instead: names that earlier versions of PyFlink had
    ("common.serialization", "JsonRowDeserializationSchema", "it is in firesteel.datastream.formats.json"),
    ("common.serialization", "JsonRowSerializationSchema", "it is in firesteel.datastream.formats.json"),
    ("common.serialization", "CsvRowDeserializationSchema", "it is in firesteel.datastream.formats.csv"),
    ("common.serialization", "CsvRowSerializationSchema", "it is in firesteel.datastream.formats.csv"),
    ("common.serialization", "AvroRowDeserializationSchema", "it is in firesteel.datastream.formats.avro"),
    ("common.serialization", "AvroRowSerializationSchema", "it is in firesteel.datastream.formats.avro"),
    ("common", "EnvironmentSettings", _TABLE_API),
    ("datastream", "StreamTableEnvironment", _TABLE_API),
    ("datastream", "FsStateBackend", _MEMORY),
    ("datastream", "MemoryStateBackend", _MEMORY),
    ("datastream", "RocksDBStateBackend", _ROCKSDB),
    ("datastream.state_backend", "FsStateBackend", _MEMORY),
    ("datastream.state_backend", "MemoryStateBackend", _MEMORY),
    ("datastream.state_backend", "RocksDBStateBackend", _ROCKSDB),
    ("datastream", "ResultFuture", "since Flink 2.3 AsyncFunction.async_invoke() is a coroutine that returns a list"),
    ("datastream.functions", "ResultFuture", "AsyncFunction.async_invoke() is a coroutine that returns a list"),
    ("datastream.functions", "Collector", "there are no collectors in Python: yield results, or return a list of them"),
    ("datastream", "Collector", "there are no collectors in Python: yield results, or return a list of them"),
    ("datastream.functions", "RichMapFunction", "in Python MapFunction has open() and close(): derive from it"),
    ("datastream.functions", "RichFlatMapFunction", "in Python FlatMapFunction has open() and close(): derive from it"),
    ("datastream.functions", "RichFilterFunction", "in Python FilterFunction has open() and close(): derive from it"),
    ("datastream.functions", "RichSinkFunction", "in Python SinkFunction has open() and close(): derive from it"),
    ("datastream.functions", "RichSourceFunction", "in Python SourceFunction has open() and close(): derive from it"),
    ("datastream.connectors.kafka", "FlinkKafkaConsumerBase", "use FlinkKafkaConsumer, or KafkaSource"),
    ("datastream.connectors.kafka", "FlinkKafkaProducerBase", "use FlinkKafkaProducer, or KafkaSink"),
    ("datastream.connectors", "RabbitMQSource", _LEGACY_SOURCE),
    *(
        ("table", name, _TABLE_API)
        for name in (
            "BatchTableEnvironment", "CsvTableSource", "CsvTableSink", "EnvironmentSettings", "ExplainDetail", "Module",
            "ResultKind", "Schema", "StatementSet", "StreamTableEnvironment", "Table", "TableConfig", "TableDescriptor",
            "TableEnvironment", "TableFunction", "TableResult", "AggregateFunction", "ScalarFunction", "ListView",
            "MapView", "FormatDescriptor", "expressions", "udf", "udtf", "udaf", "col", "lit",
        )
    ),
)  # fmt: skip
NO_EFFECT_WORDS: Final = ("Accepted", "Kept")
REFUSED_WORDS: Final = ("Refused",)


@dataclass(frozen=True)
class Name:
    """A name of PyFlink.

    Attributes:
        owner: the class it belongs to, with those around it; empty for functions of a module.
        kind: class, constructor, method, static, classmethod, async, value or function.
        parameters: as PyFlink's documentation writes them.
    """

    module: str
    owner: str
    kind: str
    name: str
    parameters: str


@dataclass(frozen=True)
class Verdict:
    """What Firesteel does with a name."""

    status: str
    note: str = ""


def read_names() -> list[Name]:
    """All of them, in the order of the modules."""
    with DATA.open(newline="") as file:
        rows = csv.reader(file, delimiter="\t")
        next(rows)
        return [Name(*row) for row in rows if row]


def _ours(name: str) -> Any:
    return getattr(importlib.import_module("firesteel.datastream"), name)


def _duration() -> Any:
    return importlib.import_module("firesteel.common").Duration.of_seconds(5)


def _share_slots(method: str, arguments: tuple[Any, ...], env: Any) -> None:
    group = _ours("SlotSharingGroup").builder("group").set_cpu_cores(1.0).set_task_heap_memory_mb(64)
    memory = _ours("MemorySize").of_mebi_bytes(64)
    getattr(group, method)(*(memory if one == "memory" else one for one in arguments))
    env.register_slot_sharing_group(group.build())


USES: Final[dict[str, Callable[[Any], object]]] = {
    "RuntimeExecutionMode.STREAMING": lambda env: env.set_runtime_mode(_ours("RuntimeExecutionMode").STREAMING),
    "RuntimeExecutionMode.BATCH": lambda env: env.set_runtime_mode(_ours("RuntimeExecutionMode").BATCH),
    "RuntimeExecutionMode.AUTOMATIC": lambda env: env.set_runtime_mode(_ours("RuntimeExecutionMode").AUTOMATIC),
    "HashMapStateBackend": lambda env: env.set_state_backend(_ours("HashMapStateBackend")()),
    "EmbeddedRocksDBStateBackend": lambda env: env.set_state_backend(_ours("EmbeddedRocksDBStateBackend")()),
    "StreamExecutionEnvironment.enable_changelog_state_backend": lambda env: env.enable_changelog_state_backend(True),
    "StreamExecutionEnvironment.set_default_savepoint_directory": (
        lambda env: env.set_default_savepoint_directory("file:///savepoints")
    ),
    "StreamExecutionEnvironment.enable_checkpointing": lambda env: env.enable_checkpointing(1000),
    "CheckpointConfig.enable_unaligned_checkpoints": (
        lambda env: env.get_checkpoint_config().enable_unaligned_checkpoints()
    ),
    "CheckpointConfig.set_force_unaligned_checkpoints": (
        lambda env: env.get_checkpoint_config().set_force_unaligned_checkpoints()
    ),
    "CheckpointConfig.set_aligned_checkpoint_timeout": (
        lambda env: env.get_checkpoint_config().set_aligned_checkpoint_timeout(_duration())
    ),
    "CheckpointConfig.set_alignment_timeout": (
        lambda env: env.get_checkpoint_config().set_alignment_timeout(_duration())
    ),
    "CheckpointConfig.set_checkpoint_timeout": lambda env: env.get_checkpoint_config().set_checkpoint_timeout(60_000),
    "ExecutionConfig.set_use_snapshot_compression": lambda env: env.get_config().set_use_snapshot_compression(True),
    **{
        f"SlotSharingGroup.Builder.{method}": partial(_share_slots, method, arguments)
        for method, arguments in {
            "set_cpu_cores": (1.0,), "set_task_heap_memory_mb": (64,), "set_task_off_heap_memory_mb": (64,),
            "set_managed_memory_mb": (64,), "set_external_resource": ("gpu", 1.0),
            "set_task_heap_memory": ("memory",), "set_task_off_heap_memory": ("memory",),
            "set_managed_memory": ("memory",),
        }.items()
    },
}  # fmt: skip
"""What a program does with a name, given an environment; then it is submitted."""


class _Submitted(Exception):
    """The program was accepted."""


class _Nobody:
    """An executor that runs nothing."""

    def default_parallelism(self) -> int:
        return 1

    def submit(self, graph: Any, configuration: Any) -> Any:
        raise _Submitted

    def close(self) -> None:
        pass


class _Warnings(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def tried(use: Callable[[Any], object]) -> Verdict:
    """What becomes of a program that does this."""
    errors = importlib.import_module("firesteel.core.errors")
    env = _ours("StreamExecutionEnvironment")(executor=_Nobody())
    heard, logger = _Warnings(), logging.getLogger("firesteel")
    logger.addHandler(heard)
    try:
        use(env)
        env.from_collection([1]).print()
        env.execute()
    except _Submitted:
        return Verdict(NO_EFFECT, heard.texts[0]) if heard.texts else Verdict(SAME)
    except errors.UnsupportedFeatureError as error:
        return Verdict(LATER if "not in this version" in str(error) else REFUSED, str(error))
    finally:
        logger.removeHandler(heard)
    raise AssertionError("nothing was submitted")


def judge(name: Name) -> Verdict:
    """What Firesteel does with a name, from its own objects."""
    verdict = _judged(name)
    place = ".".join(filter(None, (name.owner, "" if name.kind in ("class", "constructor") else name.name)))
    use = None if name.kind == "constructor" else USES.get(place)
    return tried(use) if use is not None and verdict.status == SAME else verdict


def _judged(name: Name) -> Verdict:
    try:
        found: Any = importlib.import_module(name.module.replace("pyflink", "firesteel", 1))
    except ModuleNotFoundError:
        return _absent(name)
    owner = None
    parts = [*name.owner.split("."), *([] if name.kind == "class" else [name.name])]
    for part in filter(None, parts):
        owner = found
        if inspect.isclass(owner) and (verdict := _by_docstring(owner)).status == REFUSED:
            return verdict
        found = inspect.getattr_static(found, part, None) if inspect.isclass(found) else _of_module(found, part)
        if found is None:
            return _absent(name)
    if name.kind == "value":
        return Verdict(SAME)
    if name.kind == "class":
        return _by_docstring(found)
    function = getattr(owner, name.name)
    if _refuses(function):
        return _refused(function)
    verdict = _by_docstring(function if name.kind != "constructor" else None)
    if verdict.status != SAME:
        return verdict
    bound = name.kind in ("static", "classmethod", "function")
    difference = _difference(function, name.parameters, skip_self=not bound)
    return Verdict(DIFFERS, difference) if difference else Verdict(SAME)


def _of_module(module: Any, name: str) -> Any:
    """What a module has under a name, also if it is a plug-in's and imported for that."""
    return getattr(module, name) if name in {*vars(module), *getattr(module, "__all__", ())} else None


def _absent(name: Name) -> Verdict:
    for module, prefix, status, why in ABSENT:
        if name.module.startswith(module) and name.owner.startswith(prefix):
            return Verdict(status, why)
    raise AssertionError


def _refuses(function: Any) -> bool:
    return str(getattr(function, "__annotations__", {}).get("return")) in ("NoReturn", "typing.NoReturn")


def _by_docstring(thing: Any) -> Verdict:
    first = (inspect.getdoc(thing) or "").partition("\n")[0]
    if first.startswith(REFUSED_WORDS):
        return _refused(thing)
    return Verdict(NO_EFFECT, first) if first.startswith(NO_EFFECT_WORDS) else Verdict(SAME)


def _refused(thing: Any) -> Verdict:
    later = (inspect.getdoc(thing) or "").startswith("Refused in this version")
    return Verdict(LATER) if later else Verdict(REFUSED, _reason(thing))


def _reason(thing: Any) -> str:
    first = (inspect.getdoc(thing) or "").partition("\n")[0]
    text = re.sub(r"^Refused(, |: | )", "", first).rstrip(".")
    return "" if "UnsupportedFeatureError" in text else text


def _difference(function: Any, wanted: str, *, skip_self: bool) -> str:
    """In what a call that is right for PyFlink may fail; empty if in nothing."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return ""
    if skip_self and parameters:
        parameters = parameters[1:]
    ours = {parameter.name: parameter for parameter in parameters}
    takes_any = any(p.kind is p.VAR_POSITIONAL for p in parameters) and any(p.kind is p.VAR_KEYWORD for p in parameters)
    asked = _split(wanted)
    names = [text.partition("=")[0].strip() for text in asked]
    if takes_any:
        return ""
    for position, (text, name) in enumerate(zip(asked, names, strict=True)):
        if name.startswith("*"):
            kind = inspect.Parameter.VAR_KEYWORD if name.startswith("**") else inspect.Parameter.VAR_POSITIONAL
            if not any(parameter.kind is kind for parameter in parameters):
                return f"takes no `{name}`"
            continue
        known = ours.get(name)
        if known is None:
            return f"has no parameter `{name}`; {_shown(parameters)}"
        if known.kind is known.KEYWORD_ONLY or (parameters.index(known) != position):
            return f"`{name}` stands elsewhere; {_shown(parameters)}"
        if "=" in text and known.default is known.empty:
            return f"`{name}` must be given"
    for parameter in parameters:
        plain = parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        if plain and parameter.name not in names and parameter.default is parameter.empty:
            return f"`{parameter.name}` must be given; {_shown(parameters)}"
    return ""


def _split(text: str) -> list[str]:
    parts, depth = [""], 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts if part.strip()]


def _shown(parameters: Iterable[inspect.Parameter]) -> str:
    return f"here `({', '.join(parameter.name for parameter in parameters)})`"


def render_table() -> str:
    """Name by name: the module of ours that has it, or what to do instead."""
    rows = {(module, name): instead for module, name, instead in OLDER}
    for name in read_names():
        if name.kind not in ("class", "function") or "." in name.owner:
            continue
        module = name.module.removeprefix("pyflink.")
        verdict = _judged(name)
        absent = verdict.status in (REFUSED, LATER) and not _is_there(module, name.owner or name.name)
        instead = verdict.note or "it is not in this version"
        rows.setdefault((module, name.owner or name.name), instead if absent else "")
    return "".join(f"{module}\t{name}\t{instead}\n" for (module, name), instead in sorted(rows.items()))


def _is_there(module: str, name: str) -> bool:
    try:
        return name in vars(importlib.import_module(f"firesteel.{module}"))
    except ModuleNotFoundError:
        return False


HEAD: Final = """# PyFlink's names

Each public name of PyFlink 2.3's DataStream API, and what Firesteel does with it. A program finds a name by writing
`firesteel` for `pyflink` in its imports.

This page is made from Firesteel's own classes (`python tools/pyflink_names.py`), and a test compares the two:

| | |
| --- | --- |
| same | it is there and takes what PyFlink's takes |
| differs | it is there; how it differs is said |
| no effect | it is accepted, so that programs run unchanged, and does nothing or is kept for a later version |
| refused | it says why, or is not there for the reason given |
| later | not in this version |

"""


def render() -> str:
    """The page."""
    verdicts = [(name, judge(name)) for name in read_names()]
    counted = Counter(verdict.status for name, verdict in verdicts)
    total = len(verdicts)
    order = (SAME, DIFFERS, NO_EFFECT, REFUSED, LATER)
    lines = [HEAD + f"Of {total} names: " + ", ".join(f"{counted[status]} {status}" for status in order) + ".", ""]
    modules = list(dict.fromkeys(name.module for name, _ in verdicts))
    for module in modules:
        lines += [f"## `{module}`", "", "| Name | Here | |", "| --- | --- | --- |"]
        mine = [(name, verdict) for name, verdict in verdicts if name.module == module]
        owners = list(dict.fromkeys(name.owner for name, _ in mine))
        for owner in owners:
            lines += _rows(owner, [(name, verdict) for name, verdict in mine if name.owner == owner])
        lines.append("")
    return "\n".join(lines)


def _rows(owner: str, names: list[tuple[Name, Verdict]]) -> list[str]:
    """A class in a row of its own; its members in one for each thing that can be said about them."""
    rows: list[str] = []
    groups: dict[Verdict, list[str]] = {}
    for name, verdict in names:
        if name.kind == "class":
            rows.append(_row(f"`{owner}`", verdict))
            if verdict.status == LATER or (verdict.status == REFUSED and all(v == verdict for _, v in names)):
                return rows
        elif name.kind == "constructor":
            groups.setdefault(verdict, []).append(f"`{owner}({name.parameters})`")
        else:
            shown = name.name if name.kind == "value" else f"{name.name}({name.parameters})"
            groups.setdefault(verdict, []).append(f"`{shown}`")
    return rows + [_row(" ".join(shown), verdict) for verdict, shown in groups.items()]


def _row(what: str, verdict: Verdict) -> str:
    return f"| {what} | {verdict.status} | {verdict.note.replace('|', chr(92) + '|')} |"


if __name__ == "__main__":
    print(render_table() if "--table" in sys.argv[1:] else render(), end="")

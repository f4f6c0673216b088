"""What the image leaves out of Spark and Arrow (``deploy/compose/slim.py``): its compose tests run in what is left."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from firesteel.spark.jvm import _NEEDED_FIRST, spark_home
from firesteel_yarn.gateway import _JARS as OF_YARN

SCRIPT = Path(__file__).resolve().parents[2] / "deploy" / "compose" / "slim.py"


@pytest.fixture(scope="module")
def slim() -> ModuleType:
    spec = importlib.util.spec_from_file_location("slim", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_name_is_of_a_jar_that_there_is_and_none_of_one_that_a_start_needs(slim: ModuleType) -> None:
    jars = [jar.name for jar in (spark_home() / "jars").glob("*.jar")]
    assert [begin for begin in slim.JARS if not any(jar.startswith(begin) for jar in jars)] == []
    remaining = [jar for jar in jars if not jar.startswith(slim.JARS)]
    for begin in (*_NEEDED_FIRST, *OF_YARN, "spark-core", "jersey-server", "zstd-jni", "lz4-java"):
        assert any(jar.startswith(begin) for jar in remaining) == any(jar.startswith(begin) for jar in jars), begin


def test_files_and_folders_go_and_others_stay(slim: ModuleType, tmp_path: Path) -> None:
    names = ("pyspark/jars/hive-exec-1.jar", "pyspark/jars/spark-core_2.13-1.jar", "pyarrow/include/arrow/api.h",
             "pyarrow/libarrow_flight.so.1", "pyarrow/libarrow.so.1", "numpy/lib/tests/x.py", "numpy/x.py")  # fmt: skip
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    assert slim.slim(tmp_path) == 4
    left = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    assert left == {names[1], names[4], names[6]}

"""What the image leaves out of Spark and Arrow (``deploy/compose/slim.py``): its compose tests run in what is left."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from firesteel.spark import unused_jars
from firesteel.spark.jvm import _NEEDED_FIRST, spark_home
from firesteel_yarn.gateway import _JARS as OF_YARN

SCRIPT = Path(__file__).resolve().parents[2] / "deploy" / "compose" / "slim.py"
UNUSED_JARS_FILE = Path(unused_jars.__file__)


@pytest.fixture(scope="module")
def slim() -> ModuleType:
    spec = importlib.util.spec_from_file_location("slim", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(UNUSED_JARS_FILE.parent)  # the image's build puts both files into one folder
        spec.loader.exec_module(module)
    return module


def test_each_name_is_of_a_jar_that_there_is_and_none_of_one_that_a_start_needs(slim: ModuleType) -> None:
    jars = [jar.name for jar in (spark_home() / "jars").glob("*.jar")]
    assert [begin for begin in slim.UNUSED_JARS if not any(jar.startswith(begin) for jar in jars)] == []
    remaining = [jar for jar in jars if not jar.startswith(slim.UNUSED_JARS)]
    for begin in (*_NEEDED_FIRST, *OF_YARN, "spark-core", "jersey-server", "zstd-jni", "lz4-java"):
        assert any(jar.startswith(begin) for jar in remaining) == any(jar.startswith(begin) for jar in jars), begin


def test_files_and_folders_go_and_others_stay(slim: ModuleType, tmp_path: Path) -> None:
    gone = ("pyspark/jars/hive-exec-1.jar", "pyarrow/include/arrow/api.h", "pyarrow/libarrow_flight.so.1",
            "pyarrow/libarrow_python.so", "pyarrow/libarrow_python.so.1.2.0", "numpy/lib/tests/x.py",
            "pip/_internal/__pycache__/x.pyc")  # fmt: skip
    remaining = ("pyspark/jars/spark-core_2.13-1.jar", "pyarrow/libarrow.so.1", "pyarrow/libarrow_python.so.1",
                 "numpy/x.py", "pip/_internal/x.py")  # fmt: skip
    for name in (*gone, *remaining):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    assert slim.slim(tmp_path) == len(gone)
    left = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    assert left == set(remaining)


def test_a_library_without_symbols_for_debuggers_is_smaller_and_loads(slim: ModuleType, tmp_path: Path) -> None:
    extension = importlib.util.find_spec("aiohttp._http_parser")
    assert extension is not None
    original = Path(str(extension.origin))
    copy = tmp_path / original.name
    shutil.copyfile(original, copy)
    removed = slim.strip(copy)
    assert copy.stat().st_size == original.stat().st_size - removed
    assert removed > 1_000_000
    assert slim.strip(copy) == 0
    load = f"import ctypes; assert ctypes.CDLL({str(copy)!r}).PyInit__http_parser"
    subprocess.run([sys.executable, "-c", load], check=True)


def test_what_is_no_library_stays_as_it_is(slim: ModuleType, tmp_path: Path) -> None:
    script = tmp_path / "libc.so"
    script.write_text("GROUP ( /lib/libc.so.6 )")
    assert slim.strip(script) == 0
    assert script.read_text() == "GROUP ( /lib/libc.so.6 )"

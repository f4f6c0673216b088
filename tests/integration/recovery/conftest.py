"""One cluster for the tests of a module, and what it may leave behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import leaks
from tests.integration.recovery.places import Embedded, Processes, embedded, processes
from tests.integration.recovery.stepped_storage import plugin


@pytest.fixture(scope="module", autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Behind the last test of a module no cluster is left, and nothing of one."""
    before = leaks.snapshot()
    yield
    left = leaks.leaks_since(before)
    if left:
        pytest.fail("the tests left behind:\n  " + "\n  ".join(left), pytrace=False)


@pytest.fixture(scope="module")
def plugin_path(nothing_left_behind: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """PYTHONPATH of processes that know the storage ``stepped``."""
    with plugin(tmp_path_factory.mktemp("plugin")) as path:
        yield path


@pytest.fixture(scope="module")
def here(plugin_path: str) -> Iterator[Embedded]:
    with embedded() as place:
        yield place


@pytest.fixture(scope="module")
def there(plugin_path: str) -> Iterator[Processes]:
    """A cluster of processes."""
    with processes(plugin_path) as place:
        yield place


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """For orders, checkpoints and results."""
    return tmp_path

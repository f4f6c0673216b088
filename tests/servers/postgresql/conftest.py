"""The embedded cluster, beside a PostgreSQL server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.recovery.places import Embedded, embedded
from tests.integration.recovery.stepped_storage import plugin
from tests.servers.postgresql.server import PostgresServer


@pytest.fixture(scope="module")
def here(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    """The embedded cluster; its slots are processes."""
    with plugin(tmp_path_factory.mktemp("plugin")), embedded() as place:
        yield place

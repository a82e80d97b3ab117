"""Real servers for the tests of this folder: Valkey, and Redis where it is installed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.store.sharing import Valkey, running_redis, running_valkey

SERVERS = {"valkey": running_valkey, "redis": running_redis}


@pytest.fixture(scope="session", params=SERVERS)
def _server(request: pytest.FixtureRequest) -> Iterator[Valkey]:
    with SERVERS[request.param]() as server:
        yield server


@pytest.fixture
def valkey(_server: Valkey) -> Valkey:
    """A server without keys."""
    _server.client.flushall()
    return _server

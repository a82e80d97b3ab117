"""Real servers for the tests of this folder: Valkey, and Redis where it is installed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.store.certificates import Files, certificates
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


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """Certificates of an authority, a server and a client."""
    return certificates(tmp_path_factory.mktemp("tls"))

"""Prompts that wait for a store that stalls keep nobody else from beginning."""

from __future__ import annotations

import json
import threading
import time
from http.client import HTTPConnection
from typing import Final

from prompt_sidecar.engine.runs.pace import Clocks
from prompt_sidecar.engine.runs.service import Runs
from prompt_sidecar.facts.limits import CoreLimits, Limits
from prompt_sidecar.store.options import StoreOptions
from prompt_sidecar.store.server import Server
from prompt_sidecar.store.shared import SharedArchive
from prompt_sidecar.trim.ids import Keys
from tests.client.provider import Says
from tests.doors.grpc.serving import counter, guarded
from tests.doors.http.serving import KEY, opened, options
from tests.doors.http.upstream import Upstream, scripted
from tests.store.sharing import LIFE, PATIENT, Valkey
from tests.store.test_stalled import stalled
from tests.waiting import until

PROMPT: Final = {"model": "m", "messages": [{"role": "user", "content": "Go."}]}
ELSEWHERE: Final = {"model": "m", "previous_response_id": "response-1", "input": "Go on."}
"""A request for which no store is needed, as its provider has the history."""


def ask(address: str, path: str, body: object) -> int:
    """Send a request; the status of its answer."""
    host, _, port = address.removeprefix("http://").partition(":")
    connection = HTTPConnection(host, int(port), timeout=PATIENT / 2)
    connection.request("POST", path, json.dumps(body))
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status


def test_a_prompt_that_waits_for_the_store_lets_others_begin(valkey: Valkey) -> None:
    """Only one request may begin at once, and a run's first prompt waits for the store: another one is answered."""
    settings = StoreOptions(url=valkey.url, timeout=PATIENT)
    archive = SharedArchive(settings, Server(settings), LIFE)
    limits, clocks = CoreLimits(Limits(default_window=4_500)), Clocks(time.time)
    core = Runs(counter(), Keys(KEY), guarded(None, None), clocks, limits, archive, PATIENT)
    statuses: list[int] = []
    with (
        Upstream(scripted(Says("Done."), Says("Done."))) as upstream,
        opened(options(upstream.url, beginning_requests=1), core) as door,
    ):
        waits = threading.Thread(target=lambda: statuses.append(ask(door.address, "/v1/chat/completions", PROMPT)))
        with stalled(valkey):
            waits.start()
            until(lambda: len(core.table) == 1)
            assert 200 == ask(door.address, "/v1/responses", ELSEWHERE)
            assert [] == statuses
        waits.join()
    archive.close()
    assert [200] == statuses
